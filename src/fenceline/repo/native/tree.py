"""Trees: sorted entries in ranges, so that a commit rewrites only what it touches and a diff skips what is equal.

A tree is a search tree whose cut points follow from the paths alone: a path whose hash says so closes its range. The
same entries therefore give the same ranges whatever order they arrived in, an edit moves no cut point but its own,
and two trees share every range they agree on.

All ranges that one edit makes go into one object, a pack, under the execution that stages them: one write to make
durable, however many ranges changed. A range is found by the pack's key and its place in it.
"""

from __future__ import annotations

import json
import threading
import zlib
from bisect import bisect_left, bisect_right
from collections import OrderedDict
from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Any

from fenceline.errors import ObjectDamaged
from fenceline.repo.model import Entry, Node, Side, canonical, digest
from fenceline.repo.native.objects import ObjectStore

RANGE_BITS = 6  # ranges hold 64 items on average
RANGE_MAX = 512
CACHED_RANGES = 1024

Item = list[Any] | Node
"""A row of a leaf range, as stored, or a pointer to a range below. Both start with their key."""
Edit = tuple[str, Item | None]


def _closes(key: str, height: int) -> bool:
    # The product mixes: neighbouring paths have CRCs that differ by the same few bits, and would cut in lumps.
    mixed = zlib.crc32(key.encode(), height) * 0x9E3779B1 & 0xFFFFFFFF
    return mixed >> (32 - RANGE_BITS) == 0


class Range:
    """The items of one range, and their keys for searching."""

    __slots__ = ("items", "keys")

    def __init__(self, items: list[Any]) -> None:
        self.items = items
        self.keys: list[str] = [item[0] for item in items]


def pack_of(address: str) -> str:
    """The key of the object that holds a range."""
    return address.partition("#")[0]


def _place(address: str) -> tuple[str, int, int]:
    key, _, place = address.partition("#")
    start, _, length = place.partition("+")
    return key, int(start), int(length)


class TreeReader:
    """Reads trees of one object store; ranges never change, so they are cached freely."""

    def __init__(self, objects: ObjectStore) -> None:
        self._objects = objects
        self._cache: OrderedDict[str, Range] = OrderedDict()
        self._lock = threading.Lock()

    def load(self, node: Node) -> Range:
        with self._lock:
            found = self._cache.get(node.address)
            if found is not None:
                self._cache.move_to_end(node.address)
                return found
        found = self.load_uncached(node)
        self.remember(node.address, found)
        return found

    def load_uncached(self, node: Node) -> Range:
        key, start, length = _place(node.address)
        return decode_range(node, self._objects.get(key, start, length))

    def remember(self, address: str, found: Range) -> None:
        with self._lock:
            self._cache[address] = found
            if len(self._cache) > CACHED_RANGES:
                self._cache.popitem(last=False)

    def get(self, root: Node | None, path: str) -> Entry | None:
        node = root
        while node is not None:
            found = self.load(node)
            at = bisect_left(found.keys, path)
            if at == len(found.keys):
                return None
            if not node.height:
                return Entry.from_row(found.items[at]) if found.keys[at] == path else None
            node = found.items[at]
        return None

    def scan(self, root: Node | None, start: str = "", stop: str | None = None) -> Iterator[Entry]:
        """Entries with `start` <= path, and path < `stop` where given, in order."""
        if root is None:
            return
        found = self.load(root)
        for item in found.items[bisect_left(found.keys, start) :]:
            if isinstance(item, Node):
                yield from self.scan(item, start, stop)
                if stop is not None and item.last >= stop:
                    return
            else:
                if stop is not None and item[0] >= stop:
                    return
                yield Entry.from_row(item)

    def below(self, root: Node | None, prefix: str) -> Iterator[Entry]:
        """Everything below a directory; its own dataset entry, if it is one, comes first."""
        return self.scan(root, f"{prefix}/", f"{prefix}0") if prefix else self.scan(root)  # '0' follows '/'

    def entries_of(self, leaf: Node) -> Iterator[Entry]:
        """The entries of one leaf range."""
        return map(Entry.from_row, self.load(leaf).items)

    def diff(self, left: Node | None, right: Node | None) -> Iterator[Side]:
        """What differs, in order, entry by entry; equal ranges are never opened."""
        a: list[Item] = [left] if left else []
        b: list[Item] = [right] if right else []
        # Two stacks, nearest item on top. Equal ranges cancel; else the taller or earlier one is opened.
        while a or b:
            x, y = (a[-1] if a else None), (b[-1] if b else None)
            if isinstance(x, Node) and isinstance(y, Node) and x.digest == y.digest:
                del a[-1], b[-1]
            elif isinstance(x, Node) and not (isinstance(y, Node) and (y.height, x.last) > (x.height, y.last)):
                a.pop()
                a += reversed(self.load(x).items)
            elif isinstance(y, Node):
                b.pop()
                b += reversed(self.load(y).items)
            elif y is None or (x is not None and x[0] < y[0]):
                row = a.pop()
                yield Side(row[0], Entry.from_row(row), None)  # type: ignore[arg-type]
            elif x is None or y[0] < x[0]:
                row = b.pop()
                yield Side(row[0], None, Entry.from_row(row))  # type: ignore[arg-type]
            else:
                del a[-1], b[-1]
                if x != y:
                    one, other = Entry.from_row(x), Entry.from_row(y)  # type: ignore[arg-type]
                    if not one.same_content(other):
                        yield Side(one.path, one, other)

    def nodes(self, root: Node | None, skip: Callable[[Node], bool] = lambda node: False) -> Iterator[Node]:
        """Every range of a tree, parents first, leaving out those (and all below them) that `skip` names."""
        stack = [root] if root and not skip(root) else []
        while stack:
            node = stack.pop()
            yield node
            if node.height:
                stack += [child for child in self.load(node).items if not skip(child)]


def _digest(height: int, data: bytes, items: Iterable[Item]) -> str:
    """What a range is, wherever its bytes lie: a leaf by its rows, an inner range by what the ranges below it are."""
    return digest(canonical([[node[0], node[1]] for node in items])) if height else digest(data)


def decode_range(node: Node, data: bytes) -> Range:
    """The items of a range, checked against the digest that its pointer carries."""
    try:
        rows = json.loads(data)
        items: list[Any] = [Node(*row) for row in rows] if node.height else rows
        if _digest(node.height, data, items) == node.digest:
            return Range(items)
    except (ValueError, TypeError, IndexError):
        pass  # bytes that cannot be read at all are damaged too
    raise ObjectDamaged(
        f"tree range {node.address} is not what was written",
        hint="fenceline fsck shows what that breaks",
        address=pack_of(node.address),
    )


class TreeWriter:
    """Builds new trees out of old ones."""

    def __init__(self, reader: TreeReader, new_pack: Callable[[], str], put: Callable[[str, bytes], None]) -> None:
        self._reader = reader
        self._new_pack = new_pack
        self._put = put
        self._key = ""
        self._pack: list[bytes] = []
        self._length = 0

    def edit(self, root: Node | None, changes: Mapping[str, Entry | None]) -> Node | None:
        """The tree with these paths set, or removed where the value is None. Its new ranges are one object."""
        if not changes:
            return root
        self._key, self._pack, self._length = self._new_pack(), [], 0
        edits: list[Edit] = [(path, entry and entry.to_row()) for path, entry in sorted(changes.items())]
        made = self._edit(root, edits)
        if self._pack:
            self._put(self._key, b"".join(self._pack))
        return made

    def _edit(self, root: Node | None, edits: list[Edit]) -> Node | None:
        if root is None:
            return self._grow([row for _, row in edits if row is not None], 0)
        for height in range(root.height + 1):
            edits = sorted(self._edit_level(root, height, edits).items(), key=lambda edit: edit[0])
        return self._grow([node for _, node in edits if node is not None], root.height + 1)

    def _grow(self, items: list[Item], height: int) -> Node | None:
        """Put ranges above these items until one is left; then drop roots that hold a single range."""
        while len(items) > 1 or (items and not isinstance(items[0], Node)):
            items = list(self._cut(items, height))
            height += 1
        root = items[0] if items else None
        while isinstance(root, Node) and root.height:
            only = self._reader.load(root).items
            if len(only) > 1:
                break
            root = only[0]
        assert root is None or isinstance(root, Node)
        return root

    def _cut(self, items: Iterable[Item], height: int) -> Iterator[Node]:
        gathered: list[Item] = []
        for item in items:
            gathered.append(item)
            if len(gathered) >= RANGE_MAX or _closes(item[0], height):
                yield self._write(gathered, height)
                gathered = []
        if gathered:
            yield self._write(gathered, height)

    def _edit_level(self, root: Node, height: int, edits: list[Edit]) -> dict[str, Item | None]:
        """Apply edits to the items of all ranges of one height; what changed among those ranges, by their last key."""
        replaced: dict[str, Item | None] = {}
        written: list[Node] = []
        at = 0
        while at < len(edits):
            node: Node | None = self._find(root, height, edits[at][0]) or self._last(root, height)
            gathered: list[Item] = []
            while node is not None:
                replaced[node.last] = None
                after = self._find(root, height, node.last, after=True)
                stop = bisect_right(edits, node.last, lo=at, key=lambda e: e[0]) if after is not None else len(edits)
                for item, may_close in _merged(self._reader.load(node).items, edits[at:stop]):
                    gathered.append(item)
                    if len(gathered) >= RANGE_MAX or (may_close and _closes(item[0], height)):
                        written.append(self._write(gathered, height))
                        gathered = []
                at = stop
                if not gathered:
                    break  # back on an old cut point: the ranges that follow stand as they are
                node = after
            if gathered:
                written.append(self._write(gathered, height))
        for new in written:
            replaced[new.last] = new
        return replaced

    def _find(self, root: Node, height: int, key: str, after: bool = False) -> Node | None:
        """The first range of this height that reaches `key`, or lies wholly behind it."""
        node = root
        if (node.last <= key) if after else (node.last < key):
            return None
        while node.height > height:
            found = self._reader.load(node)
            node = found.items[(bisect_right if after else bisect_left)(found.keys, key)]
        return node

    def _last(self, root: Node, height: int) -> Node:
        node = root
        while node.height > height:
            node = self._reader.load(node).items[-1]
        return node

    def _write(self, items: list[Item], height: int) -> Node:
        data = json.dumps(items, separators=(",", ":"), ensure_ascii=False).encode()
        address = f"{self._key}#{self._length}+{len(data)}"
        self._pack.append(data)
        self._length += len(data)
        self._reader.remember(address, Range(items))
        if height:
            entries, size = sum(node[4] for node in items), sum(node[5] for node in items)
        else:
            entries, size = len(items), sum(row[2] for row in items if row[1] == "file")
        return Node(items[-1][0], _digest(height, data, items), address, height, entries, size)


def _merged(items: list[Item], edits: list[Edit]) -> Iterator[tuple[Item, bool]]:
    """Items in order with the edits applied: same key replaces, None removes, a new key is put in its place.

    With each item: whether it may close a range. Old items inside a range did not, so they need not be hashed again.
    """
    at = 0
    last = items[-1][0] if items else ""
    for item in items:
        key = item[0]
        while at < len(edits) and edits[at][0] < key:
            if (new := edits[at][1]) is not None:
                yield new, True
            at += 1
        if at < len(edits) and edits[at][0] == key:
            if (new := edits[at][1]) is not None:
                yield new, True
            at += 1
        else:
            yield item, key == last
    for _, new in edits[at:]:
        if new is not None:
            yield new, True

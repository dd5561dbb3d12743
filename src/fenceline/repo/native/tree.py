"""Trees: sorted entries in ranges, so that a commit rewrites only what it touches and a diff skips what is equal.

A tree is a search tree whose cut points follow from the paths alone: a path whose hash says so closes its range. The
same entries therefore give the same ranges whatever order they arrived in, an edit moves no cut point but its own,
and two trees share every range they agree on. Ranges are written once, under the execution that stages them.
"""

from __future__ import annotations

import hashlib
import json
import threading
import zlib
from bisect import bisect_left, bisect_right
from collections import OrderedDict
from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Any, TypeVar

from fenceline.errors import ObjectDamaged
from fenceline.repo.model import Entry, Node, Side, digest
from fenceline.repo.native.objects import ObjectStore

RANGE_BITS = 7  # ranges hold 128 items on average
RANGE_MAX = 1024
CACHED_RANGES = 512

Item = Entry | Node
I = TypeVar("I", Entry, Node)  # noqa: E741
Put = Callable[[str, bytes], None]


def _key(item: Item) -> str:
    return item[0]


def _closes(key: str, height: int, length: int) -> bool:
    return zlib.crc32(key.encode(), height) & ((1 << RANGE_BITS) - 1) == 0 or length >= RANGE_MAX


class _Range:
    """The items of one range, and their keys for searching."""

    __slots__ = ("items", "keys")

    def __init__(self, items: list[Any]) -> None:
        self.items = items
        self.keys = [item[0] for item in items]


class TreeReader:
    """Reads trees of one object store; ranges never change, so they are cached freely."""

    def __init__(self, objects: ObjectStore) -> None:
        self._objects = objects
        self._cache: OrderedDict[str, _Range] = OrderedDict()
        self._lock = threading.Lock()

    def load(self, node: Node) -> _Range:
        with self._lock:
            found = self._cache.get(node.address)
            if found is not None:
                self._cache.move_to_end(node.address)
                return found
        found = _Range(decode_range(node, self._objects.get(node.address)))
        self.remember(node.address, found)
        return found

    def remember(self, address: str, found: _Range) -> None:
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
            item = found.items[at]
            if isinstance(item, Entry):
                return item if item.path == path else None
            node = item
        return None

    def scan(self, root: Node | None, start: str = "", stop: str | None = None) -> Iterator[Entry]:
        """Entries with `start` <= path, and path < `stop` where given, in order."""
        if root is None:
            return
        found = self.load(root)
        for item in found.items[bisect_left(found.keys, start) :]:
            if isinstance(item, Entry):
                if stop is not None and item.path >= stop:
                    return
                yield item
            else:
                yield from self.scan(item, start, stop)
                if stop is not None and item.last >= stop:
                    return

    def below(self, root: Node | None, prefix: str) -> Iterator[Entry]:
        """Everything below a directory; its own dataset entry, if it is one, comes first."""
        return self.scan(root, f"{prefix}/", f"{prefix}0") if prefix else self.scan(root)  # '0' follows '/'

    def diff(self, left: Node | None, right: Node | None) -> Iterator[Side]:
        """What differs, in order, entry by entry; equal ranges are never opened."""
        a: list[Item] = [left] if left else []
        b: list[Item] = [right] if right else []
        # Two stacks, nearest item on top. Equal ranges cancel; else the taller or earlier one is opened.
        while a or b:
            x, y = (a[-1] if a else None), (b[-1] if b else None)
            if isinstance(x, Node) and isinstance(y, Node) and x.digest == y.digest:
                a.pop(), b.pop()
            elif isinstance(x, Node) and not (isinstance(y, Node) and (y.height, x.last) > (x.height, y.last)):
                a.pop()
                a += reversed(self.load(x).items)
            elif isinstance(y, Node):
                b.pop()
                b += reversed(self.load(y).items)
            else:
                assert not isinstance(x, Node)
                yield from _step(a, b, x, y)

    def nodes(self, root: Node | None, skip: Callable[[Node], bool] = lambda node: False) -> Iterator[Node]:
        """Every range of a tree, parents first, leaving out those (and all below them) that `skip` names."""
        stack = [root] if root and not skip(root) else []
        while stack:
            node = stack.pop()
            yield node
            if node.height:
                stack += [child for child in self.load(node).items if not skip(child)]


def _step(a: list[Item], b: list[Item], x: Entry | None, y: Entry | None) -> Iterator[Side]:
    """Take the nearest entry of two stacks that both have an entry on top, or nothing."""
    if y is None or (x is not None and x.path < y.path):
        assert x is not None
        a.pop()
        yield Side(x.path, x, None)
    elif x is None or y.path < x.path:
        b.pop()
        yield Side(y.path, None, y)
    else:
        a.pop(), b.pop()
        if not x.same_content(y):
            yield Side(x.path, x, y)


def decode_range(node: Node, data: bytes) -> list[Item]:
    if digest(data) != node.address.rpartition("/")[2]:
        raise ObjectDamaged(
            f"tree range {node.address} does not match its name",
            hint="fenceline fsck shows what that breaks",
            address=node.address,
        )
    rows = json.loads(data)
    return [Node(*row) for row in rows] if node.height else [Entry.from_row(row) for row in rows]


class TreeWriter:
    """Builds new trees out of old ones; new ranges go under `prefix`, which carries the execution's id."""

    def __init__(self, reader: TreeReader, prefix: str, put: Put) -> None:
        self._reader = reader
        self._prefix = prefix
        self._put = put

    def edit(self, root: Node | None, changes: Mapping[str, Entry | None]) -> Node | None:
        """The tree with these paths set, or removed where the value is None."""
        edits: list[tuple[str, Item | None]] = sorted(changes.items())
        height = 0
        while True:
            if root is None or height > root.height:
                return self._grow([item for _, item in edits if item is not None], height)
            replaced = self._edit_level(root, height, edits)
            if height == root.height:
                return self._grow([node for _, node in sorted(replaced.items()) if node is not None], height + 1)
            edits = sorted(replaced.items())
            height += 1

    def _grow(self, items: list[Any], height: int) -> Node | None:
        """Put ranges above these items until one is left; then drop roots that hold a single range."""
        while len(items) > 1 or (items and isinstance(items[0], Entry)):
            items = list(self._cut(items, height))
            height += 1
        root: Node | None = items[0] if items else None
        while root is not None and root.height:
            only = self._reader.load(root).items
            if len(only) > 1:
                break
            root = only[0]
        return root

    def _cut(self, items: Iterable[Item], height: int) -> Iterator[Node]:
        gathered: list[Item] = []
        for item in items:
            gathered.append(item)
            if _closes(_key(item), height, len(gathered)):
                yield self._write(gathered, height)
                gathered = []
        if gathered:
            yield self._write(gathered, height)

    def _edit_level(self, root: Node, height: int, edits: list[tuple[str, Item | None]]) -> dict[str, Item | None]:
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
                for item in _merged(self._reader.load(node).items, edits[at:stop]):
                    gathered.append(item)
                    if _closes(_key(item), height, len(gathered)):
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

    def _write(self, items: list[Any], height: int) -> Node:
        rows = [list(item) for item in items] if height else [item.to_row() for item in items]
        data = json.dumps(rows, separators=(",", ":"), ensure_ascii=False).encode()
        address = f"{self._prefix}{digest(data)}"
        self._put(address, data)
        self._reader.remember(address, _Range(list(items)))
        logical = hashlib.sha256()
        for item in items:
            logical.update(_logical(item))
        return Node(
            last=_key(items[-1]),
            digest=logical.hexdigest(),
            address=address,
            height=height,
            entries=sum(item.entries for item in items) if height else len(items),
            size=sum(item.size for item in items if height or not item.dataset),
        )


def _logical(item: Item) -> bytes:
    if isinstance(item, Node):
        return item.digest.encode()
    dataset = item.dataset and sorted(item.dataset.to_json().items())
    return repr((item.path, str(item.kind), item.size, item.identity, item.mode, dataset)).encode()


def _merged(items: list[Any], edits: list[tuple[str, Item | None]]) -> Iterator[Item]:
    """Items in order with the edits applied: same key replaces, None removes, a new key is put in its place."""
    at = 0
    for item in items:
        key = item[0]
        while at < len(edits) and edits[at][0] < key:
            if (new := edits[at][1]) is not None:
                yield new
            at += 1
        if at < len(edits) and edits[at][0] == key:
            if (new := edits[at][1]) is not None:
                yield new
            at += 1
        else:
            yield item
    for _, new in edits[at:]:
        if new is not None:
            yield new

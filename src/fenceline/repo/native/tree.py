"""Trees: sorted entries in ranges, so that a commit rewrites only what it touches and a diff skips what is equal.

A tree is a search tree whose cut points follow from the paths alone: a path whose hash says so closes its range. The
same entries therefore give the same ranges whatever order they arrived in, an edit moves no cut point but its own,
and two trees share every range they agree on.

All ranges that one edit makes go into one object, a pack, under the execution that stages them: one write to make
durable, however many ranges changed. A range is found by the pack's key and its place in it. It is one line of JSON for
each item, so that a diff compares lines and reads only those that differ.
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
from fenceline.repo.model import Entry, Node, Side, digest
from fenceline.repo.native.objects import ObjectStore

RANGE_BITS = 6  # ranges hold 64 items on average
RANGE_MAX = 512
CACHED_RANGES = 1024

Item = list[Any] | Node
"""A row of a leaf range, as stored, or a pointer to a range below. Both start with their key."""
Line = tuple[Item, bytes]
"""An item and the line of JSON that it is stored as."""
Edit = tuple[str, Line | None]


def _closes(key: str, height: int) -> bool:
    # The product mixes: neighbouring paths have CRCs that differ by the same few bits, and would cut in lumps.
    mixed = zlib.crc32(key.encode(), height) * 0x9E3779B1 & 0xFFFFFFFF
    return mixed >> (32 - RANGE_BITS) == 0


def _decode(lines: Iterable[bytes], height: int) -> list[Any]:
    rows = json.loads(b"[" + b",".join(lines) + b"]")
    return [Node(*row) for row in rows] if height else rows


def _encode(item: Item) -> bytes:
    return json.dumps(item, separators=(",", ":"), ensure_ascii=False).encode()


class Range:
    """One range; cut into lines, read into items, and their keys taken for searching, when first asked for."""

    __slots__ = ("_items", "_keys", "_lines", "data", "height")

    def __init__(self, height: int, data: bytes) -> None:
        self.height = height
        self.data = data
        self._lines: list[bytes] | None = None
        self._items: list[Any] | None = None
        self._keys: list[str] | None = None

    @property
    def lines(self) -> list[bytes]:
        if self._lines is None:
            self._lines = self.data.split(b"\n")
        return self._lines

    @property
    def items(self) -> list[Any]:
        if self._items is None:
            self._items = _decode(self.lines, self.height)
        return self._items

    @property
    def keys(self) -> list[str]:
        if self._keys is None:
            self._keys = [item[0] for item in self.items]
        return self._keys


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
        a: list[Any] = [left] if left else []
        b: list[Any] = [right] if right else []
        # Two stacks, nearest item on top, pointers to ranges opened from the taller side until rows meet rows.
        while a or b:
            x: Any = a[-1] if a else None
            y: Any = b[-1] if b else None
            x_height, y_height = (item.height if isinstance(item, Node) else -1 for item in (x, y))
            if x_height >= 0 and x_height == y_height:
                del a[-1], b[-1]
                if x.digest != y.digest:
                    self._open_both(x, y, a, b)
            elif x_height > y_height:
                a.pop()
                a += reversed(self.load(x).items)
            elif y_height > x_height:
                b.pop()
                b += reversed(self.load(y).items)
            elif y is None or (x is not None and x[0] < y[0]):
                yield Side(x[0], Entry.from_row(a.pop()), None)
            elif x is None or y[0] < x[0]:
                yield Side(y[0], None, Entry.from_row(b.pop()))
            else:
                del a[-1], b[-1]
                one, other = Entry.from_row(x), Entry.from_row(y)
                if not one.same_content(other):
                    yield Side(one.path, one, other)

    def _open_both(self, x: Node, y: Node, a: list[Any], b: list[Any]) -> None:
        """Open two ranges of one height, without the lines they share: what those stand for is the same."""
        one, other = self.load(x), self.load(y)
        for stack, lines in zip((a, b), _without_shared(one.data, other.data), strict=True):
            stack += reversed(_decode(lines, one.height))

    def nodes(self, root: Node | None, skip: Callable[[Node], bool] = lambda node: False) -> Iterator[Node]:
        """Every range of a tree, parents first, leaving out those (and all below them) that `skip` names."""
        stack = [root] if root and not skip(root) else []
        while stack:
            node = stack.pop()
            yield node
            if node.height:
                stack += [child for child in self.load(node).items if not skip(child)]


def _without_shared(one: bytes, other: bytes) -> tuple[list[bytes], list[bytes]]:
    """The lines of each that the other does not have. Usually a few in the middle: the equal ends are never cut up."""
    shortest = min(len(one), len(other))
    front = _longest(shortest, lambda n: one[:n] == other[:n])
    front = one.rfind(b"\n", 0, front) + 1  # back to the start of the line that differs
    back = _longest(shortest - front, lambda n: one[len(one) - n :] == other[len(other) - n :])
    cut = one.find(b"\n", len(one) - back) if back else -1  # on to the end of the last line that differs
    back = len(one) - cut if cut >= 0 else 0
    middle = one[front : len(one) - back].split(b"\n"), other[front : len(other) - back].split(b"\n")
    mine, theirs = set(middle[0]), set(middle[1])
    return (
        [line for line in middle[0] if line and line not in theirs],
        [line for line in middle[1] if line and line not in mine],
    )


def _longest(most: int, agrees: Callable[[int], bool]) -> int:
    """The greatest n up to `most` for which two byte strings agree, by halving."""
    low, high = 0, most
    while low < high:
        middle = (low + high + 1) // 2
        if agrees(middle):
            low = middle
        else:
            high = middle - 1
    return low


def decode_range(node: Node, data: bytes) -> Range:
    """The lines of a range, checked against the digest that its pointer carries."""
    if digest(data) != node.digest:
        raise ObjectDamaged(
            f"tree range {node.address} is not what was written",
            hint="fenceline fsck shows what that breaks",
            address=pack_of(node.address),
        )
    return Range(node.height, data)


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
        made = self._edit(root, [(path, entry and _line(entry.to_row())) for path, entry in sorted(changes.items())])
        if self._pack:
            self._put(self._key, b"".join(self._pack))
        return made

    def _edit(self, root: Node | None, edits: list[Edit]) -> Node | None:
        if root is None:
            return self._grow([line for _, line in edits if line is not None], 0)
        for height in range(root.height + 1):
            edits = sorted(self._edit_level(root, height, edits).items(), key=lambda edit: edit[0])
        return self._grow([line for _, line in edits if line is not None], root.height + 1)

    def _grow(self, lines: list[Line], height: int) -> Node | None:
        """Put ranges above these items until one is left; then drop roots that hold a single range."""
        while len(lines) > 1 or (lines and not isinstance(lines[0][0], Node)):
            lines = list(self._cut(lines, height))
            height += 1
        root = lines[0][0] if lines else None
        while isinstance(root, Node) and root.height:
            only = self._reader.load(root).items
            if len(only) > 1:
                break
            root = only[0]
        assert root is None or isinstance(root, Node)
        return root

    def _cut(self, lines: Iterable[Line], height: int) -> Iterator[Line]:
        gathered: list[Line] = []
        for line in lines:
            gathered.append(line)
            if len(gathered) >= RANGE_MAX or _closes(line[0][0], height):
                yield self._write(gathered, height)
                gathered = []
        if gathered:
            yield self._write(gathered, height)

    def _edit_level(self, root: Node, height: int, edits: list[Edit]) -> dict[str, Line | None]:
        """Apply edits to the items of all ranges of one height; what changed among those ranges, by their last key."""
        replaced: dict[str, Line | None] = {}
        written: list[Line] = []
        at = 0
        while at < len(edits):
            node: Node | None = self._find(root, height, edits[at][0]) or self._last(root, height)
            gathered: list[Line] = []
            while node is not None:
                replaced[node.last] = None
                after = self._find(root, height, node.last, after=True)
                stop = bisect_right(edits, node.last, lo=at, key=lambda e: e[0]) if after is not None else len(edits)
                for line, may_close in _merged(self._reader.load(node), edits[at:stop]):
                    gathered.append(line)
                    if len(gathered) >= RANGE_MAX or (may_close and _closes(line[0][0], height)):
                        written.append(self._write(gathered, height))
                        gathered = []
                at = stop
                if not gathered:
                    break  # back on an old cut point: the ranges that follow stand as they are
                node = after
            if gathered:
                written.append(self._write(gathered, height))
        replaced.update({new[0][0]: new for new in written})
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

    def _write(self, gathered: list[Line], height: int) -> Line:
        lines = [line for _, line in gathered]
        data = b"\n".join(lines)
        address = f"{self._key}#{self._length}+{len(data)}"
        self._pack += (data, b"\n")
        self._length += len(data) + 1
        self._reader.remember(address, Range(height, data))
        items = [item for item, _ in gathered]
        if height:
            entries, size = sum(node[4] for node in items), sum(node[5] for node in items)
        else:
            entries, size = len(items), sum(row[2] for row in items if row[1] == "file")
        return _line(Node(items[-1][0], digest(data), address, height, entries, size))


def _line(item: Item) -> Line:
    return item, _encode(item)


def _merged(old: Range, edits: list[Edit]) -> Iterator[tuple[Line, bool]]:
    """A range's lines in order with the edits applied: same key replaces, None removes, a new key goes in its place.

    With each: whether it may close a range. Old items inside a range did not, so they need not be hashed again.
    """
    at = 0
    last = old.keys[-1] if old.keys else ""
    for key, item, line in zip(old.keys, old.items, old.lines, strict=True):
        while at < len(edits) and edits[at][0] < key:
            if (new := edits[at][1]) is not None:
                yield new, True
            at += 1
        if at < len(edits) and edits[at][0] == key:
            if (new := edits[at][1]) is not None:
                yield new, True
            at += 1
        else:
            yield (item, line), key == last
    for _, new in edits[at:]:
        if new is not None:
            yield new, True

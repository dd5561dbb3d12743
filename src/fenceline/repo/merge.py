"""Three-way merge of files and datasets: a pure walk over two diffs against one base."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from typing import Literal, NamedTuple

from fenceline.repo.model import Dataset, Entry, Kind, Side, Write
from fenceline.repo.names import overlap
from fenceline.repo.pathset import PathSet

Strategy = Literal["ours", "theirs"]
PART_PREFIX = "_fl="


@dataclass(frozen=True, slots=True)
class Conflict:
    """A path both sides changed, and why that cannot be decided without a person."""

    path: str
    reason: str

    def __str__(self) -> str:
        return f"{self.path}: {self.reason}"


class Unit(NamedTuple):
    """What changes as one: a file, or a dataset with all its part files. `sides` are the raw entries that changed."""

    path: str
    """Without a trailing slash."""
    is_dataset: bool
    left: Entry | None
    right: Entry | None
    sides: tuple[Side, ...]

    @property
    def status(self) -> str:
        return Side(self.path, self.left, self.right).status

    @property
    def edits(self) -> dict[str, Entry | None]:
        return {side.path: side.right for side in self.sides}


def units(sides: Iterable[Side]) -> Iterator[Unit]:
    """Group a raw diff: a dataset's entry sorts before its part files, and changes whenever they do."""
    root, parts, loose = "", list[Side](), list[Side]()

    def close() -> Iterator[Unit]:
        if parts:
            yield Unit(root.removesuffix("/"), True, parts[0].left, parts[0].right, tuple(parts))
        yield from (Unit(side.path, False, side.left, side.right, (side,)) for side in loose)

    for side in sides:
        if not (root and side.path.startswith(root)):
            yield from close()
            root, parts, loose = (side.path if side.path.endswith("/") else ""), [], []
        belongs = side.path == root or (root and side.path.startswith(root + PART_PREFIX))
        (parts if belongs else loose).append(side)
    yield from close()


def merge(
    ours: Iterable[Side], theirs: Iterable[Side], job: str, strategy: Strategy | None = None
) -> tuple[dict[str, Entry | None], list[Conflict]]:
    """What to apply on top of *our* tree to bring their changes in, and every conflict there is.

    `ours` and `theirs` are diffs from the common base. A strategy decides conflicts, and none is returned.
    """
    mine = {unit.path: unit for unit in units(ours)}
    standing = PathSet(path for path, unit in mine.items() if unit.right is not None)
    undone: dict[str, Entry | None] = {}
    edits: dict[str, Entry | None] = {}
    conflicts: list[Conflict] = []
    for unit in units(theirs):
        others = _meeting(unit, mine, standing)
        merged, reason = _meet(unit, others, job)
        if reason is None:
            edits.update(merged)
        elif strategy == "theirs":
            for other in others:
                undone.update({side.path: side.left for side in other.sides})
            edits.update(unit.edits)
        elif strategy is None:
            conflicts.append(Conflict(unit.path, reason))
    return {**undone, **edits}, conflicts  # ours undone first: theirs may remove what that brings back


def _meeting(unit: Unit, mine: Mapping[str, Unit], standing: PathSet) -> list[Unit]:
    """Our changes that theirs meets: of the same path, or (where both leave something there) above or below it."""
    same = mine.get(unit.path)
    if unit.right is None or not standing.overlaps(unit.path):
        return [same] if same else []
    around = [o for o in mine.values() if o is not same and o.right is not None and overlap(o.path, unit.path)]
    return [*([same] if same else []), *around]


def _meet(unit: Unit, others: list[Unit], job: str) -> tuple[dict[str, Entry | None], str | None]:
    around = [other for other in others if other.path != unit.path]
    merged, reason = unit.edits, None
    if len(around) < len(others):
        merged, reason = _both_changed(others[0], unit, job)
    if reason is None and around:
        reason = f"a file on one side, a directory on the other ({around[0].path})"
    return merged, reason


def _both_changed(ours: Unit, theirs: Unit, job: str) -> tuple[dict[str, Entry | None], str | None]:
    if ours.edits == theirs.edits or _same(ours.right, theirs.right):
        return {}, None
    if ours.is_dataset != theirs.is_dataset:
        return {}, "a file on one side, a dataset on the other"
    if ours.right is None or theirs.right is None:
        return {}, "removed on one side, changed on the other"
    if not ours.is_dataset:
        return (
            {},
            "added differently on both sides" if ours.left is None else "changed differently on both sides",
        )
    return merge_datasets(ours, theirs, job)


def _same(one: Entry | None, other: Entry | None) -> bool:
    return one is other if one is None or other is None else one.same_content(other)


def merge_datasets(ours: Unit, theirs: Unit, job: str) -> tuple[dict[str, Entry | None], str | None]:
    """Their edits on top of ours, where both only appended, or overwrote different partitions."""
    base, left, right = (entry.dataset if entry else None for entry in (ours.left, ours.right, theirs.right))
    if base is None or left is None or right is None:
        return {}, "the dataset was created on both sides"
    for side in (left, right):
        if side.generation != base.generation or side.id != base.id:
            return {}, "the dataset was overwritten on one side and changed on the other"
    if (left.format, left.partition_by, left.schema) != (right.format, right.partition_by, right.schema):
        return {}, "the dataset's format, partitions or schema differ between the sides"
    clashing = _clashing(_by_partition(ours), _by_partition(theirs))
    if clashing:
        return (
            {},
            f"both sides changed partition {', '.join(clashing[:5])}{' …' if len(clashing) > 5 else ''}",
        )
    edits = theirs.edits
    assert ours.left is not None
    assert ours.right is not None
    assert theirs.right is not None
    edits[theirs.right.path] = ours.right._replace(
        size=ours.right.size + theirs.right.size - ours.left.size,
        dataset=replace(
            left,
            job=job,
            operation="merge",
            files=left.files + right.files - base.files,
            rows=_total(base, left, right),
        ),
    )
    return edits, None


def _total(base: Dataset, left: Dataset, right: Dataset) -> int | None:
    return None if base.rows is None or left.rows is None or right.rows is None else left.rows + right.rows - base.rows


def partition_of(path: str) -> str:
    """`day=1` for `…/_fl=<job>/day=1/part-0.parquet`; '' for unpartitioned part files."""
    return path.partition("/_fl=")[2].partition("/")[2].rpartition("/")[0]


def _by_partition(unit: Unit) -> Mapping[str, bool]:
    """The partitions a side changed; True where it only appended to it."""
    found: dict[str, bool] = {}
    for side in unit.sides:
        if (side.right or side.left or _NOTHING).kind is Kind.DATASET:
            continue
        appended = side.left is None and side.right is not None and side.right.write is Write.APPEND
        partition = partition_of(side.path)
        found[partition] = found.get(partition, True) and appended
    return found


_NOTHING = Entry("", Kind.DATASET, 0, "", "none")


def _clashing(ours: Mapping[str, bool], theirs: Mapping[str, bool]) -> list[str]:
    return sorted(part or "(whole)" for part in ours.keys() & theirs.keys() if not (ours[part] and theirs[part]))

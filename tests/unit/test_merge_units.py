"""Grouping raw differences into files and datasets, and the merge of two such groups."""

from __future__ import annotations

from dataclasses import replace

from hypothesis import given, settings
from hypothesis import strategies as st

from fenceline.repo.merge import Conflict, merge, partition_of, units
from fenceline.repo.model import Dataset, Entry, Kind, Side, Write

BASE = Dataset(id="ds", format="parquet", generation="g0", job="g0", operation="create", files=1, rows=5)


def file(path: str, content: str = "x", write: Write | None = None) -> Entry:
    return Entry(path, Kind.FILE, len(content), f"files/e/{content}", f"sha256:{content}", write=write)


def maybe(path: str, content: str | None) -> Entry | None:
    return None if content is None else file(path, content)


def root(dataset: Dataset, path: str = "d/", size: int = 0) -> Entry:
    return Entry(path, Kind.DATASET, size, "", "none", dataset=dataset)


def added(entry: Entry) -> Side:
    return Side(entry.path, None, entry)


def removed(entry: Entry) -> Side:
    return Side(entry.path, entry, None)


def changed(before: Entry, after: Entry) -> Side:
    return Side(before.path, before, after)


def test_files_are_units_of_their_own() -> None:
    sides = [added(file("a")), changed(file("b", "1"), file("b", "2")), removed(file("c"))]
    assert [(u.path, u.is_dataset, u.status, u.sides) for u in units(sides)] == [
        ("a", False, "added", (sides[0],)),
        ("b", False, "changed", (sides[1],)),
        ("c", False, "removed", (sides[2],)),
    ]
    assert list(units([])) == []


def test_a_dataset_is_one_unit_with_its_part_files() -> None:
    sides = [
        added(file("c")),
        changed(root(BASE), root(replace(BASE, job="j1"))),
        added(file("d/_fl=j1/k=1/p")),
        removed(file("d/_fl=j0/p")),
        added(file("d-2")),
        added(file("e")),
    ]
    found = list(units(sides))
    assert [(u.path, u.is_dataset, len(u.sides)) for u in found] == [
        ("c", False, 1),
        ("d", True, 3),
        ("d-2", False, 1),
        ("e", False, 1),
    ]
    assert found[1].edits == {s.path: s.right for s in sides[1:4]}


def test_neighbouring_datasets_stay_apart() -> None:
    sides = [
        added(root(BASE, "a/")),
        added(file("a/_fl=j/p")),
        added(root(replace(BASE, id="other"), "ac/")),
        added(file("ac/_fl=j/p")),
        added(file("ac/_fl=j/q")),
    ]
    assert [(u.path, u.is_dataset, len(u.sides)) for u in units(sides)] == [("a", True, 2), ("ac", True, 3)]


def test_a_dataset_that_became_a_directory_of_files_is_several_units() -> None:
    sides = [removed(root(BASE)), removed(file("d/_fl=j0/p")), added(file("d/plain"))]
    assert [(u.path, u.is_dataset, u.status) for u in units(sides)] == [
        ("d", True, "removed"),
        ("d/plain", False, "added"),
    ]


def test_partition_of_a_part_file() -> None:
    assert partition_of("d/_fl=e-1/day=1/hour=2/part-0.parquet") == "day=1/hour=2"
    assert partition_of("a/b/_fl=e-1/part-0.parquet") == ""


@given(st.dictionaries(st.sampled_from("abcde"), st.tuples(*[st.sampled_from(["0", "1", "2", None])] * 3), max_size=5))
def test_merging_files_is_the_three_way_rule(versions: dict[str, tuple[str | None, str | None, str | None]]) -> None:
    """Per path: one side unchanged → the other's; both the same → that; else a conflict."""

    def diff(side: int) -> list[Side]:
        return [Side(p, maybe(p, v[0]), maybe(p, v[side])) for p, v in sorted(versions.items()) if v[0] != v[side]]

    edits, conflicts = merge(diff(1), diff(2), "job")
    clashing = {p for p, (base, ours, theirs) in versions.items() if base not in (ours, theirs) and ours != theirs}
    assert {c.path for c in conflicts} == clashing
    for path, (base, ours, theirs) in versions.items():
        if path not in clashing:
            result = edits[path] if path in edits else maybe(path, ours)
            expected = theirs if ours == base else ours
            assert result == maybe(path, expected)
    assert merge(diff(1), diff(2), "job", "ours")[1] == []
    taken, none = merge(diff(1), diff(2), "job", "theirs")
    assert none == []
    assert all(taken[p] == maybe(p, versions[p][2]) for p in clashing)


Files = dict[str, str]
PLACES = ["a", "a/b", "a/b/c", "a/d", "b", "b/c"]


def well_formed(files: Files) -> bool:
    """No path is at once a file and a directory."""
    return not any(other.startswith(path + "/") for path in files for other in files)


def difference(left: Files, right: Files) -> list[Side]:
    return [
        Side(p, maybe(p, left.get(p)), maybe(p, right.get(p)))
        for p in sorted(left.keys() | right.keys())
        if left.get(p) != right.get(p)
    ]


def after(files: Files, edits: dict[str, Entry | None]) -> Files:
    changed = {p: None if e is None else e.checksum.removeprefix("sha256:") for p, e in edits.items()}
    return {p: c for p, c in {**files, **changed}.items() if c is not None}


versions = st.dictionaries(st.sampled_from(PLACES), st.sampled_from("012"), max_size=4).filter(well_formed)


@settings(max_examples=600)
@given(versions, versions, versions)
def test_a_merge_of_well_formed_trees_is_well_formed(base: Files, ours: Files, theirs: Files) -> None:
    """Whatever the two sides did, and whichever strategy decides: files and directories never share a name."""
    for strategy in (None, "ours", "theirs"):
        edits, conflicts = merge(difference(base, ours), difference(base, theirs), "job", strategy)
        if conflicts:
            assert strategy is None
            continue
        merged = after(ours, edits)
        assert well_formed(merged), (strategy, sorted(merged))
        for path in {*base, *ours, *theirs}:
            if ours.get(path) == theirs.get(path):
                assert strategy or merged.get(path) == ours.get(path), path
            if strategy is None:
                assert merged.get(path) in (ours.get(path), theirs.get(path))


@settings(max_examples=250)
@given(versions, versions, versions)
def test_a_merge_is_undecided_whichever_side_asks(base: Files, ours: Files, theirs: Files) -> None:
    one = merge(difference(base, ours), difference(base, theirs), "job")
    other = merge(difference(base, theirs), difference(base, ours), "job")
    assert bool(one[1]) == bool(other[1])
    if not one[1]:
        assert after(ours, one[0]) == after(theirs, other[0])


def test_merging_two_appends_adds_their_counts() -> None:
    ours = [
        changed(root(BASE, size=10), root(replace(BASE, job="o", files=2, rows=7), size=13)),
        added(file("d/_fl=o/p", "abc", Write.APPEND)),
    ]
    theirs = [
        changed(root(BASE, size=10), root(replace(BASE, job="t", files=3, rows=None), size=12)),
        added(file("d/_fl=t/p", "a", Write.APPEND)),
        added(file("d/_fl=t/q", "b", Write.APPEND)),
    ]
    edits, conflicts = merge(ours, theirs, "job")
    assert conflicts == []
    assert set(edits) == {"d/", "d/_fl=t/p", "d/_fl=t/q"}
    merged = edits["d/"]
    assert merged is not None
    assert merged.dataset == replace(BASE, job="job", operation="merge", files=4, rows=None)
    assert merged.size == 15


def test_a_schema_that_differs_is_a_conflict() -> None:
    def side(job: str, schema: str) -> list[Side]:
        after = replace(BASE, job=job, schema=schema)
        return [changed(root(BASE), root(after)), added(file(f"d/_fl={job}/p", "x", Write.APPEND))]

    edits, conflicts = merge(side("o", "s1"), side("t", "s2"), "job")
    assert (edits, conflicts) == (
        {},
        [Conflict("d", "the dataset's format, partitions or schema differ between the sides")],
    )


def test_a_file_against_a_dataset_of_the_same_name_is_a_conflict() -> None:
    _, conflicts = merge([added(file("d"))], [added(root(BASE)), added(file("d/_fl=t/p"))], "job")
    assert [str(c) for c in conflicts] == ["d: a file on one side, a dataset on the other"]

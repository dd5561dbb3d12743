"""Sets of paths against the plain meaning of `one lies below the other`."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from fenceline.repo.names import overlap, within
from fenceline.repo.pathset import PathSet, ancestors

paths = st.lists(st.sampled_from(["a", "b", "a-", "0"]), min_size=1, max_size=4).map("/".join)


def test_ancestors_end_at_the_root() -> None:
    assert list(ancestors("a/b/c")) == ["a/b", "a", ""]
    assert list(ancestors("a")) == [""]
    assert list(ancestors("")) == []


def test_a_set_holds_each_path_once_in_order() -> None:
    found = PathSet(["b", "a/x", "b/", "a/x"])
    assert list(found) == ["a/x", "b"]
    assert len(found) == 2
    assert "b" in found
    assert "a" not in found


def test_the_root_overlaps_everything() -> None:
    assert PathSet([""]).overlaps("x/y")
    assert PathSet(["x/y"]).overlaps("")
    assert not PathSet().overlaps("x")


@given(st.lists(paths, max_size=8), paths)
def test_overlap_equals_comparing_with_each(members: list[str], path: str) -> None:
    """Row 5 of the Confirm table rests on it: a miss would lose an update."""
    expected = any(overlap(path, member) for member in members)
    assert PathSet(members).overlaps(path) == expected
    assert PathSet(members).overlaps(path + "/") == expected


@given(st.lists(paths, min_size=1, max_size=20), st.integers(1, 5), paths)
def test_a_coarser_set_covers_the_finer_one(members: list[str], most: int, path: str) -> None:
    """It may only ever make more paths count as read, never fewer."""
    fine = PathSet(members)
    coarse = fine.coarsened(most)
    assert len(coarse) <= most
    assert all(any(within(member, above) for above in coarse) for member in fine)
    assert coarse.overlaps(path) or not fine.overlaps(path)


def test_a_set_that_is_small_enough_stays_exact() -> None:
    assert list(PathSet(["a/x", "b/y"]).coarsened(2)) == ["a/x", "b/y"]
    assert list(PathSet(["a/x", "a/y", "b/y"]).coarsened(2)) == ["a", "b"]

"""Trees against dictionaries: edits, reads and diffs, and what an edit costs."""

from __future__ import annotations

import random
from collections.abc import Iterator, Mapping

import pytest
from hypothesis import given
from hypothesis import strategies as st

from fenceline.errors import ObjectDamaged, ObjectMissing
from fenceline.repo.model import Entry, Kind, Node, Side
from fenceline.repo.native import tree as tree_module
from fenceline.repo.native.tree import TreeReader, TreeWriter, pack_of
from fenceline.testing import MemoryObjects

Files = dict[str, str]


@pytest.fixture(autouse=True)
def small_ranges() -> Iterator[None]:
    """Four items a range on average, so that small trees have many ranges and several levels."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(tree_module, "RANGE_BITS", 2)
        patch.setattr(tree_module, "RANGE_MAX", 16)
        yield


def entry(path: str, content: str) -> Entry:
    return Entry(path, Kind.FILE, len(content), f"files/e/{content}", f"sha256:{content}")


class Forest:
    """A store, and trees on it."""

    def __init__(self) -> None:
        self.objects = MemoryObjects()
        self.reader = TreeReader(self.objects)
        self._packs = iter(range(10**9))
        self.writer = TreeWriter(self.reader, lambda: f"trees/e/{next(self._packs)}", self.objects.put)

    def edit(self, root: Node | None, changes: Mapping[str, str | None]) -> Node | None:
        return self.writer.edit(root, {p: None if c is None else entry(p, c) for p, c in changes.items()})

    def fresh(self) -> TreeReader:
        """A reader without a cache."""
        return TreeReader(self.objects)

    def content(self, root: Node | None) -> list[Entry]:
        return list(self.fresh().scan(root))

    def ranges(self, root: Node | None) -> list[Node]:
        return list(self.reader.nodes(root))


def plain(files: Files) -> list[Entry]:
    return [entry(path, files[path]) for path in sorted(files)]


paths = st.lists(st.sampled_from(["a", "b", "a-", "a0", "é"]), min_size=1, max_size=4).map("/".join)
contents = st.sampled_from(["x", "yy", "zzz"])
trees = st.dictionaries(paths, contents, max_size=60)
changes = st.dictionaries(paths, st.none() | contents, min_size=1, max_size=30)


def applied(files: Files, edits: Mapping[str, str | None]) -> Files:
    return {p: c for p, c in {**files, **edits}.items() if c is not None}


@given(trees, st.lists(changes, max_size=4))
def test_edits_are_dictionary_updates(files: Files, edits: list[dict[str, str | None]]) -> None:
    forest = Forest()
    root = forest.edit(None, files)
    for one in edits:
        root, files = forest.edit(root, one), applied(files, one)
        assert forest.content(root) == plain(files)
        assert (root.entries if root else 0) == len(files)
        assert (root.size if root else 0) == sum(map(len, files.values()))


def leaves(forest: Forest, root: Node | None) -> list[tuple[str, str]]:
    return sorted((n.last, n.digest) for n in forest.ranges(root) if not n.height)


@given(trees, st.randoms(use_true_random=False), st.integers(1, 7))
def test_the_same_content_has_the_same_ranges_whatever_its_history(
    files: Files, shuffle: random.Random, pieces: int
) -> None:
    """Cut points follow from the paths alone: order, batches and detours leave no trace."""
    forest = Forest()
    at_once = forest.edit(None, files)
    order = list(files)
    shuffle.shuffle(order)
    root: Node | None = None
    for start in range(pieces):
        batch = {p: files[p] for p in order[start::pieces]}
        detour = {f"{p}/detour": "d" for p in batch} | {"detour": "d"}
        root = forest.edit(root, {**batch, **detour})
        root = forest.edit(root, dict.fromkeys(detour))
    assert leaves(forest, root) == leaves(forest, at_once)
    assert [(n.height, n.last) for n in forest.ranges(root)] == [(n.height, n.last) for n in forest.ranges(at_once)]
    assert list(forest.reader.diff(root, at_once)) == []


@given(trees, trees)
def test_leaves_with_the_same_entries_have_the_same_digests_and_no_others(one: Files, other: Files) -> None:
    forest = Forest()
    left, right = forest.edit(None, one), forest.edit(None, other)
    assert (leaves(forest, left) == leaves(forest, right)) == (one == other)


@given(trees, changes)
def test_a_diff_is_the_naive_diff_in_order(files: Files, edits: dict[str, str | None]) -> None:
    forest = Forest()
    left = forest.edit(None, files)
    right = forest.edit(left, edits)
    after = applied(files, edits)
    expected = [
        Side(p, entry(p, files[p]) if p in files else None, entry(p, after[p]) if p in after else None)
        for p in sorted(files.keys() | after.keys())
        if files.get(p) != after.get(p)
    ]
    assert list(forest.fresh().diff(left, right)) == expected
    assert list(forest.fresh().diff(right, left)) == [Side(s.path, s.right, s.left) for s in expected]
    assert list(forest.fresh().diff(right, right)) == []


@given(trees, paths, paths)
def test_get_scan_and_below_are_what_a_sorted_list_says(files: Files, one: str, other: str) -> None:
    forest = Forest()
    root = forest.edit(None, files)
    reader = forest.fresh()
    assert reader.get(root, one) == (entry(one, files[one]) if one in files else None)
    between = [e for e in plain(files) if one <= e.path < other]
    assert list(reader.scan(root, one, other)) == between
    assert list(reader.scan(root, one)) == [e for e in plain(files) if e.path >= one]
    assert list(reader.below(root, one)) == [e for e in plain(files) if e.path.startswith(one + "/")]
    assert list(reader.below(root, "")) == plain(files)


def numbered(count: int) -> Files:
    return {f"dir-{n // 50:03}/part-{n:06}.parquet": "x" for n in range(count)}


def test_removing_everything_leaves_the_empty_tree() -> None:
    forest = Forest()
    files = numbered(300)
    root = forest.edit(None, files)
    assert root is not None
    assert root.height > 1
    assert forest.edit(root, dict.fromkeys(files)) is None
    assert forest.edit(None, {"absent": None}) is None


@pytest.mark.parametrize("count", [1, 300])
def test_an_edit_without_changes_keeps_the_tree(count: int) -> None:
    forest = Forest()
    root = forest.edit(None, numbered(count))
    assert forest.edit(root, {}) == root
    assert forest.edit(None, {}) is None


def test_removing_what_is_absent_changes_nothing() -> None:
    forest = Forest()
    root = forest.edit(None, numbered(100))
    same = forest.edit(root, {"zzz": None, "dir-000/absent": None, "": None})
    assert root is not None
    assert same is not None
    assert leaves(forest, same) == leaves(forest, root)


def written(forest: Forest, root: Node | None, edits: Mapping[str, str | None]) -> int:
    """How many ranges one edit makes."""
    before = {n.address for n in forest.ranges(root)}
    return len([n for n in forest.ranges(forest.edit(root, edits)) if n.address not in before])


def test_one_change_rewrites_a_bounded_number_of_ranges() -> None:
    """A commit costs what it changes: at most two neighbours on every level, wherever the change is."""
    forest = Forest()
    files = numbered(4000)
    root = forest.edit(None, files)
    assert root is not None
    levels = root.height + 1
    assert len(forest.ranges(root)) > 500
    paths = sorted(files)
    sample = random.Random(5)
    for _ in range(100):
        path = sample.choice(paths)
        for edits in ({path: "changed"}, {path: None}, {path + "+new": "n"}):
            assert written(forest, root, edits) <= 3 * levels, edits


def test_ranges_are_small_on_every_level() -> None:
    """Cut points of one level say nothing about those of the next: else inner ranges would only end at the maximum."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(tree_module, "RANGE_MAX", 100_000)
        forest = Forest()
        root = forest.edit(None, numbered(20_000))
        sizes: dict[int, list[int]] = {}
        for node in forest.ranges(root):
            sizes.setdefault(node.height, []).append(len(forest.reader.load(node).items))
    for height, found in sizes.items():
        assert max(found) < 70, f"height {height}: a range of {max(found)} items; 4 is the average asked for"
        if len(found) > 200:  # below that the average says little
            assert 3 < sum(found) / len(found) < 6, f"height {height}: {sum(found) / len(found)} items on average"


def test_a_diff_opens_only_what_differs() -> None:
    forest = Forest()
    left = forest.edit(None, numbered(4000))
    right = forest.edit(left, {"dir-040/part-002000.parquet": "changed"})
    at = len(forest.objects.calls)
    assert len(list(forest.fresh().diff(left, right))) == 1
    assert left is not None
    assert len(forest.objects.calls) - at <= 8 * (left.height + 1)


def test_all_ranges_of_an_edit_are_one_object() -> None:
    forest = Forest()
    root = forest.edit(None, numbered(1000))
    assert len({pack_of(n.address) for n in forest.ranges(root)}) == 1
    assert [i.key for i in forest.objects.list("")] == ["trees/e/0"]


def test_a_damaged_or_missing_range_is_named() -> None:
    forest = Forest()
    root = forest.edit(None, numbered(300))
    whole = forest.objects.get("trees/e/0")
    for data in (whole[: len(whole) // 2], whole.replace(b"part-000007", b"part-000008"), b"", b"[" * len(whole)):
        forest.objects.put("trees/e/0", data)
        with pytest.raises(ObjectDamaged) as raised:
            forest.content(root)
        assert raised.value.context["address"] == "trees/e/0"
    forest.objects.delete(["trees/e/0"])
    with pytest.raises(ObjectMissing):
        forest.content(root)


def test_nodes_leaves_out_what_is_skipped() -> None:
    forest = Forest()
    first = forest.edit(None, numbered(300))
    second = forest.edit(first, {"new": "n"})
    known = {n.address for n in forest.ranges(first)}
    fresh = list(forest.reader.nodes(second, skip=lambda node: node.address in known))
    assert fresh
    assert {pack_of(n.address) for n in fresh} == {"trees/e/1"}
    assert list(forest.reader.nodes(None)) == []

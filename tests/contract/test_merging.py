"""Merge and rebase, of files and of datasets, on every store."""

# ruff: noqa: PT012 — what raises is the whole block of a transaction

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path

import pytest

from fenceline import ContractError, MergeConflict, Outcome, PublishConflict, Repository, Retention, Transaction
from fenceline.errors import AlreadyExists, FencelineError, InvalidName, NotFound, ObjectDamaged, ObjectMissing
from fenceline.repo.merge import Conflict, Strategy
from fenceline.repo.model import Dataset
from fenceline.repo.native.objects import ObjectStore
from fenceline.txn.datasets import WriteMode

Put = Callable[..., str]
Parts = Callable[..., str]
Change = Callable[[Transaction], object]
Partitioned = Callable[[WriteMode, dict[str, bytes]], Change]


def files(repo: Repository, ref: str = "main") -> dict[str, bytes]:
    return {e.path: repo.read(ref, e.path) for e in repo.list(ref) if not e.path.endswith("/")}


def conflicts(error: MergeConflict) -> dict[str, str]:
    return {c.path: c.reason for c in error.conflicts if isinstance(c, Conflict)}


def both_sides(repo: Repository, ours: Change, theirs: Change) -> None:
    """`main` and a new branch `dev`, each with its own change on a common base."""
    repo.create_branch("dev")
    for branch, change in (("main", ours), ("dev", theirs)):
        with repo.transaction(branch) as tx:
            change(tx)


def edits(*changes: tuple[str, bytes | None]) -> Change:
    """Write these files, in this order; `None` deletes."""

    def apply(tx: Transaction) -> None:
        for path, data in changes:
            if data is None:
                tx.delete(path)
            else:
                tx.write(path, data)

    return apply


def all_of(*changes: Change) -> Change:
    def apply(tx: Transaction) -> None:
        for change in changes:
            change(tx)

    return apply


def is_well_formed(repo: Repository, ref: str = "main") -> bool:
    """No path is at once a file and something with content below it."""
    paths = {e.path for e in repo.list(ref)}
    datasets = {p for p in paths if p.endswith("/")}
    return not any(
        p.removesuffix("/") in paths - datasets and (p.endswith("/") or q.startswith(p + "/"))
        for p in paths
        for q in paths
    ) and not any(q.startswith(d) and not q.startswith(f"{d}_fl=") and q != d for d in datasets for q in paths)


# --- files ------------------------------------------------------------------------------------------------------


def test_a_merge_is_one_commit_with_two_parents(repo: Repository, put: Put) -> None:
    put(repo, {"base": b"b", "gone": b"g", "both": b"x"})
    both_sides(
        repo,
        edits(("ours", b"o"), ("both", b"same")),
        edits(("theirs", b"t"), ("gone", None), ("both", b"same")),
    )
    ours, theirs = repo.head("main").commit.id, repo.head("dev").commit.id
    result = repo.merge("dev", message="bring it in")
    head = repo.head()
    assert (result.op, result.outcome, result.commit) == ("merge", Outcome.APPLIED, head.commit.id)
    assert head.commit.parents == (ours, theirs)
    assert head.commit.message == "bring it in"
    assert files(repo) == {"base": b"b", "ours": b"o", "theirs": b"t", "both": b"same"}
    assert repo.merge("dev").op == "noop"
    assert repo.fsck().clean


def test_merging_an_ancestor_or_itself_changes_nothing(repo: Repository, put: Put) -> None:
    first = put(repo, {"a": b"1"})
    put(repo, {"a": b"2"})
    seq = repo.head().seq
    assert [repo.merge(ref).op for ref in ("main", first, "main~1")] == ["noop"] * 3
    assert repo.head().seq == seq


def test_a_second_merge_starts_at_the_first(repo: Repository, put: Put) -> None:
    put(repo, {"a": b"1"})
    both_sides(repo, lambda tx: tx.write("o", b"1"), lambda tx: tx.write("a", b"2"))
    repo.merge("dev")
    put(repo, {"a": b"3"})
    put(repo, {"t": b"1"}, branch="dev")
    repo.merge("dev")
    assert files(repo) == {"a": b"3", "o": b"1", "t": b"1"}


def prepare_all_conflicts(repo: Repository, put: Put) -> None:
    put(repo, {"changed": b"0", "deleted": b"0", "undeleted": b"0", "fine": b"0", "dir/x": b"0", "same": b"0"})
    both_sides(
        repo,
        edits(
            ("changed", b"ours"),
            ("added", b"ours"),
            ("deleted", None),
            ("undeleted", b"ours"),
            ("file", b"ours"),
            ("dir", None),
            ("dir", b"ours"),
            ("same", None),
        ),
        edits(
            ("changed", b"theirs"),
            ("added", b"theirs"),
            ("deleted", b"theirs"),
            ("undeleted", None),
            ("file/below", b"theirs"),
            ("dir/x", b"theirs"),
            ("fine", b"theirs"),
            ("same", None),
        ),
    )


def test_all_conflicts_are_raised_together(repo: Repository, put: Put) -> None:
    prepare_all_conflicts(repo, put)
    before = repo.head()
    with pytest.raises(MergeConflict) as raised:
        repo.merge("dev")
    assert conflicts(raised.value) == {
        "added": "added differently on both sides",
        "changed": "changed differently on both sides",
        "deleted": "removed on one side, changed on the other",
        "undeleted": "removed on one side, changed on the other",
        "file/below": "a file on one side, a directory on the other (file)",
        "dir/x": "removed on one side, changed on the other",
    }
    assert (raised.value.retryable, raised.value.outcome) == (False, Outcome.NOT_APPLIED)
    assert repo.head() == before
    assert list(repo.intents()) == []


def test_the_strategy_ours_keeps_ours_where_they_conflict(repo: Repository, put: Put) -> None:
    prepare_all_conflicts(repo, put)
    repo.merge("dev", strategy="ours")
    assert files(repo) == {
        "changed": b"ours",
        "added": b"ours",
        "undeleted": b"ours",
        "file": b"ours",
        "dir": b"ours",
        "fine": b"theirs",
    }
    assert is_well_formed(repo)


def test_the_strategy_theirs_takes_theirs_where_they_conflict(repo: Repository, put: Put) -> None:
    prepare_all_conflicts(repo, put)
    repo.merge("dev", strategy="theirs")
    assert is_well_formed(repo), f"a path is both a file and a directory: {sorted(files(repo))}"
    assert files(repo) == {
        "changed": b"theirs",
        "added": b"theirs",
        "deleted": b"theirs",
        "file/below": b"theirs",
        "dir/x": b"theirs",
        "fine": b"theirs",
    }


@pytest.mark.parametrize("strategy", ["ours", "theirs"])
def test_a_dataset_against_a_directory_of_files_stays_well_formed(
    repo: Repository, parts: Parts, strategy: Strategy
) -> None:
    with repo.transaction() as tx:
        tx.put_dataset(parts({"p0": b"0"}), "d")
    both_sides(
        repo,
        edits(("d", None), ("d/plain", b"ours")),
        lambda tx: tx.put_dataset(parts({"p1": b"1"}), "d", mode="append"),
    )
    with pytest.raises(MergeConflict):
        repo.merge("dev")
    repo.merge("dev", strategy=strategy)
    assert is_well_formed(repo), f"plain files inside a dataset: {sorted(e.path for e in repo.list('main'))}"


def test_wrong_strategies_and_refs_are_refused(repo: Repository) -> None:
    with pytest.raises(ContractError):
        repo.merge("main", strategy="both")  # type: ignore[arg-type]
    with pytest.raises(NotFound):
        repo.merge("nowhere")
    with pytest.raises(NotFound):
        repo.merge("main", into="nowhere")


def test_a_merge_starts_again_when_the_branch_moves_meanwhile(
    repo: Repository, put: Put, monkeypatch: pytest.MonkeyPatch
) -> None:
    """INV-5: the commit that came in between stays."""
    put(repo, {"a": b"1"})
    both_sides(repo, lambda tx: tx.write("o", b"1"), lambda tx: tx.write("t", b"1"))
    real, moves = repo.native.merge_base, iter([True])

    def moving(*sides: object) -> object:
        if next(moves, False):
            put(repo, {"between": b"1"})
        return real(*sides)  # type: ignore[arg-type]

    monkeypatch.setattr(repo.native, "merge_base", moving)
    repo.merge("dev")
    assert set(files(repo)) == {"a", "o", "t", "between"}


# --- datasets: the dataset is the unit --------------------------------------------------------------------------


def dataset(repo: Repository, path: str = "d", ref: str = "main") -> Dataset:
    entry = repo.stat(ref, path)
    assert entry.dataset is not None
    assert entry.dataset.files == len(content(repo, path, ref))
    assert entry.size == sum(len(data) for data in content(repo, path, ref).values())
    return entry.dataset


def content(repo: Repository, path: str = "d", ref: str = "main") -> dict[str, bytes]:
    """Part files by their place below their job's directory."""
    found: dict[str, bytes] = {}
    for entry in repo.list(ref, path):
        if not entry.path.endswith("/"):
            job, _, name = entry.path.removeprefix(f"{path}/").partition("/")
            assert job.startswith("_fl=")
            assert name not in found
            found[name] = repo.read(ref, entry.path)
    return found


@pytest.fixture
def partitioned(repo: Repository, parts: Parts) -> Partitioned:
    """A dataset `d` of two partitions; gives changes of it by mode."""
    local = parts({"k=1/p": b"11", "k=2/p": b"22"})
    with repo.transaction() as tx:
        tx.put_dataset(local, "d", partition_by=["k"], rows=4, schema="s")

    def change(mode: WriteMode, files: dict[str, bytes]) -> Change:
        directory, rows = parts(files), sum(map(len, files.values()))
        return lambda tx: tx.put_dataset(directory, "d", mode=mode, partition_by=["k"], rows=rows)

    return change


def together(repo: Repository, how: str, ours: Change, theirs: Change) -> None:
    """The two changes at once: by a merge of two branches, or by a rebase onto the one that was first."""
    if how == "merge":
        both_sides(repo, ours, theirs)
        repo.merge("dev")
    else:
        with repo.transaction(on_conflict="rebase") as mine:
            theirs(mine)
            with repo.transaction() as other:
                ours(other)


Both = pytest.mark.parametrize("how", ["merge", "rebase"])


@Both
def test_two_appends_go_together(repo: Repository, partitioned: Partitioned, how: str) -> None:
    """Page 6: append + append merges, with every file and the right counts."""
    together(repo, how, partitioned("append", {"k=1/o": b"aaa"}), partitioned("append", {"k=1/t": b"b", "k=3/t": b"c"}))
    assert content(repo) == {"k=1/p": b"11", "k=2/p": b"22", "k=1/o": b"aaa", "k=1/t": b"b", "k=3/t": b"c"}
    merged = dataset(repo)
    assert (merged.files, merged.rows, merged.operation, merged.schema) == (5, 9, "merge", "s")
    assert repo.fsck().clean


@Both
def test_overwrites_of_different_partitions_go_together(repo: Repository, partitioned: Partitioned, how: str) -> None:
    """Page 6: two `overwrite_partitions` of different partitions merge."""
    together(
        repo,
        how,
        partitioned("overwrite_partitions", {"k=1/o": b"o", "k=7/o": b"7"}),
        partitioned("overwrite_partitions", {"k=2/t": b"tt"}),
    )
    assert content(repo) == {"k=1/o": b"o", "k=7/o": b"7", "k=2/t": b"tt"}
    assert dataset(repo).rows is None


@Both
@pytest.mark.parametrize(
    ("ours", "theirs"),
    [
        (("overwrite", {"k=1/o": b"o"}), ("overwrite", {"k=2/t": b"t"})),
        (("append", {"k=1/o": b"o"}), ("overwrite", {"k=2/t": b"t"})),
        (("overwrite", {"k=1/o": b"o"}), ("append", {"k=2/t": b"t"})),
        (("overwrite_partitions", {"k=1/o": b"o"}), ("overwrite_partitions", {"k=1/t": b"t"})),
        (("overwrite_partitions", {"k=9/o": b"o"}), ("overwrite_partitions", {"k=9/t": b"t"})),
        (("append", {"k=1/o": b"o"}), ("overwrite_partitions", {"k=1/t": b"t"})),
        (("overwrite_partitions", {"k=1/o": b"o"}), ("append", {"k=1/t": b"t"})),
        (("overwrite", {}), ("append", {"k=1/t": b"t"})),
    ],
    ids=lambda side: f"{side[0]}:{','.join(side[1])}",
)
def test_other_changes_of_one_dataset_conflict(
    repo: Repository,
    partitioned: Partitioned,
    how: str,
    ours: tuple[WriteMode, dict[str, bytes]],
    theirs: tuple[WriteMode, dict[str, bytes]],
) -> None:
    """Page 6: overwrite against any other change conflicts; so do two changes of one partition."""
    with pytest.raises((MergeConflict, PublishConflict)) as raised:
        together(repo, how, partitioned(*ours), partitioned(*theirs))
    error = raised.value
    assert isinstance(error, MergeConflict if how == "merge" else PublishConflict)
    assert (list(conflicts(error)) if isinstance(error, MergeConflict) else list(error.paths)) == ["d"]
    assert not any(name.endswith("/t") for name in content(repo))


@Both
def test_an_append_to_one_partition_and_an_overwrite_of_another_go_together(
    repo: Repository, partitioned: Partitioned, how: str
) -> None:
    together(repo, how, partitioned("append", {"k=1/o": b"o"}), partitioned("overwrite_partitions", {"k=2/t": b"t"}))
    assert content(repo) == {"k=1/p": b"11", "k=1/o": b"o", "k=2/t": b"t"}
    assert dataset(repo).files == 3


@Both
def test_a_dataset_removed_or_created_on_both_sides_conflicts(repo: Repository, parts: Parts, how: str) -> None:
    with repo.transaction() as tx:
        tx.put_dataset(parts({"p": b"0"}), "d")
    error = MergeConflict if how == "merge" else PublishConflict
    with pytest.raises(error):
        together(
            repo, how, lambda tx: tx.delete("d"), lambda tx: tx.put_dataset(parts({"q": b"1"}), "d", mode="append")
        )
    if how == "merge":
        repo.delete_branch("dev")
    with pytest.raises(error):
        together(
            repo,
            how,
            lambda tx: tx.put_dataset(parts({"p": b"1"}), "new"),
            lambda tx: tx.put_dataset(parts({"p": b"1"}), "new"),
        )
    assert is_well_formed(repo)


def test_three_appends_rebase_onto_each_other(repo: Repository, partitioned: Partitioned) -> None:
    with repo.transaction(on_conflict="rebase") as first:
        partitioned("append", {"k=1/a": b"a"})(first)
        with repo.transaction(on_conflict="rebase") as second:
            partitioned("append", {"k=1/b": b"bb"})(second)
            with repo.transaction() as third:
                partitioned("append", {"k=2/c": b"ccc"})(third)
    assert (dataset(repo).files, dataset(repo).rows) == (5, 10)


def test_diff_shows_a_dataset_as_one(repo: Repository, partitioned: Partitioned) -> None:
    with repo.transaction() as tx:
        partitioned("append", {"k=1/o": b"o", "k=2/o": b"o"})(tx)
        tx.write("d2", b"")
    assert [(u.path, u.is_dataset, u.status) for u in repo.diff("main~1", "main")] == [
        ("d", True, "changed"),
        ("d2", False, "added"),
    ]


# --- put_dataset ------------------------------------------------------------------------------------------------


def test_the_modes_of_put_dataset(repo: Repository, parts: Parts) -> None:
    def write(mode: str, files: dict[str, bytes], rows: int | None = None, **options: object) -> None:
        with repo.transaction() as tx:
            assert tx.put_dataset(parts(files), "d", mode=mode, rows=rows, **options) == len(files)  # type: ignore[arg-type]

    write("error", {"a": b"1", "b": b"22"}, 3, schema="s1", options={"header": "true"})
    created = dataset(repo)
    assert (created.operation, created.files, created.rows, created.schema) == ("create", 2, 3, "s1")
    with pytest.raises(AlreadyExists):
        write("error", {"c": b"3"})
    write("append", {"c": b"3"}, 1)
    appended = dataset(repo)
    assert (appended.id, appended.generation, appended.files, appended.rows) == (created.id, created.generation, 3, 4)
    assert appended.schema == "s1"
    write("overwrite", {"z": b"z"}, 1, format="csv")
    replaced = dataset(repo)
    assert (replaced.id, replaced.files, replaced.rows, replaced.format) == (created.id, 1, 1, "csv")
    assert replaced.generation not in (created.generation, "")
    assert content(repo) == {"z": b"z"}
    assert content(repo, ref="main~1") == {"a": b"1", "b": b"22", "c": b"3"}
    write("overwrite", {})
    assert (dataset(repo).files, content(repo)) == (0, {})


def test_overwrite_partitions_replaces_exactly_those_present(repo: Repository, partitioned: Partitioned) -> None:
    with repo.transaction() as tx:
        partitioned("overwrite_partitions", {"k=2/n": b"new", "k=3/n": b"3"})(tx)
        assert {e.path.rpartition("/")[2] for e in tx.list("d")} == {"", "p", "n"}
    assert content(repo) == {"k=1/p": b"11", "k=2/n": b"new", "k=3/n": b"3"}
    assert dataset(repo).operation == "overwrite_partitions"


def test_writing_one_dataset_twice_in_a_transaction(repo: Repository, parts: Parts) -> None:
    with repo.transaction() as tx:
        tx.put_dataset(parts({"p": b"1"}), "d", rows=1)
        tx.put_dataset(parts({"q": b"2"}), "d", mode="append", rows=1)
    assert (content(repo), dataset(repo).rows) == ({"p": b"1", "q": b"2"}, 2)


def test_bookkeeping_of_engines_is_never_published(repo: Repository, parts: Parts) -> None:
    """Page 6: never published: `_SUCCESS`, `_temporary`, `.crc`, hidden files."""
    local = parts({"part-0": b"1", "_SUCCESS": b"", ".part-0.crc": b"x", "_temporary/0/part-1": b"2", ".x/part": b"3"})
    with repo.transaction() as tx:
        assert tx.put_dataset(local, "d") == 1
    assert content(repo) == {"part-0": b"1"}


def test_a_partition_column_may_start_with_an_underscore(repo: Repository, parts: Parts) -> None:
    """`_day=1` is a partition, not bookkeeping: engines read it, so dropping it would lose rows in silence."""
    with repo.transaction() as tx:
        assert tx.put_dataset(parts({"_day=1/p": b"1", "_SUCCESS": b""}), "d", partition_by=["_day"]) == 1
    assert content(repo) == {"_day=1/p": b"1"}


@pytest.mark.parametrize(
    ("layout", "options"),
    [
        ({"p": b""}, {"partition_by": ["k"]}),
        ({"k=1/p": b""}, {}),
        ({"k=1/j=2/p": b""}, {"partition_by": ["j", "k"]}),
        ({"k/p": b""}, {"partition_by": ["k"]}),
        ({"a:b": b""}, {}),
        ({"p": b""}, {"mode": "replace"}),
        ({"p": b""}, {"mode": "overwrite_partitions"}),
    ],
    ids=["no-dir", "unasked-dir", "wrong-order", "no-value", "colon", "unknown-mode", "no-partitions"],
)
def test_put_dataset_refuses_before_anything_is_staged(
    repo: Repository, store: ObjectStore, parts: Parts, layout: dict[str, bytes], options: dict[str, object]
) -> None:
    before = [i.key for i in store.list("")]
    with pytest.raises(ContractError), repo.transaction() as tx:
        tx.put_dataset(parts(layout), "d", **options)  # type: ignore[arg-type]
    assert [i.key for i in store.list("")] == before


def test_put_dataset_refuses_a_different_shape(repo: Repository, partitioned: Partitioned, parts: Parts) -> None:
    shapes: list[dict[str, object]] = [{"format": "csv", "partition_by": ["k"]}, {"partition_by": []}]
    for options in shapes:
        with pytest.raises(ContractError), repo.transaction() as tx:
            tx.put_dataset(parts({"k=1/p": b""}), "d", mode="append", **options)  # type: ignore[arg-type]
    with pytest.raises(ContractError, match="directory"), repo.transaction() as tx:
        tx.put_dataset(os.path.join(parts({"p": b""}), "p"), "new")
    with pytest.raises(NotFound), repo.transaction() as tx:
        tx.put_dataset(os.path.join(parts({}), "absent"), "new")


def structure_refused(repo: Repository, body: Change) -> None:
    before = repo.head()
    with pytest.raises((AlreadyExists, ContractError, InvalidName)), repo.transaction() as tx:
        body(tx)
    assert repo.head() == before


def test_datasets_files_and_directories_exclude_each_other(repo: Repository, put: Put, parts: Parts) -> None:
    put(repo, {"f": b"1", "dir/x": b"1"})
    with repo.transaction() as tx:
        tx.put_dataset(parts({"p": b"0"}), "d")
    structure_refused(repo, lambda tx: tx.write("d", b""))
    structure_refused(repo, lambda tx: tx.write("d/x", b""))
    structure_refused(repo, lambda tx: tx.write("d/_fl=1/x", b""))
    structure_refused(repo, lambda tx: tx.write("new/_fl=1/x", b""))
    structure_refused(repo, lambda tx: tx.put_dataset(parts({"p": b""}), "d/sub"))
    structure_refused(repo, lambda tx: tx.put_dataset(parts({"p": b""}), "f"))
    structure_refused(repo, lambda tx: tx.put_dataset(parts({"p": b""}), "f", mode="overwrite"))
    structure_refused(repo, lambda tx: tx.put_dataset(parts({"p": b""}), "f/below"))
    structure_refused(repo, lambda tx: tx.put_dataset(parts({"p": b""}), "dir"))
    part = next(e.path for e in repo.list("main", "d") if not e.path.endswith("/"))
    structure_refused(repo, lambda tx: tx.delete(part))
    with pytest.raises(ContractError, match="dataset"):
        repo.read("main", "d")


def test_a_dataset_of_the_same_transaction_excludes_files_too(repo: Repository, parts: Parts) -> None:
    def dataset_at(path: str) -> Change:
        return lambda tx: tx.put_dataset(parts({"p": b""}), path)

    structure_refused(repo, all_of(dataset_at("d"), edits(("d/x", b""))))
    structure_refused(repo, all_of(dataset_at("d"), edits(("d", b""))))
    structure_refused(repo, all_of(dataset_at("a/d"), edits(("a/d", b""))))
    structure_refused(repo, all_of(edits(("d/x", b"")), dataset_at("d")))
    structure_refused(repo, all_of(edits(("d", b"")), dataset_at("d")))


def test_deleting_a_dataset_frees_its_place(repo: Repository, parts: Parts) -> None:
    with repo.transaction() as tx:
        tx.put_dataset(parts({"p": b"0", "q": b"1"}), "d")
    with repo.transaction() as tx:
        assert tx.delete("d") == 3
        tx.write("d", b"file")
    assert files(repo) == {"d": b"file"}
    with repo.transaction() as tx:
        tx.delete("d")
        tx.put_dataset(parts({"p": b"2"}), "d")
    assert content(repo) == {"p": b"2"}


def test_a_cancelled_dataset_leaves_nothing(repo: Repository, store: ObjectStore, parts: Parts) -> None:
    """D1: what an aborted execution wrote into a dataset goes too."""
    with pytest.raises(ValueError, match="stop"), repo.transaction() as tx:
        tx.put_dataset(parts({"p": b"0"}), "d")
        raise ValueError("stop")
    assert [i.key for area in ("datasets/", "trees/", "intents/") for i in store.list(area)] == []


# --- data registered in place -----------------------------------------------------------------------------------


@pytest.fixture
def outside(tmp_path: Path) -> Path:
    directory = tmp_path / "outside"
    (directory / "sub").mkdir(parents=True)
    (directory / "a b.csv").write_bytes(b"1,2\n")
    (directory / "sub/c[1].csv").write_bytes(b"3,4\n")
    return directory


def test_import_in_place_copies_nothing(repo: Repository, store: ObjectStore, outside: Path) -> None:
    with repo.transaction() as tx:
        assert tx.import_in_place(str(outside), "raw") == 2
        assert tx.import_in_place((outside / "a b.csv").as_uri(), "one.csv") == 1
    assert list(store.list("files/")) == []
    assert files(repo) == {"raw/a b.csv": b"1,2\n", "raw/sub/c[1].csv": b"3,4\n", "one.csv": b"1,2\n"}
    assert repo.stat("main", "raw/a b.csv").address == (outside / "a b.csv").as_uri()
    assert repo.fsck().clean


def test_gc_never_deletes_what_was_registered_in_place(repo: Repository, outside: Path, put: Put) -> None:
    """INV-13, and it stays its owner's: also after the last commit that named it is gone."""
    with repo.transaction() as tx:
        tx.import_in_place(str(outside), "raw")
    put(repo, {"raw/a b.csv": None, "raw/sub/c[1].csv": None})
    for n in range(5):
        put(repo, {"n": str(n).encode()})
    repo.gc(Retention(keep=3, expire=True), grace=0)
    assert sorted(p.name for p in outside.rglob("*.csv")) == ["a b.csv", "c[1].csv"]


def test_data_in_place_that_was_changed_or_removed_is_noticed(repo: Repository, outside: Path) -> None:
    with repo.transaction() as tx:
        tx.import_in_place(str(outside), "raw")
    (outside / "a b.csv").write_bytes(b"9,9\n")
    os.utime(outside / "a b.csv", (1, 1))
    (outside / "sub/c[1].csv").unlink()
    with pytest.raises(ObjectDamaged, match="changed since"):
        repo.read("main", "raw/a b.csv")
    with pytest.raises(ObjectMissing, match="not ours"):
        repo.read("main", "raw/sub/c[1].csv")
    assert {p.address.rpartition("/")[2] for p in repo.fsck().problems} == {"a%20b.csv", "c%5B1%5D.csv"}


def test_data_in_place_behind_a_broken_path_is_a_typed_error(repo: Repository, outside: Path) -> None:
    with repo.transaction() as tx:
        tx.import_in_place(str(outside), "raw")
    (outside / "sub/c[1].csv").unlink()
    (outside / "sub").rmdir()
    (outside / "sub").write_bytes(b"a file where a directory was")
    with pytest.raises(FencelineError) as raised:
        repo.read("main", "raw/sub/c[1].csv")
    assert "c%5B1%5D.csv" in str(raised.value)


def test_registering_changed_data_again_makes_it_readable(repo: Repository, outside: Path) -> None:
    """The hint of the error above: `register it again`. New bytes of the same size are a change too."""
    with repo.transaction() as tx:
        tx.import_in_place(str(outside), "raw")
    (outside / "a b.csv").write_bytes(b"9,9\n")
    os.utime(outside / "a b.csv", (1, 1))
    with repo.transaction() as tx:
        tx.import_in_place(str(outside), "raw")
    assert tx.result.op == "publish"
    assert repo.read("main", "raw/a b.csv") == b"9,9\n"


def test_in_place_refuses_what_this_build_cannot_read(repo: Repository) -> None:
    with pytest.raises(ContractError), repo.transaction() as tx:
        tx.import_in_place("s3://bucket/raw", "raw")
    with pytest.raises(NotFound), repo.transaction() as tx:
        tx.import_in_place("/nowhere/at/all", "raw")

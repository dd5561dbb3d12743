"""What a repository promises, on every store: transactions, keys, conflicts, refs, history."""

# ruff: noqa: PT012 — what raises is the whole block of a transaction

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from fenceline import ContractError, Outcome, PublishConflict, Repository, Transaction, open_repository
from fenceline.errors import (
    AlreadyExists,
    ConflictError,
    InvalidName,
    NotFound,
    PublishFenceError,
    TransactionClosed,
    UnpublishedCommit,
)
from fenceline.repo.native.objects import ObjectStore
from fenceline.testing import HandClock

Put = Callable[..., str]
Abandon = Callable[..., str]


def files(repo: Repository, ref: str = "main") -> dict[str, bytes]:
    return {e.path: repo.read(ref, e.path) for e in repo.list(ref)}


def names(store: ObjectStore, *areas: str) -> list[str]:
    return [info.key for area in areas for info in store.list(area)]


# --- transactions -----------------------------------------------------------------------------------------------


def test_a_transaction_publishes_all_its_changes_as_one_commit(repo: Repository, put: Put) -> None:
    """INV-6: acknowledged means on the branch, under the number that is reported."""
    start = put(repo, {"keep": b"k", "gone": b"g", "changed": b"1"})
    with repo.transaction("main", message="all at once", metadata={"run": "7"}, actor="ada") as tx:
        tx.write("changed", b"2")
        tx.write("dir/text", "ä")
        tx.delete("gone")
        assert files(repo) == {"keep": b"k", "gone": b"g", "changed": b"1"}
    result = tx.result
    head = repo.head("main")
    assert (result.outcome, result.op, result.commit, result.seq) == (
        Outcome.APPLIED,
        "publish",
        head.commit.id,
        head.seq,
    )
    assert files(repo) == {"keep": b"k", "changed": b"2", "dir/text": "ä".encode()}
    assert head.commit.parents == (start,)
    assert (head.commit.message, head.commit.actor, head.commit.metadata) == ("all at once", "ada", {"run": "7"})
    assert [r.kind for r in repo.recoveries()] == ["published", "published"]
    assert list(repo.intents()) == []


def test_a_transaction_reads_its_own_writes(repo: Repository, put: Put) -> None:
    put(repo, {"a": b"1", "d/x": b"x", "d/y": b"y"})
    with repo.transaction() as tx:
        tx.write("a", b"2")
        tx.write("d/z", b"z")
        tx.delete("d/x")
        assert tx.read("a") == b"2"
        assert tx.stat("d/x") is None
        with pytest.raises(NotFound):
            tx.read("d/x")
        assert [e.path for e in tx.list("d")] == ["d/y", "d/z"]
        assert [e.path for e in tx.list()] == ["a", "d/y", "d/z"]
        tx.delete("d/")
        assert [e.path for e in tx.list("d")] == []
        tx.write("d", b"now a file")
    assert files(repo) == {"a": b"2", "d": b"now a file"}


def test_write_takes_bytes_text_open_files_and_pieces(repo: Repository, tmp_path: Path) -> None:
    source = tmp_path / "source"
    source.write_bytes(b"s" * 3_000_000)
    with repo.transaction() as tx, source.open("rb") as stream:
        tx.write("bytes", b"b")
        tx.write("text", "t")
        tx.write("stream", stream, mode=0o640)
        tx.write("pieces", (b"%d" % n for n in range(3)))
    assert repo.read("main", "stream") == source.read_bytes()
    assert b"".join(repo.chunks("main", "pieces")) == b"012"
    assert repo.stat("main", "stream").mode == 0o640
    assert repo.stat("main", "bytes").size == 1


def test_upload_takes_a_directory_and_keeps_modes(repo: Repository, parts: Callable[..., str], tmp_path: Path) -> None:
    local = parts({"a.txt": b"a", "sub/b.bin": b"b" * 2_000_000, ".hidden": b"h"})
    os.chmod(os.path.join(local, "a.txt"), 0o755)
    with repo.transaction() as tx:
        assert tx.upload(local, "in") == 3
        assert tx.upload(os.path.join(local, "a.txt"), "one.txt") == 1
    assert {e.path for e in repo.list("main")} == {"in/a.txt", "in/sub/b.bin", "in/.hidden", "one.txt"}
    assert repo.stat("main", "in/a.txt").mode == 0o755
    assert repo.download("main", "in", str(tmp_path / "out")) == 3
    assert (tmp_path / "out/sub/b.bin").read_bytes() == b"b" * 2_000_000
    assert os.stat(tmp_path / "out/a.txt").st_mode & 0o777 == 0o755


def test_upload_refuses_links_before_anything_is_staged(
    repo: Repository, store: ObjectStore, parts: Callable[..., str]
) -> None:
    local = parts({"a.txt": b"a"})
    os.symlink("a.txt", os.path.join(local, "link"))
    with pytest.raises(ContractError, match="not a regular file"), repo.transaction() as tx:
        tx.upload(local, "in")
    assert names(store, "files/", "intents/") == []


def test_the_same_path_can_be_written_twice_in_one_transaction(repo: Repository) -> None:
    with repo.transaction() as tx:
        tx.write("a", b"first")
        tx.write("A", b"upper")
        tx.write("a", b"second")
    assert files(repo) == {"a": b"second", "A": b"upper"}


def test_a_transaction_that_changes_nothing_publishes_nothing(repo: Repository, put: Put, store: ObjectStore) -> None:
    """Never an empty commit: a no-op leaves the branch, its numbers and the store's content alone."""
    put(repo, {"a": b"1"})
    head, before = repo.head(), names(store, "files/", "trees/", "refs/")
    with repo.transaction() as untouched:
        pass
    with repo.transaction() as rewritten:
        rewritten.write("a", b"1")
    with repo.transaction() as undone:
        undone.write("b", b"1")
        undone.delete("b")
    for tx in (untouched, rewritten, undone):
        assert (tx.result.op, tx.result.commit, tx.result.seq) == ("noop", head.commit.id, head.seq)
    assert names(store, "files/", "trees/", "refs/") == before
    assert list(repo.intents()) == []


@pytest.mark.parametrize("error", [ValueError("boom"), KeyboardInterrupt(), PublishFenceError("mine")])
def test_an_exception_cancels_and_leaves_nothing(
    repo: Repository, put: Put, store: ObjectStore, error: BaseException
) -> None:
    """INV-7: not acknowledged means invisible; D1: the owner that wins `aborted` deletes what it staged."""
    put(repo, {"a": b"1"})
    before = names(store, "files/", "trees/", "commits/", "refs/", "datasets/")
    with pytest.raises(type(error)) as raised, repo.transaction() as tx:
        tx.write("a", b"2")
        tx.write("b", b"2")
        raise error
    assert raised.value is error
    assert names(store, "files/", "trees/", "commits/", "refs/", "datasets/") == before
    assert files(repo) == {"a": b"1"}
    assert [(r.kind, r.execution) for r in repo.recoveries()][-1] == ("aborted", tx.execution)
    assert names(store, "intents/", "beats/") == []
    with pytest.raises(TransactionClosed):
        _ = tx.result


def test_a_stream_that_breaks_cancels_the_whole_transaction(repo: Repository, store: ObjectStore) -> None:
    """INV-7."""

    def broken() -> Iterator[bytes]:
        yield b"half"
        raise RuntimeError("source")

    with pytest.raises(RuntimeError), repo.transaction() as tx:
        tx.write("whole", b"w")
        tx.write("half", broken())
    assert files(repo) == {}
    assert names(store, "files/", "tmp/", "intents/") == []


def test_a_transaction_is_used_inside_its_block_and_once(repo: Repository) -> None:
    tx = repo.transaction()
    with pytest.raises(TransactionClosed):
        tx.write("a", b"")
    with tx:
        tx.write("a", b"")
        with pytest.raises(TransactionClosed):
            _ = tx.result
    with pytest.raises(TransactionClosed):
        tx.write("b", b"")
    with pytest.raises(TransactionClosed), tx:
        pass


def test_wrong_arguments_are_refused_before_anything_happens(repo: Repository, store: ObjectStore) -> None:
    before = names(store, "")
    with pytest.raises(ContractError):
        repo.transaction(key="")
    with pytest.raises(ContractError):
        repo.transaction(on_conflict="overwrite")  # type: ignore[arg-type]
    with pytest.raises(NotFound):
        repo.transaction("nowhere")
    with pytest.raises(ContractError, match="whole tree"), repo.transaction() as tx:
        tx.delete("")
    with pytest.raises(NotFound), repo.transaction() as tx:
        tx.delete("nothing")
    with pytest.raises(InvalidName), repo.transaction() as tx:
        tx.write("../escape", b"")
    assert names(store, "") == before


# --- keys -------------------------------------------------------------------------------------------------------


def test_the_same_key_never_applies_twice(repo: Repository, put: Put) -> None:
    """Section 4, row 2: adopt. The body's writes are dropped and the earlier result is reported."""
    with repo.transaction(key="day-1") as first:
        first.write("a", b"1")
    put(repo, {"other": b"o"})
    head = repo.head()
    with repo.transaction(key="day-1") as again:
        assert again.already_applied
        again.write("a", b"dropped")
        again.delete("other")
    assert (again.result.op, again.result.outcome) == ("adopt", Outcome.APPLIED)
    assert (again.result.commit, again.result.seq) == (first.result.commit, first.result.seq)
    assert again.result.execution == first.execution
    assert repo.head() == head
    assert files(repo) == {"a": b"1", "other": b"o"}
    assert list(repo.intents()) == []


def test_a_key_that_was_cancelled_or_changed_nothing_still_applies(repo: Repository) -> None:
    with pytest.raises(ValueError, match="stop"), repo.transaction(key="k") as tx:
        tx.write("a", b"1")
        raise ValueError("stop")
    with repo.transaction(key="k") as empty:
        pass
    assert empty.result.op == "noop"
    with repo.transaction(key="k") as real:
        assert not real.already_applied
        real.write("a", b"1")
    assert real.result.op == "publish"


def test_a_key_belongs_to_its_branch(repo: Repository) -> None:
    """Section 2: txn = hash of (repository, branch, key)."""
    repo.create_branch("dev")
    for branch in ("main", "dev"):
        with repo.transaction(branch, key="k") as tx:
            tx.write("a", branch.encode())
        assert tx.result.op == "publish"
        assert repo.read(branch, "a") == branch.encode()


def test_a_key_that_was_moved_away_is_refused_with_the_entry_that_moved_it(repo: Repository) -> None:
    """Section 4, row 2 with a key: its output no longer stands → fail closed; never a second application."""
    start = repo.head().commit.id
    with repo.transaction(key="k") as tx:
        tx.write("a", b"1")
    moved = repo.relocate_branch("main", start)
    with pytest.raises(PublishFenceError, match=f"entry {moved.seq}") as raised, repo.transaction(key="k") as again:
        again.write("a", b"1")
    assert raised.value.outcome is Outcome.NOT_APPLIED
    assert files(repo) == {}
    repo.relocate_branch("main", tx.result.commit)
    with repo.transaction(key="k") as adopted:
        pass
    assert adopted.result.op == "adopt"


def test_two_transactions_with_one_key_at_the_same_time_apply_once(repo: Repository) -> None:
    """INV-4: at most one commit per txn stands on a branch; the loser adopts the winner's."""
    with repo.transaction(key="k", on_conflict="rebase") as slow:
        slow.write("slow", b"1")
        with repo.transaction(key="k") as fast:
            fast.write("fast", b"1")
    assert (slow.result.op, slow.result.commit) == ("adopt", fast.result.commit)
    assert files(repo) == {"fast": b"1"}
    assert sorted(r.kind for r in repo.recoveries()) == ["aborted", "published"]


def test_a_key_in_flight_elsewhere_is_adopted_once_recovery_published_it(
    repo: Repository, abandon: Abandon, clock: HandClock
) -> None:
    execution = abandon(repo, lambda tx: tx.write("a", b"1"), "sealed", key="k")
    clock.advance(60)
    repo.recover()
    with repo.transaction(key="k") as tx:
        assert tx.already_applied
    assert (tx.result.op, tx.result.execution) == ("adopt", execution)


# --- conflicts and rebase ---------------------------------------------------------------------------------------


def test_a_moved_branch_is_a_conflict_that_carries_both_heads(repo: Repository, put: Put, store: ObjectStore) -> None:
    """Section 4, row 6 with on_conflict='fail'."""
    start = put(repo, {"a": b"1"})
    with pytest.raises(PublishConflict) as raised, repo.transaction() as tx:
        tx.write("b", b"mine")
        other = put(repo, {"c": b"theirs"}, actor="someone")
    error = raised.value
    assert (error.branch, error.expected, error.actual) == ("main", start, other)
    assert (error.retryable, error.outcome) == (True, Outcome.NOT_APPLIED)
    assert "someone" in str(error)
    assert "rebase" in str(error)
    assert files(repo) == {"a": b"1", "c": b"theirs"}
    assert names(store, f"files/{tx.execution}/", f"trees/{tx.execution}/", "intents/") == []


def test_rebase_goes_on_where_nothing_overlaps(repo: Repository, put: Put) -> None:
    """Section 4, row 5; INV-5: the other commits stay."""
    put(repo, {"a": b"1", "gone": b"g"})
    with repo.transaction(on_conflict="rebase") as tx:
        assert tx.read("a") == b"1"
        tx.write("mine", b"m")
        tx.delete("gone")
        second = put(repo, {"theirs": b"t"})
        third = put(repo, {"theirs": b"t2", "dir/more": b"m"})
    head = repo.head()
    assert tx.result.commit == head.commit.id
    assert head.commit.parents == (third,)
    assert repo.commit("main~2").id == second
    assert files(repo) == {"a": b"1", "mine": b"m", "theirs": b"t2", "dir/more": b"m"}
    assert repo.fsck().clean


@pytest.mark.parametrize(
    ("mine", "theirs", "touched"),
    [
        (lambda tx: tx.write("a", b"m"), {"a": b"t"}, ["a"]),
        (lambda tx: tx.delete("a"), {"a": b"t"}, ["a"]),
        (lambda tx: tx.write("a", b"m"), {"a": None}, ["a"]),
        (lambda tx: tx.write("new", b"m"), {"new/below": b"t"}, ["new/below"]),
        (lambda tx: tx.write("new/below", b"m"), {"new": b"t"}, ["new"]),
        (lambda tx: (tx.write("m", b"m"), tx.read("a")), {"a": b"t"}, ["a"]),
        (lambda tx: (tx.write("m", b"m"), tx.stat("absent")), {"absent": b"t"}, ["absent"]),
        (lambda tx: (tx.write("m", b"m"), list(tx.list("d"))), {"d/new": b"t"}, ["d/new"]),
        (lambda tx: (tx.write("m", b"m"), list(tx.list())), {"x/y": b"t"}, ["x/y"]),
        (lambda tx: tx.delete("d"), {"d/new": b"t"}, ["d/new"]),
    ],
    ids=[
        "write-write",
        "delete-write",
        "write-delete",
        "file-dir",
        "dir-file",
        "read",
        "read-of-absent",
        "list",
        "list-all",
        "delete-of-dir",
    ],
)
def test_rebase_refuses_what_was_read_or_written_here(
    repo: Repository,
    put: Put,
    mine: Callable[[Transaction], object],
    theirs: dict[str, bytes | None],
    touched: list[str],
) -> None:
    """Section 4, row 5: *read* includes listings, and what was looked for and absent."""
    put(repo, {"a": b"1", "d/x": b"1"})
    before = files(repo)
    with pytest.raises(PublishConflict) as raised, repo.transaction(on_conflict="rebase") as tx:
        mine(tx)
        put(repo, theirs)
    assert list(raised.value.paths) == touched
    assert files(repo) == {**{k: v for k, v in before.items() if k not in theirs}, **_present(theirs)}


def _present(changes: dict[str, bytes | None]) -> dict[str, bytes]:
    return {k: v for k, v in changes.items() if v is not None}


def test_rebase_does_not_mistake_a_name_prefix_for_a_directory(repo: Repository, put: Put) -> None:
    with repo.transaction(on_conflict="rebase") as tx:
        assert list(tx.list("d")) == []
        tx.write("e", b"m")
        put(repo, {"d-1": b"t", "d1/x": b"t", "e0": b"t"})
    assert set(files(repo)) == {"e", "d-1", "d1/x", "e0"}


@pytest.mark.parametrize("rebase", [False, True])
def test_a_branch_deleted_meanwhile_is_never_published_to(repo: Repository, put: Put, rebase: bool) -> None:
    """Section 4, row 0: also where the branch exists again under the same name."""
    put(repo, {"a": b"1"})
    repo.create_branch("dev")
    with (
        pytest.raises(PublishFenceError, match="deleted"),
        repo.transaction("dev", on_conflict="rebase" if rebase else "fail") as tx,
    ):
        tx.write("b", b"2")
        repo.delete_branch("dev")
        repo.create_branch("dev")
    assert files(repo, "dev") == {"a": b"1"}


def test_a_branch_relocated_from_under_a_transaction_is_refused(repo: Repository, put: Put) -> None:
    """Section 4, row 6: the input is no longer on the branch."""
    start = repo.head().commit.id
    put(repo, {"a": b"1"})
    with pytest.raises(PublishFenceError, match="no longer on the branch"), repo.transaction(on_conflict="rebase") as t:
        t.write("b", b"2")
        repo.relocate_branch("main", start)
    assert files(repo) == {}


# --- branches and tags ------------------------------------------------------------------------------------------


def test_a_branch_starts_at_its_source_and_moves_alone(repo: Repository, put: Put) -> None:
    put(repo, {"a": b"1"})
    made = repo.create_branch("feature/x", actor="ada")
    assert (made.seq, made.entry.op, made.entry.actor) == (2, "create", "ada")
    put(repo, {"a": b"2"}, branch="feature/x")
    assert (repo.read("main", "a"), repo.read("feature/x", "a")) == (b"1", b"2")
    assert [h.name for h in repo.branches()] == ["feature/x", "main"]
    with pytest.raises(AlreadyExists):
        repo.create_branch("feature/x")


def test_a_branch_created_again_continues_its_numbers(repo: Repository, put: Put) -> None:
    """R1: entry keys are never removed, so no number is ever used twice."""
    put(repo, {"a": b"1"})
    repo.create_branch("dev")
    put(repo, {"a": b"2"}, branch="dev")
    repo.delete_branch("dev")
    with pytest.raises(NotFound):
        repo.head("dev")
    assert [h.name for h in repo.branches()] == ["main"]
    again = repo.create_branch("dev")
    assert again.seq == 6
    assert [(e.seq, str(e.op)) for e in repo.entries("dev")] == [
        (6, "create"),
        (5, "reserve"),
        (4, "delete"),
        (3, "publish"),
        (2, "create"),
        (1, "reserve"),
    ]
    assert repo.read("dev", "a") == b"1"
    assert repo.read("dev@3", "a") == b"2"
    with pytest.raises(NotFound, match="deleted"):
        repo.commit("dev@4")


def test_branches_that_would_collide_on_a_disk_are_different(repo: Repository, put: Put) -> None:
    for name in ("a", "a/1", "A", "a%2f1"):
        repo.create_branch(name)
        put(repo, {"who": name.encode()}, branch=name)
    assert {n: repo.read(n, "who").decode() for n in ("a", "a/1", "A", "a%2f1")} == {
        n: n for n in ("a", "a/1", "A", "a%2f1")
    }


def test_the_default_branch_cannot_be_deleted_nor_an_absent_one(repo: Repository) -> None:
    with pytest.raises(ConflictError):
        repo.delete_branch("main")
    with pytest.raises(NotFound):
        repo.delete_branch("none")
    with pytest.raises(NotFound):
        repo.delete_tag("none")


def test_tags_stay_where_they_are(repo: Repository, put: Put) -> None:
    first = put(repo, {"a": b"1"})
    repo.create_tag("v1", note="the first")
    put(repo, {"a": b"2"})
    assert repo.read("v1", "a") == b"1"
    assert [(t.name, t.commit.id, t.entry.note) for t in repo.tags()] == [("v1", first, "the first")]
    with pytest.raises(AlreadyExists):
        repo.create_tag("v1")
    with pytest.raises(AlreadyExists):
        repo.create_tag("main")
    with pytest.raises(AlreadyExists):
        repo.create_branch("v1")
    repo.delete_tag("v1")
    assert repo.create_tag("v1").seq == 5
    assert repo.read("v1", "a") == b"2"


def test_relocate_points_a_branch_elsewhere_and_keeps_what_it_left(repo: Repository, put: Put) -> None:
    first = put(repo, {"a": b"1"})
    second = put(repo, {"a": b"2"})
    moved = repo.relocate_branch("main", first, expected=second, note="wrong numbers")
    assert (moved.commit.id, moved.seq, moved.entry.op) == (first, 4, "relocate")
    assert repo.read("main", "a") == b"1"
    assert repo.read("main@3", "a") == b"2"
    with pytest.raises(PublishConflict) as raised:
        repo.relocate_branch("main", second, expected=second)
    assert raised.value.actual == first
    assert repo.head().seq == 4


# --- history ----------------------------------------------------------------------------------------------------


def test_time_travel_names_commits_in_every_way(repo: Repository, put: Put) -> None:
    commits = [put(repo, {"n": str(n).encode()}) for n in range(4)]
    assert repo.read("main~2", "n") == b"1"
    assert repo.read("main@3", "n") == b"1"
    assert repo.read(commits[0], "n") == b"0"
    assert repo.read(commits[0][:8], "n") == b"0"
    assert repo.read(f"{commits[3]}~1", "n") == b"2"
    assert repo.read("main@4~1", "n") == b"1"
    for absent in ("main~9", "main@0", "main@99", "main@x", "nowhere", "nowhere@1", "0000000000"):
        with pytest.raises(NotFound):
            repo.commit(absent)
    for unreadable in ("main~x", "main~-1", ""):
        with pytest.raises(ContractError):
            repo.commit(unreadable)


def test_a_commit_id_that_does_not_exist_is_not_found(repo: Repository) -> None:
    """Asking for what never was is the caller's mistake, not damage of the store."""
    with pytest.raises(NotFound):
        repo.commit("0" * 64)


def test_log_follows_first_parents_or_all(repo: Repository, put: Put, clock: HandClock) -> None:
    def step() -> float:
        clock.advance(1)
        return clock.now()

    base = put(repo, {"a": b"1"})
    repo.create_branch("dev")
    step()
    side = put(repo, {"b": b"1"}, branch="dev", actor="dora")
    step()
    mine = put(repo, {"c": b"1"})
    step()
    merged = repo.merge("dev").commit
    root = repo.commit("main~3").id
    assert [item.commit.id for item in repo.log()] == [merged, mine, base, root]
    assert [item.commit.id for item in repo.log(full=True)] == [merged, mine, side, base, root]
    assert [item.commit.id for item in repo.log(full=True, actor="dora")] == [side]
    assert [item.entry and item.entry.seq for item in repo.log()] == [4, 3, 2, 1]


@pytest.mark.parametrize("how", ["id", "short", "tilde", "at", "tag"])
def test_log_starts_at_any_ref(repo: Repository, put: Put, how: str) -> None:
    first, _second = put(repo, {"a": b"1"}), put(repo, {"a": b"2"})
    repo.create_tag("v1", first)
    ref = {"id": first, "short": first[:10], "tilde": "main~1", "at": "main@2", "tag": "v1"}[how]
    assert next(item.commit.id for item in repo.log(ref)) == first


def test_log_finds_what_recovery_made_visible(repo: Repository, put: Put, abandon: Abandon, clock: HandClock) -> None:
    put(repo, {"a": b"1"}, actor="ada")
    abandon(repo, lambda tx: tx.write("b", b"2"), "sealed", actor="ada")
    clock.advance(60)
    repo.recover()
    found = list(repo.log(actor="fenceline:recovery"))
    assert [(i.commit.actor, i.entry and i.entry.actor) for i in found] == [("ada", "fenceline:recovery")]
    assert len(list(repo.log(actor="ada"))) == 2


def test_diff_says_what_was_added_changed_and_removed(repo: Repository, put: Put) -> None:
    put(repo, {"same": b"s", "changed": b"1", "removed": b"r", "d/x": b"x"})
    put(repo, {"changed": b"2", "removed": None, "added": b"a", "d/x": None, "d/y": b"y"})
    assert [(u.path, u.status) for u in repo.diff("main~1", "main")] == [
        ("added", "added"),
        ("changed", "changed"),
        ("d/x", "removed"),
        ("d/y", "added"),
        ("removed", "removed"),
    ]
    assert list(repo.diff("main", "main")) == []
    assert [u.status for u in repo.diff("main", "main~1")] == ["removed", "changed", "added", "removed", "added"]


def test_revert_undoes_one_commit_and_keeps_later_ones(repo: Repository, put: Put) -> None:
    put(repo, {"a": b"1", "b": b"1"})
    bad = put(repo, {"a": b"2", "c": b"2", "b": None})
    put(repo, {"later": b"l"})
    result = repo.revert(bad)
    assert result.op == "publish"
    assert files(repo) == {"a": b"1", "b": b"1", "later": b"l"}
    assert repo.head().commit.kind == "revert"
    assert bad[:12] in repo.head().commit.message


def test_revert_refuses_what_later_commits_changed(repo: Repository, put: Put) -> None:
    bad = put(repo, {"a": b"1"})
    put(repo, {"a": b"2"})
    with pytest.raises(ConflictError, match="later commits"):
        repo.revert(bad)
    root = repo.commit("main~2").id
    with pytest.raises(ContractError, match="first commit"):
        repo.revert(root)
    repo.create_branch("dev", root)
    with pytest.raises(NotFound):
        repo.revert(bad, "dev")
    assert files(repo) == {"a": b"2"}


# --- files and directories --------------------------------------------------------------------------------------


def refused(repo: Repository, body: Callable[[Transaction], object]) -> None:
    before = repo.head()
    with pytest.raises(AlreadyExists), repo.transaction() as tx:
        body(tx)
    assert repo.head() == before


def in_turn(*paths: str) -> Callable[[Transaction], object]:
    """Write these paths; delete those that start with '-'."""

    def apply(tx: Transaction) -> None:
        for path in paths:
            if path.startswith("-"):
                tx.delete(path[1:])
            else:
                tx.write(path, b"")

    return apply


def test_a_path_is_a_file_or_a_directory_never_both(repo: Repository, put: Put) -> None:
    put(repo, {"f": b"1", "d/x": b"1", "d/e/y": b"1"})
    refused(repo, lambda tx: tx.write("f/below", b""))
    refused(repo, lambda tx: tx.write("f/below/deep", b""))
    refused(repo, lambda tx: tx.write("d", b""))
    refused(repo, lambda tx: tx.write("d/e", b""))
    refused(repo, in_turn("n/x", "n"))
    refused(repo, in_turn("n", "n/x"))
    refused(repo, in_turn("-f", "f/x", "f"))
    with repo.transaction() as tx:
        tx.delete("f")
        tx.write("f/below", b"1")
        tx.delete("d")
        tx.write("d", b"1")
    assert files(repo) == {"f/below": b"1", "d": b"1"}


def test_a_directory_known_from_a_failed_write_is_looked_at_again(repo: Repository) -> None:
    """A write that failed and was caught leaves no knowledge behind that a later one trusts."""

    def broken() -> Iterator[bytes]:
        yield b""
        raise ValueError("source")

    with pytest.raises(AlreadyExists), repo.transaction() as tx:
        with pytest.raises(ValueError, match="source"):
            tx.write("d/x", broken())
        tx.write("d", b"a file now")
        tx.write("d/x", b"below a file")


# --- staged is not published ------------------------------------------------------------------------------------


def assert_cannot_be_built_on(repo: Repository, commit: str) -> None:
    assert repo.commit(commit).id == commit
    heads = [(h.name, h.seq) for h in (*repo.branches(), *repo.tags())]
    for build in (
        lambda: repo.create_tag("t", commit),
        lambda: repo.create_branch("b", commit),
        lambda: repo.relocate_branch("main", commit),
        lambda: repo.merge(commit),
        lambda: repo.revert(commit),
    ):
        with pytest.raises(UnpublishedCommit):
            build()
    assert [(h.name, h.seq) for h in (*repo.branches(), *repo.tags())] == heads


def test_a_staged_commit_cannot_be_built_on(
    repo: Repository, store: ObjectStore, put: Put, abandon: Abandon, clock: HandClock
) -> None:
    """INV-12: it can be inspected; never merged, tagged, branched from or published."""
    put(repo, {"a": b"1"})
    known = set(store.children("commits/"))
    abandon(repo, lambda tx: tx.write("b", b"2"), "sealed")
    (staged,) = set(store.children("commits/")) - known
    assert files(repo, staged) == {"a": b"1", "b": b"2"}
    assert_cannot_be_built_on(repo, staged)
    put(repo, {"in the way": b"1"})
    clock.advance(60)
    repo.recover()
    assert_cannot_be_built_on(repo, staged)


def test_a_commit_left_by_a_rebase_cannot_be_built_on(repo: Repository, store: ObjectStore, put: Put) -> None:
    """INV-12: of an execution's commits only the one that an entry published counts."""
    known = set(store.children("commits/"))
    with repo.transaction(on_conflict="rebase") as tx:
        tx.write("mine", b"m")
        other = put(repo, {"theirs": b"t"})
    (left,) = set(store.children("commits/")) - known - {other, tx.result.commit}
    assert_cannot_be_built_on(repo, left)
    repo.create_tag("fine", tx.result.commit)


CHILD = """
import sys
from fenceline import open_repository
with open_repository(sys.argv[1]).transaction() as tx:
    tx.write("b", b"2")
"""


def test_a_commit_left_by_a_killed_process_cannot_be_built_on_until_recovered(tmp_path: Path) -> None:
    """INV-12 and INV-7 with a real SIGKILL between the seal and the ref entry."""
    repo = open_repository(tmp_path / "repo", create=True)
    known = set(repo.native.objects.children("commits/"))
    killed = subprocess.run(
        [sys.executable, "-c", CHILD, str(tmp_path / "repo")],
        env={**os.environ, "FENCELINE_FAILPOINTS": "entry.publish.before=crash"},
        check=False,
    )
    assert killed.returncode == -signal.SIGKILL
    (staged,) = set(repo.native.objects.children("commits/")) - known
    assert_cannot_be_built_on(repo, staged)
    open_repository(tmp_path / "repo")  # read-write: the sweep runs first
    assert list(repo.intents()) == []
    assert files(repo) == {"b": b"2"}
    assert repo.create_tag("now").commit.id == staged


def test_what_was_published_a_moment_ago_can_be_built_on(
    repo: Repository, abandon: Abandon, monkeypatch: pytest.MonkeyPatch
) -> None:
    """INV-12 refuses only what is not published: also while another process ends the intent between two reads."""
    execution = abandon(repo, lambda tx: tx.write("a", b"1"), "published")
    intents = repo._intents
    find = intents.find

    def ended_meanwhile(wanted: str) -> object:
        if wanted == execution:
            monkeypatch.setattr(intents, "find", find)
            repo.native.seams.clock.sleep(60)
            repo.recover()
        return find(wanted)

    monkeypatch.setattr(intents, "find", ended_meanwhile)
    assert repo.create_tag("v1").commit.id == repo.head().commit.id

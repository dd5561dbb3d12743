"""Direct transactions on lakeFS: what the contract of the native repository promises, as far as lakeFS goes."""

from __future__ import annotations

import io
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from lake_world import World, make_world

from fenceline.errors import (
    AlreadyExists,
    ContractError,
    NotFound,
    OutcomeUnknown,
    PublishConflict,
    TransactionClosed,
)
from fenceline.on_lakefs import LakeFSRepository
from fenceline.repo.lakefs.client import Client
from fenceline.repo.lakefs.values import MergeEnd, MergeOutcome
from fenceline.seams import Owner
from fenceline.testing import test_seams
from fenceline.txn.lakefs.explain import NotOnLakeFS


@pytest.fixture
def world(client: Client, tmp_path: Path) -> World:
    return make_world(client, tmp_path / "work")


@pytest.fixture
def repo(world: World) -> LakeFSRepository:
    return LakeFSRepository(world.repo, "rw")


def test_a_transaction_publishes_all_its_changes_as_one_commit(repo: LakeFSRepository, world: World) -> None:
    start = world.head
    with repo.transaction(actor="ada", message="two files", metadata={"ticket": "7"}) as tx:
        tx.write("raw/b.txt", b"b")
        tx.write("c.txt", "c")
        tx.delete("raw/a.txt")
        assert world.head == start
    commit = repo.head().commit
    assert (tx.result.op, tx.result.commit) == ("publish", commit.id)
    assert (commit.actor, commit.message, commit.parents) == ("ada", "two files", (start,))
    assert commit.metadata["ticket"] == "7"
    assert world.content() == {"raw/b.txt": b"b", "c.txt": b"c"}
    assert world.staging() == []


def test_a_transaction_reads_its_own_writes(repo: LakeFSRepository) -> None:
    with repo.transaction() as tx:
        tx.write("raw/b.txt", io.BytesIO(b"b"))
        tx.write("raw/c.txt", iter([b"c", b"c"]))
        tx.delete("raw/a.txt")
        assert tx.read("raw/c.txt") == b"cc"
        assert [entry.path for entry in tx.list("raw")] == ["raw/b.txt", "raw/c.txt"]
        with pytest.raises(NotFound):
            tx.read("raw/a.txt")


def test_upload_takes_a_directory_and_keeps_modes(repo: LakeFSRepository, world: World, tmp_path: Path) -> None:
    local = tmp_path / "local"
    (local / "deep").mkdir(parents=True)
    (local / "deep/run.sh").write_text("true")
    (local / "deep/run.sh").chmod(0o755)
    (local / "x").write_text("x")
    with repo.transaction() as tx:
        assert tx.upload(str(local), "up") == 2
    assert repo.stat("main", "up/deep/run.sh").mode == 0o755
    head = world.head
    with repo.transaction() as tx:
        tx.upload(str(local), "up")
    assert (tx.result.op, world.head) == ("noop", head), "the same content is no change"


def test_an_exception_cancels_and_leaves_nothing(repo: LakeFSRepository, world: World) -> None:
    before = world.head
    with pytest.raises(ZeroDivisionError), repo.transaction() as tx:  # noqa: PT012
        tx.write("raw/b.txt", b"b")
        assert len(world.staging()) == 1
        raise ZeroDivisionError
    assert (world.head, world.staging()) == (before, [])
    with pytest.raises(TransactionClosed):
        tx.write("late.txt", b"")


def test_the_same_key_never_applies_twice(repo: LakeFSRepository, world: World) -> None:
    with repo.transaction(key="load-1") as tx:
        tx.write("b.txt", b"first")
    first = tx.result.commit
    with repo.transaction(actor="other") as tx:
        tx.write("c.txt", b"c")
    with repo.transaction(key="load-1") as tx:
        assert tx.already_applied
        tx.write("b.txt", b"second")
    assert (tx.result.op, tx.result.commit) == ("adopt", first)
    assert world.content()["b.txt"] == b"first"


def test_two_transactions_with_one_key_at_the_same_time_apply_once(repo: LakeFSRepository, world: World) -> None:
    with repo.transaction(key="k") as outer:
        outer.write("b.txt", b"outer")
        with repo.transaction(key="k") as inner:
            inner.write("b.txt", b"inner")
    assert (inner.result.op, outer.result.op) == ("publish", "adopt")
    assert world.content()["b.txt"] == b"inner"
    assert world.staging() == []


def test_a_moved_branch_is_a_conflict_that_carries_both_heads(repo: LakeFSRepository, world: World) -> None:
    start = world.head
    with pytest.raises(PublishConflict) as caught, repo.transaction() as tx:  # noqa: PT012
        tx.write("b.txt", b"b")
        foreign = world.foreign("other.txt")
    assert (caught.value.expected, caught.value.actual) == (start, foreign)
    assert world.staging() == []
    assert [record.kind for record in repo.recoveries()] == ["rolled_back"]


def test_rebase_goes_on_where_nothing_overlaps(repo: LakeFSRepository, world: World) -> None:
    with repo.transaction(on_conflict="rebase") as tx:
        tx.write("b.txt", b"b")
        foreign = world.foreign("other.txt")
    assert repo.head().commit.parents == (foreign,)
    with pytest.raises(PublishConflict) as caught, repo.transaction(on_conflict="rebase") as tx:  # noqa: PT012
        tx.read("raw/a.txt")
        tx.write("b.txt", b"c")
        world.foreign("raw/a.txt")
    assert caught.value.paths == ("raw/a.txt",)


@pytest.mark.parametrize("landed", [True, False])
def test_a_lost_answer_is_settled_without_a_key(
    repo: LakeFSRepository, world: World, monkeypatch: pytest.MonkeyPatch, landed: bool
) -> None:
    merge, seen = world.client.merge, list[str]()

    def lose(source: str, target: str, *given: Any, **more: Any) -> MergeOutcome:
        seen.append(source)
        if len(seen) == 1:
            if landed:
                merge(source, target, *given, **more)
            return MergeOutcome(MergeEnd.UNKNOWN, why="lost")
        return merge(source, target, *given, **more)

    monkeypatch.setattr(world.client, "merge", lose)
    with repo.transaction() as tx:
        tx.write("b.txt", b"b")
    assert (tx.result.op, tx.result.commit) == ("publish", world.head)
    assert world.content()["b.txt"] == b"b"


def abandoned(repo: LakeFSRepository, world: World, monkeypatch: pytest.MonkeyPatch, **more: Any) -> None:
    """A writer that sealed and then could not reach the server, and never will."""

    def away(*given: Any, **options: Any) -> MergeOutcome:
        raise OutcomeUnknown("the server is away")

    with monkeypatch.context() as patch:
        patch.setattr(world.client, "merge", away)
        with pytest.raises(OutcomeUnknown), repo.transaction(actor="ada", **more) as tx:
            tx.write("b.txt", b"b")
    assert len(world.staging()) == 1

    def dead(owner: Owner) -> bool:
        return True

    world.repo.seams = replace(test_seams(), owner=world.repo.seams.owner, proven_dead=dead)


def test_the_sweep_rolls_a_dead_writer_forward(
    repo: LakeFSRepository, world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert [swept.ending for swept in repo.recover()] == []
    abandoned(repo, world, monkeypatch)
    assert [swept.ending for swept in repo.recover()] == ["rolled_forward"]
    assert world.content()["b.txt"] == b"b"
    assert [record.kind for record in repo.recoveries()] == ["rolled_forward"]
    assert [item.commit.id for item in repo.log("main", actor="fenceline:recovery")] == [world.head]
    assert repo.recover() == []


def test_the_sweep_fences_a_dead_writer_whose_branch_moved(
    repo: LakeFSRepository, world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    abandoned(repo, world, monkeypatch)
    head = world.foreign("other.txt")
    assert [swept.ending for swept in repo.recover()] == ["rolled_back"]
    assert (world.head, world.staging()) == (head, [])


def test_a_path_is_a_file_or_a_directory_never_both(repo: LakeFSRepository) -> None:
    with repo.transaction() as tx:
        with pytest.raises(AlreadyExists):
            tx.write("raw/a.txt/below", b"")
        with pytest.raises(AlreadyExists):
            tx.write("raw", b"")
        with pytest.raises(ContractError):
            tx.write("_lakefs_actions/mine.yaml", b"")
        with pytest.raises(NotOnLakeFS):
            tx.put_dataset("x", "y")
    assert tx.result.op == "noop"

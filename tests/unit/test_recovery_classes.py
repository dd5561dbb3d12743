"""The recovery table: every class by a constructed state, and what becomes of it."""

from __future__ import annotations

import json
import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest

from fenceline import Repository
from fenceline.errors import NotFound
from fenceline.repo.model import SYSTEM_RECOVERY, Op
from fenceline.seams import Seams
from fenceline.testing import HandClock, MemoryObjects, test_seams
from fenceline.txn import publish
from fenceline.txn.intent import Verdict
from fenceline.txn.recover import Class, Sweeper, Swept

Put = Callable[..., str]
Abandon = Callable[..., str]


@pytest.fixture
def repo(memory_repo: Repository, put: Put) -> Repository:
    put(memory_repo, {"a": b"1"}, actor="ada")
    return memory_repo


@pytest.fixture
def sweep(repo: Repository, clock: HandClock) -> Callable[[], Swept]:
    """The one unfinished intent, once its lease has run out."""

    def run() -> Swept:
        clock.advance(31)
        (swept,) = repo.recover()
        return swept

    return run


def paths(repo: Repository, ref: str = "main") -> set[str]:
    return {e.path for e in repo.list(ref)}


def staged(memory: MemoryObjects, execution: str) -> list[str]:
    return [i.key for area in ("files/", "trees/", "datasets/") for i in memory.list(area) if execution in i.key]


def assert_ended(repo: Repository, memory: MemoryObjects, execution: str, kind: str) -> None:
    """INV-10, and INV-9: a second sweep finds nothing to do."""
    (record,) = [r for r in repo.recoveries() if r.execution == execution]
    assert record.kind == kind
    assert [i.key for area in ("intents/", "beats/", "quarantine/") for i in memory.list(area)] == []
    assert list(repo.recover()) == []
    assert repo.fsck().clean


def write(tx: Any) -> None:
    tx.write("b", b"2")


# --- the classes ------------------------------------------------------------------------------------------------


def test_already_published_is_finished_as_published(
    repo: Repository, memory: MemoryObjects, abandon: Abandon, sweep: Callable[[], Swept]
) -> None:
    execution = abandon(repo, write, "published", actor="ada")
    seq = repo.head().seq
    swept = sweep()
    assert (swept.found, swept.ending) == (Class.ALREADY_PUBLISHED, "published")
    assert repo.head().seq == seq, "no second entry (R5)"
    assert paths(repo) == {"a", "b"}
    record = next(r for r in repo.recoveries() if r.execution == execution)
    assert (record.recovered_for, record.entry, record.commit) == ("ada", seq, repo.head().commit.id)
    assert_ended(repo, memory, execution, "published")


def test_already_fenced_is_deleted_and_finished(
    repo: Repository, memory: MemoryObjects, abandon: Abandon, sweep: Callable[[], Swept]
) -> None:
    """D1: after `sealed` only a fence entry lets anyone delete."""
    execution = abandon(repo, write, "sealed")
    publish.fence(repo.native, repo._intents.get(execution), "another sweep", SYSTEM_RECOVERY, "constructed")
    assert staged(memory, execution)
    swept = sweep()
    assert (swept.found, swept.ending) == (Class.ALREADY_PUBLISHED, "rolled_back")
    assert staged(memory, execution) == []
    assert paths(repo) == {"a"}
    assert_ended(repo, memory, execution, "rolled_back")


def test_a_finished_intent_that_was_not_removed_is_removed(
    repo: Repository, memory: MemoryObjects, abandon: Abandon, clock: HandClock
) -> None:
    execution = abandon(repo, write, "sealed")
    intent = memory.get(f"intents/{execution}")
    clock.advance(31)
    repo.recover()
    memory.put(f"intents/{execution}", intent)
    repo.recover()
    assert_ended(repo, memory, execution, "rolled_forward")


def test_no_movement_is_aborted_and_deleted(
    repo: Repository, memory: MemoryObjects, abandon: Abandon, sweep: Callable[[], Swept], parts: Callable[..., str]
) -> None:
    def body(tx: Any) -> None:
        write(tx)
        tx.put_dataset(parts({"p": b"1"}), "d")

    execution = abandon(repo, body, "open")
    assert len(staged(memory, execution)) == 2
    swept = sweep()
    assert (swept.found, swept.ending) == (Class.NO_MOVEMENT, "aborted")
    assert staged(memory, execution) == []
    assert paths(repo) == {"a"}
    assert_ended(repo, memory, execution, "aborted")


def test_an_aborted_intent_that_was_not_tidied_is_tidied(
    repo: Repository, memory: MemoryObjects, abandon: Abandon, sweep: Callable[[], Swept]
) -> None:
    execution = abandon(repo, write, "open")
    repo._intents.abort(repo._intents.get(execution), "its owner", "gave up")
    swept = sweep()
    assert (swept.found, swept.ending, swept.why) == (Class.NO_MOVEMENT, "aborted", "gave up")
    assert staged(memory, execution) == []


def test_an_owner_that_wakes_after_the_abort_cannot_seal(
    repo: Repository, memory: MemoryObjects, abandon: Abandon, sweep: Callable[[], Swept]
) -> None:
    """D4: a verdict is never removed."""
    execution = abandon(repo, write, "open")
    intent = repo._intents.get(execution)
    sweep()
    standing = repo._intents.seal(intent, Verdict("sealed", execution, commit="c"))
    assert standing.verdict == "aborted"


def test_rolled_past_expected_is_rolled_forward_by_recovery(
    repo: Repository, memory: MemoryObjects, abandon: Abandon, sweep: Callable[[], Swept]
) -> None:
    execution = abandon(repo, write, "sealed", actor="ada", message="mine")
    swept = sweep()
    assert (swept.found, swept.ending) == (Class.ROLLED_PAST_EXPECTED, "rolled_forward")
    head = repo.head()
    assert (head.entry.op, head.entry.actor, head.entry.execution) == (Op.PUBLISH, SYSTEM_RECOVERY, execution)
    assert (head.commit.actor, head.commit.message) == ("ada", "mine")
    assert paths(repo) == {"a", "b"}
    assert_ended(repo, memory, execution, "rolled_forward")


def test_a_sealed_rebase_is_rolled_forward_onto_a_moved_head(
    repo: Repository, memory: MemoryObjects, put: Put, abandon: Abandon, sweep: Callable[[], Swept]
) -> None:
    """Row 5, run by recovery: nothing it read or wrote was changed."""
    execution = abandon(repo, write, "sealed", on_conflict="rebase")
    others = [put(repo, {"x": b"1"}), put(repo, {"y": b"1"})]
    swept = sweep()
    assert (swept.found, swept.ending) == (Class.ROLLED_PAST_EXPECTED, "rolled_forward")
    assert repo.head().commit.parents == (others[1],)
    assert paths(repo) == {"a", "b", "x", "y"}
    assert_ended(repo, memory, execution, "rolled_forward")


@pytest.mark.parametrize(("moves", "found"), [(1, Class.UNEXPECTED_AT_P1), (2, Class.UNEXPECTED_MULTISTEP)])
@pytest.mark.parametrize("rebase", [False, True])
def test_unexpected_movement_is_fenced_and_deleted(
    repo: Repository,
    memory: MemoryObjects,
    put: Put,
    abandon: Abandon,
    sweep: Callable[[], Swept],
    moves: int,
    found: Class,
    rebase: bool,
) -> None:
    """An expected pin moved by one publish, or by more: rolled back; INV-5: the others stay."""
    execution = abandon(repo, write, "sealed", on_conflict="rebase" if rebase else "fail")
    for n in range(moves):
        put(repo, {"b": f"theirs {n}".encode()})
    swept = sweep()
    assert (swept.found, swept.ending) == (found, "rolled_back")
    last = repo.head().entry
    assert (last.op, last.execution, last.actor) == (Op.FENCE, execution, SYSTEM_RECOVERY)
    assert repo.read("main", "b") == f"theirs {moves - 1}".encode()
    assert staged(memory, execution) == []
    assert_ended(repo, memory, execution, "rolled_back")


def test_a_branch_that_was_deleted_is_not_brought_back(
    repo: Repository, memory: MemoryObjects, abandon: Abandon, sweep: Callable[[], Swept]
) -> None:
    """Row 0: rolled back, on a branch that no longer exists."""
    repo.create_branch("dev")
    execution = abandon(repo, write, "sealed", branch="dev")
    repo.delete_branch("dev")
    assert sweep().ending == "rolled_back"
    assert [h.name for h in repo.branches()] == ["main"]
    assert repo.create_branch("dev").seq == 6
    assert_ended(repo, memory, execution, "rolled_back")


def test_appends_that_only_their_owner_may_merge_are_conflicts_for_a_sweep(
    repo: Repository, memory: MemoryObjects, abandon: Abandon, sweep: Callable[[], Swept], parts: Callable[..., str]
) -> None:
    """Section 4: resume and recovery cannot validate a merged dataset, so they do not merge it."""
    with repo.transaction() as tx:
        tx.put_dataset(parts({"p": b"0"}), "d")

    def append(tx: Any) -> None:
        tx.put_dataset(parts({"q": b"1"}), "d", mode="append")

    execution = abandon(repo, append, "sealed", on_conflict="rebase")
    with repo.transaction() as tx:
        append(tx)
    swept = sweep()
    assert (swept.found, swept.ending) == (Class.UNEXPECTED_AT_P1, "rolled_back")
    assert repo.stat("main", "d").dataset is not None
    assert len(list(repo.list("main", "d"))) == 3
    assert staged(memory, execution) == []


def test_a_key_applied_by_someone_else_meanwhile_is_rolled_back(
    repo: Repository, memory: MemoryObjects, abandon: Abandon, sweep: Callable[[], Swept]
) -> None:
    """INV-4: at most one commit per txn."""
    execution = abandon(repo, write, "sealed", key="k", on_conflict="rebase")
    with repo.transaction(key="k") as tx:
        tx.write("c", b"3")
    assert sweep().ending == "rolled_back"
    assert paths(repo) == {"a", "c"}
    assert_ended(repo, memory, execution, "rolled_back")


def test_the_sealed_work_of_a_task_is_left_for_its_next_attempt(
    repo: Repository, memory: MemoryObjects, abandon: Abandon, sweep: Callable[[], Swept]
) -> None:
    execution = abandon(repo, write, "sealed")
    value = json.loads(memory.get(f"intents/{execution}"))
    memory.damage(f"intents/{execution}", json.dumps({**value, "step": "s", "attempt": "t"}).encode())
    swept = sweep()
    assert (swept.found, swept.ending) == (Class.ROLLED_PAST_EXPECTED, "left")
    assert staged(memory, execution)
    assert paths(repo) == {"a"}


# --- live owners ------------------------------------------------------------------------------------------------


def test_an_owner_within_its_lease_is_left_alone(repo: Repository, abandon: Abandon, clock: HandClock) -> None:
    abandon(repo, write, "sealed", lease=30)
    clock.advance(29)
    (swept,) = repo.recover()
    assert (swept.found, swept.ending) == (None, "live")
    assert [(s.state, s.expired) for s in repo.intents()] == [("sealed", False)]


def test_an_owner_that_beats_is_left_alone(
    repo: Repository, memory: MemoryObjects, abandon: Abandon, clock: HandClock
) -> None:
    execution = abandon(repo, write, "open")
    repo._intents.beat(execution)
    beat = memory.stat(f"beats/{execution}")
    assert beat is not None
    clock.advance(beat.modified + 29 - clock.now())
    assert repo.recover()[0].ending == "live"
    clock.advance(2)
    assert repo.recover()[0].ending == "aborted"


def test_a_proven_death_needs_no_lease(repo: Repository, memory: MemoryObjects, abandon: Abandon) -> None:
    execution = abandon(repo, write, "sealed", lease=10_000)
    after = Repository.on(memory, seams=test_seams(dead=lambda owner: owner.pid == 1))
    assert paths(after) == {"a", "b"}
    assert_ended(after, memory, execution, "rolled_forward")


# --- invariant violations ---------------------------------------------------------------------------------------


def _file_gone(memory: MemoryObjects, execution: str) -> None:
    memory.delete([k for k in staged(memory, execution) if k.startswith("files/")])


def _file_cut(memory: MemoryObjects, execution: str) -> None:
    (key,) = (k for k in staged(memory, execution) if k.startswith("files/"))
    memory.damage(key, b"")


def _tree_gone(memory: MemoryObjects, execution: str) -> None:
    memory.delete([k for k in staged(memory, execution) if k.startswith("trees/")])


def _commit_gone(memory: MemoryObjects, execution: str) -> None:
    verdict = json.loads(memory.get(f"verdicts/direct/{execution}"))
    memory.delete([f"commits/{verdict['commit']}"])


def _verdict_damaged(memory: MemoryObjects, execution: str) -> None:
    memory.damage(f"verdicts/direct/{execution}", b"{")


def _intent_damaged(memory: MemoryObjects, execution: str) -> None:
    memory.damage(f"intents/{execution}", b"{")


BREAKS = [_file_gone, _file_cut, _tree_gone, _commit_gone, _verdict_damaged, _intent_damaged]


@pytest.mark.parametrize("broken", BREAKS, ids=lambda f: f.__name__.strip("_"))
def test_what_cannot_be_decided_is_quarantined_and_an_operator_ends_it(
    repo: Repository, memory: MemoryObjects, seams: Seams, put: Put, abandon: Abandon, clock: HandClock, broken: Any
) -> None:
    """InvariantViolation; INV-10 and INV-11: shown, left alone, ended by hand; everything else goes on."""
    execution = abandon(repo, write, "sealed")
    broken(memory, execution)
    clock.advance(31)
    for _ in range(2):
        other = Repository.on(memory, seams=seams)
        (swept,) = other.recover()
        assert (swept.found, swept.ending) == (Class.INVARIANT_VIOLATION, "quarantined")
        assert swept.why
    assert [(s.execution, s.state) for s in other.intents()] == [(execution, "quarantined")]
    put(other, {"meanwhile": b"1"})
    ended = other.resolve_intent(execution, actor="operator")
    assert (ended.found, ended.ending) == (Class.INVARIANT_VIOLATION, "rolled_back")
    assert paths(other) == {"a", "meanwhile"}
    if broken is not _intent_damaged:  # an intent that cannot be read does not say which branch to fence it on
        assert (other.head().entry.op, other.head().entry.actor) == (Op.FENCE, "operator")
        assert staged(memory, execution) == []
    assert_ended(other, memory, execution, "rolled_back")


def test_what_was_repaired_can_be_tried_again(
    repo: Repository, memory: MemoryObjects, seams: Seams, abandon: Abandon, clock: HandClock
) -> None:
    execution = abandon(repo, write, "sealed")
    (key,) = (k for k in staged(memory, execution) if k.startswith("files/"))
    memory.damage(key, b"")
    clock.advance(31)
    other = Repository.on(memory, seams=seams)
    assert other.resolve_intent(execution, "retry").ending == "quarantined"
    memory.damage(key, b"2")
    swept = other.resolve_intent(execution, "retry")
    assert (swept.found, swept.ending) == (Class.ROLLED_PAST_EXPECTED, "rolled_forward")
    assert other.read("main", "b") == b"2"
    assert_ended(other, memory, execution, "rolled_forward")


def test_resolving_what_is_not_in_quarantine_is_refused(repo: Repository, abandon: Abandon) -> None:
    execution = abandon(repo, write, "sealed")
    for name in (execution, "unknown"):
        with pytest.raises(NotFound):
            repo.resolve_intent(name)
    assert [s.state for s in repo.intents()] == ["sealed"]


def test_one_intent_that_cannot_be_decided_does_not_stop_the_others(
    repo: Repository, memory: MemoryObjects, abandon: Abandon, clock: HandClock
) -> None:
    """INV-11."""
    repo.create_branch("dev")
    first = abandon(repo, write, "sealed")
    second = abandon(repo, write, "sealed", branch="dev")
    _verdict_damaged(memory, first)
    clock.advance(31)
    endings = {s.execution: s.ending for s in repo.recover()}
    assert endings == {first: "quarantined", second: "rolled_forward"}


# --- many at once -----------------------------------------------------------------------------------------------


@pytest.mark.parametrize("at", ["open", "sealed", "published"])
def test_many_sweeps_at_once_end_an_intent_once(
    repo: Repository, memory: MemoryObjects, seams: Seams, abandon: Abandon, clock: HandClock, at: str
) -> None:
    """INV-9, INV-10: through the same gates as the owner."""
    execution = abandon(repo, write, at)
    clock.advance(31)
    others = [Repository(repo.native.__class__.open(memory, seams), "rw") for _ in range(8)]
    barrier = threading.Barrier(len(others))

    def run(other: Repository) -> None:
        barrier.wait()
        other.recover()

    with ThreadPoolExecutor(len(others)) as pool:
        list(pool.map(run, others))
    assert_ended(repo, memory, execution, {"open": "aborted", "sealed": "rolled_forward", "published": "published"}[at])
    assert [e.execution for e in repo.entries() if e.op in (Op.PUBLISH, Op.FENCE)].count(execution) == (at != "open")


def test_the_sweeper_recovers_in_the_background(disk_repo: Repository, abandon: Abandon) -> None:
    """With the real clock and threads: the lease runs out, and a long-lived process finishes the work."""
    done = threading.Event()
    execution = abandon(disk_repo, write, "sealed", lease=0.01)
    sweeper = Sweeper(disk_repo.native.seams, disk_repo.recover, 0.01)
    try:
        for _ in range(500):
            if disk_repo._intents.record(execution) is not None:
                break
            done.wait(0.01)
    finally:
        sweeper.stop()
    assert [r.kind for r in disk_repo.recoveries()] == ["rolled_forward"]
    assert paths(disk_repo) == {"b"}

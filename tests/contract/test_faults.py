"""Every store call of a transaction goes wrong once, in every way: what was said of the outcome stays true."""

from __future__ import annotations

import contextlib
import threading
from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest

from fenceline import FencelineError, Outcome, Repository, Retention, Transaction
from fenceline.errors import OutcomeUnknown, StoreError
from fenceline.repo.model import MOVES, Op
from fenceline.seams import Seams
from fenceline.testing import Fault, HandClock, MemoryObjects, test_seams
from fenceline.testing.memory import Action, Call

LEASE = 30.0
Abandon = Callable[..., str]


@dataclass(frozen=True)
class Way:
    """One way for a call to go wrong. A lost request does nothing, and the caller cannot know that."""

    action: Action
    request_lost: bool = False


WAYS = {
    "fail": Way("fail"),
    "lose_answer": Way("lose_answer"),
    "lose_request": Way("fail", request_lost=True),
    "tear": Way("tear"),
}


class Scheduled(MemoryObjects):
    """Goes wrong by the position of a call among all calls since the plan was made."""

    plan: Callable[[int], Way | None] | None = None
    position = 0

    def _call(self, call: Call, key: str) -> Action | None:
        way = self.plan(self.position) if self.plan else None
        self.position += self.plan is not None
        if way is None:
            return super()._call(call, key)
        self.inject(Fault(call, 1, way.action))
        try:
            return super()._call(call, key)
        except StoreError as error:
            if way.request_lost:
                raise OutcomeUnknown(f"injected: no answer to {call} of {key}", key=key) from error
            raise
        finally:
            self._faults.clear()

    @contextlib.contextmanager
    def calm(self) -> Iterator[None]:
        """Others work on meanwhile, undisturbed and uncounted."""
        plan, self.plan = self.plan, None
        yield
        self.plan = plan


class World:
    """A repository in memory with something on it, and what its branch held before."""

    def __init__(self) -> None:
        self.store = Scheduled()
        self.clock = HandClock()
        self.seams: Seams = test_seams(self.clock)
        self.repo = Repository.on(self.store, create=True, seams=self.seams)
        with self.repo.transaction() as tx:
            for n in range(3):
                tx.write(f"old/{n}", b"old")
            tx.write("gone", b"old")
        self.repo.create_branch("dev")
        with self.repo.transaction("dev") as tx:
            tx.write("dev", b"dev")
        self.before = content(self.repo)


def content(repo: Repository) -> dict[str, bytes]:
    return {e.path: repo.read("main", e.path) for e in repo.list("main") if e.address}


def change(tx: Transaction) -> None:
    tx.write("new/a", b"1")
    tx.write("new/b", b"2")
    tx.write("old/1", b"changed")
    tx.delete("gone")


def plain(world: World) -> None:
    with world.repo.transaction(lease=LEASE) as tx:
        change(tx)


def keyed(world: World) -> None:
    with world.repo.transaction(key="k", lease=LEASE) as tx:
        change(tx)


def rebased(world: World) -> None:
    with world.repo.transaction(on_conflict="rebase", lease=LEASE) as tx:
        change(tx)
        with world.store.calm(), Repository.on(world.store, seams=world.seams).transaction() as other:
            other.write("other", b"o")
        world.before = {**world.before, "other": b"o"}


def merged(world: World) -> None:
    world.repo.merge("dev")


Scenario = Callable[[World], None]
SCENARIOS: list[Scenario] = [plain, keyed, rebased, merged]
All = pytest.mark.parametrize("scenario", SCENARIOS, ids=lambda s: s.__name__)


def attempt(scenario: Scenario, world: World, plan: Callable[[int], Way | None]) -> FencelineError | None:
    world.store.plan, world.store.position = plan, 0
    try:
        scenario(world)
    except FencelineError as error:
        return error
    finally:
        world.store.plan = None
    return None


def baseline(scenario: Scenario) -> tuple[int, dict[str, bytes]]:
    """How many store calls the scenario makes, and what the branch holds after it."""
    world = World()
    assert attempt(scenario, world, lambda position: None) is None
    assert world.store.position > 10
    return world.store.position, content(world.repo)


def recovered(world: World, store: MemoryObjects | None = None) -> Repository:
    """As another process finds it once the owner's lease ran out, swept twice."""
    world.clock.advance(LEASE + 1)
    repo = Repository.on(store or world.store, seams=world.seams)
    repo.recover()
    return repo


def assert_said_the_truth(
    world: World, error: FencelineError | None, after: dict[str, bytes], repo: Repository, where: object
) -> None:
    """D2, INV-3, INV-6, INV-7."""
    said = Outcome.APPLIED if error is None else error.outcome
    possible = {Outcome.APPLIED: [after], Outcome.NOT_APPLIED: [world.before], Outcome.UNKNOWN: [world.before, after]}
    assert content(repo) in possible[said], f"at {where}: said {said} ({type(error).__name__}: {error})"


def assert_ended_well(store: MemoryObjects, repo: Repository, where: object) -> None:
    """INV-10: every intent ends in exactly one terminal record, and it says what the branch says; nothing is broken."""
    assert [i.key for i in store.list("intents/")] == [], where
    assert [i.key for i in store.list("quarantine/")] == [], where
    records = {r.execution: r for r in repo.recoveries()}
    assert sorted(i.key.rpartition("/")[2] for i in store.list("verdicts/")) == sorted(records), where
    for branch in ("main", "dev"):
        moved = {e.execution for e in repo.entries(branch) if e.op in MOVES and e.execution}
        applied = ("published", "rolled_forward")
        assert {r.execution for r in records.values() if r.branch == branch and r.kind in applied} == moved, where
        assert not moved & {e.execution for e in repo.entries(branch) if e.op is Op.FENCE}, where
    report = repo.fsck()
    assert report.clean, f"at {where}: {report.problems}"


@pytest.mark.parametrize("way", WAYS)
@All
def test_one_call_that_goes_wrong_never_makes_the_answer_wrong(scenario: Scenario, way: str) -> None:
    """D2, INV-3, INV-7, INV-9, INV-10: at every call of the transaction."""
    calls, after = baseline(scenario)
    outcomes = Counter[str]()
    for position in range(calls):
        world = World()
        error = attempt(scenario, world, {position: WAYS[way]}.get)
        outcomes[error.outcome if error else "ok"] += 1
        if error is None or error.outcome is not Outcome.UNKNOWN:  # true at once, not only after recovery
            assert_said_the_truth(world, error, after, Repository.on(world.store, "r", seams=world.seams), position)
        repo = recovered(world)
        assert_said_the_truth(world, error, after, repo, position)
        assert_ended_well(world.store, repo, position)
    assert outcomes["ok"], outcomes
    assert outcomes[Outcome.NOT_APPLIED] or outcomes[Outcome.UNKNOWN], outcomes


@pytest.mark.parametrize("first", ["fail", "lose_answer", "lose_request"])
@pytest.mark.parametrize("second", ["fail", "lose_answer", "lose_request"])
def test_two_calls_that_go_wrong_never_make_the_answer_wrong(first: str, second: str) -> None:
    """D2, INV-3: what a retry or a clean-up meets may be broken too."""
    calls, after = baseline(keyed)
    for one in range(calls):
        for other in range(one + 1, one + 9):
            world = World()
            error = attempt(keyed, world, {one: WAYS[first], other: WAYS[second]}.get)
            repo = recovered(world)
            assert_said_the_truth(world, error, after, repo, (one, other))
            assert_ended_well(world.store, repo, (one, other))


@pytest.mark.parametrize("power", [False, True], ids=["store-returns", "power-fails"])
@pytest.mark.parametrize("way", ["fail", "lose_request"])
@All
def test_a_store_that_goes_away_never_makes_the_answer_wrong(scenario: Scenario, way: str, power: bool) -> None:
    """D2, INV-6, INV-7: from the n-th call on nothing answers, then the store is back, with or without its cache."""
    calls, after = baseline(scenario)
    for start in range(calls):
        world = World()
        error = attempt(scenario, world, dict.fromkeys(range(start, 1000), WAYS[way]).get)
        store = world.store.power_failure() if power else world.store
        repo = recovered(world, store)
        assert_said_the_truth(world, error, after, repo, start)
        assert_ended_well(store, repo, start)


# --- recovery under faults --------------------------------------------------------------------------------------


@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize("left", ["open", "sealed", "published"])
def test_a_sweep_that_meets_a_fault_is_finished_by_the_next(abandon: Abandon, left: str, way: str) -> None:
    """INV-9, INV-10: recovery is idempotent, and a store that falters is no contradiction: nothing is quarantined."""

    def sweep(world: World) -> None:
        with world.store.calm():
            abandon(world.repo, change, left, lease=LEASE)
            world.clock.advance(LEASE + 1)
        world.repo.recover()

    calls, after = baseline(sweep)
    for position in range(calls):
        world = World()
        assert (after == world.before) == (left == "open")
        attempt(sweep, world, {position: WAYS[way]}.get)
        repo = recovered(world)
        assert content(repo) == after, position
        assert_ended_well(world.store, repo, position)


# --- power failure ----------------------------------------------------------------------------------------------


def acknowledged(world: World, abandon: Abandon, directory: Path) -> Iterator[str]:
    """Everything that moves a branch, one after the other."""
    repo = world.repo
    directory.mkdir()
    (directory / "p0").write_bytes(b"0" * 10)
    plain(world)
    yield "transaction"
    with repo.transaction(key="k") as tx:
        tx.write("keyed", b"k")
    yield "key"
    with repo.transaction() as tx:
        tx.put_dataset(str(directory), "data")
    yield "dataset"
    with repo.transaction(on_conflict="rebase") as tx:
        tx.put_dataset(str(directory), "data", mode="append")
        with repo.transaction() as other:
            other.put_dataset(str(directory), "data", mode="append")
    yield "rebase"
    repo.merge("dev")
    yield "merge"
    repo.revert("main~1")
    yield "revert"
    repo.create_branch("b")
    yield "branch"
    repo.create_tag("t", "main~2")
    yield "tag"
    repo.relocate_branch("b", "main~3")
    yield "relocate"
    abandon(repo, lambda tx: tx.write("rolled", b"forward"), "sealed")
    world.clock.advance(LEASE + 1)
    repo.recover()
    yield "recovery"
    with repo.transaction() as tx:
        for n in range(300):
            tx.write(f"many/{n}", str(n).encode())
    yield "many files"
    for n in range(4):
        with repo.transaction() as tx:
            tx.write("n", str(n).encode())
    repo.gc(Retention(keep=3, expire=True), grace=0)
    yield "gc"


def test_everything_acknowledged_survives_a_power_failure(abandon: Abandon, tmp_path: Path) -> None:
    """INV-2: when a ref entry is visible, all it reaches is durable."""
    world = World()
    seen = []
    for what in acknowledged(world, abandon, tmp_path / "parts"):
        seen.append(what)
        heads = [(h.name, h.seq, h.commit.id) for h in (*world.repo.branches(), *world.repo.tags())]
        survivor = Repository.on(world.store.power_failure(), "r", seams=test_seams())
        assert [(h.name, h.seq, h.commit.id) for h in (*survivor.branches(), *survivor.tags())] == heads, what
        report = survivor.fsck()
        assert report.clean, f"after {what}: {report.problems}"
        assert content(survivor) == content(world.repo), what
    assert len(seen) == 12


def test_a_power_failure_before_the_acknowledgement_leaves_all_or_nothing(abandon: Abandon) -> None:
    """INV-7: sealed means durable, so recovery can still publish it whole."""
    world = World()
    abandon(world.repo, change, "sealed", lease=LEASE)
    abandon(world.repo, lambda tx: tx.write("never", b"sealed"), "open", lease=LEASE)
    store = world.store.power_failure()
    repo = recovered(world, store)
    assert content(repo) == baseline(plain)[1]
    assert_ended_well(store, repo, "power failure")


def test_what_is_adopted_is_durable_before_it_is_reported(abandon: Abandon) -> None:
    """INV-6: the entry of an execution that died before its own fsync is made durable by whoever reports it."""
    world = World()
    abandon(world.repo, change, "published", key="k", lease=LEASE)
    world.store._durable.pop(f"refs/main/{world.repo.head().seq:010}")  # it was written, and never synced
    keyed(world)
    survivor = Repository.on(world.store.power_failure(), "r", seams=world.seams)
    assert content(survivor) == baseline(keyed)[1]
    assert survivor.fsck().clean


# --- writers that were paused -----------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("call", "key", "outcome"),
    [
        ("create", "verdicts/*", Outcome.NOT_APPLIED),
        ("create", "refs/main/*", Outcome.APPLIED),
        ("create", "recoveries/*", Outcome.APPLIED),
    ],
)
def test_a_writer_paused_beyond_its_lease_tells_the_truth(call: Call, key: str, outcome: Outcome) -> None:
    """INV-8, INV-9: a sweep may be wrong about a paused writer, and that is harmless."""
    world = World()
    _, after = baseline(plain)
    world.store.inject(Fault(call, 1, "hang", key))
    said: list[Outcome] = []

    def write() -> None:
        try:
            plain(world)
            said.append(Outcome.APPLIED)
        except FencelineError as error:
            said.append(error.outcome)

    writer = threading.Thread(target=write)
    writer.start()
    assert world.store.hanging.wait(10)
    repo = recovered(world)
    swept = content(repo)
    world.store.release()
    writer.join(10)
    assert said == [outcome]
    assert content(repo) == swept == (after if outcome is Outcome.APPLIED else world.before)
    assert_ended_well(world.store, repo, key)


def test_an_error_after_a_sweep_published_it_is_not_reported_as_not_applied(monkeypatch: pytest.MonkeyPatch) -> None:
    """D2: a writer that cannot read the branch after its seal asks the log before it says `not_applied`."""
    world = World()
    intents = world.repo._intents
    real = intents.seal

    def sealed_then_paused(*args: object) -> object:
        verdict = real(*args)  # type: ignore[arg-type]
        recovered(world)
        world.store.inject(Fault("get", 1, "fail", "hints/refs/main"))
        return verdict

    monkeypatch.setattr(intents, "seal", sealed_then_paused)
    try:
        plain(world)
        said = Outcome.APPLIED
    except FencelineError as error:
        said = error.outcome
    assert "new/a" in content(world.repo)
    assert said is not Outcome.NOT_APPLIED

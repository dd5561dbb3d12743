"""The embedded orchestrator on its store, with a clock moved by hand."""

from __future__ import annotations

import sqlite3
import stat
import subprocess
import sys
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import pytest

from fenceline.errors import ConfigError, FormatTooNew, NotFound, StaleAttemptError
from fenceline.pipeline.embedded.port import TAKE_OVER, Embedded
from fenceline.pipeline.embedded.rows import Controls, TaskRow
from fenceline.pipeline.embedded.runs import cancel_run, list_runs, run_events, show_run
from fenceline.pipeline.embedded.store import Store, attempts, get_run, insert
from fenceline.seams import Owner
from fenceline.task.orchestrator import HandedOut, attempt_fence
from fenceline.task.result import TaskResult
from fenceline.testing import HandClock, test_seams

Json = dict[str, Any]


def simple(name: str, task: str = "work") -> Json:
    return {"name": task, "taskReferenceName": name, "type": "SIMPLE", "inputParameters": {"step": name}}


@dataclass
class World:
    """A store, a clock, and processes that die when the test says so."""

    path: Path
    clock: HandClock = field(default_factory=HandClock)
    dead: set[int] = field(default_factory=set)
    pid: int = 1

    def __post_init__(self) -> None:
        seams = test_seams(self.clock, lambda owner: owner.pid in self.dead)
        owner: Callable[[], Owner] = lambda: Owner("test", "boot", "space", self.pid, "1")  # noqa: E731
        self.store = Store(self.path, replace(seams, owner=owner))
        self.port = self.runner("runner-1")

    def runner(self, name: str) -> Embedded:
        with self.store.write() as db:
            insert(db, "runners", {"id": name, "owner": {}, "started": 0.0, "beat": 0.0})
        return Embedded(self.store, name)

    def begin(self, *steps: str, run: str = "w1", timed: Json | None = None, **controls: Any) -> str:
        taskdef = {"retryCount": 2, "retryDelaySeconds": 0, **controls}
        row = {
            "id": run,
            "key": run,
            "name": "p",
            "reference": "m:p",
            "repository": "file:///r",
            "workflow": {"name": "p", "tasks": [simple(step) for step in steps or ("a",)], **(timed or {})},
            "taskdefs": {"work": taskdef},
            "input": {},
        }
        with self.store.write() as db:
            self.port.begin(db, row)
        return run

    def take(self) -> HandedOut:
        found = self.port.poll("work")
        assert found is not None
        return found

    def rows(self, run: str = "w1") -> list[TaskRow]:
        with self.store.read() as db:
            return attempts(db, run)

    def statuses(self, run: str = "w1") -> list[str]:
        return [row.status for row in self.rows(run)]

    def status(self, run: str = "w1") -> str:
        return show_run(self.store, run).status

    def wait(self, seconds: float) -> None:
        self.clock.advance(seconds)
        self.port.look_after()


@pytest.fixture
def world(tmp_path: Path) -> World:
    return World(tmp_path / "runs.sqlite")


DONE = TaskResult("COMPLETED", {"result": {}})
FAIL = TaskResult("FAILED", {}, "bad luck", "task.failed")
TERMINAL = TaskResult("FAILED_WITH_TERMINAL_ERROR", {}, "never", "task.terminal")


# --- the port -----------------------------------------------------------------------------------------------------


def test_steps_follow_each_other_and_the_run_completes(world: World) -> None:
    world.begin("a", "b")
    first = world.take()
    assert (first.identity.reference, first.identity.retry_count, first.input) == ("a", 0, {"step": "a"})
    assert world.port.poll("work") is None, "a is taken and b is not ready"
    attempt_fence(world.port, first)
    assert world.port.complete(first, DONE)
    second = world.take()
    assert second.identity.reference == "b"
    assert second.identity.task_id != first.identity.task_id
    assert world.port.complete(second, DONE)
    assert world.status() == "COMPLETED"


def test_a_result_is_taken_once(world: World) -> None:
    world.begin("a", "b")
    first = world.take()
    assert world.port.complete(first, DONE)
    assert not world.port.complete(first, FAIL)
    assert world.statuses() == ["COMPLETED", "SCHEDULED"]


def test_the_oldest_ready_attempt_comes_first(world: World) -> None:
    for run in ("w1", "w2", "w3"):
        world.begin(run=run)
        world.clock.advance(1)
    assert [world.take().identity.workflow for _ in range(3)] == ["w1", "w2", "w3"]


def test_other_tasks_and_other_runners_are_left_alone(world: World) -> None:
    world.begin()
    assert world.port.poll("other") is None
    assert world.runner("runner-2").poll("work") is None


def test_an_unknown_attempt_is_refused(world: World) -> None:
    world.begin()
    first = world.take()
    stranger = replace(first, identity=replace(first.identity, task_id="nobody"))
    with pytest.raises(NotFound):
        world.port.current(stranger)
    with pytest.raises(StaleAttemptError):
        attempt_fence(world.port, stranger)


# --- retries ------------------------------------------------------------------------------------------------------


def test_a_failed_attempt_is_tried_again_until_the_budget_is_spent(world: World) -> None:
    world.begin(retryCount=2)
    for count in range(3):
        attempt = world.take()
        assert attempt.identity.retry_count == count
        assert world.port.complete(attempt, FAIL)
    assert world.statuses() == ["FAILED"] * 3
    run = show_run(world.store, "w1")
    assert (run.status, run.reason) == ("FAILED", "a: bad luck")
    assert [row.failures for row in world.rows()] == [0, 1, 2]


def test_a_terminal_error_is_not_tried_again(world: World) -> None:
    world.begin()
    world.port.complete(world.take(), TERMINAL)
    assert world.statuses() == ["FAILED_WITH_TERMINAL_ERROR"]
    assert world.status() == "FAILED"


@pytest.mark.parametrize(
    ("controls", "delays"),
    [
        ({"retryLogic": "FIXED"}, [10, 10, 10]),
        ({"retryLogic": "LINEAR_BACKOFF", "backoffScaleFactor": 2}, [20, 40, 60]),
        ({"retryLogic": "EXPONENTIAL_BACKOFF"}, [10, 20, 40]),
    ],
)
def test_delays_grow_as_the_task_says(world: World, controls: Json, delays: list[int]) -> None:
    world.begin(retryCount=3, retryDelaySeconds=10, **controls)
    for delay in delays:
        world.port.complete(world.take(), FAIL)
        world.clock.advance(delay - 1)
        assert world.port.poll("work") is None
        world.clock.advance(1)
    world.port.complete(world.take(), FAIL)
    assert world.status() == "FAILED"


def test_controls_have_the_defaults_of_conductor() -> None:
    assert Controls.of({}) == Controls(3, "FIXED", 60, 1, 3600, 0, "TIME_OUT_WF", 0, 0, 0, 1)
    assert Controls.of({}).delay(4) is None


# --- time ---------------------------------------------------------------------------------------------------------


def test_a_lease_that_runs_out_gives_the_attempt_up(world: World) -> None:
    world.begin(responseTimeoutSeconds=10)
    first = world.take()
    world.wait(9)
    world.port.heartbeat(first)
    world.wait(9)
    assert world.statuses() == ["IN_PROGRESS"], "heartbeats hold it"
    world.wait(2)
    assert world.statuses() == ["TIMED_OUT", "SCHEDULED"]
    with pytest.raises(StaleAttemptError):
        world.port.heartbeat(first)
    with pytest.raises(StaleAttemptError):
        attempt_fence(world.port, first)
    assert not world.port.complete(first, DONE)
    assert world.take().identity.retry_count == 1
    assert world.rows()[1].failures == 1


@pytest.mark.parametrize(
    ("policy", "statuses", "run"),
    [
        ("RETRY", ["TIMED_OUT", "SCHEDULED"], "RUNNING"),
        ("TIME_OUT_WF", ["TIMED_OUT"], "TIMED_OUT"),
        ("ALERT_ONLY", ["IN_PROGRESS"], "RUNNING"),
    ],
)
def test_an_attempt_that_takes_too_long(world: World, policy: str, statuses: list[str], run: str) -> None:
    world.begin(timeoutSeconds=30, timeoutPolicy=policy, responseTimeoutSeconds=30)
    first = world.take()
    world.wait(20)
    world.port.heartbeat(first)
    world.wait(11)
    world.port.look_after()
    assert (world.statuses(), world.status()) == (statuses, run)
    overdue = [event for event in run_events(world.store, "w1") if event.kind == "task.overdue"]
    assert len(overdue) == (policy == "ALERT_ONLY"), "told once"


@pytest.mark.parametrize(("policy", "run"), [("RETRY", "RUNNING"), ("TIME_OUT_WF", "TIMED_OUT")])
def test_a_step_that_no_worker_takes(world: World, policy: str, run: str) -> None:
    world.begin(pollTimeoutSeconds=5, timeoutPolicy=policy)
    world.wait(4)
    assert world.statuses() == ["SCHEDULED"]
    world.wait(2)
    assert world.statuses()[0] == "TIMED_OUT"
    assert world.status() == run


@pytest.mark.parametrize(("policy", "run"), [("TIME_OUT_WF", "TIMED_OUT"), ("ALERT_ONLY", "RUNNING")])
def test_a_run_that_takes_too_long(world: World, policy: str, run: str) -> None:
    world.begin(timed={"timeoutSeconds": 100, "timeoutPolicy": policy})
    first = world.take()
    world.wait(99)
    assert world.status() == "RUNNING"
    world.wait(2)
    assert world.status() == run
    assert world.port.complete(first, DONE) == (run == "RUNNING")


def test_a_dead_worker_is_noticed_at_once_and_counts(world: World) -> None:
    world.begin(responseTimeoutSeconds=3600)
    world.pid = 7
    world.take()
    world.port.look_after()
    assert world.statuses() == ["IN_PROGRESS"]
    world.dead.add(7)
    world.port.look_after()
    assert world.statuses() == ["FAILED", "SCHEDULED"]
    assert world.rows()[1].failures == 1
    assert "process 7" in (world.rows()[0].reason or "")


# --- a runner that died -------------------------------------------------------------------------------------------


def take_over(world: World) -> Embedded:
    port = world.runner("runner-2")
    with world.store.write() as db:
        port.take_over(db, get_run(db, "w1"))
    world.pid, world.port = 2, port
    return port


def test_an_attempt_lost_with_its_runner_costs_no_retry(world: World) -> None:
    world.begin(retryCount=0)
    first = world.take()
    port = take_over(world)
    world.dead.add(1)
    port.look_after()
    assert world.statuses() == ["LOST", "SCHEDULED"]
    assert world.rows()[1].failures == 0
    second = world.take()
    assert second.identity.retry_count == 1, "retry_count goes up all the same"
    assert not world.port.complete(first, DONE)
    assert world.port.complete(second, DONE)
    assert world.status() == "COMPLETED"


def test_a_worker_of_the_old_runner_that_does_not_die_is_waited_for_only_so_long(world: World) -> None:
    world.begin()
    first = world.take()
    take_over(world)
    world.wait(TAKE_OVER - 1)
    assert world.statuses() == ["IN_PROGRESS"], "it may just be publishing"
    world.wait(2)
    assert world.statuses() == ["LOST", "SCHEDULED"]
    with pytest.raises(StaleAttemptError):
        attempt_fence(world.port, first)


def test_waiting_for_a_runner_is_not_waiting_for_a_worker(world: World) -> None:
    world.begin(pollTimeoutSeconds=5)
    world.clock.advance(100)
    take_over(world)
    world.wait(4)
    assert world.statuses() == ["SCHEDULED"]


def test_the_old_runner_gets_nothing_any_more(world: World) -> None:
    world.begin()
    old = world.port
    take_over(world)
    assert old.poll("work") is None
    old.look_after()
    assert world.statuses() == ["SCHEDULED"]


def test_an_attempt_that_is_given_back_costs_no_retry(world: World) -> None:
    world.begin(retryCount=0)
    first = world.take()
    world.port.release(first, "draining")
    assert world.statuses() == ["LOST", "SCHEDULED"]
    world.port.release(first, "draining")
    assert world.statuses() == ["LOST", "SCHEDULED"], "once"
    assert world.rows()[1].failures == 0


# --- limits -------------------------------------------------------------------------------------------------------


def test_no_more_attempts_at_once_than_the_task_allows(world: World) -> None:
    for run in ("w1", "w2", "w3"):
        world.begin(run=run, concurrentExecLimit=2)
    first, _ = world.take(), world.take()
    assert world.port.poll("work") is None
    world.port.complete(first, DONE)
    assert world.port.poll("work") is not None


def test_no_more_starts_within_a_time_than_the_task_allows(world: World) -> None:
    for number in range(4):
        world.begin(run=f"w{number}", rateLimitPerFrequency=2, rateLimitFrequencyInSeconds=10)
    world.take()
    world.clock.advance(5)
    world.take()
    assert world.port.poll("work") is None
    world.clock.advance(6)
    world.take()
    assert world.port.poll("work") is None


# --- runs ---------------------------------------------------------------------------------------------------------


def test_a_cancelled_run_gives_up_what_is_under_way(world: World) -> None:
    world.begin()
    first = world.take()
    assert cancel_run(world.store, "w1").status == "CANCELED"
    assert world.statuses() == ["CANCELED"]
    with pytest.raises(StaleAttemptError):
        world.port.heartbeat(first)
    assert not world.port.complete(first, DONE)


def test_runs_are_listed_newest_first(world: World) -> None:
    for run in ("w1", "w2"):
        world.begin(run=run)
        world.clock.advance(1)
    cancel_run(world.store, "w1")
    assert [run.id for run in list_runs(world.store)] == ["w2", "w1"]
    assert [run.id for run in list_runs(world.store, status="CANCELED")] == ["w1"]
    assert list_runs(world.store, name="other") == []
    with pytest.raises(NotFound):
        show_run(world.store, "w9")


def test_events_are_numbered_for_each_run(world: World) -> None:
    for run in ("w1", "w2"):
        world.begin(run=run)
    world.port.complete(world.take(), DONE)
    kinds = [(event.seq, event.kind) for event in run_events(world.store, "w1")]
    assert kinds == [(1, "run.started"), (2, "task.started"), (3, "task.completed"), (4, "run.completed")]
    assert [event.seq for event in run_events(world.store, "w1", after=2)] == [3, 4]


def test_one_unfinished_run_of_a_key(world: World) -> None:
    world.begin()
    with pytest.raises(Exception, match="UNIQUE"):
        world.begin()


# --- the file -----------------------------------------------------------------------------------------------------


def test_others_cannot_read_it(world: World) -> None:
    assert stat.S_IMODE(world.path.stat().st_mode) == 0o600, "inputs may hold secrets"


def test_it_is_durable_and_shared(world: World) -> None:
    with world.store.write() as db:
        assert db.execute("PRAGMA synchronous").fetchone()[0] == 2
        assert db.execute("PRAGMA journal_mode").fetchone()[0] == "wal"
    again = Store(world.path, world.store.seams)
    world.begin()
    assert show_run(again, "w1").status == "RUNNING"


def test_a_failed_transaction_leaves_nothing(world: World) -> None:
    def fail() -> None:
        with world.store.write() as db:
            db.execute("INSERT INTO runners (id, owner, started, beat) VALUES ('x', '{}', 0, 0)")
            raise RuntimeError("no")

    with pytest.raises(RuntimeError):
        fail()
    with world.store.read() as db:
        assert db.execute("SELECT count(*) FROM runners WHERE id = 'x'").fetchone()[0] == 0


def test_a_newer_store_is_refused(world: World) -> None:
    with sqlite3.connect(world.path) as db:
        db.execute("PRAGMA user_version = 99")
    with pytest.raises(FormatTooNew, match="99"):
        Store(world.path, world.store.seams)


def test_another_database_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "other.sqlite"
    with sqlite3.connect(path) as db:
        db.execute("CREATE TABLE t (x)")
    with pytest.raises(ConfigError, match="no runner's store"):
        Store(path)


def test_opening_it_again_does_not_drop_the_locks_of_this_process(world: World) -> None:
    """POSIX locks end when any descriptor of the file is closed; then another process takes the file for unused.

    It would remove the write-ahead log under this one, and the store would be damaged.
    """
    world.begin()
    Store(world.path, world.store.seams)
    code = "import sqlite3, sys; sqlite3.connect(sys.argv[1], timeout=0).execute('PRAGMA journal_mode = DELETE')"
    beside = subprocess.run([sys.executable, "-c", code, world.path], capture_output=True, text=True, check=False)
    assert "locked" in beside.stderr
    assert world.status() == "RUNNING"

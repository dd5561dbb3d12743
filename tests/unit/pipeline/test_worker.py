"""The worker loop: what it reports, for how long it holds the lease, and how it ends."""

from __future__ import annotations

import threading
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest
from pydantic import BaseModel, ConfigDict

import fenceline as fl
from fenceline.pipeline import worker as worker_module
from fenceline.pipeline.worker import Worker
from fenceline.task.attempt import AttemptRunner
from fenceline.task.orchestrator import HandedOut
from fenceline.task.result import TaskResult
from fenceline.testing.orchestrator import MemoryOrchestrator

WAIT = 20.0


class Params(BaseModel):
    model_config = ConfigDict(extra="forbid")


class Out(BaseModel):
    pass


class Orchestrator(MemoryOrchestrator):
    """One that can be away, and that notes when results arrived."""

    def __init__(self) -> None:
        super().__init__()
        self.away = 0
        self.on_complete: Callable[[HandedOut], None] = lambda attempt: None
        self.told = threading.Event()

    def complete(self, attempt: HandedOut, result: TaskResult) -> bool:
        self.on_complete(attempt)
        if self.away:
            self.away -= 1
            raise ConnectionError("away")
        accepted = super().complete(attempt, result)
        if accepted:
            self.told.set()
        return accepted


class Releasing(Orchestrator):
    def __init__(self) -> None:
        super().__init__()
        self.released: list[str] = []

    def release(self, attempt: HandedOut, reason: str) -> None:
        self.released.append(attempt.identity.task_id)


@dataclass
class World:
    root: Path
    port: Orchestrator
    body: Callable[[], None] = lambda: None
    workers: list[Worker] = field(default_factory=list)

    def start(self, slots: int = 1) -> Worker:
        @fl.task(
            name="w.work",
            owner="t@example.com",
            version="1",
            controls=fl.TaskControls(response_timeout_seconds=1, retry_delay_seconds=0),
        )
        def work(params: Params) -> Out:
            self.body()
            return Out()

        def no_repository(url: str) -> Any:
            raise AssertionError(url)

        worker = Worker([work], self.port, AttemptRunner(no_repository, self.port, self.root), slots=slots)
        self.workers.append(worker)
        worker.start()
        return worker


@pytest.fixture
def world(tmp_path: Path) -> World:
    return World(tmp_path, Orchestrator())


def test_attempts_run_at_once_in_their_slots(world: World) -> None:
    together = threading.Barrier(3, timeout=WAIT)

    def meet() -> None:
        together.wait()

    world.body = meet
    steps = [world.port.schedule("w.work", {"params": {}}, reference=f"s{n}") for n in range(3)]
    worker = world.start(slots=3)
    assert world.port.told.wait(WAIT), "all three had to be there"
    assert worker.stop(WAIT)
    assert [step.status for step in steps] == ["COMPLETED"] * 3
    assert worker.counts.completed == 3


def test_a_result_is_reported_again_while_the_orchestrator_is_away(world: World) -> None:
    step = world.port.schedule("w.work", {"params": {}})
    world.port.away = 2
    worker = world.start()
    assert world.port.told.wait(WAIT)
    assert worker.stop(WAIT)
    assert step.status == "COMPLETED"


def test_the_lease_is_held_until_the_result_is_accepted(world: World) -> None:
    step = world.port.schedule("w.work", {"params": {}})
    beats: list[int] = []

    def slow(attempt: HandedOut) -> None:
        beat = threading.Event()
        world.port.on_heartbeat = lambda attempt: beat.set()
        beats.append(beat.wait(WAIT))

    world.port.on_complete = slow
    worker = world.start()
    assert world.port.told.wait(WAIT)
    assert worker.stop(WAIT)
    assert beats == [True]
    assert step.status == "COMPLETED"


def test_a_superseded_result_is_counted_and_dropped(world: World) -> None:
    step = world.port.schedule("w.work", {"params": {}})
    again = threading.Event()

    def lose() -> None:
        if not again.is_set():
            again.set()
            world.port.retry(step)

    world.body = lose
    worker = world.start()
    assert world.port.told.wait(WAIT)
    assert worker.stop(WAIT)
    assert (worker.counts.superseded, worker.counts.completed) == (1, 1)
    assert [result.status for result in step.ignored] == ["COMPLETED"]


def test_draining_lets_the_body_finish_and_polls_no_more(world: World) -> None:
    started, go_on = threading.Event(), threading.Event()

    def hold() -> None:
        started.set()
        go_on.wait(WAIT)

    world.body = hold
    first = world.port.schedule("w.work", {"params": {}}, reference="a")
    second = world.port.schedule("w.work", {"params": {}}, reference="b")
    worker = world.start()
    assert started.wait(WAIT)
    worker.drain()
    go_on.set()
    assert worker.stop(WAIT)
    assert (first.status, second.status) == ("COMPLETED", "SCHEDULED")


@pytest.mark.parametrize("releasing", [True, False])
def test_what_does_not_finish_within_the_grace_is_given_back(
    world: World, releasing: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(worker_module, "CANCEL_SECONDS", 0.05)
    started, go_on = threading.Event(), threading.Event()
    if releasing:
        world.port = Releasing()

    def hold() -> None:
        started.set()
        go_on.wait(WAIT)

    world.body = hold
    step = world.port.schedule("w.work", {"params": {}})
    worker = world.start()
    assert started.wait(WAIT)
    assert not worker.stop(0.05)
    if isinstance(world.port, Releasing):
        assert world.port.released == [step.handed_out.identity.task_id]
    go_on.set()
    assert worker._wait(WAIT), "its thread ends with the body"


def test_a_poll_that_fails_is_tried_again(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    step = world.port.schedule("w.work", {"params": {}})
    failing, original = iter([True, True]), world.port.poll

    def poll(task: str) -> HandedOut | None:
        if next(failing, False):
            raise ConnectionError("away")
        return original(task)

    monkeypatch.setattr(world.port, "poll", poll)
    worker = world.start()
    assert world.port.told.wait(WAIT)
    assert worker.stop(WAIT)
    assert step.status == "COMPLETED"

"""The orchestrator port on a real server: what decision 0014 says was found, and what is done about it."""

from __future__ import annotations

import logging
import time
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from fenceline.errors import NotFound, StaleAttemptError
from fenceline.pipeline.conductor.api import ConductorApi, ConductorRefused, ConductorUnavailable
from fenceline.pipeline.conductor.claims import Claims
from fenceline.pipeline.conductor.port import OUTPUT_LIMIT, Conductor
from fenceline.pipeline.conductor.supervisor import give_up_the_dead
from fenceline.seams import Seams
from fenceline.task.orchestrator import IN_PROGRESS, HandedOut, attempt_fence
from fenceline.task.result import TaskFailed, TaskResult, TaskTerminalError

pytestmark = [pytest.mark.slow, pytest.mark.timeout(900)]  # the first test may download the server
LEASE = 4
"""Short, for the tests of leases alone; the others must not lose one on a busy machine."""
Start = Callable[..., str]
DONE = TaskResult("COMPLETED", {"result": {"rows": 1}})
FAILED = TaskResult.failed("FAILED", TaskFailed("not this time"))


@pytest.fixture
def conductor(api: ConductorApi) -> Conductor:
    return Conductor(api, "tests:1")


@pytest.fixture
def start(api: ConductorApi, request: pytest.FixtureRequest) -> Start:
    """Start a run of one step whose task is this test's alone."""

    def started(task: str, given: Any = None, **controls: Any) -> str:
        definition = {"name": task, "ownerEmail": "data@example.com", "retryCount": 3, "retryDelaySeconds": 0}
        api.post("/metadata/taskdefs", [{**definition, "responseTimeoutSeconds": 300, **controls}])
        step = {"name": task, "taskReferenceName": "step", "type": "SIMPLE", "inputParameters": given or {}}
        workflow = {"name": task, "version": 1, "schemaVersion": 2, "ownerEmail": "data@example.com", "tasks": [step]}
        api.put("/metadata/workflow", [{**workflow, "timeoutSeconds": 0, "timeoutPolicy": "ALERT_ONLY"}])
        return str(api.post("/workflow", {"name": task, "version": 1, "input": {}}))

    return started


def polled(conductor: Conductor, task: str) -> HandedOut:
    end = time.monotonic() + 20
    while time.monotonic() < end:
        attempt = conductor.poll(task)
        if attempt is not None:
            return attempt
    raise AssertionError(f"{task} was not handed out")


def lease_lost(api: ConductorApi, attempt: HandedOut) -> None:
    """Wait until the lease is over, and make the server notice."""
    end = time.monotonic() + 20
    while time.monotonic() < end:
        api.put(f"/workflow/decide/{attempt.identity.workflow}")
        if api.get(f"/tasks/{attempt.identity.task_id}")["status"] == "TIMED_OUT":
            return
        time.sleep(0.2)
    raise AssertionError("the server did not give the attempt up")


def status(api: ConductorApi, run: str) -> str:
    return str(api.get(f"/workflow/{run}")["status"])


def test_an_attempt_is_handed_out_with_its_identity_and_completed(conductor: Conductor, start: Start) -> None:
    run = start("port.plain", {"params": {"n": 1}})
    attempt = polled(conductor, "port.plain")
    assert (attempt.identity.workflow, attempt.identity.reference, attempt.identity.retry_count) == (run, "step", 0)
    assert (attempt.task, attempt.input) == ("port.plain", {"params": {"n": 1}})
    assert conductor.current(attempt).identity == attempt.identity
    attempt_fence(conductor, attempt)
    assert conductor.complete(attempt, DONE)
    assert status(conductor.api, run) == "COMPLETED"
    assert conductor.poll("port.plain") is None
    with pytest.raises(StaleAttemptError):
        attempt_fence(conductor, attempt)


def test_the_epoch_of_a_forced_rerun_is_part_of_the_identity(conductor: Conductor, start: Start) -> None:
    start("port.epoch", {"workspace": {"epoch": 2}, "params": {}})
    attempt = polled(conductor, "port.epoch")
    assert attempt.identity.epoch == 2
    with pytest.raises(StaleAttemptError, match="epoch"):
        attempt_fence(conductor, replace(attempt, identity=replace(attempt.identity, epoch=1)))


def test_a_stale_completion_is_dropped_and_reported_as_superseded(
    conductor: Conductor, api: ConductorApi, start: Start, caplog: pytest.LogCaptureFixture
) -> None:
    run = start("port.stale", responseTimeoutSeconds=LEASE)
    first = polled(conductor, "port.stale")
    lease_lost(api, first)
    with pytest.raises(StaleAttemptError, match="TIMED_OUT"):
        conductor.heartbeat(first)
    second = polled(conductor, "port.stale")
    assert second.identity.task_id != first.identity.task_id
    assert (second.identity.step, second.identity.retry_count) == (first.identity.step, 1)
    with caplog.at_level(logging.WARNING):
        assert not conductor.complete(first, DONE)
    assert "superseded" in caplog.text
    assert conductor.counters.superseded == 1
    assert conductor.current(second).status == IN_PROGRESS
    assert conductor.complete(second, DONE)
    assert status(api, run) == "COMPLETED"


def test_heartbeats_hold_the_lease_beyond_the_response_timeout(
    conductor: Conductor, api: ConductorApi, start: Start
) -> None:
    start("port.lease", responseTimeoutSeconds=LEASE)
    attempt = polled(conductor, "port.lease")
    end = time.monotonic() + 1.5 * LEASE
    while time.monotonic() < end:
        conductor.heartbeat(attempt)
        api.put(f"/workflow/decide/{attempt.identity.workflow}")
        assert conductor.poll("port.lease") is None
        time.sleep(LEASE / 10)
    assert conductor.current(attempt).status == IN_PROGRESS
    assert conductor.complete(attempt, DONE)


def test_a_failure_is_retried_and_a_terminal_one_ends_the_run(
    conductor: Conductor, api: ConductorApi, start: Start
) -> None:
    run = start("port.failing")
    assert conductor.complete(polled(conductor, "port.failing"), FAILED)
    again = polled(conductor, "port.failing")
    assert again.identity.retry_count == 1
    error = TaskTerminalError("x" * 2000)
    assert conductor.complete(again, TaskResult.failed("FAILED_WITH_TERMINAL_ERROR", error))
    assert status(api, run) == "FAILED"
    told = api.get(f"/tasks/{again.identity.task_id}")
    assert told["reasonForIncompletion"].endswith("…")
    assert told["outputData"] == {"code": "task.terminal"}


def test_a_released_attempt_is_handed_out_again_without_a_failure(conductor: Conductor, start: Start) -> None:
    start("port.release")
    attempt = polled(conductor, "port.release")
    conductor.release(attempt, "its worker was asked to stop")
    again = polled(conductor, "port.release")
    assert again.identity == attempt.identity
    assert conductor.complete(again, DONE)


def test_an_attempt_of_a_terminated_run_is_stale(conductor: Conductor, api: ConductorApi, start: Start) -> None:
    run = start("port.terminated")
    attempt = polled(conductor, "port.terminated")
    api.delete(f"/workflow/{run}", {"reason": "enough"})
    with pytest.raises(StaleAttemptError):
        attempt_fence(conductor, attempt)
    with pytest.raises(StaleAttemptError, match="CANCELED"):
        conductor.heartbeat(attempt)
    assert not conductor.complete(attempt, DONE)


def test_an_output_that_the_server_would_swallow_fails_the_step_by_name(
    conductor: Conductor, api: ConductorApi, start: Start
) -> None:
    run = start("port.large")
    large = TaskResult("COMPLETED", {"result": {"text": "x" * OUTPUT_LIMIT}})
    assert conductor.complete(polled(conductor, "port.large"), large)
    assert "bytes of JSON" in api.get(f"/workflow/{run}")["reasonForIncompletion"]


def test_the_attempt_of_a_dead_process_is_given_up_at_once(
    conductor: Conductor, api: ConductorApi, start: Start, tmp_path: Path
) -> None:
    dead = Seams(owner=lambda: replace(Seams().owner(), pid=2**22 + 1, started="1"))
    start("port.dead", responseTimeoutSeconds=3600)
    claiming = replace(conductor, claims=Claims.below(tmp_path, api.url, dead))
    attempt = polled(claiming, "port.dead")
    claims = Claims.below(tmp_path, api.url, Seams())
    assert give_up_the_dead(replace(conductor, claims=claims), claims) == 1
    assert polled(conductor, "port.dead").identity.retry_count == attempt.identity.retry_count + 1
    assert list(claims.of_the_dead()) == []


def test_the_attempt_of_a_living_process_is_left_alone(
    conductor: Conductor, api: ConductorApi, start: Start, tmp_path: Path
) -> None:
    start("port.alive")
    claims = Claims.below(tmp_path, api.url, Seams())
    claiming = replace(conductor, claims=claims)
    attempt = polled(claiming, "port.alive")
    assert give_up_the_dead(claiming, claims) == 0
    assert claiming.complete(attempt, DONE)
    assert list(tmp_path.rglob("*.claim")) == []


def test_what_the_server_refuses_or_does_not_know_is_typed(api: ConductorApi) -> None:
    with pytest.raises(NotFound, match="nowhere"):
        api.get("/tasks/nowhere")
    with pytest.raises(ConductorRefused, match="responseTimeoutSeconds"):
        api.post("/metadata/taskdefs", [{"name": "port.bad", "responseTimeoutSeconds": 0}])


class _Clock:
    def __init__(self) -> None:
        self.at = 1000.0

    def now(self) -> float:
        return self.at

    def monotonic(self) -> float:
        return self.at

    def sleep(self, seconds: float) -> None:
        self.at += seconds


def test_a_server_that_is_away_costs_no_lease_before_its_time(
    conductor: Conductor, api: ConductorApi, start: Start, caplog: pytest.LogCaptureFixture
) -> None:
    clock = _Clock()
    here = replace(conductor, seams=Seams(clock=clock))
    start("port.away", responseTimeoutSeconds=60)
    attempt = polled(here, "port.away")
    away = replace(here, api=ConductorApi.at("http://127.0.0.1:9"))
    clock.at += 59
    away.heartbeat(attempt)
    clock.at += 2
    with pytest.raises(StaleAttemptError, match="could not renew"):
        away.heartbeat(attempt)
    with pytest.raises(ConductorUnavailable, match="cannot be reached"):
        away.complete(attempt, DONE)
    assert here.complete(attempt, DONE)
    with caplog.at_level(logging.WARNING):
        assert [away.poll("port.away") for _ in range(5)] == [None] * 5
    away.api.close()
    assert caplog.text.count("asking again until it answers") == 1

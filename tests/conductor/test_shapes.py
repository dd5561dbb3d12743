"""Shapes of workflows that pipelines rest on, hand-written, on a real server."""

from __future__ import annotations

import time
from typing import Any

import pytest

from fenceline.pipeline.conductor.api import ConductorApi
from fenceline.pipeline.conductor.port import Conductor
from fenceline.pipeline.conductor.submit import RunState, follow
from fenceline.seams import Seams
from fenceline.task.orchestrator import HandedOut
from fenceline.task.result import TaskFailed, TaskResult

pytestmark = [pytest.mark.slow, pytest.mark.timeout(900)]  # the first test may download the server
OWNER = {"ownerEmail": "data@example.com"}
FAILED = TaskResult.failed("FAILED", TaskFailed("not this time"))
FAILURES = 15
"""Of as many failures seen by a JOIN on the task itself, about three would have ended the run."""


def simple(task: str, reference: str, **given: Any) -> dict[str, Any]:
    return {"name": task, "taskReferenceName": reference, "type": "SIMPLE", "inputParameters": given}


def noop(reference: str) -> dict[str, Any]:
    return {"name": "noop", "taskReferenceName": reference, "type": "NOOP"}


def join(reference: str, *on: str) -> dict[str, Any]:
    return {"name": "join", "taskReferenceName": reference, "type": "JOIN", "joinOn": list(on), "joinMode": "SYNC"}


def fork(*branches: list[dict[str, Any]]) -> dict[str, Any]:
    return {"name": "fork", "taskReferenceName": "fork", "type": "FORK_JOIN", "forkTasks": list(branches)}


def started(api: ConductorApi, name: str, *tasks: dict[str, Any]) -> str:
    """A run of a workflow whose steps are all of one task."""
    controls = {"retryCount": 2 * FAILURES, "retryDelaySeconds": 0, "responseTimeoutSeconds": 300}
    api.post("/metadata/taskdefs", [{"name": name, **controls, **OWNER}])
    workflow = {"name": name, "version": 1, "schemaVersion": 2, "timeoutSeconds": 0, "tasks": list(tasks), **OWNER}
    api.put("/metadata/workflow", [workflow])
    return str(api.post("/workflow", {"name": name, "version": 1, "input": {}}))


def polled(conductor: Conductor, task: str) -> HandedOut:
    end = time.monotonic() + 30
    while time.monotonic() < end:
        attempt = conductor.poll(task)
        if attempt is not None:
            return attempt
    raise AssertionError(f"{task} was not handed out")


def ended(api: ConductorApi, run: str) -> RunState:
    *_, state = follow(api, run, Seams())
    return state


def test_a_join_on_the_noop_behind_a_step_outlives_the_failures_of_the_step(api: ConductorApi) -> None:
    name = "shapes.failing"
    waiting = [[join(f"{step}__after", "a__end"), noop(step)] for step in ("b", "c", "d")]
    run = started(api, name, fork([simple(name, "a"), noop("a__end")], *waiting), join("all", "b", "c", "d"))
    conductor = Conductor(api, "tests:1")
    for number in range(FAILURES):
        attempt = polled(conductor, name)
        assert attempt.identity.retry_count == number
        assert conductor.complete(attempt, FAILED)
    assert conductor.complete(polled(conductor, name), TaskResult("COMPLETED", {}))
    assert ended(api, run).status == "COMPLETED"


def test_a_branch_waits_for_steps_of_other_branches_and_gets_their_outputs(api: ConductorApi) -> None:
    name = "shapes.crossing"
    given = {"refs": ["${a.output.ref}", "${skipped.output.ref}"], "third": "${b.output.list[2]}"}
    branches = (
        [simple(name, "a"), noop("a__end")],
        [simple(name, "b"), noop("b__end")],
        [join("c__after", "a__end", "b__end"), simple(name, "c", **given), noop("c__end")],
    )
    run = started(api, name, fork(*branches), join("all", "c__end"))
    conductor = Conductor(api, "tests:1")
    output = {"ref": "commit", "list": [1, 2, 3]}
    attempts = [polled(conductor, name) for _ in range(2)]
    assert sorted(attempt.identity.reference for attempt in attempts) == ["a", "b"]
    for attempt in attempts:
        assert conductor.complete(attempt, TaskResult("COMPLETED", output))
    last = polled(conductor, name)
    assert (last.identity.reference, last.input) == ("c", {"refs": ["commit", None], "third": 3})
    assert conductor.complete(last, TaskResult("COMPLETED", output))
    assert ended(api, run).status == "COMPLETED"

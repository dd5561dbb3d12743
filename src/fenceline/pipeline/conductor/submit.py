"""Starting runs on a Conductor server, and following them."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from fenceline.errors import NotFound
from fenceline.pipeline.conductor.api import ConductorApi, ConductorUnavailable, segment
from fenceline.seams import Seams

RUNNING = ("RUNNING", "PAUSED")
_FIRST_LOOK, _LONGEST_LOOK = 0.2, 2.0


@dataclass(frozen=True, slots=True)
class StepState:
    """The newest attempt of a step that workers run."""

    reference: str
    task: str
    status: str
    attempts: int
    commit: str | None
    reason: str | None


@dataclass(frozen=True, slots=True)
class RunState:
    """A run as the server shows it."""

    id: str
    name: str
    status: str
    reason: str | None
    output: Mapping[str, Any]
    steps: tuple[StepState, ...]

    @property
    def running(self) -> bool:
        return self.status in RUNNING


def submit(api: ConductorApi, name: str, version: int, given: Mapping[str, Any], key: str | None = None) -> str:
    """Start a run; its id. With a key, a run of that key that is running or completed is returned instead.

    The server has no atomic form of that: two that submit one key at the same moment can start two runs.
    """
    if key is not None and (found := _of_key(api, name, key)):
        return found
    request = {"name": name, "version": version, "input": given, "correlationId": key}
    return str(api.post("/workflow", {field: value for field, value in request.items() if value is not None}))


def _of_key(api: ConductorApi, name: str, key: str) -> str | None:
    try:
        found = api.get(f"/workflow/{segment(name)}/correlated/{segment(key)}", {"includeClosed": "true"})
    except NotFound:
        return None
    wanted = [run for run in found or () if run.get("status") in (*RUNNING, "COMPLETED")]
    return str(wanted[0]["workflowId"]) if wanted else None


def look(api: ConductorApi, run: str) -> RunState:
    """How a run stands."""
    found = api.get(f"/workflow/{segment(run)}", {"includeTasks": "true"})
    return RunState(
        id=found["workflowId"],
        name=found.get("workflowName") or found.get("workflowType") or "",
        status=found["status"],
        reason=found.get("reasonForIncompletion"),
        output=found.get("output") or {},
        steps=_steps(found.get("tasks") or ()),
    )


def follow(api: ConductorApi, run: str, seams: Seams) -> Iterator[RunState]:
    """Its states, whenever one differs from the one before, until it has ended. A server that is away is waited for."""
    before: RunState | None = None
    pause = _FIRST_LOOK
    while before is None or before.running:
        try:
            state = look(api, run)
        except ConductorUnavailable:
            if before is None:
                raise
            state = before
        pause = _FIRST_LOOK if state != before else min(pause * 1.5, _LONGEST_LOOK)
        if state != before:
            yield state
            before = state
        if state.running:
            seams.clock.sleep(pause)


def _steps(tasks: Sequence[Mapping[str, Any]]) -> tuple[StepState, ...]:
    newest: dict[str, Mapping[str, Any]] = {}
    counted: dict[str, int] = {}
    for task in sorted((each for each in tasks if _is_worked_on(each)), key=lambda each: int(each.get("seq") or 0)):
        reference = str(task["referenceTaskName"])
        newest[reference] = task
        counted[reference] = counted.get(reference, 0) + 1
    return tuple(_step(task, counted[reference]) for reference, task in newest.items())


def _is_worked_on(task: Mapping[str, Any]) -> bool:
    return bool((task.get("workflowTask") or {}).get("type", "SIMPLE") == "SIMPLE")


def _step(task: Mapping[str, Any], attempts: int) -> StepState:
    place = (task.get("outputData") or {}).get("workspace") or {}
    return StepState(
        reference=task["referenceTaskName"],
        task=task.get("taskDefName") or task["taskType"],
        status=task["status"],
        attempts=attempts,
        commit=place.get("ref") if isinstance(place, Mapping) else None,
        reason=task.get("reasonForIncompletion"),
    )

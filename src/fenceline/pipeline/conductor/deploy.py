"""Putting a pipeline on a Conductor server: what differs from what is there, and making it so."""

from __future__ import annotations

import json
import logging
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal

from fenceline.errors import NotFound
from fenceline.pipeline.conductor.api import ConductorApi, ConductorRefused, segment
from fenceline.pipeline.form.workflow import read_workflow

log = logging.getLogger(__name__)

Definition = Mapping[str, Any]

TASK_DEFAULTS = {
    "retryCount": 3,
    "retryLogic": "FIXED",
    "retryDelaySeconds": 60,
    "backoffScaleFactor": 1,
    "responseTimeoutSeconds": 3600,
    "timeoutPolicy": "TIME_OUT_WF",
    "rateLimitFrequencyInSeconds": 1,
    "taskStatusListenerEnabled": True,
}
WORKFLOW_DEFAULTS = {"schemaVersion": 2, "restartable": True, "enforceSchema": True, "timeoutPolicy": "ALERT_ONLY"}
BUILT_IN = "fenceline."
_SERVERS_OWN = frozenset({"createTime", "updateTime", "createdBy", "updatedBy", "accessPolicy"})
_OURS_EXACTLY = frozenset({"inputParameters", "outputParameters", "inputTemplate", "metadata", "variables", "data"})
"""Below these stands what people wrote: there an empty value is a value. Elsewhere it is a field that is not set."""
_ABSENT = object()


@dataclass(frozen=True, slots=True)
class Difference:
    """One field that the server has otherwise."""

    path: str
    before: Any
    after: Any
    """Both as JSON; None if it is not there."""


@dataclass(frozen=True, slots=True)
class Change:
    """What deploying would do to one definition."""

    kind: Literal["task", "workflow"]
    name: str
    definition: Definition
    differences: tuple[Difference, ...]
    new: bool

    @property
    def needed(self) -> bool:
        return self.new or bool(self.differences)


def plan(api: ConductorApi, workflow: Definition, tasks: Sequence[Definition]) -> tuple[Change, ...]:
    """Every definition of a pipeline against what the server has, tasks first: a run must find them."""
    read_workflow(workflow)
    changes = [_change(api, "task", f"/metadata/taskdefs/{segment(task['name'])}", task) for task in tasks]
    at = f"/metadata/workflow/{segment(workflow['name'])}"
    return (*changes, _change(api, "workflow", at, workflow, {"version": workflow["version"]}))


def apply(api: ConductorApi, changes: Sequence[Change]) -> None:
    """Make every change that is needed. Running runs keep the definition that they were started with."""
    for change in changes:
        if not change.needed:
            continue
        if change.kind == "task" and change.new:
            api.post("/metadata/taskdefs", [change.definition])
        elif change.kind == "task":
            api.put("/metadata/taskdefs", change.definition)
        else:
            _check(api.put("/metadata/workflow", [change.definition]), change.name)


def _change(
    api: ConductorApi,
    kind: Literal["task", "workflow"],
    path: str,
    wanted: Definition,
    query: Mapping[str, Any] | None = None,
) -> Change:
    try:
        found = api.get(path, query)
    except NotFound:
        return Change(kind, wanted["name"], wanted, (), new=True)
    if wanted["name"].startswith(BUILT_IN):  # all pipelines share them: the first one's owner stays
        wanted = {**wanted, "ownerEmail": found.get("ownerEmail")}
    defaults = TASK_DEFAULTS if kind == "task" else WORKFLOW_DEFAULTS
    return Change(kind, wanted["name"], wanted, tuple(differences(found, wanted, defaults)), new=False)


def _check(answer: Any, name: str) -> None:
    errors = answer.get("bulkErrorResults") if isinstance(answer, dict) else None
    if errors:
        raise ConductorRefused(f"the server did not take workflow {name}: {errors}", hint="correct the pipeline")


# --- what differs -------------------------------------------------------------------------------------------------


def differences(found: Definition, wanted: Definition, defaults: Definition) -> Iterator[Difference]:
    """Field by field. A field that is left out is the server's default, because an update sets it to that."""
    before = dict(_leaves({**defaults, **found}, ""))
    after = dict(_leaves({**defaults, **wanted}, ""))
    for path in sorted(before.keys() | after.keys()):
        old, new = before.get(path, _ABSENT), after.get(path, _ABSENT)
        if not _same(old, new, exact=any(part in _OURS_EXACTLY for part in path.split("."))):
            yield Difference(path, None if old is _ABSENT else old, None if new is _ABSENT else new)


def _same(old: Any, new: Any, exact: bool) -> bool:
    if old is _ABSENT or new is _ABSENT:
        return not exact and not (new if old is _ABSENT else old)
    return json.dumps(old, sort_keys=True) == json.dumps(new, sort_keys=True)


def _leaves(value: Any, path: str, exact: bool = False) -> Iterator[tuple[str, Any]]:
    """Every value that holds no others, by its path; tasks by their reference name, so that one more moves none."""
    if isinstance(value, Mapping) and (value or not exact):
        for key, each in value.items():
            if exact or key not in _SERVERS_OWN:
                yield from _leaves(each, f"{path}.{key}" if path else key, _inside(key, each, exact))
    elif isinstance(value, list) and (value or not exact):
        names = [_label(each, number) for number, each in enumerate(value)]
        for name, each in zip(names, value, strict=True):
            yield from _leaves(each, f"{path}.{name}" if path else name, exact)
        if _are_tasks(value):  # their order matters too
            yield f"{path}.order", names
    elif exact or value is not None:
        yield path, value


def _inside(key: str, value: Any, exact: bool) -> bool:
    return exact or (key in _OURS_EXACTLY and bool(value))


def _are_tasks(value: Sequence[Any]) -> bool:
    return bool(value) and all(isinstance(each, Mapping) and "taskReferenceName" in each for each in value)


def _label(value: Any, number: int) -> str:
    return str(value["taskReferenceName"]) if _are_tasks([value]) else str(number)

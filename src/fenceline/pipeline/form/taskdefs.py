"""Conductor's TaskDef JSON: of the tasks that a pipeline uses, and of those that are built in."""

from __future__ import annotations

import inspect
from collections.abc import Mapping
from typing import Any

from fenceline.pipeline.builtin import BEGIN as BEGIN_TASK
from fenceline.pipeline.builtin import FAN as FAN_TASK
from fenceline.pipeline.builtin import PUBLISH as PUBLISH_TASK
from fenceline.pipeline.builtin import TEST as TEST_TASK
from fenceline.pipeline.definition.model import PipelineDefinition
from fenceline.task.contract import TaskDefinition
from fenceline.task.result import schema_of
from fenceline.task.spec import TaskControls

_CONTROLS = TaskControls(retry_count=5, retry_delay_seconds=2, retry_logic="EXPONENTIAL_BACKOFF")
"""Built-in tasks are short, and what stops them is mostly a store that is away for a moment."""
_TEXT = {"type": "string"}
_COMMIT = {"type": "string", "description": "A commit id."}
_PLACE = {"repository": _TEXT, "branch": _TEXT, "ref_type": {"const": "commit"}}
_REFS = {"type": "array", "items": {"type": ["string", "null"]}, "description": "Commits; null ones count for nothing."}
WORKSPACE_OUT: dict[str, Any] = {
    "type": "object",
    "properties": {**_PLACE, "ref": _COMMIT},
    "required": ["repository", "branch", "ref_type", "ref"],
}
WORKSPACE_IN: dict[str, Any] = {
    "type": "object",
    "description": "Where to work: the commit `ref`, or that one of `refs` which has all the others behind it.",
    "properties": {**_PLACE, "ref": _COMMIT, "refs": _REFS, "on_conflict": {"enum": ["fail", "rebase"]}},
    "required": ["repository", "branch", "ref_type"],
    "oneOf": [{"required": ["ref"]}, {"required": ["refs"]}],
}
_HOLDS = {"enum": ["true", "false"]}
_ANY: dict[str, Any] = {}

_BUILT_IN: dict[str, tuple[str, dict[str, Any], dict[str, Any]]] = {
    BEGIN_TASK: (
        "Begins a run: its own branch, or with publish=step the head of the target.",
        {"repository": _TEXT, "branch": _TEXT, "publish": {"enum": ["run", "step"]}},
        {"workspace": WORKSPACE_OUT, "target": _TEXT},
    ),
    TEST_TASK: (
        "Compares two values.",
        {"left": _ANY, "op": {"enum": ["==", "!=", "<", "<=", ">", ">="]}, "right": _ANY},
        {"holds": _HOLDS},
    ),
    FAN_TASK: (
        "Says for each of `most` places whether there is an item; more items than places fail the run.",
        {"items": {"type": "array"}, "most": {"type": "integer", "minimum": 1}},
        {"has": {"type": "array", "items": _HOLDS}},
    ),
    PUBLISH_TASK: (
        "Merges the run's branch into the target: the run's one visible move.",
        {"workspace": WORKSPACE_IN, "target": _TEXT},
        {"workspace": WORKSPACE_OUT},
    ),
}


def task_defs(definition: PipelineDefinition[Any]) -> list[dict[str, Any]]:
    """The TaskDefs of a pipeline's tasks and of all built-in ones, by name."""
    own = [task_def(task) for task in definition.tasks]
    built_in = [built_in_def(name, definition.owner) for name in _BUILT_IN]
    return sorted((*own, *built_in), key=lambda each: str(each["name"]))


def task_def(task: TaskDefinition[Any, Any]) -> dict[str, Any]:
    """The TaskDef of a task: its controls, and the schemas of what it takes and gives."""
    given = {"params": schema_of(task.params_model, "validation")}
    made = {"result": schema_of(task.result_model, "serialization")}
    if task.kind != "none":
        given, made = {"workspace": WORKSPACE_IN, **given}, {"workspace": WORKSPACE_OUT, **made}
    about = inspect.getdoc(task.function) or ""
    return _definition(task.name, about.partition("\n\n")[0], task.owner, task.controls, given, made)


def built_in_def(name: str, owner: str) -> dict[str, Any]:
    """The TaskDef of a built-in task; the owner is that of the pipeline that needs it."""
    about, given, made = _BUILT_IN[name]
    return _definition(name, about, owner, _CONTROLS, given, made)


def _definition(
    name: str, about: str, owner: str, controls: TaskControls, given: Mapping[str, Any], made: Mapping[str, Any]
) -> dict[str, Any]:
    return {
        "name": name,
        "description": about,
        "ownerEmail": owner,
        **controls.as_taskdef(),
        "inputKeys": sorted(given),
        "outputKeys": sorted(made),
        "inputSchema": _schema(f"{name}.input", given),
        "outputSchema": _schema(f"{name}.output", made),
        "enforceSchema": False,
    }


def _schema(name: str, fields: Mapping[str, Mapping[str, Any]]) -> dict[str, Any]:
    """A SchemaDef of an object with these fields; what pydantic put into `$defs` of a field moves to the top."""
    shared: dict[str, Any] = {}
    properties = {}
    for field, schema in fields.items():
        properties[field] = {key: value for key, value in schema.items() if key != "$defs"}
        shared.update(schema.get("$defs", {}))
    data: dict[str, Any] = {
        "type": "object",
        "properties": properties,
        "required": sorted(fields),
        "additionalProperties": False,
    }
    if shared:
        data["$defs"] = shared
    return {"name": name, "version": 1, "type": "JSON", "data": data}

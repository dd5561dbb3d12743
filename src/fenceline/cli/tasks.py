"""Looking at tasks before they run: check."""

from __future__ import annotations

import warnings
from collections.abc import Mapping
from typing import Annotated, Any

import typer

from fenceline.cli.options import Json
from fenceline.cli.output import counted, emit, fields, say
from fenceline.task.contract import TaskDefinition
from fenceline.task.loading import load
from fenceline.task.spec import BudgetWarning

Reference = Annotated[
    str,
    typer.Argument(
        metavar="MODULE[:TASK]", help="package.module or path/to/file.py, and after ':' one task or its function."
    ),
]


def check(reference: Reference, as_json: Json = False) -> None:
    """Import a module and show the tasks it declares, with what to know about each; exits with 3 if one is wrong."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", BudgetWarning)  # each task keeps its own, and they are shown with it
        tasks = load(reference)
    if as_json:
        emit({"tasks": [task.describe() for task in tasks]})
        return
    for task in tasks:
        _show(task, task.describe())
    warned = sum(len(task.warnings) for task in tasks)
    say(f"{counted(len(tasks), 'task')}, {counted(warned, 'warning') if warned else 'no warnings'}")


def _show(task: TaskDefinition[Any, Any], described: Mapping[str, Any]) -> None:
    say(task.name, style="bold")
    fields(
        (
            ("  kind", "no workspace" if task.kind == "none" else task.kind),
            ("  owner", task.owner),
            ("  version", task.version),
            ("  function", described["function"]),
            ("  params", _model(task.params_model.__name__, described["params"])),
            ("  result", _model(task.result_model.__name__, described["result"])),
            ("  workspace", _settings(described["workspace"])),
            ("  controls", _settings(described["controls"])),
            ("  budget", _settings(described["budget"])),
        )
    )
    for warning in task.warnings:
        say(f"  warning    {warning}", style="yellow")
    say("")


def _model(name: str, schema: Mapping[str, Any]) -> str:
    """`Params(day: date, rows?: integer)`, from the schema, which has no values of secrets."""
    required = schema.get("required", ())
    shown = (
        f"{field}{'' if field in required else '?'}: {_type(described)}"
        for field, described in schema.get("properties", {}).items()
    )
    return f"{name}({', '.join(shown)})"


def _type(described: Mapping[str, Any]) -> str:
    if "$ref" in described:
        return str(described["$ref"]).rpartition("/")[2]
    if "anyOf" in described:
        return " | ".join(_type(each) for each in described["anyOf"])
    if "items" in described:
        return f"array of {_type(described['items'])}"
    return str(described.get("format") or described.get("type") or "any")


def _settings(values: Mapping[str, Any] | None) -> str:
    if values is None:
        return ""
    return ", ".join(f"{name}={_value(value)}" for name, value in values.items() if value not in (None, []))


def _value(value: object) -> str:
    if isinstance(value, list):
        return f"[{', '.join(map(str, value))}]"
    return f"{value:g}" if isinstance(value, float) else str(value)

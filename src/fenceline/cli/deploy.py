"""Putting pipelines on a Conductor server: deploy."""

from __future__ import annotations

import json
import sys
from collections.abc import Sequence
from typing import Annotated, Any

import typer

from fenceline.cli.extract import PipelineReference
from fenceline.cli.options import Json
from fenceline.cli.output import counted, emit, one_line, say
from fenceline.errors import ContractError
from fenceline.pipeline.conductor.api import URL_ENV, ConductorApi
from fenceline.pipeline.conductor.deploy import Change, Difference, apply, plan
from fenceline.pipeline.definition.loading import load_pipelines
from fenceline.pipeline.form.compiling import workflow_def
from fenceline.pipeline.form.taskdefs import task_defs

LONGEST_VALUE = 60

Server = Annotated[
    str | None,
    typer.Option(
        "--server",
        envvar=URL_ENV,
        help="The Conductor server, as http://HOST:8080/api.",
        show_default="http://localhost:8080/api",
    ),
]
Yes = Annotated[bool, typer.Option("--yes", "-y", help="Do not ask.")]
DryRun = Annotated[bool, typer.Option("--dry-run", help="Only show what would change.")]


def deploy(
    reference: PipelineReference,
    server: Server = None,
    yes: Yes = False,
    dry_run: DryRun = False,
    as_json: Json = False,
) -> None:
    """Register pipelines and their tasks with a Conductor server, or update them; shows what changes first."""
    with ConductorApi.at(server) as api:
        changes = _plan(api, reference)
        needed = [change for change in changes if change.needed]
        if not as_json:
            _show(changes)
        if needed and not dry_run:
            if not yes:
                _ask(as_json)
            apply(api, needed)
    if as_json:
        emit({"server": api.url, "applied": bool(needed) and not dry_run, "changes": [_document(c) for c in needed]})
    elif not needed:
        say(f"nothing to change on {api.url}")
    else:
        say(f"{counted(len(needed), 'definition')} {'would change' if dry_run else 'deployed'} on {api.url}")


def _plan(api: ConductorApi, reference: str) -> list[Change]:
    """All pipelines of the reference; a task that several of them use, once."""
    found: dict[tuple[str, str], Change] = {}
    for pipeline in load_pipelines(reference):
        for change in plan(api, workflow_def(pipeline), task_defs(pipeline)):
            found.setdefault((change.kind, change.name), change)
    return sorted(found.values(), key=lambda change: change.kind)


def _ask(as_json: bool) -> None:
    if as_json or not sys.stdin.isatty():
        raise ContractError("nobody can be asked whether to deploy this", hint="add --yes, or --dry-run to only look")
    typer.confirm("Deploy this?", abort=True, err=True)


def _show(changes: Sequence[Change]) -> None:
    for change in changes:
        if change.new:
            say(f"+ {change.kind} {change.name}", style="green")
        elif change.differences:
            say(f"~ {change.kind} {change.name}", style="yellow")
            for difference in change.differences:
                say(f"    {_line(difference)}")


def _line(difference: Difference) -> str:
    return f"{difference.path}: {_value(difference.before)} → {_value(difference.after)}"


def _value(value: Any) -> str:
    if value is None:
        return "(none)"
    text = one_line(json.dumps(value, ensure_ascii=False))
    return text if len(text) <= LONGEST_VALUE else text[: LONGEST_VALUE - 1] + "…"


def _document(change: Change) -> dict[str, Any]:
    differing = [{"path": d.path, "before": d.before, "after": d.after} for d in change.differences]
    return {"kind": change.kind, "name": change.name, "new": change.new, "differences": differing}

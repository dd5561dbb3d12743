"""Running one attempt of a task by hand: try."""

from __future__ import annotations

import json
import tempfile
from pathlib import Path
from typing import Annotated, Any

import typer

from fenceline.api import Repository
from fenceline.cli import progress
from fenceline.cli.failure import FAILED_ATTEMPT
from fenceline.cli.opening import writing
from fenceline.cli.options import Json, Params, Repo, read_params
from fenceline.cli.output import Column, emit, fields, say, table
from fenceline.errors import ContractError
from fenceline.task.attempt import AttemptRunner
from fenceline.task.by_hand import ByHand, handed_out
from fenceline.task.contract import TaskDefinition
from fenceline.task.loading import load
from fenceline.task.rehearsal import Rehearsal
from fenceline.task.result import TaskResult

TaskReference = Annotated[
    str, typer.Argument(metavar="MODULE:TASK", help="package.module:task, or path/to/file.py:task.")
]
Branch = Annotated[str, typer.Option("--branch", help="The branch whose head is the input, and to publish to.")]
DryRun = Annotated[bool, typer.Option("--dry-run", help="Publish nothing: show what would change.")]
Root = Annotated[
    Path | None,
    typer.Option("--workspace-root", help="Where attempt directories are made.", show_default="a temporary directory"),
]


def try_(
    reference: TaskReference,
    params: Params = "{}",
    branch: Branch = "main",
    dry_run: DryRun = False,
    workspace_root: Root = None,
    repo: Repo = ".",
    as_json: Json = False,
) -> None:
    """Run one attempt of a task on a branch, showing its phases; with --dry-run the changes instead of publishing."""
    definition = _one(reference)
    opened = writing(repo, as_json)
    given = _given(definition, opened, branch, params)
    attempt = handed_out(definition.name, given, opened.store.seams)
    with tempfile.TemporaryDirectory(prefix="fenceline-try-") as temporary:
        root = workspace_root or Path(temporary)
        with progress.attempt(seen=not as_json) as shown:
            runner = AttemptRunner(
                lambda url: opened.store,
                ByHand(),
                root,
                seams=opened.store.seams,
                on_phase=shown.phase,
                on_progress=shown.stage,
            )
            done = runner.rehearse(definition, attempt) if dry_run else runner.run(definition, attempt)
        if isinstance(done, Rehearsal):
            _show_rehearsal(done, as_json)
        else:
            _show_result(done, as_json)


def _one(reference: str) -> TaskDefinition[Any, Any]:
    found = load(reference)
    if len(found) != 1:
        names = ", ".join(task.name for task in found)
        raise ContractError(f"{reference} has {len(found)} tasks: {names}", hint="name one: MODULE:TASK")
    return found[0]


def _given(definition: TaskDefinition[Any, Any], repo: Repository, branch: str, params: str) -> dict[str, Any]:
    value = read_params(params)
    if definition.kind == "none":
        return {"params": value}
    ref = repo.head(branch).commit.id
    return {
        "workspace": {"repository": repo.url, "branch": branch, "ref_type": "commit", "ref": ref},
        "params": value,
    }


def _show_rehearsal(rehearsal: Rehearsal, as_json: bool) -> None:
    changes = [{"status": unit.status, "path": unit.path, "dataset": unit.is_dataset} for unit in rehearsal.changes]
    if as_json:
        emit({"result": rehearsal.result, "changes": changes, "guards": list(rehearsal.guards)})
        return
    table((Column("status"), Column("path")), ((change["status"], change["path"]) for change in changes))
    say(f"result {json.dumps(rehearsal.result)}; {len(changes)} changes; nothing was published")


def _show_result(result: TaskResult, as_json: bool) -> None:
    document = {"status": result.status, "output": result.output, "reason": result.reason, "code": result.code}
    if as_json:
        emit(document)
    else:
        place = result.output.get("workspace", {})
        fields(
            (
                ("status", result.status),
                ("commit", place.get("ref", "")),
                ("result", json.dumps(result.output.get("result")) if result.output else ""),
                ("reason", result.reason or ""),
            )
        )
    if result.status != "COMPLETED":
        raise typer.Exit(FAILED_ATTEMPT)

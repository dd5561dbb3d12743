"""Starting a run on a Conductor server: submit."""

from __future__ import annotations

from dataclasses import asdict
from typing import Annotated, Any

import typer

from fenceline.cli.deploy import Server
from fenceline.cli.opening import reading
from fenceline.cli.options import Json, Params, PipelineArgument, Repo, RunBranch, read_params
from fenceline.cli.output import Column, emit, remark, say, short, table
from fenceline.errors import ContractError, NotFound
from fenceline.pipeline.conductor.api import ConductorApi
from fenceline.pipeline.conductor.deploy import plan
from fenceline.pipeline.conductor.submit import RunState, follow
from fenceline.pipeline.conductor.submit import submit as start_run
from fenceline.pipeline.definition.loading import AnyPipeline, load_pipeline
from fenceline.pipeline.form.compiling import workflow_def
from fenceline.seams import Seams

FAILED_RUN = 9

Key = Annotated[
    str | None, typer.Option("--key", help="Do nothing if a run with this key is running or has completed.")
]
Wait = Annotated[bool, typer.Option("--wait", help="Wait for its end, showing each step; exits with 9 if it fails.")]


def submit(
    reference: PipelineArgument,
    params: Params = "{}",
    branch: RunBranch = "main",
    key: Key = None,
    wait: Wait = False,
    server: Server = None,
    repo: Repo = ".",
    as_json: Json = False,
) -> None:
    """Start a run of a deployed pipeline on a Conductor server."""
    pipeline = load_pipeline(reference)
    opened = reading(repo)
    opened.head(branch)  # a branch that is not there is told now, not by a failed run
    given = pipeline.workflow_input(opened.url, branch, read_params(params))
    with ConductorApi.at(server) as api:
        _check(api, pipeline)
        run = start_run(api, pipeline.name, pipeline.version, given, key)
        if wait:
            if not as_json:
                remark(f"run {run}")
            _finish(_followed(api, run, as_json), as_json)
        elif as_json:
            emit({"run": run})
        else:
            say(run)


def _check(api: ConductorApi, pipeline: AnyPipeline) -> None:
    """That the server has this very pipeline: else something else would run than what was named."""
    (change,) = plan(api, workflow_def(pipeline), ())
    if change.new:
        raise NotFound(
            f"pipeline {pipeline.name} version {pipeline.version} is not on {api.url}",
            hint="put it there: fenceline deploy",
        )
    if change.differences:
        raise ContractError(
            f"pipeline {pipeline.name} on {api.url} is not the one in {pipeline.__module__}: "
            f"{len(change.differences)} fields differ",
            hint="fenceline deploy shows them, and updates it",
        )


def _followed(api: ConductorApi, run: str, as_json: bool) -> RunState:
    shown: set[Any] = set()
    state: RunState | None = None
    for state in follow(api, run, Seams()):
        for step in state.steps:
            if not as_json and step not in shown:
                shown.add(step)
                again = f" (attempt {step.attempts})" if step.attempts > 1 else ""
                remark(f"  {step.reference} {step.status}{again}{f': {step.reason}' if step.reason else ''}")
    assert state is not None
    return state


def _finish(state: RunState, as_json: bool) -> None:
    if as_json:
        emit(asdict(state))
    else:
        rows = ((s.reference, s.status, s.attempts, short(s.commit)) for s in state.steps)
        table((Column("step"), Column("status"), Column("attempts", right=True), Column("commit", fixed=True)), rows)
        say(f"run {state.id} {state.status}{f': {state.reason}' if state.reason else ''}")
    if state.status != "COMPLETED":
        raise typer.Exit(FAILED_RUN)

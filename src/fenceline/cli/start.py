"""Workers for a Conductor server: start."""

from __future__ import annotations

import os
import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import Annotated, Any

import typer

from fenceline.cli.deploy import Server
from fenceline.cli.options import Json
from fenceline.cli.output import counted, emit, remark, say
from fenceline.cli.run import Master
from fenceline.errors import ContractError, NotFound
from fenceline.pipeline.conductor.api import ConductorApi, ConductorUnavailable, segment
from fenceline.pipeline.conductor.supervisor import Supervisor, search_path
from fenceline.pipeline.conductor.worker_process import WorkerSettings, start_log
from fenceline.pipeline.definition.loading import load_pipelines
from fenceline.pipeline.embedded.worker_process import reference_of
from fenceline.task.contract import LoadError, TaskDefinition
from fenceline.task.loading import load

KILLED = 9
DEFAULT_GRACE = 60.0

AnyTask = TaskDefinition[Any, Any]

References = Annotated[
    list[str],
    typer.Argument(
        metavar="MODULE[:NAME]…",
        help="package.module or path/to/file.py for all its tasks and those of its pipelines; after ':' one of them.",
    ),
]
Processes = Annotated[int, typer.Option("-j", "--workers", min=1, help="How many worker processes.", metavar="N")]
Slots = Annotated[int, typer.Option("--slots", min=1, help="How many attempts at once in each process.", metavar="N")]
Root = Annotated[
    Path | None,
    typer.Option(
        "--workspace-root",
        envvar="FENCELINE_WORKSPACE_ROOT",
        help="Where attempt directories are made.",
        show_default="a directory of this user below the system's temporary one",
    ),
]
Grace = Annotated[
    float | None,
    typer.Option(
        "--grace",
        min=0,
        help="Seconds for running attempts to finish when asked to stop.",
        show_default="the longest shutdown_grace_seconds of the tasks' budgets",
    ),
]
Domain = Annotated[str | None, typer.Option("--domain", help="Poll only for attempts of this task domain.")]


def start(
    references: References,
    processes: Processes = 2,
    slots: Slots = 1,
    server: Server = None,
    workspace_root: Root = None,
    grace: Grace = None,
    domain: Domain = None,
    master: Master = None,
    as_json: Json = False,
) -> None:
    """Work on the tasks of modules and pipelines, for a Conductor server; until SIGTERM or Ctrl-C, then drain.

    With --json the log is JSON lines on standard error.
    """
    tasks = tasks_of(references)
    with ConductorApi.at(server) as api:
        _check(api, tasks)
    root = workspace_root or Path(tempfile.gettempdir()) / f"fenceline-{os.getuid()}"
    root.mkdir(mode=0o700, parents=True, exist_ok=True)
    longest = max((task.budget.shutdown_grace_seconds for task in tasks if task.budget), default=DEFAULT_GRACE)
    settings = WorkerSettings(
        server=api.url,
        tasks=tuple(reference_of(task) for task in tasks),
        workspace_root=str(root.resolve()),
        path=search_path(),
        slots=slots,
        grace=longest if grace is None else grace,
        domain=domain,
        json_log=as_json,
        master=master,
    )
    start_log(as_json)
    names = [task.name for task in tasks]
    if not as_json:
        say(f"{counted(processes, 'worker')} for {', '.join(names)} on {api.url}")
    gently = Supervisor(settings, processes).run()
    if as_json:
        emit({"server": api.url, "tasks": names, "workers": processes, "stopped_gently": gently})
    else:
        say("stopped" if gently else "stopped; some attempts were cut off and are retried")
    if not gently:
        raise typer.Exit(KILLED)


def tasks_of(references: Sequence[str]) -> list[AnyTask]:
    """The tasks that the references name, and those of the pipelines that they name; each once."""
    found: dict[str, AnyTask] = {}
    for reference in references:
        for task in _tasks_at(reference):
            known = found.setdefault(task.name, task)
            if known is not task:
                raise ContractError(
                    f"two tasks are named {task.name}: of {known.__module__} and of {task.__module__}",
                    hint="start them apart, or give one another name=",
                )
    return list(found.values())


def _tasks_at(reference: str) -> list[AnyTask]:
    found: list[AnyTask] = []
    problems: list[LoadError] = []
    try:
        found += [task for pipeline in load_pipelines(reference) for task in pipeline.tasks]
    except LoadError as error:
        problems.append(error)
    try:
        found += load(reference)
    except LoadError as error:
        problems.append(error)
    if not found:
        raise problems[-1]
    return found


def _check(api: ConductorApi, tasks: Sequence[AnyTask]) -> None:
    """What is worth knowing before the workers wait for attempts that cannot come."""
    try:
        for task in tasks:
            try:
                api.get(f"/metadata/taskdefs/{segment(task.name)}")
            except NotFound:
                remark(f"note: {task.name} is not registered on the server; fenceline deploy does that")
    except ConductorUnavailable as error:
        remark(f"note: {error.message}; the workers wait for it")

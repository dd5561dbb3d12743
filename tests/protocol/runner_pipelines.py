"""The pipelines that the runner tests run: tiny bodies, each leaving a line in a file beside the repository."""

from __future__ import annotations

import os
import time
from pathlib import Path
from typing import Any

from pydantic import BaseModel, ConfigDict

import fenceline as fl
from fenceline.pipeline.definition.dsl import Run, pipeline

FAST = fl.TaskControls(retry_count=3, retry_delay_seconds=0, response_timeout_seconds=30)


class Params(BaseModel):
    model_config = ConfigDict(extra="forbid")
    runs: str
    """A file to which every run of a body appends its step's name."""
    label: str = "x"
    more: int = 0
    hold: str = ""
    """A file: `middle` waits in its body for as long as it exists."""


class Out(BaseModel):
    lines: int


def ran(params: Params, step: str) -> None:
    fd = os.open(params.runs, os.O_WRONLY | os.O_APPEND | os.O_CREAT)
    os.write(fd, f"{step}\n".encode())
    os.close(fd)


def write(workspace: Path, path: str, text: str) -> None:
    (workspace / path).parent.mkdir(parents=True, exist_ok=True)
    (workspace / path).write_text(text)


@fl.task(name="r.first", owner="t@example.com", workspace=fl.WorkspaceSpec(prefix="one"), controls=FAST)
def first(workspace: Path, params: Params) -> Out:
    ran(params, "first")
    write(workspace, f"{params.label}.txt", params.label)
    return Out(lines=1)


@fl.task(name="r.left", owner="t@example.com", workspace=fl.WorkspaceSpec(prefix="left"), controls=FAST)
def left(workspace: Path, params: Params) -> Out:
    ran(params, "left")
    write(workspace, f"{params.label}.txt", "left")
    return Out(lines=2)


@fl.task(name="r.right", owner="t@example.com", workspace=fl.WorkspaceSpec(prefix="right"), controls=FAST)
def right(workspace: Path, params: Params) -> Out:
    ran(params, "right")
    write(workspace, f"{params.label}.txt", "right")
    return Out(lines=3)


@fl.task(name="r.middle", owner="t@example.com", workspace=fl.WorkspaceSpec(prefix="middle"), controls=FAST)
def middle(workspace: Path, params: Params) -> Out:
    ran(params, "middle")
    while params.hold and Path(params.hold).exists():
        time.sleep(0.01)
    write(workspace, f"{params.label}.txt", f"{params.more}")
    return Out(lines=params.more)


@fl.task(name="r.last", owner="t@example.com", workspace=fl.WorkspaceSpec(), controls=FAST)
def last(workspace: Path, params: Params) -> Out:
    ran(params, "last")
    found = sorted(str(p.relative_to(workspace)) for p in workspace.rglob(f"{params.label}.txt"))
    write(workspace, f"all/{params.label}.txt", "\n".join(found))
    return Out(lines=len(found))


@pipeline(name="diamond", owner="t@example.com")
def diamond(run: Run[Params]) -> None:
    """first → left, right → middle → last."""
    given: Any = {"runs": run.params.runs, "label": run.params.label}
    one = run.step(first, **given)
    two = run.step(left, after=one, **given)
    three = run.step(right, after=one, **given)
    four = run.step(middle, after=[two, three], more=three.result.lines, hold=run.params.hold, **given)
    run.step(last, after=four, **given)


@pipeline(name="short", owner="t@example.com")
def short(run: Run[Params]) -> None:
    """Two steps: many of it run at once."""
    given: Any = {"runs": run.params.runs, "label": run.params.label}
    one = run.step(first, **given)
    run.step(left, after=one, **given)


@pipeline(name="stepwise", owner="t@example.com", publish="step")
def stepwise(run: Run[Params]) -> None:
    """The same on the target branch itself: others are in its way."""
    given: Any = {"runs": run.params.runs, "label": run.params.label}
    one = run.step(first, **given)
    run.step(left, after=one, **given)

"""A pipeline with everything that compiles to more than a list: a fork, a condition with both cases, a foreach."""

from __future__ import annotations

from pathlib import Path

from pydantic import BaseModel

from fenceline.pipeline.definition.dsl import Run, pipeline
from fenceline.task.contract import task
from fenceline.task.spec import TaskControls, WorkspaceSpec

OWNER = "data@example.com"
QUICK = TaskControls(retry_count=2, retry_delay_seconds=0, response_timeout_seconds=30)


class Params(BaseModel, extra="forbid"):
    rows: int


class Given(BaseModel, extra="forbid"):
    text: str
    rows: int = 0


class Made(BaseModel):
    rows: int
    names: list[str]


def made(workspace: Path, params: Given) -> Made:
    (workspace / f"{params.text}.txt").write_text(str(params.rows))
    return Made(rows=params.rows, names=[f"n{number}" for number in range(params.rows)])


@task(name="blocks.first", owner=OWNER, workspace=WorkspaceSpec(prefix="first"), controls=QUICK)
def first(workspace: Path, params: Given) -> Made:
    return made(workspace, params)


@task(name="blocks.beside", owner=OWNER, workspace=WorkspaceSpec(prefix="beside"), controls=QUICK)
def beside(workspace: Path, params: Given) -> Made:
    return made(workspace, params)


@task(name="blocks.inside", owner=OWNER, workspace=WorkspaceSpec(prefix="inside"), controls=QUICK)
def inside(workspace: Path, params: Given) -> Made:
    return made(workspace, params)


@task(name="blocks.free", owner=OWNER, controls=QUICK)
def free(params: Given) -> Made:
    return Made(rows=len(params.text), names=[])


@pipeline(name="blocks")
def blocks(run: Run[Params]) -> None:
    """More than two items of the foreach fail it."""
    one = run.step(first, text="${first} $${x}", rows=run.params.rows)
    two = run.step(beside, text="beside", rows=one.result.rows)
    with run.when(one.result.rows > 1, name="many") as many:
        run.step(inside, text="inside", rows=one.result.rows)
        run.foreach(["a", "b"], free, lambda text: {"text": text}, name="known")
    with run.otherwise(many):
        run.step(free, name="few", text="few")
    last = run.step(first, name="last", text="last", after=[two, many])
    run.foreach(one.result.names, free, lambda text: {"text": text}, most=2, name="each", after=last)

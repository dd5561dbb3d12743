"""Pipelines that a type checker must accept, and what it knows about them."""
# mypy: ignore-errors

from datetime import date
from pathlib import Path
from typing import assert_type

from pydantic import BaseModel

import fenceline as fl
from fenceline.pipeline.definition.dsl import Block
from fenceline.pipeline.definition.model import PipelineDefinition


class DayParams(BaseModel, extra="forbid"):
    day: date


class Raw(BaseModel):
    rows: int
    days: list[date]


class Built(BaseModel):
    good: bool


@fl.task(name="ingest", owner="data@example.com", workspace=fl.WorkspaceSpec())
def ingest(workspace: Path, params: DayParams) -> Raw:
    return Raw(rows=1, days=[params.day])


@fl.task(name="build", owner="data@example.com")
def build(params: DayParams) -> Built:
    return Built(good=True)


@fl.pipeline(name="daily", publish="step", owner="data@example.com", description="Daily.", version=2)
def daily(run: fl.Run[DayParams]) -> None:
    raw = run.step(ingest, day=run.params.day)
    assert_type(raw, fl.Step[Raw])
    assert_type(raw.result.rows, int)
    built = run.step(build, name="again", after=raw, day=raw.result.days[0])
    assert_type(built.result.good, bool)
    run.step(build, {"day": "2026-01-01"}, name="third", after=[raw, built])
    with run.when(raw.result.rows > 3) as block:
        assert_type(block, Block)
        run.step(build, name="fourth", day=run.params.day)
    with run.otherwise(block):
        run.step(build, name="fifth", day=run.params.day)
    each = run.foreach(raw.result.days, build, lambda day: {"day": day.replace(day=1)}, most=3, after=block)
    run.step(build, name="last", after=[raw, block, each], day=run.params.day)


@fl.pipeline(name="nothing")
def nothing(run: fl.Run[None]) -> None:
    run.step(build, day="2026-01-01")


assert_type(daily, PipelineDefinition[DayParams])
assert_type(nothing, PipelineDefinition[None])
assert_type(daily.params_from({}), DayParams)

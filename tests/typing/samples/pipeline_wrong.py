"""Pipelines that are type errors."""
# mypy: ignore-errors

from datetime import date

from pydantic import BaseModel

import fenceline as fl


class DayParams(BaseModel, extra="forbid"):
    day: date


class Raw(BaseModel):
    rows: int
    name: str
    days: list[date]


@fl.task(name="ingest", owner="data@example.com")
def ingest(params: DayParams) -> Raw:
    return Raw(rows=1, name="", days=[])


def plain(params: DayParams) -> Raw:
    return Raw(rows=1, name="", days=[])


@fl.pipeline(name="daily")
def daily(run: fl.Run[DayParams]) -> None:
    raw = run.step(ingest, day=run.params.dya)  # error: attr-defined
    run.step(ingest, day=raw.result.row)  # error: attr-defined
    run.step(ingest, day=raw.rows)  # error: attr-defined
    run.step(plain, day=run.params.day)  # error: arg-type
    run.step(ingest, name=1, day=run.params.day)  # error: arg-type
    run.step(ingest, after="raw", day=run.params.day)  # error: arg-type
    run.step(ingest, after=raw.result, day=run.params.day)  # error: arg-type
    run.step("ingest")  # error: arg-type
    run.when(raw.result.rows)  # error: arg-type
    run.when(raw.result.rows > "3")  # error: operator
    run.otherwise(raw)  # error: arg-type
    run.foreach(raw.result.rows, ingest, lambda day: {"day": day})  # error: arg-type
    run.foreach(raw.result.days, ingest, lambda day: {"day": day.yaer})  # error: attr-defined
    run.foreach(raw.result.days, ingest, lambda day: day)  # error: arg-type, return-value
    raw.name = "other"  # error: misc


@fl.pipeline(name="daily", publish="never")  # error: arg-type
def never(run: fl.Run[None]) -> None:
    run.params.day  # error: attr-defined


@fl.pipeline("daily")  # error: call-arg
def unnamed(run: fl.Run[None]) -> None: ...


@fl.pipeline(name="daily")  # error: type-var
def numbers(run: fl.Run[int]) -> None: ...  # error: type-var


@fl.pipeline(name="daily")  # error: arg-type
def returning(run: fl.Run[None]) -> int:
    return 1


@fl.pipeline(name="daily")  # error: arg-type
def two(run: fl.Run[None], more: int) -> None: ...


daily(1).rows  # error: attr-defined

"""The pipeline: what comes after what. Sessions, songs and the graph are made side by side, on one branch."""

from __future__ import annotations

from datetime import date

from pydantic import BaseModel, ConfigDict

import fenceline as fl
from listening import tasks


class DailyParams(BaseModel):
    model_config = ConfigDict(extra="forbid")
    day: date
    events: int = 1_000_000
    dirty: float = 0.01
    """The share of events that are broken when they come in."""
    reject: bool = True
    """Whether `clean` puts broken events aside. If not, its guards stop the run."""


@fl.pipeline(name="daily-listening", owner=tasks.OWNER)
def daily(run: fl.Run[DailyParams]) -> None:
    raw = run.step(tasks.ingest, day=run.params.day, events=run.params.events, dirty=run.params.dirty)
    clean = run.step(tasks.clean, after=raw, day=run.params.day, reject=run.params.reject)
    sessions = run.step(tasks.sessions, after=clean, day=run.params.day)
    songs = run.step(tasks.songs, after=clean, day=run.params.day)
    graph = run.step(tasks.graph, after=clean, day=run.params.day)
    run.step(tasks.report, after=[sessions, songs, graph], day=run.params.day)

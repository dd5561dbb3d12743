"""The daily pipeline on lakeFS: without the graph, whose tables need a native repository."""

from __future__ import annotations

import fenceline as fl
from listening import tasks
from listening.pipeline import DailyParams


@fl.pipeline(name="daily-listening-lakefs", owner=tasks.OWNER)
def daily(run: fl.Run[DailyParams]) -> None:
    raw = run.step(tasks.ingest, day=run.params.day, events=run.params.events, dirty=run.params.dirty)
    clean = run.step(tasks.clean, after=raw, day=run.params.day, reject=run.params.reject)
    sessions = run.step(tasks.sessions, after=clean, day=run.params.day)
    songs = run.step(tasks.songs, after=clean, day=run.params.day)
    run.step(tasks.report, after=[sessions, songs], day=run.params.day)

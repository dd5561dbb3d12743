"""Pipelines for the tests: a small one with steps beside each other, and one whose step waits to be let go.

Where a test wants it, the environment makes a worker die once: in a body, or between seal and publish.
"""

from __future__ import annotations

import os
import signal
import time
from pathlib import Path

from pydantic import BaseModel, ConfigDict

from fenceline import TaskControls, WorkspaceSpec, failpoints, task
from fenceline.pipeline.definition.dsl import Run, pipeline

QUICK = TaskControls(retry_count=3, retry_delay_seconds=0)
"""With the lease's default of an hour: none of these tests waits for the end of a lease."""
RUNS_ENV = "SONGS_RUNS"
"""A file to which each run of a body adds its step."""
DIE_IN_ENV, DIE_AFTER_ENV = "SONGS_DIE_IN", "SONGS_DIE_AFTER"
GATE_ENV = "SONGS_GATE"


class Params(BaseModel):
    model_config = ConfigDict(extra="forbid")
    day: str = "2026-01-01"


class Nothing(BaseModel):
    model_config = ConfigDict(extra="forbid")


class Rows(BaseModel):
    rows: int


class Day(BaseModel):
    model_config = ConfigDict(extra="forbid")
    day: str
    rows: int = 0


def ran(step: str) -> None:
    """Count the run of a body, and die as the test wants it; once, because the next run finds a mark."""
    runs = os.environ.get(RUNS_ENV)
    if runs is None:
        return
    with Path(runs).open("a") as file:
        file.write(f"{step}\n")
    mark = Path(f"{runs}.{step}-died")
    if step in (os.environ.get(DIE_IN_ENV), os.environ.get(DIE_AFTER_ENV)) and not mark.exists():
        mark.touch()
        if step == os.environ.get(DIE_IN_ENV):
            os.kill(os.getpid(), signal.SIGKILL)
        failpoints._actions.update(failpoints._parse("entry.publish.before=crash;lakefs.merge.before=crash"))
        failpoints._switched_on = True


def spec(prefix: str) -> WorkspaceSpec:
    return WorkspaceSpec(prefix=prefix)


@task(name="songs.ingest", owner="data@example.com", workspace=spec("raw"), controls=QUICK)
def ingest(workspace: Path, params: Day) -> Rows:
    """The plays of a day."""
    ran("ingest")
    (workspace / "plays.csv").write_text(f"{params.day},Aurora,3\n{params.day},Borealis,5\n")
    return Rows(rows=2)


@task(name="songs.people", owner="data@example.com", workspace=spec("people"), controls=QUICK)
def people(workspace: Path, params: Day) -> Rows:
    ran("people")
    (workspace / "people.csv").write_text("Ada\n" * params.rows)
    return Rows(rows=params.rows)


@task(name="songs.charts", owner="data@example.com", workspace=spec("charts"), controls=QUICK)
def charts(workspace: Path, params: Day) -> Rows:
    ran("charts")
    (workspace / "top.txt").write_text(f"{params.day} Borealis\n")
    return Rows(rows=1)


@task(name="songs.report", owner="data@example.com", workspace=spec(""), controls=QUICK)
def report(workspace: Path, params: Day) -> Rows:
    """Reads what both steps before it wrote."""
    ran("report")
    text = (workspace / "charts" / "top.txt").read_text() + (workspace / "people" / "people.csv").read_text()
    (workspace / "report.txt").write_text(text)
    return Rows(rows=params.rows)


@pipeline(name="songs")
def songs(run: Run[Params]) -> None:
    """Plays, people, charts and a report."""
    day = run.params.day
    raw = run.step(ingest, day=day)
    who = run.step(people, day=day, rows=raw.result.rows)
    top = run.step(charts, day=day, rows=raw.result.rows)
    run.step(report, day=day, rows=who.result.rows, after=top)


@task(name="songs.wait", owner="data@example.com", workspace=spec("waited"), controls=QUICK)
def wait(workspace: Path, params: Nothing) -> Rows:
    """Says that it runs, and goes on when it is let go."""
    ran("wait")
    gate = Path(os.environ[GATE_ENV])
    (gate / "started").touch()
    while not (gate / "go").exists():
        time.sleep(0.02)
    (workspace / "done.txt").write_text("done")
    return Rows(rows=1)


@pipeline(name="waiting", publish="step")
def waiting(run: Run[None]) -> None:
    """One step that waits to be let go."""
    run.step(wait)

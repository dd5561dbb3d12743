"""What the tests of `fenceline run` share: a pipeline in a file of its own, and the command as a real process."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import fenceline as fl
from fenceline.pipeline.embedded.runs import RunResult, list_runs, open_store

COLOUR_SETTINGS = ("FORCE_COLOR", "TTY_COMPATIBLE", "NO_COLOR")
FENCELINE = (sys.executable, "-m", "fenceline.cli")

PLAYS = '''
import time
from datetime import date
from pathlib import Path

from pydantic import BaseModel, ConfigDict

import fenceline as fl

ONCE = fl.TaskControls(retry_count=0)


class Day(BaseModel):
    model_config = ConfigDict(extra="forbid")
    day: date
    beside: str
    """A directory: `ran` there lists the bodies that ran, `bad` the days without songs, `hold` holds a body."""


class Made(BaseModel):
    rows: int


def began(params: Day, step: str) -> None:
    with (Path(params.beside) / "ran").open("a") as ran:
        ran.write(f"{params.day} {step}\\n")


@fl.task(name="plays.fetch", owner="a@example.com", workspace=fl.WorkspaceSpec(prefix="raw"), controls=ONCE)
def fetch(workspace: Path, params: Day) -> Made:
    began(params, "fetch")
    print(f"fetching {params.day}")
    (workspace / f"{params.day}.csv").write_text("song,plays\\nAurora,3\\n")
    return Made(rows=1)


@fl.task(
    name="plays.songs",
    owner="a@example.com",
    workspace=fl.WorkspaceSpec(prefix="songs", post=[fl.require_glob("*.txt"), fl.forbid_glob("*.tmp")]),
    controls=ONCE,
)
def songs(workspace: Path, params: Day) -> Made:
    began(params, "songs")
    beside = Path(params.beside)
    while (beside / "hold").exists():
        time.sleep(0.02)
    bad = (beside / "bad").read_text() if (beside / "bad").exists() else ""
    name = "songs.tmp" if str(params.day) in bad else f"{params.day}.txt"
    (workspace / name).write_text("Aurora\\n")
    return Made(rows=1)


@fl.task(name="plays.total", owner="a@example.com", workspace=fl.WorkspaceSpec(prefix="total"), controls=ONCE)
def total(workspace: Path, params: Day) -> Made:
    began(params, "total")
    (workspace / f"{params.day}.txt").write_text("3\\n")
    return Made(rows=1)


@fl.pipeline(name="plays")
def plays(run: fl.Run[Day]) -> None:
    given = {"day": run.params.day, "beside": run.params.beside}
    first = run.step(fetch, **given)
    run.step(songs, **given, after=first)
    run.step(total, **given, after=first)
'''


class Place:
    """A repository, the pipeline beside it, and the command in processes of its own."""

    def __init__(self, root: Path) -> None:
        self.root = root
        self.url = str(root / "repo")
        self.repo = fl.open_repository(self.url, create=True)
        (root / "plays.py").write_text(PLAYS)

    @property
    def environment(self) -> dict[str, str]:
        kept = {k: v for k, v in os.environ.items() if k not in COLOUR_SETTINGS}
        return {**kept, "FENCELINE_REPO": self.url, "COLUMNS": "200"}

    def params(self, day: str | None = "2026-01-01") -> str:
        return json.dumps({"beside": str(self.root), **({"day": day} if day else {})})

    def command(self, day: str = "2026-01-01", *more: str) -> list[str]:
        return [*FENCELINE, "run", "plays.py", "--params", self.params(day), *more]

    def call(self, *arguments: str, code: int = 0) -> subprocess.CompletedProcess[str]:
        done = subprocess.run(
            [*FENCELINE, *arguments],
            cwd=self.root,
            env=self.environment,
            capture_output=True,
            text=True,
            check=False,
            timeout=60,
        )
        assert done.returncode == code, (arguments, done.returncode, done.stdout, done.stderr)
        assert "Traceback" not in done.stderr
        return done

    def run(self, day: str = "2026-01-01", *more: str, code: int = 0) -> subprocess.CompletedProcess[str]:
        return self.call(*self.command(day, *more)[len(FENCELINE) :], code=code)

    def json(self, *arguments: str, code: int = 0) -> Any:
        return json.loads(self.call(*arguments, "--json", code=code).stdout)

    def runs(self) -> list[RunResult]:
        """The newest first; read here, because each process takes its time."""
        store = open_store(self.repo)
        try:
            return list_runs(store)
        finally:
            store.close()

    def ran(self) -> list[str]:
        return sorted((self.root / "ran").read_text().splitlines()) if (self.root / "ran").exists() else []

    def files(self) -> set[str]:
        return {entry.path for entry in self.repo.list("main")}


def wait_until(reached: Callable[[], bool], what: str) -> None:
    deadline = time.monotonic() + 30
    while not reached():
        assert time.monotonic() < deadline, f"it never {what}"
        time.sleep(0.02)

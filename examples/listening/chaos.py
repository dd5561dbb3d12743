"""`make demo-chaos`: the same pipeline while a worker is killed and another one sleeps through its own retry.

The first worker that is about to publish is killed by SIGKILL: what it had sealed is published by the retry, without
computing it again. A second worker is stopped in the middle of `clean`, and woken when its retry has published.
"""

from __future__ import annotations

import collections
import json
import os
import signal
import sqlite3
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import fenceline as fl
from listening.stage import PIPELINE, DemoFailed, Stage, arguments, chapter, claim, console

STEPS = ("ingest", "clean", "sessions", "songs", "graph", "report")


def main() -> None:
    given = arguments(__doc__, events=200_000)
    stage = Stage(given.output)
    stage.fenceline("init")
    chapter("1. A run in trouble", "Two worker processes. One is killed, one is stopped and woken again.")
    once = stage.scratch / "once"
    once.mkdir()
    params = json.dumps({"day": "2026-01-01", "events": given.events})
    running = stage.start(
        *("run", PIPELINE, "--params", params, "--workers", "2", "--slots", "1", "--json"),
        env={"FENCELINE_FAILPOINTS": "entry.publish.before=crash", "FENCELINE_FAILPOINTS_ONCE": str(once)},
    )
    trouble = Trouble(stage, once)
    for event in events(running):
        trouble.look(event)
    claim(running.wait() == 0, "the run completed all the same")
    prove(stage, trouble)


def events(running: subprocess.Popen[str]) -> Iterator[dict[str, Any]]:
    assert running.stdout is not None
    for line in running.stdout:
        told = json.loads(line)
        if told["type"] == "event":
            yield told


class Trouble:
    """Follows the run's events, and does harm at the right moment."""

    def __init__(self, stage: Stage, once: Path) -> None:
        self._stage, self._once = stage, once
        self._killed: int | None = None
        self._sleeper: int | None = None
        self.woken = False
        self.bodies: collections.Counter[str] = collections.Counter()
        self.superseded = 0

    def look(self, event: dict[str, Any]) -> None:
        kind, data = event["kind"], event["data"]
        step = data.get("step", "")
        claimed = self._once / "entry.publish.before"
        if self._killed is None and claimed.exists():
            self._killed = int(claimed.read_text())
            console.print(f"  [red]✗[/] worker {self._killed} was killed by SIGKILL, sealed and about to publish")
        if kind == "phase" and data["phase"] == "body":
            self.bodies[step] += 1
            if step == "clean" and self._sleeper is None:
                self._sleeper = self._worker_of(step)
                os.kill(self._sleeper, signal.SIGSTOP)
                console.print(f"  [yellow]z[/] worker {self._sleeper} was stopped in the body of clean")
        published = kind == "reported" and data["status"] == "COMPLETED" and data["accepted"]
        if published and step == "clean" and self._sleeper is not None and not self.woken:
            os.kill(self._sleeper, signal.SIGCONT)
            self.woken = True
            console.print(f"  [yellow]![/] its retry has published; worker {self._sleeper} was woken")
        self.superseded += kind == "reported" and not data["accepted"]

    def _worker_of(self, step: str) -> int:
        with sqlite3.connect(self._stage.repo / "runner/runs.sqlite") as db:
            query = "SELECT owner FROM tasks WHERE reference = ? AND status = 'IN_PROGRESS'"
            (owner,) = db.execute(query, [step]).fetchone()
        return int(json.loads(owner)["pid"])


def prove(stage: Stage, trouble: Trouble) -> None:
    chapter("2. The proof", "Every step once, with the right content, and nothing left behind.")
    repo = fl.open_repository(stage.repo)
    published = collections.Counter(
        item.commit.step.split("/")[1] for item in repo.log("main", full=True) if item.commit.step
    )
    claim(published == dict.fromkeys(STEPS, 1), "each of the six steps has exactly one commit")
    claim(trouble.bodies["ingest"] == 1, "the killed worker's step was sealed: its body did not run again")
    claim(trouble.bodies["clean"] == 2, "the sleeping worker's step ran again")
    if not trouble.woken:
        raise DemoFailed("the sleeping worker was never woken")
    repo.recover()
    repo.gc(grace=0)
    claim(not list(repo.intents()), "no intent is left")
    claim(repo.fsck().clean, "every byte that can be reached is there and right")
    stage.fenceline("runs")
    stage.fenceline("recoveries")
    stage.fenceline("log", "--graph")


if __name__ == "__main__":
    main()

"""`make demo`: a million events from raw to a report, on a repository in `demo-output/`."""

from __future__ import annotations

import json
from datetime import date

import fenceline as fl
from listening.stage import PIPELINE, Stage, arguments, chapter, claim, console

RUN_FAILED = 9


def main() -> None:
    given = arguments(__doc__, events=1_000_000)
    stage = Stage(given.output)
    stage.fenceline("init")
    a_run_that_is_stopped(stage, min(given.events, 10_000))
    a_run(stage, given.events)
    a_day_on_a_branch(stage, given.events // 10)
    what_is_there(stage)
    console.print(f"\n[bold green]Done.[/] The report is [bold]{stage.output / 'report/report.html'}[/]")


def params(day: str, events: int, **more: object) -> str:
    return json.dumps({"day": day, "events": events, **more})


def a_run_that_is_stopped(stage: Stage, events: int) -> None:
    chapter(
        "1. Guards",
        "One event in a hundred is broken. This run is told to let them pass; the guards of its second step look.",
    )
    stage.fenceline("run", PIPELINE, "--params", params("2026-01-01", events, reject=False), ends=RUN_FAILED)
    repo = fl.open_repository(stage.repo, mode="r")
    claim(len(list(repo.list("main"))) == 0, "main shows nothing of that run: not even its first step")


def a_run(stage: Stage, events: int) -> None:
    chapter(
        "2. The pipeline",
        f"{events:,} events, ingested, cleaned, made into sessions, songs and a graph side by side, and reported. "
        "The steps work on a branch of the run; main moves once, at the end.",
    )
    stage.fenceline("run", PIPELINE, "--params", params("2026-01-01", events))
    repo = fl.open_repository(stage.repo, mode="r")
    steps = [item.commit.step for item in repo.log("main", full=True) if item.commit.step]
    claim(len(steps) == len(set(steps)) == 6, "six steps, one commit each, and main moved once")


def a_day_on_a_branch(stage: Stage, events: int) -> None:
    chapter("3. A branch", "The next day on a branch of its own: looked at first, then merged.")
    stage.fenceline("branch", "try-it")
    stage.fenceline("run", PIPELINE, "--branch", "try-it", "--params", params("2026-01-02", events))
    stage.fenceline("diff", "main", "try-it")
    stage.fenceline("merge", "try-it")
    repo = fl.open_repository(stage.repo, mode="r")
    paths = {entry.path for entry in repo.list("main", prefix="gold/sessions")}
    claim(any("2026-01-01" in path for path in paths), "main has the first day")
    claim(any("2026-01-02" in path for path in paths), "main has the second day")
    seen = repo.graph(path="graph").table("Person").count({"seen": date(2026, 1, 2)})
    claim(seen > 0, f"its graph knows {seen:,} people who listened on the second day")


def what_is_there(stage: Stage) -> None:
    chapter("4. What is there now", "Everything that happened, who did it, and the bytes checked.")
    stage.fenceline("runs")
    stage.fenceline("log", "--graph")
    stage.fenceline("graph", "show", "main", "--graph", "graph")
    stage.fenceline("graph", "show", "main", "Listened", "--where", "times >= 12", "-n", "5", "--graph", "graph")
    stage.fenceline("fsck")
    stage.fenceline("get", "main", "gold", str(stage.output / "report"))


if __name__ == "__main__":
    main()

"""The demo's own pipeline, with Spark, on a real server: one worker killed in a body, one between seal and publish."""

from __future__ import annotations

import os
import signal
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from workers import Workers, until

import fenceline as fl
from fenceline import failpoints
from fenceline.pipeline.conductor.api import ConductorApi
from fenceline.pipeline.conductor.deploy import apply, plan
from fenceline.pipeline.conductor.submit import RunState, follow, look, submit
from fenceline.pipeline.definition.loading import AnyPipeline, load_pipeline
from fenceline.pipeline.form.compiling import workflow_def
from fenceline.pipeline.form.taskdefs import task_defs
from fenceline.seams import Seams

pytestmark = [pytest.mark.slow, pytest.mark.timeout(900)]
EXAMPLES = Path(__file__).parents[2] / "examples"
REFERENCE = str(EXAMPLES / "listening" / "pipeline.py")
SECONDS = 400


@pytest.fixture
def pipeline(monkeypatch: pytest.MonkeyPatch) -> AnyPipeline:
    monkeypatch.setattr(sys, "path", [*sys.path])
    return load_pipeline(REFERENCE)


@pytest.fixture
def workers(server: str, tmp_path: Path) -> Iterator[Workers]:
    made = Workers(server, tmp_path, reference=REFERENCE)
    yield made
    made.stop()


def holder(api: ConductorApi, run: str, step: str) -> int | None:
    """The process that works on a step now."""
    for task in api.get(f"/workflow/{run}", {"includeTasks": "true"})["tasks"]:
        if task["referenceTaskName"] == step and task["status"] == "IN_PROGRESS":
            return int(task["workerId"].rpartition(":")[2])
    return None


def is_stopped(pid: int) -> bool:
    return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] == "T"


def test_the_demo_survives_its_workers_being_killed(
    api: ConductorApi, pipeline: AnyPipeline, workers: Workers, tmp_path: Path
) -> None:
    apply(api, plan(api, workflow_def(pipeline), task_defs(pipeline)))
    repo = fl.open_repository(tmp_path / "repo", create=True)
    given = pipeline.workflow_input(repo.url, "main", {"day": "2026-01-01", "events": 5000})
    run = submit(api, pipeline.name, pipeline.version, given)

    first = workers.start("-j", "1", **{failpoints.ENV: "verdict.seal.after@1=pause"})
    until("ingest is sealed", lambda: any(map(is_stopped, workers.children(first))), SECONDS)
    assert [status.state for status in repo.intents()] == ["sealed"]
    os.kill(workers.children(first)[0], signal.SIGKILL)
    for _ in range(2):
        first.send_signal(signal.SIGTERM)
    first.wait(60)

    workers.start("-j", "2")

    def clean_writes() -> bool:
        return holder(api, run, "clean") is not None and any(status.state == "open" for status in repo.intents())

    until("clean writes", clean_writes, SECONDS)
    killed = holder(api, run, "clean")
    assert killed is not None
    os.kill(killed, signal.SIGKILL)

    state = ended(api, run)
    assert state.status == "COMPLETED", workers.log
    attempts = {step.reference: step.attempts for step in state.steps}
    once = dict.fromkeys(("begin", "sessions", "songs", "graph", "report", "publish"), 1)
    assert attempts == {**once, "ingest": 2, "clean": 2}
    steps = [item.commit.step for item in repo.log("main", full=True) if item.commit.step]
    assert sorted(str(step).split("/")[1] for step in steps) == [
        "clean",
        "graph",
        "ingest",
        "report",
        "sessions",
        "songs",
    ]
    workers.stop()
    repo.recover()
    assert list(repo.intents()) == []
    repo.gc(grace=0)
    assert repo.fsck().clean


def ended(api: ConductorApi, run: str) -> RunState:
    for _ in follow(api, run, Seams()):
        pass
    return look(api, run)

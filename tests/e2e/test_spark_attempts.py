"""kill -9 around every durable effect of a task with a real Spark body, then a retry: published once, nothing left.

Each kill costs two Spark sessions, so the normal run takes the points where the outcome changes; the full form is
`FENCELINE_KILLS=full pytest tests/e2e/test_spark_attempts.py`.
"""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

import fenceline as fl
from fenceline import failpoints

PROTOCOL = Path(__file__).parents[1] / "protocol"
sys.path.insert(0, str(PROTOCOL))

from file_orchestrator import FileOrchestrator  # noqa: E402
from harness import assert_sound, environment  # noqa: E402

WORKER = Path(__file__).parent / "spark_worker.py"
POINTS_THAT_MATTER = ["intent.declare.after", "verdict.seal.before", "verdict.seal.after", "entry.publish.after"]


class Stage:
    def __init__(self, directory: Path) -> None:
        directory.mkdir(parents=True)
        self.root, self.file = directory / "repo", directory / "orchestrator.json"
        head = fl.open_repository(self.root, create=True).head("main").commit.id
        place = {"repository": "r", "branch": "main", "ref_type": "commit", "ref": head}
        self.orchestrator = FileOrchestrator.scheduled(self.file, {"workspace": place, "params": {}})

    def child(self, points: str = "", log: Path | None = None) -> subprocess.CompletedProcess[str]:
        command = [sys.executable, str(WORKER), str(self.root), str(self.file)]
        return subprocess.run(command, env=environment(points, log), capture_output=True, text=True, timeout=200)

    def told(self, points: str = "", log: Path | None = None) -> dict[str, Any]:
        done = self.child(points, log)
        assert done.returncode == 0, done.stderr
        value: dict[str, Any] = json.loads(done.stdout)
        return value

    @property
    def runs(self) -> int:
        return len((self.file.parent / "runs").read_text().split())


def check(stage: Stage) -> None:
    """The right rows, one publication, nothing left behind."""
    repo = fl.open_repository(stage.root)
    assert list(repo.intents()) == []
    assert [str(e.op) for e in repo.entries("main") if e.step and e.op == "publish"] == ["publish"]
    plays = repo.stat("main", "features/plays").dataset
    days = repo.stat("main", "features/days").dataset
    assert plays is not None
    assert days is not None
    assert (plays.rows, days.rows) == (1000, 2)
    repo.gc(grace=0)
    assert repo.plan_gc().objects == ()
    assert_sound(repo)
    on_disk = set((stage.root / "datasets").rglob("*.parquet"))
    live = {stage.root / e.address for e in repo.list("main") if e.address}
    assert on_disk == live, "after recover and gc no part file is left that nothing reaches"


def points(tmp_path: Path) -> list[str]:
    if os.environ.get("FENCELINE_KILLS") != "full":
        return POINTS_THAT_MATTER
    log = tmp_path / "log"
    Stage(tmp_path / "whole").told(log=log)
    return list(dict.fromkeys(log.read_text().split()))


@pytest.mark.slow
@pytest.mark.timeout(3600)
def test_a_spark_attempt_killed_anywhere_is_published_once_by_its_retry(tmp_path: Path) -> None:
    assert set(POINTS_THAT_MATTER) <= {p for e in failpoints.effects().values() for p in (e.before, e.after)}
    for number, point in enumerate(points(tmp_path)):
        stage = Stage(tmp_path / f"{number}")
        killed = stage.child(f"{point}@1=crash")
        assert killed.returncode == -signal.SIGKILL, f"{point} was not reached: {killed.stderr}"
        stage.orchestrator.retry()
        told = stage.told()
        assert told["status"] == "COMPLETED", (point, told)
        assert told["output"]["result"] == {"rows": 1000}
        if point in ("verdict.seal.after", "entry.publish.after"):
            assert stage.runs == 1, "after a kill behind the seal the body does not run again"
        check(stage)

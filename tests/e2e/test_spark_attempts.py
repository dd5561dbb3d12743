"""Tasks with a real Spark body, in processes that are killed and stopped: published once, nothing left.

The processes share one warm JVM, so a kill costs seconds. The normal run takes the points where the outcome changes;
FENCELINE_KILLS=full takes every effect, each time it happens.
"""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

import fenceline as fl

PROTOCOL = Path(__file__).parents[1] / "protocol"
sys.path.insert(0, str(PROTOCOL))

from file_orchestrator import FileOrchestrator  # noqa: E402
from harness import Paused, assert_sound, environment, occurrences  # noqa: E402

HERE = Path(__file__).parent
DECISIVE = ("stage.file.before@2", "verdict.seal.after@1", "entry.publish.after@1")
"""Between the two datasets, behind the seal, and behind the publication."""

pytestmark = [pytest.mark.slow, pytest.mark.timeout(3600)]


@pytest.fixture(scope="module")
def jvm() -> Iterator[dict[str, str]]:
    """What a process needs to attach to the shared JVM, as environment variables."""
    pipes: dict[str, Any] = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE, "text": True}
    with subprocess.Popen([sys.executable, str(HERE / "spark_jvm.py")], **pipes) as host:
        assert host.stdout is not None
        said = host.stdout.readline()
        yield json.loads(said)
        host.communicate(timeout=60)  # ends its input, and so itself


class Stage:
    """A repository with one step to run on it, attempt by attempt."""

    def __init__(self, directory: Path, jvm: dict[str, str]) -> None:
        directory.mkdir(parents=True)
        self.root, self.file, self._jvm = directory / "repo", directory / "orchestrator.json", jvm
        self.input = fl.open_repository(self.root, create=True).head("main").commit.id
        place = {"repository": "r", "branch": "main", "ref_type": "commit", "ref": self.input}
        self.orchestrator = FileOrchestrator.scheduled(self.file, {"workspace": place, "params": {}})

    def spawn(
        self, points: str = "", log: Path | None = None, version: str = "1", own_jvm: bool = False, **env: str
    ) -> subprocess.Popen[str]:
        command = [sys.executable, str(HERE / "spark_worker.py"), str(self.root), str(self.file), version]
        given = {**environment(points, log), **({} if own_jvm else self._jvm), **env}
        return subprocess.Popen(command, env=given, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)

    def killed(self, point: str) -> None:
        child = self.spawn(f"{point}=crash")
        _, errors = child.communicate(timeout=200)
        assert child.returncode == -signal.SIGKILL, f"{point} was not reached: {errors}"

    def told(self, log: Path | None = None, version: str = "1") -> dict[str, Any]:
        child = self.spawn(log=log, version=version)
        out, errors = child.communicate(timeout=200)
        assert child.returncode == 0, errors
        value: dict[str, Any] = json.loads(out)
        return value

    def retry(self, version: str = "1") -> dict[str, Any]:
        self.orchestrator.retry()
        return self.told(version=version)

    def paused(self, point: str) -> Paused:
        """A process that stopped itself there with SIGSTOP."""
        paused = Paused(self.spawn(f"{point}=pause"))
        paused.wait_until_stopped()
        return paused

    @property
    def runs(self) -> int:
        return len((self.file.parent / "runs").read_text().split())


def check(stage: Stage, publications: int = 1) -> None:
    """The right rows, published once, nothing left behind."""
    repo = fl.open_repository(stage.root)
    assert list(repo.intents()) == []
    moves = [e for e in repo.entries("main") if e.step and e.op in ("publish", "relocate")]
    assert len(moves) == publications
    plays, days = (repo.stat("main", path).dataset for path in ("features/plays", "features/days"))
    assert plays is not None
    assert days is not None
    assert (plays.rows, days.rows) == (1000, 2)
    repo.gc(grace=0)
    assert repo.plan_gc().objects == ()
    assert_sound(repo)
    on_disk = set((stage.root / "datasets").rglob("*.parquet"))
    live = {stage.root / e.address for e in repo.list("main") if e.address}
    assert publications > 1 or on_disk == live, "after recover and gc no part file is left that nothing reaches"


def test_a_spark_attempt_killed_anywhere_is_published_once_by_its_retry(tmp_path: Path, jvm: dict[str, str]) -> None:
    log = tmp_path / "log"
    assert Stage(tmp_path / "whole", jvm).told(log=log)["status"] == "COMPLETED"
    order = occurrences(log.read_text().split())
    assert set(DECISIVE) <= set(order)
    seal = order.index("verdict.seal.after@1")
    sealed = max(n for n, point in enumerate(order[:seal]) if point.startswith("disk.link.after"))  # in effect
    for point in order if os.environ.get("FENCELINE_KILLS") == "full" else DECISIVE:
        stage = Stage(tmp_path / point, jvm)
        stage.killed(point)
        told = stage.retry()
        assert told["status"] == "COMPLETED", (point, told)
        assert told["output"]["result"] == {"rows": 1000}
        behind = order.index(point) >= sealed
        assert stage.runs == (1 if behind else 2), f"{point}: behind the seal the body does not run again"
        check(stage)


def test_a_driver_killed_while_its_job_runs(tmp_path: Path, jvm: dict[str, str]) -> None:
    """With a JVM of its own, which dies with it and takes the job along."""
    stage = Stage(tmp_path / "stage", jvm)
    marker = tmp_path / "marker"
    child = stage.spawn(own_jvm=True, FENCELINE_TEST_HANG=str(marker))
    until(marker.exists, child)
    child.kill()
    child.communicate()
    until(lambda: not Path(f"/proc/{marker.read_text()}").exists())
    assert [intent.state for intent in fl.open_repository(stage.root, sweep=False).intents()] == ["open"]
    assert stage.retry()["status"] == "COMPLETED"
    assert stage.runs == 2
    check(stage)


def until(holds: Any, child: subprocess.Popen[str] | None = None) -> None:
    end = time.monotonic() + 120
    while not holds():
        assert child is None or child.poll() is None, child.communicate()
        assert time.monotonic() < end
        time.sleep(0.05)


def test_a_zombie_with_a_spark_body_wakes_after_its_retry(tmp_path: Path, jvm: dict[str, str]) -> None:
    """INV-8: stopped after its last fence; the retry resumes what it sealed; awake again it changes nothing."""
    stage = Stage(tmp_path / "stage", jvm)
    zombie = stage.paused("entry.publish.before@1")
    try:
        assert stage.retry()["status"] == "COMPLETED"
        before = [e.seq for e in fl.open_repository(stage.root, sweep=False).entries("main")]
        assert zombie.wake()["accepted"] is False
    finally:
        zombie.kill()
    assert [e.seq for e in fl.open_repository(stage.root, sweep=False).entries("main")] == before
    assert stage.runs == 1, "the retry resumed the sealed commit"
    check(stage)


def test_a_zombie_that_slept_between_its_writes(tmp_path: Path, jvm: dict[str, str]) -> None:
    """Newer code has published meanwhile. What it goes on to write is never seen, and does not stay."""
    stage = Stage(tmp_path / "stage", jvm)
    zombie = stage.paused("stage.file.after@1")
    try:
        assert stage.retry(version="2")["status"] == "COMPLETED"
        head = fl.open_repository(stage.root, sweep=False).head("main").commit.id
        woken = zombie.wake()
    finally:
        zombie.kill()
    assert (woken["status"], woken["code"], woken["accepted"]) == ("FAILED", "fence.stale_attempt", False)
    assert fl.open_repository(stage.root, sweep=False).head("main").commit.id == head
    assert stage.runs == 2
    check(stage)


def test_old_code_that_published_and_slept_is_replaced(tmp_path: Path, jvm: dict[str, str]) -> None:
    stage = Stage(tmp_path / "stage", jvm)
    zombie = stage.paused("entry.publish.after@1")
    try:
        assert stage.retry(version="2")["status"] == "COMPLETED"
        assert zombie.wake()["accepted"] is False
    finally:
        zombie.kill()
    assert fl.open_repository(stage.root).head("main").commit.parents == (stage.input,)
    check(stage, publications=2)


TASK = """
import fenceline as fl
from pydantic import BaseModel, ConfigDict

class Params(BaseModel):
    model_config = ConfigDict(extra="forbid")

class Built(BaseModel):
    rows: int

@fl.task(name="demo.build", owner="data@example.com", version="1", workspace=fl.WorkspaceSpec())
def build(workspace: fl.SparkWorkspace, params: Params) -> Built:
    return Built(rows=workspace.write(workspace.spark.range(0, 100, 1, 3), "plays").rows)
"""


def test_an_attempt_by_hand_shows_how_far_spark_is(tmp_path: Path, jvm: dict[str, str]) -> None:
    """`fenceline try` on a terminal; its answer is on standard output, apart."""
    fl.open_repository(tmp_path / "repo", create=True)
    code = "from spark_jvm import attach; attach(); from fenceline.cli.main import main; main()"
    (tmp_path / "building.py").write_text(TASK)
    command = [sys.executable, "-c", code, "try", "building.py:build", "--repo", str(tmp_path / "repo")]
    env = {**environment(), **jvm, "PYTHONPATH": str(HERE), "TERM": "xterm", "COLUMNS": "100"}
    ours, theirs = os.openpty()
    with subprocess.Popen(command, env=env, stdout=subprocess.PIPE, stderr=theirs, text=True, cwd=tmp_path) as child:
        os.close(theirs)
        shown = read_all(ours)
        assert child.stdout is not None
        out = child.stdout.read()
    assert child.returncode == 0, shown
    assert "COMPLETED" in out
    assert "Spark stage" not in out
    assert "3 of 3 tasks" in shown
    assert "publish" in shown


def read_all(terminal: int) -> str:
    data = b""
    while True:
        try:
            piece = os.read(terminal, 65536)
        except OSError:  # how a terminal ends
            break
        if not piece:
            break
        data += piece
    os.close(terminal)
    return data.decode()

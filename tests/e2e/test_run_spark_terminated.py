"""SIGTERM while a Spark step computes, stages or publishes: the run ends within its grace, and the next finishes it."""

from __future__ import annotations

import io
import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq  # type: ignore[import-untyped]
import pytest

import fenceline as fl

FULL = os.environ.get("FENCELINE_RUNNER") == "full"
GRACE = 4.0
SLACK = 30.0
"""For the end of the process itself on a busy machine: workers are cancelled, the JVM is stopped."""

COUNTING = """
import time
from pathlib import Path

from pydantic import BaseModel, ConfigDict
from pyspark.sql import functions as F

import fenceline as fl


class Params(BaseModel):
    model_config = ConfigDict(extra="forbid")
    hold: str


class Rows(BaseModel):
    rows: int


@fl.task(
    name="count", owner="a@example.com", workspace=fl.WorkspaceSpec(),
    controls=fl.TaskControls(retry_count=0, response_timeout_seconds=30),
)
def count(workspace: fl.SparkWorkspace, params: Params) -> Rows:
    with open(params.hold + ".ran", "a") as ran:
        ran.write("ran\\n")
    parts = 400 if Path(params.hold).exists() else 2

    @F.udf("long")
    def slow(number: int) -> int:
        if parts > 2:
            time.sleep(1)
        return number

    numbers = workspace.spark.range(0, parts, 1, parts).select(slow("id").alias("n"))
    return Rows(rows=workspace.write(numbers, "numbers", mode="overwrite").rows or 0)


@fl.pipeline(name="counting")
def counting(run: fl.Run[Params]) -> None:
    run.step(count, hold=run.params.hold)
"""


class Running:
    """The command in a process of its own, with one worker process, and the events it tells."""

    def __init__(self, root: Path, failpoints: str = "") -> None:
        self.root = root
        params = json.dumps({"hold": str(root / "hold")})
        env = {**os.environ, "FENCELINE_REPO": str(root / "repo"), "FENCELINE_FAILPOINTS": failpoints}
        env["FENCELINE_FAILPOINTS_ONCE"] = str(root / "once")
        (root / "once").mkdir(exist_ok=True)
        command = [sys.executable, "-m", "fenceline.cli", "run", str(root / "counting.py"), "--params", params]
        command += ["--master", "local[2]", "-j", "1", "--grace", str(GRACE), "--json"]
        self.process = subprocess.Popen(command, env=env, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)

    def events(self) -> Iterator[dict[str, Any]]:
        assert self.process.stdout is not None
        for line in self.process.stdout:
            told = json.loads(line)
            if told["type"] == "event":
                yield told

    def wait_for(self, kind: str, **data: Any) -> None:
        for event in self.events():
            if event["kind"] == kind and data.items() <= event["data"].items():
                return
        raise AssertionError(
            f"the run ended without {kind}: {self.process.stderr.read() if self.process.stderr else ''}"
        )

    def terminate(self) -> float:
        """SIGTERM; how long it took to end."""
        begin = time.monotonic()
        self.process.send_signal(signal.SIGTERM)
        try:
            self.process.communicate(timeout=GRACE + SLACK)
        except subprocess.TimeoutExpired:
            self.process.kill()
            raise
        assert self.process.returncode == 143
        return time.monotonic() - begin


@pytest.fixture
def root(tmp_path: Path) -> Path:
    (tmp_path / "counting.py").write_text(COUNTING)
    fl.open_repository(tmp_path / "repo", create=True).close()
    return tmp_path


def finish(root: Path, bodies: int) -> None:
    """The same command again ends the run: one publication, the right rows, nothing left."""
    again = Running(root)
    _, stderr = again.process.communicate(timeout=120)
    assert again.process.returncode == 0, stderr
    repo = fl.open_repository(root / "repo")
    steps = [item.commit.step for item in repo.log("main", full=True) if item.commit.step]
    assert len(steps) == 1
    assert len((root / "hold.ran").read_text().splitlines()) == bodies
    repo.recover()
    repo.gc(grace=0)
    assert list(repo.intents()) == []
    assert repo.fsck().clean
    files = [entry for entry in repo.list("main", prefix="numbers") if entry.path.endswith(".parquet")]
    assert sum(_rows(repo, entry.path) for entry in files) == 2


def _rows(repo: fl.Repository, path: str) -> int:
    return int(pq.read_metadata(io.BytesIO(repo.read("main", path))).num_rows)


@pytest.mark.slow
@pytest.mark.timeout(1800)
@pytest.mark.parametrize("round_", range(20 if FULL else 1))
def test_sigterm_during_a_running_spark_job(root: Path, round_: int) -> None:
    (root / "hold").touch()
    running = Running(root)
    running.wait_for("spark")  # the first of 400 tasks that take a second each
    took = running.terminate()
    assert took < GRACE + SLACK
    assert list(fl.open_repository(root / "repo", mode="r").list("main")) == []
    (root / "hold").unlink()
    finish(root, bodies=2)


@pytest.mark.slow
@pytest.mark.timeout(1800)
@pytest.mark.parametrize("round_", range(20 if FULL else 1))
@pytest.mark.parametrize(
    ("point", "bodies"),
    [("stage.commit.before", 2), ("entry.publish.before", 1)],
    ids=["staging", "publishing"],
)
def test_sigterm_while_a_spark_step_is_stopped_in(root: Path, point: str, bodies: int, round_: int) -> None:
    """The worker hangs there and cannot drain: it is killed when the grace is over. What was sealed is resumed."""
    running = Running(root, f"{point}=pause")
    claimed = root / "once" / point
    for _ in running.events():
        if claimed.exists():
            break
    took = running.terminate()
    assert took < GRACE + SLACK
    finish(root, bodies)

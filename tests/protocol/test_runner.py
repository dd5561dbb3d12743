"""The embedded runner with real processes: killed, drained and resumed, and many runs at once.

`FENCELINE_RUNNER=full` runs the long form.
"""

from __future__ import annotations

import json
import os
import random
import shutil
import signal
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest
import runner_pipelines
from harness import HERE, assert_sound, content, environment

import fenceline as fl
from fenceline.pipeline.builtin import run_branch
from fenceline.pipeline.embedded.rows import TaskRow
from fenceline.pipeline.embedded.runner import Runner
from fenceline.pipeline.embedded.runs import RunResult, list_runs, open_store, show_run
from fenceline.pipeline.embedded.store import attempts
from fenceline.repo.model import MOVES

pytestmark = pytest.mark.slow

FULL = os.environ.get("FENCELINE_RUNNER") == "full"
STEPS = {"first", "left", "right", "middle", "last"}


@dataclass
class World:
    """A repository, the file in which bodies leave their names, and the runners started on it."""

    root: Path
    started: list[subprocess.Popen[str]] = field(default_factory=list)

    @property
    def repo(self) -> fl.Repository:
        return fl.open_repository(self.root / "repo", sweep=False)

    @property
    def params(self) -> dict[str, Any]:
        return {"runs": str(self.root / "runs"), "hold": str(self.root / "hold")}

    def start(self, workers: int = 0, grace: float = 10, points: str = "") -> subprocess.Popen[str]:
        """A runner that has opened its repository and now begins to run."""
        command = [sys.executable, str(HERE / "runner_child.py"), str(self.root / "repo"), "diamond"]
        child = subprocess.Popen(
            [*command, json.dumps(self.params), str(workers), str(grace)],
            env=environment(points),
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )
        self.started.append(child)
        assert child.stdout is not None
        assert child.stdout.readline() == "ready\n", child.communicate()
        return child

    def finish(self, workers: int = 0) -> dict[str, Any]:
        child = self.start(workers)
        out, err = child.communicate(timeout=60)
        assert child.returncode == 0, err
        told: dict[str, Any] = json.loads(out)
        assert told["status"] == "COMPLETED", told
        return told

    def bodies(self) -> Counter[str]:
        file = self.root / "runs"
        return Counter(file.read_text().split()) if file.exists() else Counter()

    def run(self) -> RunResult | None:
        found = list_runs(open_store(self.repo))
        return found[0] if found else None

    def rows(self) -> list[TaskRow]:
        run, store = self.run(), open_store(self.repo)
        with store.read() as db:
            return attempts(db, run.id) if run else []

    def published(self) -> Counter[str]:
        """How often each step was published on the run's branch."""
        run = self.run()
        if run is None or self.repo.native.branch_log.last(run_branch(run.id)) is None:
            return Counter()
        moves = [e for e in self.repo.entries(run_branch(run.id)) if e.op in MOVES and e.step]
        return Counter((e.step or "").split("/")[1] for e in moves)

    def workers(self) -> list[int]:
        owners = {row.owner.pid for row in self.rows() if row.owner}
        return [pid for pid in owners if _state(pid) not in ("", "Z")]

    def check(self, told: dict[str, Any], expected: dict[str, bytes]) -> None:
        """The tree of an undisturbed run; every step published once, and the run itself once."""
        assert content(self.repo) == expected
        assert self.published() == Counter(STEPS)
        merges = [e for e in self.repo.entries("main") if e.op == "merge"]
        assert len(merges) == 1
        assert self.repo.native.find_head(run_branch(told["id"])) is None
        self.repo.recover()
        assert list(self.repo.intents()) == []
        assert_sound(self.repo)
        assert not list((self.root / "repo/runner/work").iterdir()), "no attempt directory is left"


def _state(pid: int) -> str:
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]
    except OSError:
        return ""


def eventually(what: Any, seconds: float = 20) -> None:
    end = time.monotonic() + seconds
    while not what():
        assert time.monotonic() < end, "it did not happen in time"
        time.sleep(0.01)


@pytest.fixture(scope="module")
def template(tmp_path_factory: pytest.TempPathFactory) -> Path:
    root = tmp_path_factory.mktemp("template")
    repo = fl.open_repository(root / "repo", create=True)
    with repo.transaction("main", actor="test") as tx:
        tx.write("raw/a.txt", b"a")
    return root


@pytest.fixture
def world(template: Path, tmp_path: Path) -> Iterator[World]:
    made = _copied(template, tmp_path / "world")
    yield made
    _end(made)


def _copied(template: Path, to: Path) -> World:
    shutil.copytree(template, to)
    return World(to)


def _end(world: World) -> None:
    for child in world.started:
        if child.poll() is None:
            child.kill()
        child.communicate()


@pytest.fixture(scope="module")
def undisturbed(template: Path, tmp_path_factory: pytest.TempPathFactory) -> tuple[dict[str, bytes], float]:
    """The tree that a run leaves, and how long it took."""
    world = _copied(template, tmp_path_factory.mktemp("undisturbed") / "world")
    start = time.monotonic()
    told = world.finish()
    seconds = time.monotonic() - start
    expected = content(world.repo)
    world.check(told, expected)
    assert world.bodies() == Counter(STEPS)
    _end(world)
    return expected, min(told["ended"] - told["created"], seconds)


@pytest.mark.parametrize("moment", range(20 if FULL else 4))
def test_a_runner_killed_at_any_moment_is_resumed(
    moment: int, world: World, undisturbed: tuple[dict[str, bytes], float]
) -> None:
    expected, seconds = undisturbed
    chance = random.Random(moment)
    workers = 2 if moment % 2 else 0
    for _ in range(3 if FULL else 1):
        child = world.start(workers)
        if workers:
            eventually(lambda child=child: world.workers() or child.poll() is not None)
        time.sleep(chance.uniform(0, seconds * 1.2))
        child.kill()
        child.communicate()
        eventually(lambda: not world.workers())
        stood, ran = world.published(), world.bodies()
    told = world.finish(workers)
    world.check(told, expected)
    after = world.bodies()
    assert {step: after[step] for step in stood} == {step: ran[step] for step in stood}, "published, and run again"
    assert [row.failures for row in world.rows()] == [0] * len(world.rows()), "a lost runner costs no retry"


@pytest.mark.parametrize("workers", [0, 1])
def test_sigterm_lets_a_body_finish_within_the_grace(
    workers: int, world: World, undisturbed: tuple[dict[str, bytes], float]
) -> None:
    hold = world.root / "hold"
    hold.touch()
    child = world.start(workers)
    eventually(lambda: world.bodies()["middle"])
    child.terminate()
    hold.unlink()
    out, err = child.communicate(timeout=15)
    assert "interrupted" in json.loads(out), err
    assert world.published()["middle"] == 1
    world.check(world.finish(), undisturbed[0])
    assert world.bodies() == Counter(STEPS), "nothing was computed twice"


@pytest.mark.parametrize("workers", [0, 1])
def test_sigterm_gives_back_a_body_that_does_not_finish(
    workers: int, world: World, undisturbed: tuple[dict[str, bytes], float]
) -> None:
    hold = world.root / "hold"
    hold.touch()
    child = world.start(workers, grace=0.5)
    eventually(lambda: world.bodies()["middle"])
    asked = time.monotonic()
    child.terminate()
    out, err = child.communicate(timeout=15)
    assert time.monotonic() - asked < 8
    assert "interrupted" in json.loads(out), err
    assert world.published()["middle"] == 0
    assert [row.status for row in world.rows() if row.reference == "middle"] == ["LOST", "SCHEDULED"]
    hold.unlink()
    world.check(world.finish(), undisturbed[0])
    assert world.bodies() == Counter({**dict.fromkeys(STEPS, 1), "middle": 2})


STAGE, SEAL, PUBLISH = "stage.file.before@2", "verdict.seal.before@3", "entry.publish.before@4"
WOKEN = [(STAGE, True), (SEAL, True), (PUBLISH, True)]
STOPPED = [(SEAL, False), *([(STAGE, False), (PUBLISH, False)] if FULL else [])]


@pytest.mark.parametrize(("point", "wake"), [*WOKEN, *STOPPED])
def test_sigterm_while_a_worker_stages_or_publishes_loses_nothing(
    point: str, wake: bool, world: World, undisturbed: tuple[dict[str, bytes], float]
) -> None:
    child = world.start(1, grace=1, points=f"{point}=pause")
    eventually(lambda: any(_state(pid) == "T" for pid in world.workers()))
    (worker,) = world.workers()
    asked = time.monotonic()
    child.terminate()
    if wake:
        os.kill(worker, signal.SIGCONT)
    out, err = child.communicate(timeout=20)
    assert time.monotonic() - asked < 10
    assert "interrupted" in json.loads(out), err
    assert _state(worker) == "", "no worker is left behind"
    stood, ran = world.published(), world.bodies()
    world.check(world.finish(), undisturbed[0])
    assert {step: world.bodies()[step] for step in stood} == {step: ran[step] for step in stood}


def test_a_dead_worker_is_replaced_and_its_attempt_is_a_failure(
    world: World, undisturbed: tuple[dict[str, bytes], float]
) -> None:
    hold = world.root / "hold"
    hold.touch()
    child = world.start(1)
    eventually(lambda: world.bodies()["middle"])
    (worker,) = world.workers()
    os.kill(worker, signal.SIGKILL)
    hold.unlink()
    out, err = child.communicate(timeout=30)
    told = json.loads(out)
    assert told["status"] == "COMPLETED", err
    tried = [(row.status, row.failures) for row in world.rows() if row.reference == "middle"]
    assert tried == [("FAILED", 0), ("COMPLETED", 1)]
    world.check(told, undisturbed[0])


def test_many_runs_at_once_lose_nothing(template: Path, tmp_path: Path) -> None:
    """All complete, but for those that publish step by step on one branch: they fail closed, and say so."""
    many, on_one, workers = (50, 8, 4) if FULL else (12, 4, 2)
    world = _copied(template, tmp_path / "world")
    repo = world.repo
    for number in range(many - on_one):
        repo.create_branch(f"b{number}", "main")
    repo.create_branch("shared", "main")
    short, stepwise = runner_pipelines.short, runner_pipelines.stepwise
    with Runner(repo, [short, stepwise], workers=workers, slots=2) as runner:
        runs: dict[str, tuple[str, str, bool]] = {}
        for number in range(many):
            alone = number < many - on_one
            branch, label = (f"b{number}" if alone else "shared"), f"n{number}"
            pipeline = stepwise if not alone and number % 2 else short
            given = {"runs": str(tmp_path / f"runs-{label}"), "label": label}
            runs[runner.submit(pipeline, branch, given)] = (branch, label, pipeline is short)
        ended = {run: runner.wait(run) for run in runs}
    for run, (branch, label, sure) in runs.items():
        shown = content(repo, branch)
        if ended[run].completed:
            assert shown[f"one/{label}.txt"] == label.encode()
            assert shown[f"left/{label}.txt"] == b"left"
        else:
            assert not sure, ended[run].reason
            failed = [step for step in show_run(open_store(repo), run).steps if step.status == "FAILED"]
            assert [step.code for step in failed] == ["fence.publish"]
        if ended[run].completed:
            assert Counter((tmp_path / f"runs-{label}").read_text().split())["left"] >= 1
    repo.recover()
    assert_sound(repo)

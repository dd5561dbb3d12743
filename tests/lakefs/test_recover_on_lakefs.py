"""Attempts on lakeFS in real processes: stopped, overtaken, woken, killed at every point; and what the sweep does."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import harness
import pytest
from file_orchestrator import FileOrchestrator
from harness import Paused, hits, killed, occurrences, run
from lake_world import World, make_world, ref_of, writes

from fenceline import failpoints
from fenceline.on_lakefs import LakeFSRepository
from fenceline.repo.lakefs.client import Client
from fenceline.repo.lakefs.sdk import Access
from fenceline.seams import Seams
from fenceline.task import lakefs_step  # noqa: F401 - declares the effects that the census counts
from fenceline.task.orchestrator import HandedOut
from fenceline.testing import HandClock, test_seams
from fenceline.txn.recover import ATTEMPT_RETENTION

full = pytest.mark.skipif(
    os.environ.get("FENCELINE_KILLS") != "full", reason="FENCELINE_KILLS=full stops and kills at every point"
)


class Stage:
    """A lakeFS repository with one step to run on it, attempt by attempt, in child processes."""

    def __init__(self, client: Client, access: Access, directory: Path) -> None:
        directory.mkdir(parents=True, exist_ok=True)
        self.client, self.access, self.directory = client, access, directory
        self.world = make_world(client, directory / "work")
        client.put("main", "step/in.txt", b"in")
        self.input = client.commit("main", "the step's input").id
        self.file = directory / "orchestrator.json"
        self.orchestrator = self.schedule("w1")

    def schedule(self, workflow: str) -> FileOrchestrator:
        head = self.world.head
        place = {"repository": self.world.repo.url, "branch": "main", "ref_type": "commit", "ref": head}
        return FileOrchestrator.scheduled(self.file, {"workspace": place, "params": {}}, workflow)

    def child(self, text: str, version: str = "1", on_conflict: str = "fail") -> list[str | Path]:
        return ["attempt", self.world.repo.url, self.file, text, version, on_conflict]

    def retry(self, text: str, version: str = "1", on_conflict: str = "fail") -> dict[str, Any]:
        self.orchestrator.retry()
        return run(self.child(text, version, on_conflict))

    def recover(self) -> list[str]:
        return [swept.ending for swept in LakeFSRepository(self.world.repo, "rw").recover()]

    @property
    def runs(self) -> int:
        file = self.directory / "runs"
        return len(file.read_text().splitlines()) if file.exists() else 0

    @property
    def out(self) -> bytes | None:
        return self.world.content().get("step/out.txt")

    @property
    def records(self) -> list[str]:
        return [record.kind for record in LakeFSRepository(self.world.repo, "r").recoveries()]


@pytest.fixture(autouse=True)
def no_process_left(access: Access, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    monkeypatch.setenv("LAKECTL_SERVER_ENDPOINT_URL", access.endpoint or "")
    monkeypatch.setenv("LAKECTL_CREDENTIALS_ACCESS_KEY_ID", access.key or "")
    monkeypatch.setenv("LAKECTL_CREDENTIALS_SECRET_ACCESS_KEY", access.secret or "")
    yield
    while harness.running:
        harness.running.pop().kill()


@pytest.fixture
def stage(client: Client, access: Access, tmp_path: Path) -> Stage:
    return Stage(client, access, tmp_path / "stage")


@full
@pytest.mark.slow
def test_the_zombie_wakes_after_its_retry_published(stage: Stage) -> None:
    """INV-8: stopped after its last fence, before the merge; the retry resumes what it sealed; it changes nothing."""
    zombie = Paused.at("lakefs.merge.before", stage.child("out"))
    told = stage.retry("out")
    assert told["status"] == "COMPLETED", told
    head = stage.world.head
    assert zombie.wake()["accepted"] is False
    assert stage.world.head == head
    assert stage.out == b"out"
    assert len(stage.world.publications()) == 1
    assert stage.runs == 1, "the retry resumed the sealed commit"
    assert stage.world.staging() == []


@full
@pytest.mark.slow
def test_the_zombie_published_first_and_the_retry_adopts(stage: Stage) -> None:
    zombie = Paused.at("lakefs.merge.after", stage.child("out"))
    told = stage.retry("out")
    assert told["output"]["result"] == {"text": "out"}, told
    assert zombie.wake()["accepted"] is False
    assert len(stage.world.publications()) == 1
    assert stage.runs == 1
    assert stage.world.staging() == []


@full
@pytest.mark.slow
def test_an_old_code_zombie_against_a_new_code_retry(stage: Stage) -> None:
    """The head is no longer the one the zombie decided on: the server refuses its merge."""
    zombie = Paused.at("lakefs.merge.before", stage.child("old", version="1"))
    told = stage.retry("new", version="2")
    assert told["status"] == "COMPLETED", told
    assert zombie.wake()["status"] == "FAILED"
    assert stage.out == b"new"
    assert len(stage.world.publications()) == 1
    stage.recover()
    assert stage.world.staging() == []


def test_a_zombie_against_a_retry_that_was_a_no_op(stage: Stage) -> None:
    """R3: the no-op deleted the zombie's branch first, so there is nothing left that it could merge."""
    zombie = Paused.at("lakefs.merge.before", stage.child("old", version="1"))
    told = stage.retry("", version="2")
    assert told["output"]["workspace"]["ref"] == stage.input
    assert zombie.wake()["status"] == "FAILED"
    assert stage.out is None
    assert stage.world.publications() == []
    assert stage.world.staging() == []
    assert stage.records == ["rolled_back"]


@full
@pytest.mark.slow
def test_the_colleague_between_decision_and_merge(stage: Stage) -> None:
    worker = Paused.at("lakefs.merge.before", stage.child("out"))
    foreign = stage.world.foreign("step/theirs.txt")
    woken = worker.wake()
    assert (woken["status"], woken["code"]) == ("FAILED", "fence.publish")
    assert foreign[:12] in woken["reason"]
    assert stage.out is None


@full
@pytest.mark.slow
def test_the_colleague_elsewhere_is_rebased_upon(stage: Stage) -> None:
    worker = Paused.at("lakefs.merge.before", stage.child("out", on_conflict="rebase"))
    foreign = stage.world.foreign("elsewhere.txt")
    assert worker.wake()["status"] == "COMPLETED"
    assert stage.world.repo.commit(stage.world.head).parents == (foreign,)
    assert stage.out == b"out"


@full
@pytest.mark.slow
def test_a_swept_owner_that_was_only_paused_publishes_nothing(stage: Stage) -> None:
    """The sweep may be wrong about a paused owner; its next write finds no branch."""
    owner = Paused.at("lakefs.upload.before", stage.child("out"))
    (branch,) = stage.world.staging()
    stage.client.delete_branch(branch)
    woken = owner.wake()
    assert (woken["status"], woken["code"]) == ("FAILED", "fence.execution")
    assert stage.retry("out")["status"] == "COMPLETED"
    assert len(stage.world.publications()) == 1


def test_killed_between_stage_and_merge(stage: Stage) -> None:
    assert killed(stage.child("out"), "lakefs.merge.before=crash")
    assert stage.recover() == ["left"], "what is sealed waits for its step's next attempt"
    assert stage.retry("out")["status"] == "COMPLETED"
    assert (stage.runs, len(stage.world.publications())) == (1, 1)
    stage.recover()
    assert stage.world.staging() == []


def test_killed_between_merge_and_result(stage: Stage) -> None:
    assert killed(stage.child("out"), "lakefs.merge.after=crash")
    assert stage.recover() == ["published"]
    assert stage.world.staging() == []
    assert stage.retry("out")["output"]["result"] == {"text": "out"}
    assert (stage.runs, len(stage.world.publications())) == (1, 1)
    assert stage.recover() == []


@pytest.mark.parametrize(
    "point",
    [
        pytest.param("lakefs.stage.after", marks=[full, pytest.mark.slow]),
        pytest.param("lakefs.upload.after", marks=[full, pytest.mark.slow]),
        "lakefs.seal.before",
    ],
)
def test_killed_before_the_seal_leaves_nothing_after_the_next_recover(stage: Stage, point: str) -> None:
    assert killed(stage.child("out"), f"{point}=crash")
    assert len(stage.world.staging()) == 1
    assert stage.recover() == ["aborted"], "its process is gone: nobody waits for its lease"
    assert stage.world.staging() == []
    assert stage.records == ["aborted"]
    assert stage.recover() == []


@full
@pytest.mark.slow
def test_an_attempt_killed_anywhere_is_published_once_by_its_retry(
    access: Access, client: Client, tmp_path: Path
) -> None:
    def fresh(number: int) -> Stage:
        name = f"fl-{Seams().ids.execution()}"
        one = Client(name, access)
        one.create(f"{os.environ.get('FENCELINE_TEST_LAKEFS_STORAGE', 'local://fenceline-tests')}/{name}")
        return Stage(one, access, tmp_path / f"{number}")

    points = [p for p in occurrences(hits(fresh(-1).child("out"), tmp_path / "log")) if p.startswith("lakefs.")]
    sealed = points.index("lakefs.seal.after@1")
    for number, point in enumerate(points):
        one = fresh(number)
        assert killed(one.child("out"), f"{point}=crash"), f"{point} was not reached"
        answer = one.retry("out")
        assert answer["status"] == "COMPLETED", (point, answer)
        assert one.out == b"out"
        assert len(one.world.publications()) == 1, point
        assert one.runs == (1 if number >= sealed else 2), point
        one.recover()
        assert one.world.staging() == [], point


@full
@pytest.mark.slow
def test_census_every_failpoint_is_hit(stage: Stage, tmp_path: Path) -> None:
    """A durable effect that no scenario reaches would be a crash point nobody has tried."""
    log = tmp_path / "log"
    run(stage.child("out"), log=log)
    stage.orchestrator.retry()
    assert killed(stage.child("new", version="2"), "lakefs.stage.after=crash") is False, "refused before it stages"
    stage.schedule("w2")
    assert killed(stage.child("old"), "lakefs.upload.after=crash")
    run(["recover", stage.world.repo.url], log=log)
    seen = set(log.read_text().split())
    declared = {p for e in failpoints.effects().values() if e.name.startswith("lakefs.") for p in (e.before, e.after)}
    elsewhere = {f"lakefs.{each}.{when}" for each in ("reset", "combine") for when in ("before", "after")}
    assert declared - seen == elsewhere, "those are passed in test_attempts_on_lakefs and test_runs_on_lakefs"


# --- the sweep, in this process -----------------------------------------------------------------------------------


@pytest.fixture
def world(client: Client, tmp_path: Path) -> World:
    return make_world(client, tmp_path / "work")


def seal(world: World, step: Any, version: str = "1") -> None:
    asked: list[HandedOut] = []

    def away(current: HandedOut) -> None:
        asked.append(current)
        if len(asked) == 3:
            raise ConnectionError("the orchestrator is away")

    world.orchestrator.on_current = away
    result = world.attempt(world.task(writes("old"), version=version), world.orchestrator.take(step), report=False)
    assert result.code == "fence.stale_attempt", result.reason
    world.orchestrator.on_current = lambda current: None


def test_a_sealed_attempt_is_fenced_once_its_step_has_another_outcome(world: World) -> None:
    step = world.schedule()
    seal(world, step)
    assert ref_of(world.run(world.task(writes("new"), version="2"), world.orchestrator.retry(step))) == world.head
    repo = LakeFSRepository(world.repo, "rw")
    assert [status.state for status in repo.intents()] == ["fenced"]
    assert [(s.ending, s.why) for s in repo.recover()] == [("rolled_back", "its step has another outcome")]
    assert world.staging() == []
    assert [(r.kind, r.branch, r.recovered_for) for r in repo.recoveries()] == [("rolled_back", "main", "worker")]
    assert list(repo.intents()) == []


def test_a_sealed_attempt_that_nobody_came_back_for_is_given_up(world: World) -> None:
    seal(world, world.schedule())
    repo = LakeFSRepository(world.repo, "rw")
    assert [s.ending for s in repo.recover()] == ["left"]
    late = HandClock()
    late.sleep(max(0.0, world.repo.seams.clock.now() + ATTEMPT_RETENTION + 60 - late.now()))
    world.repo.seams = test_seams(late)
    assert [(s.ending, s.why) for s in repo.recover()] == [("rolled_back", "no attempt came back for it")]
    assert world.staging() == []


def test_a_sealed_attempt_whose_branch_is_gone_is_given_up(world: World) -> None:
    world.client.create_branch("dev", world.head)
    place = {"repository": world.repo.url, "branch": "dev", "ref_type": "commit", "ref": world.head}
    seal(world, world.orchestrator.schedule("build", {"workspace": place, "params": {}}))
    world.client.delete_branch("dev")
    assert [s.ending for s in LakeFSRepository(world.repo, "rw").recover()] == ["rolled_back"]


def test_a_live_owner_is_left_alone(world: World) -> None:
    def look(path: Path) -> None:
        writes()(path)

    step = world.schedule()
    swept: list[list[str]] = []
    commit = world.client.commit

    def sweep_first(*given: Any, **more: Any) -> Any:
        swept.append([s.ending for s in LakeFSRepository(world.repo, "rw").recover()])
        return commit(*given, **more)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(world.client, "commit", sweep_first)
        result = world.run(world.task(look), step)
    assert ref_of(result) == world.head
    assert swept == [["live"]]


@pytest.mark.slow
@pytest.mark.parametrize("side", ["before", "after"])
def test_a_merge_of_branches_killed_around_it_is_done_once_when_asked_again(stage: Stage, side: str) -> None:
    stage.client.create_branch("dev", stage.world.head)
    stage.client.put("dev", "dev.txt", b"dev")
    stage.client.commit("dev", "on dev")
    before = stage.world.head
    command = ["merge", stage.world.repo.url, "the-merge"]
    assert killed(command, f"lakefs.combine.{side}=crash")
    assert (stage.world.head == before) is (side == "before")
    told = run(command)
    assert stage.world.head == told["commit"]
    line = [commit.id for commit in stage.world.repo.line(stage.world.repo.commit(stage.world.head))]
    assert line.index(before) == 1, "one merge"
    assert stage.world.content()["dev.txt"] == b"dev"


@pytest.mark.slow
@pytest.mark.parametrize("side", ["before", "after"])
def test_a_serial_replacement_killed_around_its_reset_is_published_by_its_retry(stage: Stage, side: str) -> None:
    zombie = Paused.at("lakefs.merge.after", [*stage.child("old"), "serial"])
    zombie.kill()
    new = [*stage.child("new", version="2"), "serial"]
    stage.orchestrator.retry()
    assert killed(new, f"lakefs.reset.{side}=crash")
    assert stage.out == (b"old" if side == "before" else b"new")
    stage.orchestrator.retry()
    assert run(new)["status"] == "COMPLETED"
    assert stage.out == b"new"
    assert len(stage.world.publications()) == 1
    stage.recover()
    assert stage.world.staging() == []

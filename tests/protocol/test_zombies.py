"""Attempts of one step in real processes: stopped, overtaken, woken, killed at every point."""

from __future__ import annotations

from pathlib import Path

import pytest
from harness import Paused, assert_sound, content, hits, killed, occurrences, run, to_kill_at
from stage import Stage

import fenceline as fl


@pytest.fixture
def stage(tmp_path: Path) -> Stage:
    return Stage(tmp_path / "stage")


def test_the_zombie_wakes_after_its_retry_published(stage: Stage) -> None:
    """INV-8: stopped after its last fence, before the write; the retry resumes what it sealed; it changes nothing."""
    zombie = Paused.at("entry.publish.before", stage.child("out"))
    told = stage.retry("out")
    assert told["status"] == "COMPLETED"
    before = [e.seq for e in stage.repo.entries("main")]
    woken = zombie.wake()
    assert woken["accepted"] is False
    assert [e.seq for e in stage.repo.entries("main")] == before
    assert content(stage.repo)["step/out.txt"] == b"out"
    assert stage.publications() == ["publish"]
    assert stage.runs == 1, "the retry resumed the sealed commit"
    assert_sound(fl.open_repository(stage.root))


def test_the_zombie_published_first_and_the_retry_adopts(stage: Stage) -> None:
    zombie = Paused.at("entry.publish.after", stage.child("out"))
    told = stage.retry("out")
    assert told["status"] == "COMPLETED"
    assert told["output"]["result"] == {"text": "out"}
    assert next(stage.repo.entries("main")).op == "adopt"
    assert zombie.wake()["accepted"] is False
    assert stage.publications() == ["publish"]
    assert stage.runs == 1
    assert_sound(fl.open_repository(stage.root))


def test_an_old_code_zombie_against_a_new_code_retry(stage: Stage) -> None:
    zombie = Paused.at("entry.publish.before", stage.child("old", version="1"))
    told = stage.retry("new", version="2")
    assert told["status"] == "COMPLETED"
    woken = zombie.wake()
    assert woken["status"] == "FAILED"
    assert content(stage.repo)["step/out.txt"] == b"new"
    assert stage.publications() == ["publish"]
    assert_sound(fl.open_repository(stage.root))


def test_an_old_code_zombie_that_published_is_replaced(stage: Stage) -> None:
    zombie = Paused.at("entry.publish.after", stage.child("old", version="1"))
    told = stage.retry("new", version="2")
    assert told["status"] == "COMPLETED"
    assert zombie.wake()["accepted"] is False
    assert content(stage.repo)["step/out.txt"] == b"new"
    assert stage.repo.head("main").commit.parents == (stage.input,)
    assert stage.publications() == ["relocate", "publish"]
    assert_sound(fl.open_repository(stage.root))


def test_a_zombie_against_a_retry_that_was_a_no_op(stage: Stage) -> None:
    """R3: the no-op took a number, so the zombie's write is lost, and its attempt is stale."""
    zombie = Paused.at("entry.publish.before", stage.child("old", version="1"))
    told = stage.retry("", version="2")
    assert told["output"]["workspace"]["ref"] == stage.input
    woken = zombie.wake()
    assert woken["status"] == "FAILED"
    assert "step/out.txt" not in content(stage.repo)
    assert stage.publications() == []
    assert_sound(fl.open_repository(stage.root))


@pytest.mark.parametrize("kept", [True, False], ids=["kept", "taken out"])
def test_r2_the_fence_stands_between_the_decision_and_the_write(stage: Stage, kept: bool) -> None:
    """Asleep since its seal; meanwhile newer code was a no-op, and that was reported."""
    zombie = Paused.at("verdict.seal.after", [*stage.child("old", version="1"), *([] if kept else ["--without", "R2"])])
    assert stage.retry("", version="2")["accepted"] is True
    zombie.wake()
    assert ("step/out.txt" in content(stage.repo)) is not kept, "published after the outcome was reported"


@pytest.mark.parametrize("kept", [True, False], ids=["kept", "taken out"])
def test_r3_a_no_op_takes_a_number(stage: Stage, kept: bool) -> None:
    """Asleep right before its write; an outcome that writes nothing cannot stop it."""
    zombie = Paused.at("entry.publish.before", stage.child("old", version="1"))
    stage.orchestrator.retry()
    told = run([*stage.child("", version="2"), *([] if kept else ["--without", "R3"])])
    assert told["accepted"] is True
    zombie.wake()
    assert ("step/out.txt" in content(stage.repo)) is not kept, "published after the outcome was reported"


def test_the_colleague_between_input_and_publish(stage: Stage) -> None:
    """INV-5, by a real process stopped right before its write."""
    worker = Paused.at("entry.publish.before", stage.child("out"))
    with stage.repo.transaction("main", actor="colleague") as tx:
        tx.write("step/theirs.txt", b"theirs")
    woken = worker.wake()
    assert woken["status"] == "FAILED"
    assert woken["code"] == "fence.publish"
    assert tx.result.commit[:12] in woken["reason"]
    assert content(stage.repo)["step/theirs.txt"] == b"theirs"


def test_the_colleague_elsewhere_is_rebased_upon(stage: Stage) -> None:
    worker = Paused.at("entry.publish.before", stage.child("out", on_conflict="rebase"))
    with stage.repo.transaction("main", actor="colleague") as tx:
        tx.write("elsewhere.txt", b"theirs")
    woken = worker.wake()
    assert woken["status"] == "COMPLETED"
    assert content(stage.repo).keys() >= {"step/out.txt", "elsewhere.txt"}


@pytest.mark.slow
def test_an_attempt_killed_anywhere_is_published_once_by_its_retry(stage: Stage, tmp_path: Path) -> None:
    whole = Stage(tmp_path / "whole")
    points = occurrences(hits(whole.child("out"), tmp_path / "log"))
    told = points.index("verdict.seal.after@1")
    sealed = max(n for n, point in enumerate(points[:told]) if point.startswith("disk.link.after"))  # in effect
    for number, point in to_kill_at(points):
        one = Stage(tmp_path / f"{number}")
        assert killed(one.child("out"), f"{point}=crash"), f"{point} was not reached"
        answer = one.retry("out")
        assert answer["status"] == "COMPLETED", (point, answer)
        repo = fl.open_repository(one.root)
        assert content(repo) == {"step/in.txt": b"in", "step/out.txt": b"out"}, point
        assert one.publications() == ["publish"], point
        assert one.runs == (1 if number >= sealed else 2), point
        repo.gc(grace=0)
        assert list(repo.intents()) == [], point
        assert repo.plan_gc().objects == (), point
        assert_sound(repo)


def test_no_leftovers_of_a_killed_attempt_once_its_step_is_done(stage: Stage) -> None:
    """A sealed attempt of old code waits for its step; once the step has another outcome it is fenced and deleted."""
    assert killed(stage.child("old", version="1"), "verdict.seal.after=crash")
    assert stage.retry("new", version="2")["status"] == "COMPLETED"
    repo = fl.open_repository(stage.root)
    assert list(repo.intents()) == []
    assert sorted(r.kind for r in repo.recoveries() if r.recovered_for == "child") == ["published", "rolled_back"]
    repo.gc(grace=0)
    assert repo.plan_gc().objects == ()

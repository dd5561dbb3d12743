"""begin, test, fan and publish: what they answer, and that repeating them changes nothing."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any

import pytest

from fenceline import Repository, TaskResult
from fenceline.pipeline.builtin import BEGIN, FAN, PUBLISH, TEST, Builtins, run_branch
from fenceline.task.by_hand import ByHand
from fenceline.task.lease import Lease
from fenceline.task.orchestrator import HandedOut
from fenceline.txn.step import StepIdentity

Put = Callable[..., str]


@dataclass
class World:
    repo: Repository

    def run(self, task: str, workflow: str = "w1", **given: Any) -> TaskResult:
        attempt = HandedOut(StepIdentity(workflow, task, "t1", 0), task, given)
        native = self.repo.native
        lease = Lease(ByHand(), attempt, native.seams, 10)
        return Builtins(lambda url: native, ByHand(), "worker", native.seams).run(attempt, lease)

    def begin(self, publish: str = "run", workflow: str = "w1", branch: str = "main") -> dict[str, Any]:
        return done(self.run(BEGIN, workflow, repository=self.repo.url, branch=branch, publish=publish))

    def publish(self, *refs: str | None, workflow: str = "w1", target: str = "main") -> TaskResult:
        place = {"repository": self.repo.url, "branch": run_branch(workflow), "ref_type": "commit", "refs": [*refs]}
        return self.run(PUBLISH, workflow, workspace=place, target=target)

    def moves(self, branch: str = "main") -> list[str]:
        return [str(entry.op) for entry in self.repo.entries(branch)][::-1]


def done(result: TaskResult) -> dict[str, Any]:
    assert result.status == "COMPLETED", result.reason
    return result.output


@pytest.fixture
def world(memory_repo: Repository, put: Put) -> World:
    put(memory_repo, {"a.txt": b"a"})
    return World(memory_repo)


# --- begin --------------------------------------------------------------------------------------------------------


def test_begin_makes_a_branch_of_the_runs_own(world: World) -> None:
    made = world.begin()
    head = world.repo.head("main").commit.id
    assert made["target"] == "main"
    place = {"repository": world.repo.url, "branch": "run/w1", "ref_type": "commit", "ref": head}
    assert made["workspace"] == place
    assert world.repo.head("run/w1").commit.id == head


def test_begin_again_finds_it_where_it_was_made(world: World, put: Put) -> None:
    made = world.begin()
    put(world.repo, {"b.txt": b"b"})
    put(world.repo, {"c.txt": b"c"}, branch="run/w1")
    assert world.begin() == made, "although both branches went on"


def test_begin_for_steps_that_publish_themselves(world: World) -> None:
    made = world.begin("step")
    assert made["workspace"]["branch"] == "main"
    assert world.repo.native.find_head("run/w1") is None


@pytest.mark.parametrize("given", [{"branch": "nowhere"}, {"publish": "never"}, {"branch": None}])
def test_begin_refuses_for_good(world: World, given: dict[str, Any]) -> None:
    result = world.run(BEGIN, **{"repository": world.repo.url, "branch": "main", "publish": "run", **given})
    assert result.status == "FAILED_WITH_TERMINAL_ERROR"
    assert world.repo.native.find_head("run/w1") is None


# --- test and fan -------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("left", "op", "right", "holds"),
    [
        (3, ">", 2, "true"),
        (3, "<=", 2, "false"),
        ("a", "==", "a", "true"),
        (True, "==", True, "true"),
        (None, "!=", 1, "true"),
        (2.0, ">=", 2, "true"),
        ([1], "==", [1], "true"),
    ],
)
def test_conditions(world: World, left: Any, op: str, right: Any, holds: str) -> None:
    assert done(world.run(TEST, left=left, op=op, right=right)) == {"holds": holds}


@pytest.mark.parametrize(("left", "op", "right"), [(None, "<", 1), ("a", ">", 1), (1, "~", 1)])
def test_conditions_that_make_no_sense_end_the_run(world: World, left: Any, op: str, right: Any) -> None:
    assert world.run(TEST, left=left, op=op, right=right).status == "FAILED_WITH_TERMINAL_ERROR"


def test_fan_says_which_places_have_an_item(world: World) -> None:
    assert done(world.run(FAN, items=["x", "y"], most=3)) == {"has": ["true", "true", "false"]}
    assert done(world.run(FAN, items=[], most=2)) == {"has": ["false", "false"]}
    more = world.run(FAN, items=[1, 2, 3], most=2)
    assert more.status == "FAILED_WITH_TERMINAL_ERROR"
    assert "3 items" in (more.reason or "")
    assert world.run(FAN, items="xy", most=2).status == "FAILED_WITH_TERMINAL_ERROR"


# --- publish ------------------------------------------------------------------------------------------------------


def test_publish_is_one_move_and_takes_the_branch_away(world: World, put: Put) -> None:
    world.begin()
    made = put(world.repo, {"new.txt": b"new"}, branch="run/w1")
    result = world.publish(None, made)
    assert done(result)["workspace"]["ref"] == world.repo.head("main").commit.id
    assert done(result)["workspace"]["branch"] == "main"
    assert world.repo.read("main", "new.txt") == b"new"
    assert world.repo.native.find_head("run/w1") is None
    assert world.moves()[-1] == "merge"


def test_publish_again_adopts_it(world: World, put: Put) -> None:
    world.begin()
    made = put(world.repo, {"new.txt": b"new"}, branch="run/w1")
    first = done(world.publish(made))
    put(world.repo, {"later.txt": b"later"})
    before = world.moves()
    assert done(world.publish(made)) == first, "also after others went on"
    assert world.moves() == before


def test_publish_finishes_what_was_killed_before_the_branch_was_deleted(
    world: World, put: Put, monkeypatch: pytest.MonkeyPatch
) -> None:
    world.begin()
    made = put(world.repo, {"new.txt": b"new"}, branch="run/w1")

    def die(self: Repository, name: str, *, actor: str | None = None) -> None:
        raise ConnectionError("killed")

    with monkeypatch.context() as patch:
        patch.setattr(Repository, "delete_branch", die)
        assert world.publish(made).status == "FAILED"
    assert done(world.publish(made))["workspace"]["ref"] == world.repo.head("main").commit.id
    assert world.moves().count("merge") == 1
    assert world.repo.native.find_head("run/w1") is None


def test_publish_of_nothing_moves_nothing(world: World) -> None:
    start = world.begin()["workspace"]["ref"]
    before = world.moves()
    assert done(world.publish(start))["workspace"]["ref"] == start
    assert world.moves() == before
    assert world.repo.native.find_head("run/w1") is None


def test_a_conflict_keeps_the_branch_and_says_how_to_go_on(world: World, put: Put) -> None:
    world.begin()
    made = put(world.repo, {"a.txt": b"ours"}, branch="run/w1")
    put(world.repo, {"a.txt": b"theirs"})
    result = world.publish(made)
    assert result.status == "FAILED_WITH_TERMINAL_ERROR"
    assert result.code == "fence.publish_run"
    for part in ("a.txt", "run/w1", "fenceline runs publish w1"):
        assert part in (result.reason or "")
    assert world.repo.read("run/w1", "a.txt") == b"ours"
    assert world.repo.read("main", "a.txt") == b"theirs"


def test_what_others_put_on_the_branch_is_not_dropped(world: World, put: Put) -> None:
    start = world.begin()["workspace"]["ref"]
    foreign = put(world.repo, {"foreign.txt": b"foreign"}, branch="run/w1", actor="colleague")
    result = world.publish(start)
    assert result.status == "FAILED_WITH_TERMINAL_ERROR"
    assert foreign[:12] in (result.reason or "")
    assert "colleague" in (result.reason or "")
    assert world.repo.head("run/w1").commit.id == foreign


def test_a_branch_that_was_moved_away_is_refused(world: World, put: Put) -> None:
    start = world.begin()["workspace"]["ref"]
    made = put(world.repo, {"new.txt": b"new"}, branch="run/w1")
    world.repo.relocate_branch("run/w1", start)
    assert world.publish(made).code == "fence.publish_run"


def test_two_runs_with_other_paths_both_publish(world: World, put: Put) -> None:
    for run in ("w1", "w2"):
        world.begin(workflow=run)
    for run in ("w1", "w2"):
        made = put(world.repo, {f"{run}.txt": b"x"}, branch=f"run/{run}")
        done(world.publish(made, workflow=run))
    assert world.moves()[-2:] == ["merge", "merge"]


def test_an_attempt_that_was_given_up_does_nothing(world: World, put: Put) -> None:
    world.begin()
    made = put(world.repo, {"new.txt": b"new"}, branch="run/w1")
    native = world.repo.native

    class GivenUp(ByHand):
        def current(self, attempt: HandedOut) -> Any:
            return replace(super().current(attempt), status="CANCELED")

    place = {"repository": world.repo.url, "branch": "run/w1", "ref_type": "commit", "ref": made}
    attempt = HandedOut(StepIdentity("w1", "p", "t1", 0), PUBLISH, {"workspace": place, "target": "main"})
    lease = Lease(GivenUp(), attempt, native.seams, 10)
    result = Builtins(lambda url: native, GivenUp(), "worker", native.seams).run(attempt, lease)
    assert result.code == "fence.stale_attempt"
    assert "merge" not in world.moves()

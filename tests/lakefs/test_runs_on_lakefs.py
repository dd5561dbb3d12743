"""Whole pipelines on lakeFS by the embedded runner: parallel steps rebase, a run becomes visible as one merge."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from lake_world import World, make_world
from runner_pipelines import diamond, stepwise

import fenceline as fl
from fenceline.on_lakefs import LakeFSRepository
from fenceline.repo.lakefs.client import Client
from fenceline.repo.lakefs.values import MergeEnd, MergeOutcome
from fenceline.txn.lakefs.explain import NotOnLakeFS


@pytest.fixture
def world(client: Client, tmp_path: Path) -> World:
    return make_world(client, tmp_path / "work")


def run(world: World, pipeline: Any, tmp_path: Path, label: str = "x") -> Any:
    repo = LakeFSRepository(world.repo, "rw")
    params = {"runs": str(tmp_path / "runs"), "label": label}
    return fl.run(pipeline, repo, "main", params, store=tmp_path / "runs.sqlite", workspace_root=tmp_path / "w")


def test_a_run_is_one_merge_on_its_target(world: World, tmp_path: Path) -> None:
    start = world.head
    run(world, diamond, tmp_path).check()
    head = world.repo.commit(world.head)
    assert head.parents[0] == start, "nothing was visible before"
    assert len(head.parents) == 2
    assert world.content()["all/x.txt"].decode().split() == ["left/x.txt", "middle/x.txt", "one/x.txt", "right/x.txt"]
    assert [ref.name for ref in world.client.branches("run-")] == []
    assert world.staging() == []


def test_step_by_step_every_step_is_a_commit_of_its_own(world: World, tmp_path: Path) -> None:
    run(world, stepwise, tmp_path).check()
    assert world.staging() == []
    steps = [commit.step for commit in world.repo.line(world.repo.commit(world.head)) if commit.step]
    assert len(steps) == len({*steps}) > 1


def test_a_lost_answer_of_the_last_merge_is_adopted(
    world: World, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    merge, lost = world.client.merge, list[str]()

    def lose(source: str, target: str, *given: Any, squash: bool = True, **more: Any) -> MergeOutcome:
        ended = merge(source, target, *given, squash=squash, **more)
        if squash or lost:
            return ended
        lost.append(source)
        return MergeOutcome(MergeEnd.UNKNOWN, why="the connection was lost")

    monkeypatch.setattr(world.client, "merge", lose)
    run(world, diamond, tmp_path).check()
    assert lost
    merges = [c for c in world.repo.line(world.repo.commit(world.head)) if len(c.parents) == 2]
    assert len(merges) == 1


def test_a_colleague_meanwhile_is_merged_with(world: World, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    merge, seen = world.client.merge, list[MergeEnd]()

    def after_a_colleague(source: str, target: str, *given: Any, squash: bool = True, **more: Any) -> MergeOutcome:
        if not squash and not seen:
            world.foreign("elsewhere.txt")
        ended = merge(source, target, *given, squash=squash, **more)
        if not squash:
            seen.append(ended.end)
        return ended

    monkeypatch.setattr(world.client, "merge", after_a_colleague)
    run(world, diamond, tmp_path).check()
    assert seen == [MergeEnd.REFUSED, MergeEnd.MERGED]
    assert {"elsewhere.txt", "all/x.txt"} <= set(world.content())


def test_what_lakefs_does_itself_is_said(world: World) -> None:
    repo = LakeFSRepository(world.repo, "rw")
    for call in (repo.graph, repo.gc, repo.plan_gc, repo.fsck, repo.revert):
        with pytest.raises(NotOnLakeFS) as caught:
            call()
        assert caught.value.hint
    with pytest.raises(NotOnLakeFS):
        repo.relocate_branch("main", world.head)

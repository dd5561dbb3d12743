"""A merge with a key is applied once, whoever dies in between and whatever became of its source."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from fenceline import FenceError, MergeConflict, Repository

Put = Callable[..., str]


@pytest.fixture
def dev(memory_repo: Repository, put: Put) -> Repository:
    memory_repo.create_branch("dev", "main")
    put(memory_repo, {"a.txt": b"dev"}, branch="dev")
    return memory_repo


def ops(repo: Repository) -> list[str]:
    return [str(entry.op) for entry in repo.entries("main")][::-1]


def test_the_same_key_merges_once(dev: Repository, put: Put) -> None:
    first = dev.merge("dev", into="main", key="once")
    put(dev, {"b.txt": b"more"}, branch="dev")
    again = dev.merge("dev", into="main", key="once")
    assert (again.op, again.commit) == ("adopt", first.commit)
    assert ops(dev).count("merge") == 1
    assert dev.merge("dev", into="main", key="twice").op == "merge"


def test_a_source_that_would_conflict_now_does_not_matter(dev: Repository, put: Put) -> None:
    first = dev.merge("dev", into="main", key="once")
    put(dev, {"a.txt": b"theirs"})
    put(dev, {"a.txt": b"ours"}, branch="dev")
    assert dev.merge("dev", into="main", key="once").commit == first.commit
    with pytest.raises(MergeConflict):
        dev.merge("dev", into="main", key="other")
    assert list(dev.intents()) == [], "a conflict leaves nothing"


def test_a_merge_that_was_moved_away_fails_closed(dev: Repository) -> None:
    before = dev.head("main").commit.id
    dev.merge("dev", into="main", key="once")
    dev.relocate_branch("main", before)
    with pytest.raises(FenceError, match="moved away"):
        dev.merge("dev", into="main", key="once")


@pytest.mark.parametrize("swept", [True, False])
def test_a_merge_killed_between_seal_and_entry_is_merged_once(
    dev: Repository, monkeypatch: pytest.MonkeyPatch, swept: bool
) -> None:
    class Killed(BaseException):
        pass

    def die(*args: Any, **kwargs: Any) -> bool:
        raise Killed

    with monkeypatch.context() as patch:
        patch.setattr(dev.native.branch_log, "append", die)
        with pytest.raises(Killed):
            dev.merge("dev", into="main", key="once")
    assert [intent.state for intent in dev.intents()] == ["sealed"]
    if swept:
        dev.native.seams.clock.sleep(3600)
        dev.recover()
    dev.merge("dev", into="main", key="once")
    dev.native.seams.clock.sleep(3600)
    dev.recover()
    assert ops(dev).count("merge") == 1
    assert list(dev.intents()) == []
    assert dev.read("main", "a.txt") == b"dev"

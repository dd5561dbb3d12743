"""Eight processes publish to one branch; then the same while they are killed at random beside a caretaker.

`make soak` runs the long form (20 s a round); here a few seconds show that it works.
"""

from __future__ import annotations

import os
import random
import subprocess
import sys
import time
from collections import Counter
from pathlib import Path

import pytest
from harness import HERE, assert_sound, content, environment

import fenceline as fl

SECONDS = float(os.environ.get("FENCELINE_SOAK_SECONDS", "4"))
WRITERS = 8


def start(role: str, root: Path, name: str) -> subprocess.Popen[bytes]:
    return subprocess.Popen([sys.executable, str(HERE / "worker.py"), role, str(root), name], env=environment())


def stop(children: dict[str, subprocess.Popen[bytes]]) -> None:
    for child in children.values():
        child.kill()
        child.wait()


def check(root: Path) -> int:
    """Every acknowledged publish is in the log exactly once, without holes; nothing is lost or broken."""
    repo = fl.open_repository(root)
    repo.recover()
    assert list(repo.intents()) == []
    log = Counter(item.commit.message for item in repo.log("main") if item.commit.kind == "write")
    acknowledged = [line for file in (root.parent / "acks").iterdir() for line in file.read_text().split()]
    assert len(acknowledged) == len(set(acknowledged))
    missing = set(acknowledged) - log.keys()
    assert not missing, f"acknowledged and lost: {sorted(missing)[:5]}"
    assert [key for key, times in log.items() if times > 1] == []
    shown = content(repo)
    for file in (root.parent / "acks").iterdir():
        last = int(shown[f"{file.name}/last"].decode().partition(":")[2])
        assert last - len(file.read_text().split()) + 1 in (0, 1), "at most the one publish that was never acknowledged"
    assert_sound(repo)
    repo.gc(grace=0)
    assert_sound(repo)
    return len(acknowledged)


@pytest.fixture
def root(tmp_path: Path) -> Path:
    (tmp_path / "acks").mkdir()
    fl.open_repository(tmp_path / "repo", create=True)
    return tmp_path / "repo"


def until_all_have_published(root: Path, limit: float = 120) -> None:
    """Processes start slowly on a busy machine; the round begins when every writer is at work."""
    end = time.monotonic() + limit
    while time.monotonic() < end:
        at_work = [file for file in (root.parent / "acks").iterdir() if file.read_text()]
        if len(at_work) == WRITERS:
            return
        time.sleep(0.1)
    raise AssertionError("the writers did not come up")


@pytest.mark.slow
def test_eight_processes_publish_to_one_branch(root: Path) -> None:
    children = {f"w{n}": start("publish", root, f"w{n}") for n in range(WRITERS)}
    try:
        until_all_have_published(root)
        time.sleep(SECONDS)
        assert [name for name, child in children.items() if child.poll() is not None] == [], "a writer failed"
    finally:
        stop(children)
    assert check(root) > WRITERS


@pytest.mark.slow
def test_eight_processes_publish_while_they_are_killed_and_swept_and_collected(root: Path) -> None:
    children = {f"w{n}": start("publish", root, f"w{n}") for n in range(WRITERS)}
    children["caretaker"] = start("care", root, "caretaker")
    chance = random.Random(os.urandom(8))
    kills = 0
    try:
        until_all_have_published(root)
        end = time.monotonic() + SECONDS
        while time.monotonic() < end:
            time.sleep(chance.uniform(0.05, 0.25))
            name = chance.choice(sorted(children))
            assert children[name].poll() is None, f"{name} failed by itself"
            children[name].kill()
            children[name].wait()
            kills += 1
            children[name] = start("care" if name == "caretaker" else "publish", root, name)
    finally:
        stop(children)
    assert kills >= SECONDS
    assert check(root) > 0

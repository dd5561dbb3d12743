"""Overtaken writers take turns; nobody waits for one that does not come."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from pathlib import Path

from fenceline.graph.turns import Turn
from fenceline.repo.native.local import LocalObjects
from fenceline.seams import SystemClock
from fenceline.testing import MemoryObjects

HOLD = """
import sys
from fenceline.graph.turns import Turn
from fenceline.repo.native.local import LocalObjects
from fenceline.seams import SystemClock
turn = Turn(LocalObjects(sys.argv[1]), "main", SystemClock())
print(turn.take(), flush=True)
sys.stdin.read()
"""


def turn(root: Path, branch: str = "main") -> Turn:
    (root / "tmp").mkdir(exist_ok=True)
    return Turn(LocalObjects(root), branch, SystemClock())


def test_one_at_a_time_for_each_branch(tmp_path: Path) -> None:
    first, second, other = turn(tmp_path), turn(tmp_path), turn(tmp_path, "team/x")
    assert first.take()
    assert first.take(), "it has it already"
    assert not second.take(0.02)
    assert other.take(0)
    first.give_back()
    assert second.take(0)
    second.give_back()
    second.give_back()


def test_a_process_that_is_killed_gives_its_turn_back(tmp_path: Path) -> None:
    (tmp_path / "tmp").mkdir()
    with subprocess.Popen(
        [sys.executable, "-c", HOLD, str(tmp_path)], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    ) as child:
        assert child.stdout is not None
        assert child.stdout.readline().strip() == "True"
        assert not turn(tmp_path).take(0)
        os.kill(child.pid, signal.SIGKILL)
        child.wait()
    assert turn(tmp_path).take(0)


def test_where_there_is_no_disk_nobody_waits(tmp_path: Path) -> None:
    assert not Turn(MemoryObjects(), "main", SystemClock()).take()
    assert not Turn(LocalObjects(tmp_path / "gone"), "main", SystemClock()).take()

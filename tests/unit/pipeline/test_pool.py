"""Worker processes: started again when they die, drained, killed when they do not leave, never orphaned."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from fenceline.errors import ConfigError
from fenceline.pipeline import pool as pool_module
from fenceline.pipeline.pool import Pool
from fenceline.seams import Seams
from fenceline.testing import HandClock

STUBBORN = """
import pathlib, signal, sys
signal.signal(signal.SIGTERM, signal.SIG_IGN)
pathlib.Path(sys.argv[1]).touch()
sys.stdin.read()
"""


def eventually(what: Callable[[], object]) -> None:
    end = time.monotonic() + 20
    while not what():
        assert time.monotonic() < end, "it did not happen in time"
        time.sleep(0.01)


@pytest.fixture
def pools() -> Iterator[list[Pool]]:
    made: list[Pool] = []
    yield made
    for each in made:
        each.kill()
        each.stop(0)


def started(pools: list[Pool], code: str, *arguments: str, seams: Seams | None = None, most: int | None = None) -> Pool:
    pool = Pool([sys.executable, "-c", code, *arguments], 2, seams or Seams(), most_deaths=most)
    pools.append(pool)
    pool.start()
    return pool


def test_a_dead_worker_is_started_again(pools: list[Pool]) -> None:
    pool = started(pools, "import sys; sys.stdin.read()")
    first = pool.pids
    os.kill(first[0], signal.SIGKILL)
    eventually(lambda: len(pool.pids) == 1)
    pool.look_after()  # the first death is made good at once
    eventually(lambda: len(pool.pids) == 2)
    assert first[1] in pool.pids
    assert first[0] not in pool.pids


def test_workers_that_die_at_once_are_started_later_and_later(pools: list[Pool]) -> None:
    clock = HandClock()
    pool = started(pools, "raise SystemExit(4)", seams=replace(Seams(), clock=clock), most=4)
    for delay in (0.0, 0.2, 0.4):
        eventually(lambda: not pool.pids)
        pool.look_after()
        if delay:
            assert not pool.pids, "not yet"
        clock.advance(delay)
        if delay:
            pool.look_after()
    eventually(lambda: not pool.pids)
    with pytest.raises(ConfigError, match="4 times in a row, last with 4"):
        pool.look_after()


def test_stop_waits_for_those_that_leave_and_kills_the_others(
    pools: list[Pool], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(pool_module, "KILL_AFTER", 0.1)
    mark = tmp_path / "ready"
    stubborn = started(pools, STUBBORN, str(mark))
    eventually(mark.exists)
    pids = stubborn.pids
    os.kill(pids[0], signal.SIGSTOP)
    assert not stubborn.stop(0.1), "one ignores the signal, one is stopped"
    assert not any(Path(f"/proc/{pid}").exists() for pid in pids)
    stubborn.look_after()
    assert stubborn.pids == [], "nothing is started again"


def test_polite_workers_leave_by_themselves(pools: list[Pool]) -> None:
    polite = started(pools, "import sys; sys.stdin.read()")
    assert polite.stop(10)


def test_the_greeting_is_the_first_line(pools: list[Pool], tmp_path: Path) -> None:
    file = tmp_path / "said"
    code = "import sys; open(sys.argv[1], 'w').write(sys.stdin.readline()); sys.stdin.read()"
    pool = Pool([sys.executable, "-c", code, str(file)], 1, Seams(), b'{"a": 1}\n')
    pools.append(pool)
    pool.start()
    eventually(lambda: file.exists() and file.read_text() == '{"a": 1}\n')


def test_no_worker_outlives_a_killed_parent(tmp_path: Path) -> None:
    """The real child loop: EOF on its pipe ends it, whatever it is doing."""
    child = tmp_path / "child.py"
    child.write_text(
        "import os, pathlib, sys, threading\n"
        "from fenceline.pipeline import child\n"
        "threading.Thread(target=child._leave_with_parent, daemon=True).start()\n"
        "pathlib.Path(sys.argv[1], str(os.getpid())).touch()\n"
        "threading.Event().wait()\n"
    )
    pids = tmp_path / "pids"
    pids.mkdir()
    parent = (
        "import sys, time\nfrom fenceline.pipeline.pool import Pool\nfrom fenceline.seams import Seams\n"
        f"pool = Pool([sys.executable, {str(child)!r}, {str(pids)!r}], 2, Seams())\npool.start()\ntime.sleep(60)\n"
    )
    running = subprocess.Popen([sys.executable, "-c", parent])
    eventually(lambda: len(list(pids.iterdir())) == 2)
    running.kill()
    running.wait()
    eventually(lambda: not any(Path(f"/proc/{pid.name}").exists() for pid in pids.iterdir()))

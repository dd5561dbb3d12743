"""What the protocol takes from the world: ids, threads, and whether a process still lives."""

from __future__ import annotations

import dataclasses
import json
import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Iterator

import pytest
from hypothesis import given
from hypothesis import strategies as st

from fenceline.seams import (
    OsThreads,
    Owner,
    RandomIds,
    Seams,
    SystemClock,
    default_actor,
    encode_id,
    proven_dead,
    this_process,
)
from fenceline.testing import HandClock

PRINT_OWNER = """
import json
from fenceline.seams import this_process
print(json.dumps(this_process().as_dict()), flush=True)
input()
"""


# --- ids --------------------------------------------------------------------------------------------------------


@given(
    st.tuples(st.integers(0, 2**48 - 1), st.integers(0, 2**80 - 1)),
    st.tuples(st.integers(0, 2**48 - 1), st.integers(0, 2**80 - 1)),
)
def test_ids_sort_by_when_they_were_made(one: tuple[int, int], other: tuple[int, int]) -> None:
    assert (encode_id(*one) < encode_id(*other)) == (one < other)
    assert (encode_id(*one) == encode_id(*other)) == (one == other)


def test_ids_are_safe_as_names_everywhere() -> None:
    made = encode_id(2**48 - 1, 2**80 - 1)
    assert len(made) == len(encode_id(0, 0)) == 26
    assert made == made.lower()
    assert made.isalnum()


def test_ids_of_one_millisecond_are_different() -> None:
    ids = RandomIds(HandClock())
    assert len({ids.execution() for _ in range(1000)}) == 1000


def test_ids_follow_the_clock() -> None:
    clock = HandClock()
    ids = RandomIds(clock)
    made = []
    for _ in range(20):
        made.append(ids.execution())
        clock.advance(0.002)
    assert made == sorted(made)


# --- owners -----------------------------------------------------------------------------------------------------


@pytest.fixture
def child() -> Iterator[subprocess.Popen[str]]:
    process = subprocess.Popen(
        [sys.executable, "-c", PRINT_OWNER], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    )
    yield process
    process.kill()
    process.communicate()


def owner_of(child: subprocess.Popen[str]) -> Owner:
    assert child.stdout is not None
    return Owner(**json.loads(child.stdout.readline()))


def test_a_living_process_is_not_dead(child: subprocess.Popen[str]) -> None:
    assert not proven_dead(this_process())
    owner = owner_of(child)
    assert owner.pid == child.pid
    assert not proven_dead(owner)
    os.kill(child.pid, signal.SIGSTOP)
    assert not proven_dead(owner), "a paused process may wake"
    os.kill(child.pid, signal.SIGCONT)


def test_a_process_that_ended_is_dead_reaped_or_not(child: subprocess.Popen[str]) -> None:
    """A zombie has ended: only its exit status is left."""
    owner = owner_of(child)
    os.kill(child.pid, signal.SIGKILL)
    os.waitid(os.P_PID, child.pid, os.WEXITED | os.WNOWAIT)  # it has ended; nobody has reaped it
    assert proven_dead(owner)
    child.wait()
    assert proven_dead(owner)


def test_a_pid_that_was_given_to_another_process_is_dead() -> None:
    assert proven_dead(dataclasses.replace(this_process(), started="1"))


def test_a_process_of_another_boot_is_dead() -> None:
    assert proven_dead(dataclasses.replace(this_process(), boot="another boot"))


@pytest.mark.parametrize("change", [{"host": "elsewhere"}, {"pid_space": "pid:[1]"}, {"boot": ""}, {"started": ""}])
def test_what_cannot_be_known_from_here_is_not_dead(change: dict[str, str]) -> None:
    """Then the lease decides: another host, another container, a system without these files."""
    gone = dataclasses.replace(this_process(), pid=2**22 + 1, started="1")
    assert proven_dead(gone)
    assert not proven_dead(dataclasses.replace(gone, **change))  # type: ignore[arg-type]


def test_another_host_is_not_judged_by_its_boot() -> None:
    assert not proven_dead(dataclasses.replace(this_process(), host="elsewhere", boot="another boot"))


def test_an_owner_round_trips() -> None:
    assert Owner(**this_process().as_dict()) == this_process()


def test_there_is_an_actor_even_without_a_user_name(monkeypatch: pytest.MonkeyPatch) -> None:
    def nobody() -> str:
        raise KeyError("uid not found")

    monkeypatch.setattr("getpass.getuser", nobody)
    assert default_actor().startswith("uid-")


# --- threads ----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("workers", [1, 4])
def test_map_gives_every_result_once(workers: int) -> None:
    assert sorted(OsThreads().map(lambda n: n * n, range(200), workers)) == [n * n for n in range(200)]


@pytest.mark.parametrize("workers", [1, 4])
def test_the_first_error_stops_the_rest(workers: int) -> None:
    done = []

    def work(n: int) -> None:
        if n == 5:
            raise ValueError("five")
        done.append(n)

    with pytest.raises(ValueError, match="five"):
        list(OsThreads().map(work, iter(range(10_000)), workers))
    assert len(done) < 1000


def test_map_takes_a_stream_without_gathering_it() -> None:
    taken = 0

    def items() -> Iterator[int]:
        nonlocal taken
        for n in range(10_000):
            taken += 1
            yield n

    results = OsThreads().map(lambda n: n, items(), 2)
    next(results)
    assert taken < 100
    results.close()  # type: ignore[attr-defined]


def test_a_background_thread_ends_with_its_signal() -> None:
    threads = OsThreads()
    stop = threads.signal()

    def wait() -> None:
        stop.wait()

    running = threads.start("waits", wait)
    assert isinstance(running, threading.Thread)
    assert running.daemon
    stop.set()
    running.join(5)
    assert not running.is_alive()


def test_the_real_clock_goes_on() -> None:
    clock = SystemClock()
    before = clock.monotonic()
    clock.sleep(0.001)
    assert clock.monotonic() > before
    assert abs(clock.now() - time.time()) < 5
    assert Seams().ids.execution() != Seams().ids.execution()

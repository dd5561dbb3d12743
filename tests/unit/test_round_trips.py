"""How often the store is asked: on a network each call is a round trip, so the numbers are kept."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from fenceline import Repository
from fenceline.testing import MemoryObjects, SlowObjects


@pytest.fixture
def far() -> SlowObjects:
    """A store that counts; it does not wait."""
    memory = MemoryObjects()
    with Repository.on(memory, create=True).transaction("main") as tx:
        tx.write("first", b"1")
    return SlowObjects(memory, delay=0)


def counted(far: SlowObjects, work: Callable[[], object]) -> int:
    far.calls.clear()
    work()
    return len(far.calls)


def write(repo: Repository, path: str, key: str | None = None) -> None:
    with repo.transaction("main", key=key) as tx:
        tx.write(path, b"1")


def test_opening_takes_two_round_trips(far: SlowObjects) -> None:
    assert counted(far, lambda: Repository.on(far)) == 2
    assert counted(far, lambda: Repository.on(far, "r")) == 1


def test_a_head_takes_one_round_trip_once_it_was_seen(far: SlowObjects) -> None:
    repo = Repository.on(far)
    assert counted(far, repo.head) == 4  # the hint, its entry, none after it, the commit
    assert counted(far, repo.head) == 1
    write(repo, "a")
    assert counted(far, repo.head) == 1


def test_a_head_that_others_moved_far_is_found_by_the_hint(far: SlowObjects) -> None:
    repo, other = Repository.on(far), Repository.on(far)
    repo.head()
    for number in range(40):
        write(other, f"{number}")
    assert counted(far, repo.head) <= 5


def test_a_publish_takes_sixteen_calls(far: SlowObjects) -> None:
    """Two of them go at once, so that it takes 15 round trips, one after the other; see docs/benchmarks.md."""
    repo = Repository.on(far)
    repo.head()
    assert counted(far, lambda: write(repo, "a")) <= 16 + 1  # the range of the tree that it changes is read first
    assert counted(far, lambda: write(repo, "b")) <= 16


def test_a_publish_with_a_key_takes_nineteen_calls(far: SlowObjects) -> None:
    repo = Repository.on(far)
    write(repo, "a")
    assert counted(far, lambda: write(repo, "b", key="k")) <= 19


def test_files_add_one_call_each_and_go_at_once(far: SlowObjects, tmp_path: Path) -> None:
    for number in range(100):
        (tmp_path / f"{number}").write_bytes(b"x")
    repo = Repository.on(far)
    write(repo, "a")

    def upload() -> None:
        with repo.transaction("main") as tx:
            tx.upload(str(tmp_path), "many")

    assert counted(far, upload) <= 15 + 100

"""What people hold: downloads, progress, statuses, and the repository's lifetime."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path

import pytest

from fenceline import ProgressEvent, Repository, StoreError
from fenceline.errors import NotFound, ObjectDamaged
from fenceline.repo.native.local import LocalObjects
from fenceline.testing import HandClock

Put = Callable[..., str]
Abandon = Callable[..., str]


def test_a_download_is_a_file_or_a_directory(memory_repo: Repository, put: Put, tmp_path: Path) -> None:
    put(memory_repo, {"d/a": b"1", "d/e/b": b"22", "f": b"333"})
    events: list[ProgressEvent] = []
    assert memory_repo.download("main", "d/", str(tmp_path / "out"), events.append) == 2
    assert (tmp_path / "out/e/b").read_bytes() == b"22"
    assert (events[-1].done, events[-1].total, events[-1].done_bytes, events[-1].total_bytes) == (2, 2, 3, 3)
    assert memory_repo.download("main", "f", str(tmp_path / "g")) == 1
    assert (tmp_path / "g").read_bytes() == b"333"
    assert memory_repo.download("main", "", str(tmp_path / "all")) == 3
    with pytest.raises(NotFound):
        memory_repo.download("main", "absent", str(tmp_path / "h"))
    assert sorted(p.name for p in tmp_path.iterdir()) == ["all", "g", "out"]


def test_a_damaged_file_is_not_left_at_its_target(disk_repo: Repository, put: Put, tmp_path: Path) -> None:
    """INV-7: a download is whole or not there, and leaves nothing beside it."""
    put(disk_repo, {"a": b"content"})
    objects = disk_repo.native.objects
    assert isinstance(objects, LocalObjects)
    Path(objects.path(disk_repo.stat("main", "a").address)).write_bytes(b"CONTENT")
    (tmp_path / "out").mkdir()
    with pytest.raises(ObjectDamaged):
        disk_repo.download("main", "a", str(tmp_path / "out/a"))
    assert list((tmp_path / "out").iterdir()) == []


def test_a_download_that_cannot_be_written_is_typed(memory_repo: Repository, put: Put, tmp_path: Path) -> None:
    put(memory_repo, {"a": b"1"})
    (tmp_path / "file").write_bytes(b"")
    with pytest.raises(StoreError, match="writing"):
        memory_repo.download("main", "a", str(tmp_path / "file/below"))


def test_upload_reports_its_progress(memory_repo: Repository, parts: Callable[..., str]) -> None:
    events: list[ProgressEvent] = []
    local = parts({f"{n:03}": b"x" for n in range(100)})
    with memory_repo.transaction(progress=events.append) as tx:
        tx.upload(local, "in")
    assert events[-1] == ProgressEvent("upload", 100, 100, 100, 100)
    assert [e.done for e in events] == sorted(e.done for e in events)


def test_the_status_of_an_unfinished_transaction(memory_repo: Repository, abandon: Abandon, clock: HandClock) -> None:
    execution = abandon(memory_repo, lambda tx: tx.write("a", b"1"), "published", actor="ada")
    clock.advance(31)
    (status,) = memory_repo.intents()
    assert (status.execution, status.state, status.branch, status.actor, status.kind) == (
        execution,
        "published",
        "main",
        "ada",
        "write",
    )
    assert (status.age, status.expired) == (31, True)


def test_a_repository_is_closed_with_its_sweeper(disk_repo: Repository) -> None:
    with disk_repo as repo:
        repo.start_sweeper(0.01)
        repo.start_sweeper(0.01)
        running = repo._sweeper
        assert running is not None
    assert repo._sweeper is None
    repo.close()


def test_relative_paths_name_the_directory_at_opening(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    store = LocalObjects("repo")
    store.create("a", b"1")
    monkeypatch.chdir(os.sep)
    assert store.get("a") == b"1"
    assert store.url == (tmp_path / "repo").as_uri()

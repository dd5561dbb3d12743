"""Objects on a local disk: what happens where the file system lacks something, or fails."""

from __future__ import annotations

import errno
import os
import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest

from fenceline import open_repository
from fenceline.errors import (
    AccessDenied,
    NotARepository,
    ObjectExists,
    ObjectMissing,
    Outcome,
    OutcomeUnknown,
    StoreError,
    StoreFull,
    StoreReadOnly,
    UnsupportedStore,
    store_error,
)
from fenceline.repo.native import local
from fenceline.repo.native.local import LocalObjects


@pytest.fixture
def store(tmp_path: Path) -> LocalObjects:
    return LocalObjects(tmp_path / "store")


def raising(code: int) -> Callable[..., Any]:
    def call(*args: object, **kwargs: object) -> None:
        raise OSError(code, os.strerror(code), args[0] if args else None)

    return call


def keys(store: LocalObjects) -> list[str]:
    return [info.key for info in store.list("")]


# --- without hard links -----------------------------------------------------------------------------------------


@pytest.mark.parametrize("code", [errno.EPERM, errno.EOPNOTSUPP, errno.ENOSYS, errno.EMLINK])
def test_without_hard_links_a_rename_that_never_replaces_does_the_same(
    store: LocalObjects, monkeypatch: pytest.MonkeyPatch, code: int
) -> None:
    monkeypatch.setattr(os, "link", raising(code))
    store.create("a/b", b"first")
    with pytest.raises(ObjectExists):
        store.create("a/b", b"second")
    assert store.get("a/b") == b"first"
    assert keys(store) == ["a/b"]


def test_without_hard_links_exactly_one_of_sixteen_still_wins(
    store: LocalObjects, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The compare-and-set holds on the other path too (section 4)."""
    monkeypatch.setattr(os, "link", raising(errno.EPERM))
    for round_ in range(5):
        barrier = threading.Barrier(16)

        def race(n: int, key: str = f"k/{round_}", barrier: threading.Barrier = barrier) -> bool:
            barrier.wait()
            try:
                store.create(key, str(n).encode())
                return True
            except ObjectExists:
                return False

        with ThreadPoolExecutor(16) as pool:
            won = [n for n, first in enumerate(pool.map(race, range(16))) if first]
        assert len(won) == 1
        assert store.get(f"k/{round_}") == str(won[0]).encode()
    assert len(keys(store)) == 5


@pytest.mark.parametrize("code", [errno.EINVAL, errno.ENOSYS])
def test_a_file_system_with_neither_is_refused_and_nothing_is_written(
    store: LocalObjects, monkeypatch: pytest.MonkeyPatch, code: int
) -> None:
    """Refused rather than pretended: two writers could overwrite each other there."""
    monkeypatch.setattr(os, "link", raising(errno.EPERM))
    monkeypatch.setattr(local, "_rename_if_absent", raising(code))
    with pytest.raises(UnsupportedStore, match="ext4"):
        store.create("a", b"1")
    assert keys(store) == []


def test_no_repository_is_created_where_the_store_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(os, "link", raising(errno.EPERM))
    monkeypatch.setattr(local, "_rename_if_absent", raising(errno.EINVAL))
    with pytest.raises(UnsupportedStore):
        open_repository(tmp_path / "repo", create=True)
    monkeypatch.undo()
    with pytest.raises(NotARepository):
        open_repository(tmp_path / "repo")
    assert not (tmp_path / "repo/refs/main").exists() or not any((tmp_path / "repo/refs/main").iterdir())


def test_the_rename_that_never_replaces_is_the_real_one(tmp_path: Path) -> None:
    (tmp_path / "a").write_bytes(b"a")
    (tmp_path / "b").write_bytes(b"b")
    with pytest.raises(FileExistsError):
        local._rename_if_absent(str(tmp_path / "a"), str(tmp_path / "b"))
    assert (tmp_path / "b").read_bytes() == b"b"
    local._rename_if_absent(str(tmp_path / "a"), str(tmp_path / "c"))
    assert (tmp_path / "c").read_bytes() == b"a"


# --- errors -----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("code", "kind", "retryable"),
    [
        (errno.ENOSPC, StoreFull, True),
        (errno.EDQUOT, StoreFull, True),
        (errno.EROFS, StoreReadOnly, False),
        (errno.EACCES, AccessDenied, False),
        (errno.EPERM, AccessDenied, False),
        (errno.EIO, StoreError, True),
    ],
    ids=lambda v: errno.errorcode.get(v, "") if isinstance(v, int) else str(v),
)
def test_system_errors_become_typed_ones_that_say_what_to_do(
    code: int, kind: type[StoreError], retryable: bool
) -> None:
    error = store_error(OSError(code, os.strerror(code)), "creating x")
    assert type(error) is kind
    assert (error.retryable, error.outcome) == (retryable, Outcome.NOT_APPLIED)
    assert "creating x" in str(error)
    assert error.hint
    assert error.as_dict()["code"] == kind.code


@pytest.mark.parametrize("code", [errno.ENOSPC, errno.EROFS, errno.EACCES, errno.EIO])
@pytest.mark.parametrize("where", ["open", "write", "fsync", "mkdir"])
def test_a_write_that_fails_leaves_nothing(
    store: LocalObjects, monkeypatch: pytest.MonkeyPatch, where: str, code: int
) -> None:
    """INV-7: whatever system call fails, the key does not exist and no temporary file is left."""
    with monkeypatch.context() as patch:
        patch.setattr(os, where, raising(code))
        with pytest.raises(StoreError) as raised:
            store.create("a/b", b"1")
        assert raised.value.outcome is Outcome.NOT_APPLIED
        if where != "fsync":
            with pytest.raises(StoreError):
                store.put("a/c", b"1")
    assert keys(store) == []
    store.create("a/b", b"1")
    assert store.get("a/b") == b"1"


def test_a_link_that_fails_leaves_nothing(store: LocalObjects, monkeypatch: pytest.MonkeyPatch) -> None:
    with monkeypatch.context() as patch:
        patch.setattr(os, "link", raising(errno.ENOSPC))
        with pytest.raises(StoreFull):
            store.create("a", b"1")
    assert keys(store) == []


def test_a_directory_that_cannot_be_synced_after_the_link_is_an_unknown_outcome(
    store: LocalObjects, monkeypatch: pytest.MonkeyPatch
) -> None:
    """INV-3: the object is there and may not survive; neither success nor failure may be said."""
    store.create("a/first", b"1")
    with monkeypatch.context() as patch:
        patch.setattr(local, "_fsync_path", raising(errno.EIO))
        with pytest.raises(OutcomeUnknown) as raised:
            store.create("a/second", b"2")
    assert raised.value.outcome is Outcome.UNKNOWN
    assert store.get("a/second") == b"2", "an unknown outcome is never undone"


@pytest.mark.parametrize("count", [3, 100])
def test_a_persist_that_fails_is_not_reported_as_done(
    store: LocalObjects, monkeypatch: pytest.MonkeyPatch, count: int
) -> None:
    """INV-2."""
    for n in range(count):
        store.put(f"files/e/{n}", b"1")
    with monkeypatch.context() as patch:
        patch.setattr(local, "_fsync_path", raising(errno.EIO))
        patch.setattr(LocalObjects, "_sync_file_system", raising(errno.EIO))
        with pytest.raises(StoreError):
            store.persist(f"files/e/{n}" for n in range(count))
    store.persist(f"files/e/{n}" for n in range(count))


@pytest.mark.parametrize("call", ["get", "stat", "list", "delete"])
def test_reads_and_deletes_that_fail_are_typed_too(
    store: LocalObjects, monkeypatch: pytest.MonkeyPatch, call: str
) -> None:
    store.put("files/e/a", b"1")
    with monkeypatch.context() as patch:
        for name in ("open", "stat", "scandir", "unlink"):
            patch.setattr(os, name, raising(errno.EIO))
        calls: dict[str, Callable[[], object]] = {
            "get": lambda: store.get("files/e/a"),
            "stat": lambda: store.stat("files/e/a"),
            "list": lambda: list(store.list("files/")),
            "delete": lambda: store.delete(["files/e/a"]),
        }
        with pytest.raises(StoreError, match="Input/output"):
            calls[call]()


# --- durability -------------------------------------------------------------------------------------------------


class Synced:
    """Records what was made durable, and checks that every name above it was too."""

    def __init__(self, patch: pytest.MonkeyPatch) -> None:
        self.directories: set[str] = set()
        real = local._fsync_path

        def record(path: str) -> None:
            self.directories.add(path)
            real(path)

        patch.setattr(local, "_fsync_path", record)

    def assert_reachable(self, path: Path, root: Path) -> None:
        while path != root:
            path = path.parent
            assert str(path) in self.directories, f"the names in {path} may not survive a power failure"


def test_every_new_name_on_the_way_to_an_object_is_durable(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """INV-2: a file survives only if its own name and those of all new directories above it do."""
    store = LocalObjects(tmp_path / "store")
    synced = Synced(monkeypatch)
    store.create("refs/main/0000000001", b"")
    synced.assert_reachable(tmp_path / "store/refs/main/0000000001", tmp_path)
    store.put("files/e/deep/er/a", b"1")
    store.persist(["files/e/deep/er/a"])
    synced.assert_reachable(tmp_path / "store/files/e/deep/er/a", tmp_path)


def test_new_directories_above_the_repository_are_durable_too(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """INV-2: a repository created below directories that did not exist either."""
    synced = Synced(monkeypatch)
    store = LocalObjects(tmp_path / "new/and/deep/store")
    store.create("a", b"")
    synced.assert_reachable(tmp_path / "new/and/deep/store/a", tmp_path)


def test_directories_that_were_pruned_come_back(store: LocalObjects) -> None:
    other = LocalObjects(store.path("").rstrip("/"))
    store.put("files/e/a", b"1")
    other.delete(["files/e/a"])
    assert not os.path.exists(store.path("files/e"))
    store.put("files/e/a", b"2")
    store.persist(["files/e/a"])
    assert other.get("files/e/a") == b"2"


def test_the_areas_themselves_are_never_pruned(store: LocalObjects) -> None:
    store.put("files/e/a", b"1")
    store.create("refs/main/1", b"1")
    store.delete(["files/e/a", "refs/main/1"])
    assert os.path.isdir(store.path("files"))


def test_a_store_that_does_not_exist_is_empty_and_stays_absent(tmp_path: Path) -> None:
    store = LocalObjects(tmp_path / "absent")
    assert list(store.list("")) == []
    assert list(store.children("refs/")) == []
    assert store.stat("x") is None
    with pytest.raises(ObjectMissing):
        store.get("x")
    store.delete(["x"])
    assert not (tmp_path / "absent").exists()

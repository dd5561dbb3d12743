"""A commit in a directory: every file, its mode, datasets as plain directories, and nothing outside."""

from __future__ import annotations

import errno
import fcntl
import os
import stat
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path

import pytest

from fenceline import Repository
from fenceline.errors import ContractError, InvalidName, ObjectDamaged, ObjectMissing, StoreFull
from fenceline.repo.model import Dataset, Entry, Kind
from fenceline.repo.native.local import LocalObjects
from fenceline.task import materialise as module
from fenceline.task.materialise import materialise
from fenceline.task.orphans import MARKER
from fenceline.task.workspaces import PathWorkspace
from fenceline.testing import MemoryObjects

IDENTITY: Mapping[str, str | int] = {
    "workflow": "w",
    "reference": "r",
    "seq": 1,
    "iteration": 0,
    "task_id": "t",
    "retry_count": 0,
}
Put = Callable[..., str]
Parts = Callable[[Mapping[str, bytes]], str]


@pytest.fixture
def root(tmp_path: Path) -> Path:
    return tmp_path / "root"


def opened(repo: Repository, root: Path, prefix: str = "/", workers: int = 4, execution: str = "") -> PathWorkspace:
    native = repo.native
    chosen = execution or native.seams.ids.execution()
    return materialise(native, native.resolve("main"), prefix, root, chosen, IDENTITY, native.seams, workers)


def content(workspace: PathWorkspace) -> dict[str, bytes]:
    files = (path for path in workspace.path.rglob("*") if path.is_file())
    return {str(path.relative_to(workspace.path)): path.read_bytes() for path in files}


def object_of(repo: Repository, path: str) -> Path:
    entry = repo.native.find(repo.native.resolve("main"), path)
    assert entry
    assert isinstance(repo.native.objects, LocalObjects)
    return Path(repo.native.objects.path(entry.address))


# --- files ------------------------------------------------------------------------------------------------------


def test_the_whole_tree_appears(repo: Repository, put: Put, root: Path) -> None:
    files = {"a": b"1", "b/c/d": b"2" * 3_000_000, "b/c.d": b"", "b/é x": b"3"}
    put(repo, files)
    workspace = opened(repo, root)
    assert content(workspace) == files
    assert workspace.path.parent.parent == root
    assert sorted(path.name for path in workspace.directory.iterdir()) == [MARKER, "workspace"]


@pytest.mark.parametrize("prefix", ["b", "b/"])
def test_a_prefix_shows_what_is_below_it_and_nothing_else(repo: Repository, put: Put, root: Path, prefix: str) -> None:
    put(repo, {"a": b"1", "b/c": b"2", "b/d/e": b"3", "bc/f": b"4"})
    workspace = opened(repo, root, prefix)
    assert content(workspace) == {"c": b"2", "d/e": b"3"}
    assert workspace.prefix == "b"


@pytest.mark.parametrize("prefix", ["", "/", "nothing/here"])
def test_nothing_below_a_prefix_is_an_empty_directory(repo: Repository, root: Path, prefix: str) -> None:
    workspace = opened(repo, root, prefix)
    assert workspace.path.is_dir()
    assert content(workspace) == {}


def test_hundreds_of_files_arrive_through_several_threads(disk_repo: Repository, put: Put, root: Path) -> None:
    files = {f"d{i % 7}/f{i}": str(i).encode() * i for i in range(400)}
    put(disk_repo, files)
    assert content(opened(disk_repo, root, workers=4)) == files


def test_modes_are_kept_whatever_the_umask(repo: Repository, root: Path) -> None:
    with repo.transaction("main") as tx:
        tx.write("plain", b"1")
        tx.write("run.sh", b"2", mode=0o755)
        tx.write("shut", b"3", mode=0o400)
    before = os.umask(0o077)
    try:
        workspace = opened(repo, root)
    finally:
        os.umask(before)
    modes = {path.name: stat.S_IMODE(path.stat().st_mode) for path in workspace.path.iterdir()}
    assert modes == {"plain": 0o644, "run.sh": 0o755, "shut": 0o400}
    assert workspace.diff().empty


def test_the_clock_of_the_disk_is_past_every_file_when_the_body_starts(
    disk_repo: Repository, put: Put, root: Path
) -> None:
    put(disk_repo, {f"f{i}": b"x" for i in range(20)})
    workspace = opened(disk_repo, root)
    (workspace.path / "mine").write_bytes(b"")
    written = [(workspace.path / f"f{i}").stat().st_ctime_ns for i in range(20)]
    assert max(written) < workspace._settled_ns <= (workspace.path / "mine").stat().st_ctime_ns
    assert workspace.diff().hashed == 0


def test_a_disk_with_a_coarse_clock_is_not_waited_for_but_its_files_are_hashed(
    disk_repo: Repository, put: Put, root: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    put(disk_repo, {f"f{i}": b"x" for i in range(5)})
    with monkeypatch.context() as patch:
        patch.setattr(os, "utime", lambda *args: None)  # the clock stands still since the marker was written
        workspace = opened(disk_repo, root)
    diff = workspace.diff()
    assert diff.empty
    assert diff.hashed == 5


# --- how bytes travel -------------------------------------------------------------------------------------------


@pytest.fixture
def calls(monkeypatch: pytest.MonkeyPatch) -> dict[str, int]:
    """Counts the ways in which bytes are copied; by default no reflink, as on ext4."""
    counted = {"reflink": 0, "copy_file_range": 0, "sendfile": 0}
    real_range, real_send = os.copy_file_range, os.sendfile

    def no_reflink(*args: object) -> int:
        counted["reflink"] += 1
        raise OSError(errno.EOPNOTSUPP, "no")

    def copy_file_range(source: int, target: int, count: int) -> int:
        counted["copy_file_range"] += 1
        return real_range(source, target, count)

    def sendfile(target: int, source: int, offset: int | None, count: int) -> int:
        counted["sendfile"] += 1
        return real_send(target, source, offset, count)

    monkeypatch.setattr(fcntl, "ioctl", no_reflink)
    monkeypatch.setattr(os, "copy_file_range", copy_file_range)
    monkeypatch.setattr(os, "sendfile", sendfile)
    return counted


def failing(code: int) -> Callable[..., int]:
    def call(*args: object) -> int:
        raise OSError(code, os.strerror(code))

    return call


FILES = {"a": b"one", "b/c": b"two" * 1000, "b/d": b""}


def test_a_disk_that_can_reflink_copies_nothing(
    disk_repo: Repository, put: Put, root: Path, calls: dict[str, int], monkeypatch: pytest.MonkeyPatch
) -> None:
    put(disk_repo, FILES)

    def clone(target: int, request: int, source: int) -> int:
        assert request == module._FICLONE
        calls["reflink"] += 1
        os.write(target, os.pread(source, 1 << 20, 0))
        return 0

    monkeypatch.setattr(fcntl, "ioctl", clone)
    assert content(opened(disk_repo, root)) == FILES
    assert calls == {"reflink": 3, "copy_file_range": 0, "sendfile": 0}


def test_a_disk_that_cannot_reflink_is_asked_once_then_the_kernel_copies(
    disk_repo: Repository, put: Put, root: Path, calls: dict[str, int]
) -> None:
    put(disk_repo, FILES)
    assert content(opened(disk_repo, root, workers=1)) == FILES
    assert calls["reflink"] == 1
    assert calls["copy_file_range"] >= 3
    assert calls["sendfile"] == 0


def test_without_copy_file_range_sendfile_copies(
    disk_repo: Repository, put: Put, root: Path, calls: dict[str, int], monkeypatch: pytest.MonkeyPatch
) -> None:
    put(disk_repo, FILES)
    monkeypatch.setattr(os, "copy_file_range", failing(errno.EXDEV))
    assert content(opened(disk_repo, root)) == FILES
    assert calls["sendfile"] >= 3


def test_where_the_kernel_can_neither_bytes_are_streamed_and_verified(
    disk_repo: Repository, put: Put, root: Path, calls: dict[str, int], monkeypatch: pytest.MonkeyPatch
) -> None:
    put(disk_repo, FILES)
    monkeypatch.setattr(os, "copy_file_range", failing(errno.ENOSYS))
    monkeypatch.setattr(os, "sendfile", failing(errno.EINVAL))
    assert content(opened(disk_repo, root)) == FILES
    object_of(disk_repo, "a").write_bytes(b"ONE")
    with pytest.raises(ObjectDamaged):
        opened(disk_repo, root)


def test_a_store_that_is_no_disk_is_streamed_and_verified(
    memory_repo: Repository, memory: MemoryObjects, put: Put, root: Path
) -> None:
    put(memory_repo, FILES)
    assert content(opened(memory_repo, root)) == FILES
    entry = memory_repo.native.find(memory_repo.native.resolve("main"), "a")
    assert entry
    memory.put(entry.address, b"ONE")
    with pytest.raises(ObjectDamaged):
        opened(memory_repo, root)


@pytest.mark.parametrize("damage", [b"", b"on", b"one more", None])
def test_a_missing_cut_or_grown_object_stops_it_and_leaves_nothing(
    disk_repo: Repository, put: Put, root: Path, damage: bytes | None
) -> None:
    put(disk_repo, FILES)
    if damage is None:
        object_of(disk_repo, "a").unlink()
    else:
        object_of(disk_repo, "a").write_bytes(damage)
    with pytest.raises(ObjectMissing if damage is None else ObjectDamaged, match="files/"):
        opened(disk_repo, root)
    assert list(root.iterdir()) == []


def test_a_full_disk_is_named_and_leaves_nothing(
    disk_repo: Repository, put: Put, root: Path, calls: dict[str, int], monkeypatch: pytest.MonkeyPatch
) -> None:
    put(disk_repo, FILES)
    monkeypatch.setattr(os, "copy_file_range", failing(errno.ENOSPC))
    with pytest.raises(StoreFull):
        opened(disk_repo, root)
    assert list(root.iterdir()) == []


def test_data_in_place_is_copied_and_must_be_what_was_registered(
    disk_repo: Repository, root: Path, parts: Parts
) -> None:
    source = parts({"x.csv": b"1,2"})
    with disk_repo.transaction("main") as tx:
        tx.import_in_place(source, "raw")
    assert content(opened(disk_repo, root)) == {"raw/x.csv": b"1,2"}
    Path(source, "x.csv").write_bytes(b"3,4")
    os.utime(Path(source, "x.csv"), ns=(1, 1))
    with pytest.raises(ObjectDamaged, match="changed since it was registered"):
        opened(disk_repo, root)


def test_the_copy_does_not_share_its_bytes_with_the_repository(disk_repo: Repository, put: Put, root: Path) -> None:
    put(disk_repo, FILES)
    workspace = opened(disk_repo, root)
    with (workspace.path / "a").open("r+b") as file:
        file.write(b"XXX")
    assert object_of(disk_repo, "a").read_bytes() == b"one"


# --- datasets ---------------------------------------------------------------------------------------------------


def test_a_dataset_is_a_plain_directory_of_part_files(repo: Repository, root: Path, parts: Parts) -> None:
    with repo.transaction("main") as tx:
        tx.put_dataset(parts({"day=1/part-0": b"1", "day=2/part-0": b"2"}), "in/plays", partition_by=["day"])
        tx.write("in/plays.txt", b"beside")
    workspace = opened(repo, root)
    assert content(workspace) == {
        "in/plays/day=1/part-0": b"1",
        "in/plays/day=2/part-0": b"2",
        "in/plays.txt": b"beside",
    }
    assert list(workspace.datasets) == ["in/plays"]
    assert workspace.datasets["in/plays"].partition_by == ("day",)
    assert workspace.diff().empty


def test_files_of_two_jobs_with_one_name_are_told_apart_by_the_job(repo: Repository, root: Path, parts: Parts) -> None:
    with repo.transaction("main") as tx:
        tx.put_dataset(parts({"k=1/part-0": b"1", "k=2/part-0": b"2"}), "d", partition_by=["k"])
    with repo.transaction("main") as tx:
        tx.put_dataset(parts({"k=1/part-0": b"3"}), "d", mode="append", partition_by=["k"])
    assert tx.result.execution
    found = content(opened(repo, root))
    assert found == {
        "d/k=1/part-0": b"1",
        f"d/k=1/{tx.result.execution}-1-part-0": b"3",
        "d/k=2/part-0": b"2",
    }


def test_a_long_name_of_two_jobs_still_fits_the_disk(repo: Repository, root: Path, parts: Parts) -> None:
    name = "p" * 230 + ".parquet"
    for _ in range(3):
        with repo.transaction("main") as tx:
            tx.put_dataset(parts({name: b"x"}), "d", mode="append")
    found = content(opened(repo, root))
    assert len(found) == 3
    assert f"d/{name}" in found
    assert all(path.endswith(".parquet") for path in found)


def test_an_empty_dataset_is_an_empty_directory(repo: Repository, root: Path, parts: Parts) -> None:
    with repo.transaction("main") as tx:
        tx.put_dataset(parts({}), "d")
    workspace = opened(repo, root)
    assert (workspace.path / "d").is_dir()
    assert workspace.diff().empty


def test_a_dataset_may_be_the_workspace_itself(repo: Repository, root: Path, parts: Parts) -> None:
    with repo.transaction("main") as tx:
        tx.put_dataset(parts({"part-0": b"1"}), "d")
        tx.write("e", b"2")
    workspace = opened(repo, root, "d")
    assert content(workspace) == {"part-0": b"1"}
    assert list(workspace.datasets) == [""]


# --- what is refused --------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("prefix", "match"),
    [
        ("a", "a is a file"),
        ("a/b", "a is a file"),
        ("d/x", "inside the dataset d"),
        ("d/_fl=1/x", "inside the dataset"),
    ],
)
def test_a_prefix_that_is_no_directory_is_refused(
    repo: Repository, put: Put, root: Path, parts: Parts, prefix: str, match: str
) -> None:
    put(repo, {"a": b"1"})
    with repo.transaction("main") as tx:
        tx.put_dataset(parts({"part-0": b"1"}), "d")
    with pytest.raises(ContractError, match=match):
        opened(repo, root, prefix)
    assert not root.exists()


@pytest.mark.parametrize("prefix", ["../x", "/etc", "a//b"])
def test_a_prefix_that_leads_out_is_refused(repo: Repository, root: Path, prefix: str) -> None:
    with pytest.raises(InvalidName):
        opened(repo, root, prefix)


def test_an_execution_has_one_directory(repo: Repository, put: Put, root: Path) -> None:
    put(repo, {"a": b"1"})
    first = opened(repo, root, execution="0e")
    with pytest.raises(ContractError, match="exists already"):
        opened(repo, root, execution="0e")
    assert content(first) == {"a": b"1"}


def _entry(path: str, address: str) -> Entry:
    return Entry(path, Kind.FILE, 1, address, "none")


def _hostile(address: str) -> Iterator[Entry]:
    for path in ("../evil", "../../evil", "a/../../evil", "a/..", "./evil", "/evil", "a//evil", "a/ev\0il"):
        yield _entry(path, address)


@pytest.mark.parametrize("number", range(8))
def test_a_tree_with_hostile_paths_writes_nothing_outside(
    disk_repo: Repository, put: Put, root: Path, tmp_path: Path, number: int
) -> None:
    put(disk_repo, {"z": b"!"})
    found = disk_repo.native.find(disk_repo.native.resolve("main"), "z")
    assert found
    hostile = list(_hostile(found.address))[number]
    with disk_repo.transaction("main") as tx:
        tx.apply([(hostile.path, hostile)])
    before = sorted(path for path in tmp_path.rglob("*") if path.name == "evil")
    with pytest.raises(ObjectDamaged, match="the tree holds the path"):
        opened(disk_repo, root)
    assert sorted(path for path in tmp_path.rglob("*") if path.name == "evil") == before == []
    assert list(root.iterdir()) == []


def test_hostile_part_files_write_nothing_outside(disk_repo: Repository, put: Put, root: Path, tmp_path: Path) -> None:
    put(disk_repo, {"z": b"!"})
    found = disk_repo.native.find(disk_repo.native.resolve("main"), "z")
    assert found
    dataset = Entry("d/", Kind.DATASET, 0, "", "none", dataset=Dataset("i", "parquet", "g", "j", "create"))
    part = _entry("d/_fl=j/../../../evil", found.address)
    with disk_repo.transaction("main") as tx:
        tx.apply([(dataset.path, dataset), (part.path, part)])
    with pytest.raises(ObjectDamaged, match="the tree holds the path"):
        opened(disk_repo, root)
    assert list(tmp_path.rglob("evil")) == []


def test_names_that_meet_on_the_disk_are_refused(disk_repo: Repository, put: Put, root: Path) -> None:
    """As 'A' and 'a' do where case does not count; here a file and a directory of one name."""
    put(disk_repo, {"a/b": b"1"})
    found = disk_repo.native.find(disk_repo.native.resolve("main"), "a/b")
    assert found
    with disk_repo.transaction("main") as tx:
        tx.apply([("a", _entry("a", found.address))])
    with pytest.raises(ContractError, match="meets another name"):
        opened(disk_repo, root)
    assert list(root.iterdir()) == []


def test_only_what_is_asked_for_is_there(repo: Repository, root: Path, put: Put) -> None:
    put(repo, {"in/a": b"1", "in/deep/b": b"2", "in/c": b"3", "other": b"4"})
    native = repo.native

    def given(*only: str) -> dict[str, bytes]:
        execution = native.seams.ids.execution()
        commit = native.resolve("main")
        workspace = materialise(native, commit, "in", root, execution, IDENTITY, native.seams, only=only)
        assert workspace.diff().empty, "what was not given is not missing"
        return content(workspace)

    assert given() == {}
    assert given("in/a") == {"a": b"1"}
    assert given("in/deep", "in/deep/b", "in/none") == {"deep/b": b"2"}

"""What a body changed in its workspace: found by metadata first, exact in every case."""

from __future__ import annotations

import json
import logging
import os
import shutil
import socket
import threading
from collections.abc import Callable, Mapping
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from fenceline import Repository, open_repository
from fenceline.errors import ContractError, InvalidName, StoreError
from fenceline.task.materialise import materialise
from fenceline.task.orphans import MARKER
from fenceline.task.workspaces import Metrics, PathWorkspace, Stamp, Workspace, WorkspaceDiff, cleanup
from fenceline.testing import HandClock

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
FILES = {"a": b"one", "b/c": b"two", "b/d/e": b"three"}


def opened(repo: Repository, root: Path, prefix: str = "/") -> PathWorkspace:
    native = repo.native
    execution = native.seams.ids.execution()
    return materialise(native, native.resolve("main"), prefix, root, execution, IDENTITY, native.seams, 2)


@pytest.fixture
def workspace(disk_repo: Repository, put: Put, tmp_path: Path) -> PathWorkspace:
    put(disk_repo, FILES)
    return opened(disk_repo, tmp_path / "root")


@pytest.fixture
def with_dataset(disk_repo: Repository, put: Put, parts: Parts, tmp_path: Path) -> PathWorkspace:
    put(disk_repo, {"x": b"1", "in/y": b"2"})
    for data in (b"p", b"q"):
        with disk_repo.transaction("main") as tx:
            tx.put_dataset(parts({"k=1/part-0": data}), "in/d", mode="append", partition_by=["k"])
    return opened(disk_repo, tmp_path / "root")


def summary(diff: WorkspaceDiff) -> dict[str, list[str]]:
    return {
        "added": [change.path for change in diff.added],
        "changed": [change.path for change in diff.changed],
        "removed": list(diff.removed),
    }


def nothing(**instead: list[str]) -> dict[str, list[str]]:
    return {"added": [], "changed": [], "removed": [], **instead}


# --- what is a change -------------------------------------------------------------------------------------------


def test_an_untouched_workspace_is_no_change_and_nothing_is_read(workspace: PathWorkspace) -> None:
    diff = workspace.diff()
    assert diff.empty
    assert (diff.unchanged, diff.hashed) == (3, 0)


def test_reading_files_is_no_change_and_nothing_is_hashed(workspace: PathWorkspace) -> None:
    for name in FILES:
        (workspace.path / name).read_bytes()
    assert workspace.diff().hashed == 0


def test_added_changed_and_removed_files_are_told_apart(workspace: PathWorkspace) -> None:
    (workspace.path / "new").write_bytes(b"n")
    (workspace.path / "b/c").write_bytes(b"longer than before")
    (workspace.path / "b/d/e").unlink()
    diff = workspace.diff()
    assert summary(diff) == nothing(added=["new"], changed=["b/c"], removed=["b/d/e"])
    assert (diff.unchanged, diff.hashed) == (1, 0)
    assert not diff.empty


def test_a_change_says_where_its_bytes_are(workspace: PathWorkspace) -> None:
    (workspace.path / "b/new").write_bytes(b"1234")
    (change,) = workspace.diff().added
    assert Path(change.local).read_bytes() == b"1234"
    assert (change.path, change.size, change.mode) == ("b/new", 4, 0o644)


def test_a_change_of_the_same_size_is_found(workspace: PathWorkspace) -> None:
    with (workspace.path / "a").open("r+b") as file:
        file.write(b"ONE")
    diff = workspace.diff()
    assert summary(diff) == nothing(changed=["a"])
    assert diff.hashed == 1


def test_a_change_of_the_same_size_is_found_although_the_mtime_was_put_back(workspace: PathWorkspace) -> None:
    before = (workspace.path / "a").stat()
    (workspace.path / "a").write_bytes(b"ONE")
    os.utime(workspace.path / "a", ns=(before.st_atime_ns, before.st_mtime_ns))
    assert summary(workspace.diff()) == nothing(changed=["a"])


def test_another_file_of_the_same_size_and_time_in_its_place_is_found(workspace: PathWorkspace) -> None:
    before = (workspace.path / "a").stat()
    (workspace.path / "tmp").write_bytes(b"ONE")
    os.utime(workspace.path / "tmp", ns=(before.st_atime_ns, before.st_mtime_ns))
    (workspace.path / "tmp").rename(workspace.path / "a")
    assert summary(workspace.diff()) == nothing(changed=["a"])


def test_two_files_that_changed_places_are_found(disk_repo: Repository, put: Put, tmp_path: Path) -> None:
    put(disk_repo, {"a": b"111", "b": b"222"})
    workspace = opened(disk_repo, tmp_path / "root")
    for name in ("a", "b"):
        os.utime(workspace.path / name, ns=(5, 5))
    (workspace.path / "a").rename(workspace.path / "c")
    (workspace.path / "b").rename(workspace.path / "a")
    (workspace.path / "c").rename(workspace.path / "b")
    assert summary(workspace.diff()) == nothing(changed=["a", "b"])


def test_a_touched_or_rewritten_file_with_its_old_content_is_no_change(workspace: PathWorkspace) -> None:
    os.utime(workspace.path / "a")
    (workspace.path / "b/c").write_bytes(b"two")
    (workspace.path / "b/d/e").unlink()
    (workspace.path / "b/d/e").write_bytes(b"three")
    diff = workspace.diff()
    assert diff.empty
    assert (diff.unchanged, diff.hashed) == (3, 3)


def test_a_mode_alone_is_a_change_and_needs_no_reading(workspace: PathWorkspace) -> None:
    (workspace.path / "a").chmod(0o755)
    diff = workspace.diff()
    assert [(change.path, change.mode) for change in diff.changed] == [("a", 0o755)]
    assert diff.hashed == 0


def test_a_mode_put_back_is_no_change(workspace: PathWorkspace) -> None:
    (workspace.path / "a").chmod(0o755)
    (workspace.path / "a").chmod(0o644)
    assert workspace.diff().empty


@pytest.mark.parametrize("mode", [None, 0o644, 0o755])
def test_new_content_keeps_the_mode_the_entry_had(disk_repo: Repository, tmp_path: Path, mode: int | None) -> None:
    with disk_repo.transaction("main") as tx:
        tx.write("a", b"1", mode=mode)
    workspace = opened(disk_repo, tmp_path / "root")
    (workspace.path / "a").write_bytes(b"22")
    (change,) = workspace.diff().changed
    assert change.mode == mode


def test_a_rename_is_a_removal_and_an_addition(workspace: PathWorkspace) -> None:
    (workspace.path / "b").rename(workspace.path / "z")
    assert summary(workspace.diff()) == nothing(added=["z/c", "z/d/e"], removed=["b/c", "b/d/e"])


def test_a_file_may_become_a_directory_and_a_directory_a_file(workspace: PathWorkspace) -> None:
    (workspace.path / "a").unlink()
    (workspace.path / "a").mkdir()
    (workspace.path / "a/x").write_bytes(b"1")
    shutil.rmtree(workspace.path / "b")
    (workspace.path / "b").write_bytes(b"2")
    assert summary(workspace.diff()) == nothing(added=["a/x", "b"], removed=["a", "b/c", "b/d/e"])


def test_empty_directories_do_not_count(workspace: PathWorkspace) -> None:
    (workspace.path / "hollow/deep").mkdir(parents=True)
    assert workspace.diff().empty


def test_everything_may_be_removed(workspace: PathWorkspace) -> None:
    for child in workspace.path.iterdir():
        shutil.rmtree(child) if child.is_dir() else child.unlink()
    assert summary(workspace.diff()) == nothing(removed=["a", "b/c", "b/d/e"])


def test_paths_below_a_prefix_are_paths_of_the_tree(disk_repo: Repository, put: Put, tmp_path: Path) -> None:
    put(disk_repo, FILES)
    workspace = opened(disk_repo, tmp_path / "root", "b")
    (workspace.path / "c").unlink()
    (workspace.path / "d/e").write_bytes(b"3")
    (workspace.path / "d/f").write_bytes(b"4")
    assert summary(workspace.diff()) == nothing(added=["b/d/f"], changed=["b/d/e"], removed=["b/c"])


def test_a_hard_link_is_a_file_like_any_other(workspace: PathWorkspace) -> None:
    os.link(workspace.path / "a", workspace.path / "again")
    assert summary(workspace.diff()) == nothing(added=["again"])


def test_touched_data_in_place_is_compared_with_its_source(disk_repo: Repository, parts: Parts, tmp_path: Path) -> None:
    source = parts({"x": b"1", "y": b"2", "z": b"3"})
    with disk_repo.transaction("main") as tx:
        tx.import_in_place(source, "raw")
    workspace = opened(disk_repo, tmp_path / "root", "raw")
    os.utime(workspace.path / "x")
    (workspace.path / "y").write_bytes(b"!")
    os.utime(workspace.path / "z")
    Path(source, "z").unlink()  # no longer provable, so it is a change
    assert summary(workspace.diff()) == nothing(changed=["raw/y", "raw/z"])


# --- clocks that are too coarse ---------------------------------------------------------------------------------


def test_a_write_in_the_same_tick_as_materialising_is_found(workspace: PathWorkspace) -> None:
    """On a disk with a coarse clock size, inode, mtime and ctime can all be what they were."""
    (workspace.path / "a").write_bytes(b"ONE")
    stamp = Stamp.of((workspace.path / "a").stat())
    known = dict(workspace._known)
    known["a"] = known["a"]._replace(stamp=stamp)  # as if it had been materialised at this very tick
    workspace._known = known
    workspace._settled_ns = stamp.ctime_ns + 1
    assert workspace.diff().empty, "the metadata alone does not show it"
    workspace._settled_ns = stamp.ctime_ns  # the workspace was handed over at that tick, too
    diff = workspace.diff()
    assert summary(diff) == nothing(changed=["a"])
    assert diff.hashed == 1


def test_files_in_doubt_are_hashed_and_unchanged_if_they_are(workspace: PathWorkspace) -> None:
    workspace._settled_ns = 0
    diff = workspace.diff()
    assert diff.empty
    assert (diff.unchanged, diff.hashed) == (3, 3)


def test_a_write_right_after_materialising_is_always_found(disk_repo: Repository, put: Put, tmp_path: Path) -> None:
    put(disk_repo, {f"f{i}": b"x" for i in range(30)})
    for _ in range(5):
        workspace = opened(disk_repo, tmp_path / "root")
        with (workspace.path / "f29").open("r+b") as file:
            file.write(b"y")
        assert summary(workspace.diff()) == nothing(changed=["f29"])


# --- datasets ---------------------------------------------------------------------------------------------------


def test_an_untouched_dataset_is_no_change(with_dataset: PathWorkspace) -> None:
    assert with_dataset.diff().empty
    assert len(list((with_dataset.path / "in/d/k=1").iterdir())) == 2


def test_touched_part_files_with_their_old_content_are_no_change(with_dataset: PathWorkspace) -> None:
    for part in (with_dataset.path / "in/d/k=1").iterdir():
        os.utime(part)
    diff = with_dataset.diff()
    assert diff.empty
    assert diff.hashed == 2


def test_a_dataset_whose_directory_is_removed_is_removed_as_one(with_dataset: PathWorkspace) -> None:
    shutil.rmtree(with_dataset.path / "in/d")
    assert summary(with_dataset.diff()) == nothing(removed=["in/d/"])


def test_a_dataset_goes_with_the_directory_above_it(with_dataset: PathWorkspace) -> None:
    shutil.rmtree(with_dataset.path / "in")
    assert summary(with_dataset.diff()) == nothing(removed=["in/d/", "in/y"])


def test_a_file_may_take_the_place_of_a_removed_dataset(with_dataset: PathWorkspace) -> None:
    shutil.rmtree(with_dataset.path / "in/d")
    (with_dataset.path / "in/d").write_bytes(b"1")
    assert summary(with_dataset.diff()) == nothing(added=["in/d"], removed=["in/d/"])


def test_an_empty_dataset_is_removed_with_its_directory(disk_repo: Repository, parts: Parts, tmp_path: Path) -> None:
    with disk_repo.transaction("main") as tx:
        tx.put_dataset(parts({}), "d")
    workspace = opened(disk_repo, tmp_path / "root")
    (workspace.path / "d").rmdir()
    assert summary(workspace.diff()) == nothing(removed=["d/"])


def _change_part(root: Path) -> None:
    (root / "k=1/part-0").write_bytes(b"!")


def _add_part(root: Path) -> None:
    (root / "part-9").write_bytes(b"!")


def _remove_part(root: Path) -> None:
    (root / "k=1/part-0").unlink()


def _remove_all_parts(root: Path) -> None:
    shutil.rmtree(root / "k=1")


def _write_anew(root: Path) -> None:
    shutil.rmtree(root)
    root.mkdir()
    (root / "part-0").write_bytes(b"!")


def _chmod_part(root: Path) -> None:
    (root / "k=1/part-0").chmod(0o600)


@pytest.mark.parametrize(
    "change",
    [_change_part, _add_part, _remove_part, _remove_all_parts, _write_anew, _chmod_part],
    ids=lambda f: f.__name__,
)
def test_any_other_change_of_a_dataset_is_refused(with_dataset: PathWorkspace, change: Callable[[Path], None]) -> None:
    change(with_dataset.path / "in/d")
    with pytest.raises(ContractError, match=r"datasets change through put_dataset or a Spark workspace") as raised:
        with_dataset.diff()
    assert "in/d/" in raised.value.message


def test_a_dataset_that_is_the_workspace_cannot_change(disk_repo: Repository, parts: Parts, tmp_path: Path) -> None:
    with disk_repo.transaction("main") as tx:
        tx.put_dataset(parts({"part-0": b"1"}), "d")
    workspace = opened(disk_repo, tmp_path / "root", "d")
    (workspace.path / "part-0").unlink()
    with pytest.raises(ContractError, match="files of datasets were changed: part-0"):
        workspace.diff()


# --- what is refused --------------------------------------------------------------------------------------------


def _socket(path: Path) -> None:
    cwd = Path.cwd()
    os.chdir(path.parent)  # the name of a socket is short, the temporary directory's may not be
    try:
        with socket.socket(socket.AF_UNIX) as server:
            server.bind(path.name)
    finally:
        os.chdir(cwd)


@pytest.mark.parametrize(
    ("make", "kind"),
    [
        (lambda path: path.symlink_to("a"), "symbolic link"),
        (lambda path: path.symlink_to("b"), "symbolic link"),
        (lambda path: path.symlink_to("nowhere"), "symbolic link"),
        (lambda path: os.mkfifo(path), "fifo"),
        (_socket, "socket"),
    ],
)
@pytest.mark.parametrize("name", ["odd", "b/odd"])
def test_what_is_no_file_is_refused_by_name(
    workspace: PathWorkspace, make: Callable[[Path], None], kind: str, name: str
) -> None:
    make(workspace.path / name)
    with pytest.raises(ContractError, match=rf"{name} \({kind}\)"):
        workspace.diff()


def test_a_file_replaced_by_a_link_to_itself_elsewhere_is_refused(workspace: PathWorkspace, tmp_path: Path) -> None:
    (workspace.path / "a").rename(tmp_path / "a")
    (workspace.path / "a").symlink_to(tmp_path / "a")
    with pytest.raises(ContractError, match=r"a \(symbolic link\)"):
        workspace.diff()


def test_all_special_files_are_named_up_to_ten(workspace: PathWorkspace) -> None:
    for number in range(12):
        (workspace.path / f"link-{number:02}").symlink_to("a")
    with pytest.raises(ContractError, match=r"link-00 .*link-09 .*and 2 more"):
        workspace.diff()


@pytest.mark.parametrize("name", ["file", "workspace2/file"])
def test_files_beside_the_workspace_are_refused(workspace: PathWorkspace, name: str) -> None:
    (workspace.directory / name).parent.mkdir(exist_ok=True)
    (workspace.directory / name).write_bytes(b"1")
    with pytest.raises(ContractError, match=f"files outside the workspace: {name.split('/')[0]}"):
        workspace.diff()


def _no_workspace(workspace: PathWorkspace) -> None:
    shutil.rmtree(workspace.path)


def _no_directory(workspace: PathWorkspace) -> None:
    shutil.rmtree(workspace.directory)


def _linked_workspace(workspace: PathWorkspace) -> None:
    moved = workspace.directory.parent / "moved"
    workspace.path.rename(moved)
    workspace.path.symlink_to(moved)


def _no_marker(workspace: PathWorkspace) -> None:
    (workspace.directory / MARKER).unlink()


def _other_marker(workspace: PathWorkspace) -> None:
    (workspace.directory / MARKER).write_bytes(b"{}")


@pytest.mark.parametrize(
    "break_it", [_no_workspace, _no_directory, _linked_workspace, _no_marker, _other_marker], ids=lambda f: f.__name__
)
def test_a_broken_attempt_directory_fails_closed(
    workspace: PathWorkspace, break_it: Callable[[PathWorkspace], None]
) -> None:
    break_it(workspace)
    with pytest.raises(ContractError, match="attempt directory"):
        workspace.diff()


def test_a_workspace_swept_while_it_is_compared_does_not_look_emptied(
    workspace: PathWorkspace, monkeypatch: pytest.MonkeyPatch
) -> None:
    real = PathWorkspace._removed

    def swept(self: PathWorkspace, *args: object) -> list[str]:
        self.directory.rename(self.directory.with_name("swept"))
        return real(self, *args)  # type: ignore[arg-type]

    monkeypatch.setattr(PathWorkspace, "_removed", swept)
    with pytest.raises(ContractError, match="attempt directory"):
        workspace.diff()


@pytest.mark.parametrize(
    "name", ["new\nline", "_fl=1/x", "b/_fl=x", "cafe\u0301", b"\xff".decode(errors="surrogateescape")]
)
def test_names_the_repository_refuses_are_refused_by_name(workspace: PathWorkspace, name: str) -> None:
    (workspace.path / name).parent.mkdir(exist_ok=True)
    (workspace.path / name).write_bytes(b"1")
    with pytest.raises(InvalidName) as raised:
        workspace.diff()
    assert repr(name) in raised.value.message


def test_every_refused_name_is_named(workspace: PathWorkspace) -> None:
    for name in ("x\n", "y\n"):
        (workspace.path / name).write_bytes(b"1")
    with pytest.raises(InvalidName, match=r"(?s)x\\n.*y\\n"):
        workspace.diff()


def test_a_file_that_vanishes_meanwhile_is_a_clear_error(
    workspace: PathWorkspace, monkeypatch: pytest.MonkeyPatch
) -> None:
    os.utime(workspace.path / "a")
    real = PathWorkspace._same_content

    def vanish(self: PathWorkspace, suspect: object) -> bool:
        (self.path / "a").unlink()
        return real(self, suspect)  # type: ignore[arg-type]

    monkeypatch.setattr(PathWorkspace, "_same_content", vanish)
    with pytest.raises(ContractError, match=r"a went away .*still runs"):
        workspace.diff()


def test_a_disk_error_is_typed(workspace: PathWorkspace, monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(self: PathWorkspace, suspect: object) -> bool:
        raise OSError(5, "Input/output error")

    os.utime(workspace.path / "a")
    monkeypatch.setattr(PathWorkspace, "_same_content", fail)
    with pytest.raises(StoreError, match="comparing the workspace"):
        workspace.diff()


# --- all of it at once ------------------------------------------------------------------------------------------

NAMES = ["a", "b", "c", "d/a", "d/b", "d/e/a", "f/a"]
CONTENT = st.sampled_from([b"", b"x", b"y", b"zz"])


@settings(max_examples=40, suppress_health_check=[HealthCheck.too_slow])
@given(
    before=st.dictionaries(st.sampled_from(NAMES), CONTENT),
    after=st.dictionaries(st.sampled_from(NAMES), CONTENT),
    rewrite=st.booleans(),
)
def test_the_diff_is_the_difference(
    tmp_path_factory: pytest.TempPathFactory, before: dict[str, bytes], after: dict[str, bytes], rewrite: bool
) -> None:
    base = tmp_path_factory.mktemp("diff")
    repo = open_repository(base / "repo", create=True)
    with repo.transaction("main") as tx:
        for name, data in before.items():
            tx.write(name, data)
    workspace = opened(repo, base / "root")
    for name in before.keys() - after.keys():
        (workspace.path / name).unlink()
    for name, data in after.items():
        (workspace.path / name).parent.mkdir(parents=True, exist_ok=True)
        if rewrite or before.get(name) != data:
            (workspace.path / name).write_bytes(data)
    diff = workspace.diff()
    common = before.keys() & after.keys()
    changed = sorted(name for name in common if before[name] != after[name])
    assert summary(diff) == {
        "added": sorted(after.keys() - before.keys()),
        "changed": changed,
        "removed": sorted(before.keys() - after.keys()),
    }
    assert diff.unchanged == len(common) - len(changed)
    cleanup(workspace)
    assert not workspace.directory.exists()
    shutil.rmtree(base)


def publish(repo: Repository, diff: WorkspaceDiff) -> dict[str, tuple[bytes, int | None]]:
    """Apply a diff as an attempt does; returns what the branch then holds."""
    with repo.transaction("main") as tx:
        for path in diff.removed:
            tx.delete(path)
        for change in (*diff.added, *diff.changed):
            tx.write(change.path, Path(change.local).read_bytes(), change.mode)
    found = repo.native.entries(repo.native.resolve("main"))
    return {e.path: (b"" if e.dataset else repo.native.read(e), e.mode) for e in found}


def test_a_diff_applied_to_the_branch_is_what_the_workspace_shows(
    disk_repo: Repository, with_dataset: PathWorkspace
) -> None:
    shutil.rmtree(with_dataset.path / "in/d")
    (with_dataset.path / "in/d").write_bytes(b"a file now")
    (with_dataset.path / "x").unlink()
    (with_dataset.path / "x").mkdir()
    (with_dataset.path / "x/run").write_bytes(b"a directory now")
    (with_dataset.path / "x/run").chmod(0o755)
    (with_dataset.path / "in/y").write_bytes(b"changed")
    assert publish(disk_repo, with_dataset.diff()) == {
        "in/d": (b"a file now", 0o644),
        "in/y": (b"changed", None),
        "x/run": (b"a directory now", 0o755),
    }


# --- cleaning up ------------------------------------------------------------------------------------------------


def test_cleanup_removes_the_directory_and_may_be_repeated(workspace: PathWorkspace) -> None:
    cleanup(workspace)
    assert not workspace.directory.exists()
    cleanup(workspace)


def test_cleanup_that_fails_is_logged_and_not_raised(
    workspace: PathWorkspace, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    def refuse(*args: object, **kwargs: object) -> None:
        raise PermissionError(13, "no")

    monkeypatch.setattr(os, "unlink", refuse)
    with caplog.at_level(logging.WARNING):
        cleanup(workspace)
    assert str(workspace.directory) in caplog.text


# --- what a body is given ---------------------------------------------------------------------------------------


def test_a_workspace_says_what_it_shows(tmp_path: Path) -> None:
    workspace = Workspace(tmp_path, "c" * 64, "features")
    assert (workspace.path, workspace.commit, workspace.prefix) == (tmp_path, "c" * 64, "features")
    assert Workspace.__fenceline_workspace__ == "path-object"
    workspace.metrics.counter("rows", 3)
    assert workspace.metrics.collected() == {"rows": 3}


def test_metrics_are_collected_by_name(clock: HandClock) -> None:
    metrics = Metrics(clock)
    metrics.counter("rows.read")
    metrics.counter("rows.read", 41)
    metrics.gauge("loss", 0.5)
    metrics.gauge("loss", 0.25)
    for seconds in (3, 2):
        with metrics.timer("train"):
            clock.advance(seconds)
    collected = metrics.collected()
    assert collected == {"rows.read": 42, "loss": 0.25, "train": {"count": 2, "seconds": 5, "longest": 3}}
    assert json.loads(json.dumps(collected)) == collected


def test_a_timer_counts_a_block_that_failed(clock: HandClock) -> None:
    metrics = Metrics(clock)

    def train() -> None:
        with metrics.timer("train"):
            clock.advance(2)
            raise ValueError("no")

    with pytest.raises(ValueError, match="no"):
        train()
    assert metrics.collected() == {"train": {"count": 1, "seconds": 2, "longest": 2}}


@pytest.mark.parametrize("name", ["", "Rows", "1st", "a b", "a..b", "a.", "x" * 101, "é"])
def test_a_metric_name_that_exporters_could_not_take_is_refused(name: str) -> None:
    metrics = Metrics()
    with pytest.raises(ContractError, match="metric name"):
        metrics.counter(name)
    with pytest.raises(ContractError, match="metric name"), metrics.timer(name):
        pass
    assert metrics.collected() == {}


@pytest.mark.parametrize("value", [float("nan"), float("inf"), True, "3", None])
def test_a_metric_that_is_no_number_is_refused(value: float) -> None:
    with pytest.raises(ContractError, match="finite number"):
        Metrics().gauge("x", value)


def test_a_counter_does_not_go_down_and_a_name_has_one_kind() -> None:
    metrics = Metrics()
    with pytest.raises(ContractError, match="use a gauge"):
        metrics.counter("x", -1)
    metrics.counter("x")
    with pytest.raises(ContractError, match="x is a counter, not a gauge"):
        metrics.gauge("x", 1)
    assert metrics.collected() == {"x": 1}


def test_counters_are_exact_from_several_threads() -> None:
    metrics = Metrics()

    def count() -> None:
        for _ in range(2000):
            metrics.counter("n")

    threads = [threading.Thread(target=count) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert metrics.collected() == {"n": 8000}

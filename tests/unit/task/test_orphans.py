"""Attempt directories go with their process, and only with it."""

from __future__ import annotations

import json
import logging
import os
import signal
import subprocess
import sys
import threading
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path

import pytest

from fenceline.errors import ContractError
from fenceline.seams import Owner, Seams
from fenceline.task import orphans
from fenceline.task.orphans import MARKER, attempt_name, create_attempt, remove_attempt, sweep_orphans
from fenceline.testing import HandClock, test_seams

IDENTITY: Mapping[str, str | int] = {
    "workflow": "w-1",
    "reference": "clean",
    "seq": 3,
    "iteration": 0,
    "task_id": "t-9",
    "retry_count": 2,
}


class Killed(BaseException):
    """The sweeping process ends here."""


def owned_by(seams: Seams, pid: int) -> Seams:
    return replace(seams, owner=lambda: Owner("test", "boot", "space", pid, "1"))


@pytest.fixture
def world(clock: HandClock) -> Seams:
    """Processes below 100 are dead."""
    return test_seams(clock, dead=lambda owner: owner.pid < 100)


@pytest.fixture
def root(tmp_path: Path) -> Path:
    return tmp_path / "root"


def attempt(root: Path, seams: Seams, pid: int, execution: str = "") -> Path:
    directory, _ = create_attempt(root, execution or seams.ids.execution(), IDENTITY, owned_by(seams, pid))
    (directory / "workspace" / "deep").mkdir(parents=True)
    (directory / "workspace" / "deep" / "file").write_text("x")
    return directory


# --- names and markers ------------------------------------------------------------------------------------------


def test_the_name_carries_step_attempt_and_execution() -> None:
    assert attempt_name("0e", IDENTITY) == "attempt.w-1.clean.3.0.t-9.2.0e"


@pytest.mark.parametrize("left_out", sorted(IDENTITY))
def test_a_name_without_a_part_of_the_identity_is_refused(left_out: str) -> None:
    with pytest.raises(ContractError, match=left_out):
        attempt_name("0e", {k: v for k, v in IDENTITY.items() if k != left_out})


@pytest.mark.parametrize("hostile", ["../../etc", "a/b", "a.b", "", "é", "a\0b", "x" * 300, ".."])
def test_a_hostile_reference_is_one_safe_component(hostile: str) -> None:
    name = attempt_name("0e", {**IDENTITY, "reference": hostile})
    assert len(name.encode()) <= 255
    assert orphans._NAME.fullmatch(name)
    assert name != attempt_name("0e", {**IDENTITY, "reference": hostile + "!"})


def test_the_longest_identity_fits_a_file_name() -> None:
    longest = dict.fromkeys(IDENTITY, "z" * 500)
    assert len(attempt_name("e" * 100, longest)) <= 255 - 40


def test_names_that_were_cut_stay_apart() -> None:
    one, two = (attempt_name("0e", {**IDENTITY, "workflow": "x" * 60 + end}) for end in "ab")
    assert one != two


def test_the_marker_names_owner_execution_and_time(root: Path, world: Seams, clock: HandClock) -> None:
    directory, marker = create_attempt(root, "0e", IDENTITY, owned_by(world, 7))
    assert (directory / MARKER).read_bytes() == marker
    assert json.loads(marker) == {
        "execution": "0e",
        "created": clock.now(),
        "owner": {"host": "test", "boot": "boot", "pid_space": "space", "pid": 7, "started": "1"},
    }
    assert directory.stat().st_mode & 0o777 == 0o700


def test_a_directory_of_the_same_name_fails_closed(root: Path, world: Seams) -> None:
    directory, marker = create_attempt(root, "0e", IDENTITY, owned_by(world, 7))
    with pytest.raises(ContractError, match="exists already"):
        create_attempt(root, "0e", IDENTITY, owned_by(world, 8))
    assert (directory / MARKER).read_bytes() == marker


# --- the sweep --------------------------------------------------------------------------------------------------


def test_a_sweep_removes_the_dead_and_keeps_the_living(root: Path, world: Seams) -> None:
    dead, alive = attempt(root, world, 7), attempt(root, world, 700)
    assert sweep_orphans(root, world) == [dead]
    assert sorted(root.iterdir()) == [alive]
    assert (alive / "workspace/deep/file").read_text() == "x"


def test_a_sweep_of_no_root_finds_nothing(root: Path, world: Seams) -> None:
    assert sweep_orphans(root, world) == []


def test_a_sweep_touches_nothing_but_attempt_directories(root: Path, world: Seams, tmp_path: Path) -> None:
    marker = (attempt(root, world, 7, "aa") / MARKER).read_bytes()
    for name in ("data", "attempt.of.mine", "swept.clean", "attempt.a.b.c.d.e.f.g.h"):
        (root / name).mkdir()
        (root / name / MARKER).write_bytes(marker)
    outside = tmp_path / "outside"
    outside.mkdir()
    (outside / MARKER).write_bytes(marker)
    (root / attempt_name("bb", IDENTITY)).symlink_to(outside)
    (root / attempt_name("cc", IDENTITY)).write_text("a file")
    before = sorted(p.name for p in root.iterdir())
    assert sweep_orphans(root, world) == [root / attempt_name("aa", IDENTITY)]
    assert sorted(p.name for p in root.iterdir()) == [n for n in before if n != attempt_name("aa", IDENTITY)]
    assert (outside / MARKER).exists()


@pytest.mark.parametrize(
    "marker",
    [None, b"", b"{", b"[]", b'{"owner": {"pid": 1}}', b'{"owner": 3}', b'{"owner": null}', b"\xff\xfe"],
)
def test_an_unreadable_marker_is_reported_and_left_alone_for_an_hour(
    root: Path, world: Seams, clock: HandClock, caplog: pytest.LogCaptureFixture, marker: bytes | None
) -> None:
    directory = attempt(root, world, 7)
    (directory / MARKER).unlink()
    if marker is not None:
        (directory / MARKER).write_bytes(marker)
    clock.advance(directory.stat().st_mtime - clock.now() + 3500)
    with caplog.at_level(logging.WARNING):
        assert sweep_orphans(root, world) == []
    assert str(directory) in caplog.text
    clock.advance(200)
    assert sweep_orphans(root, world) == [directory]
    assert list(root.iterdir()) == []


def test_an_owner_of_the_wrong_types_is_no_owner(root: Path, world: Seams) -> None:
    directory = attempt(root, world, 7)
    owner = {"host": "test", "boot": "boot", "pid_space": "space", "pid": "7", "started": "1"}
    (directory / MARKER).write_text(json.dumps({"owner": owner}))
    assert orphans.read_owner(directory) is None


def test_a_marker_that_is_a_fifo_does_not_hang_the_sweep(root: Path, world: Seams) -> None:
    directory = attempt(root, world, 7)
    (directory / MARKER).unlink()
    os.mkfifo(directory / MARKER)
    assert orphans.read_owner(directory) is None


@pytest.mark.parametrize("nth", [1, 2, 3])
def test_a_sweep_killed_midway_is_finished_by_the_next(
    root: Path, world: Seams, monkeypatch: pytest.MonkeyPatch, nth: int
) -> None:
    directory = attempt(root, world, 7)
    (directory / "workspace" / "other").write_text("y")
    calls = 0

    def unlink(*args: object, **kwargs: object) -> None:
        nonlocal calls
        calls += 1
        if calls == nth:
            raise Killed
        real(*args, **kwargs)  # type: ignore[arg-type]

    real = os.unlink
    with monkeypatch.context() as patch:
        patch.setattr(os, "unlink", unlink)
        with pytest.raises(Killed):
            sweep_orphans(root, world)
    assert len(list(root.iterdir())) == 1
    assert len(sweep_orphans(root, world)) == 1
    assert list(root.iterdir()) == []


def test_an_owner_killed_while_it_cleans_up_leaves_a_marker_for_the_sweep(
    root: Path, world: Seams, monkeypatch: pytest.MonkeyPatch
) -> None:
    directory = attempt(root, world, 7)
    with monkeypatch.context() as patch:
        patch.setattr(os, "rmdir", lambda *args, **kwargs: (_ for _ in ()).throw(Killed))
        with pytest.raises(Killed):
            remove_attempt(directory)
    assert orphans.read_owner(directory) is not None
    assert sweep_orphans(root, world) == [directory]


def test_sweeps_at_once_remove_every_orphan_exactly_once(root: Path, world: Seams) -> None:
    dead = [attempt(root, world, 7) for _ in range(30)]
    alive = attempt(root, world, 700)
    removed: list[Path] = []
    failures: list[Exception] = []
    start = threading.Barrier(4)

    def sweep() -> None:
        start.wait()
        try:
            removed.extend(sweep_orphans(root, world))
        except Exception as error:  # noqa: BLE001 - reported by the test
            failures.append(error)

    threads = [threading.Thread(target=sweep) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert failures == []
    assert sorted(p for p in removed if p.name.startswith("attempt.")) == sorted(dead)
    assert list(root.iterdir()) == [alive]


def test_removing_follows_no_link_and_opens_closed_directories(root: Path, world: Seams, tmp_path: Path) -> None:
    outside = tmp_path / "outside"
    outside.mkdir()
    (outside / "precious").write_text("keep")
    directory = attempt(root, world, 7)
    (directory / "workspace" / "link").symlink_to(outside)
    (directory / "workspace" / "deep" / "file-link").symlink_to(outside / "precious")
    os.mkfifo(directory / "workspace" / "pipe")
    (directory / "workspace" / "deep").chmod(0)
    assert remove_attempt(directory)
    assert not directory.exists()
    assert (outside / "precious").read_text() == "keep"


def test_a_removal_that_fails_is_logged_and_not_raised(
    root: Path, world: Seams, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    directory = attempt(root, world, 7)

    def refuse(*args: object, **kwargs: object) -> None:
        raise PermissionError(13, "no")

    with monkeypatch.context() as patch, caplog.at_level(logging.WARNING):
        patch.setattr(os, "unlink", refuse)
        assert not remove_attempt(directory)
        assert sweep_orphans(root, world) == []
    assert str(directory) in caplog.text
    assert len(sweep_orphans(root, world)) == 1


CHILD = """
import sys
from fenceline.seams import Seams
from fenceline.task.orphans import create_attempt
seams = Seams()
identity = dict(workflow="w", reference="r", seq=1, iteration=0, task_id="t", retry_count=0)
print(create_attempt(sys.argv[1], seams.ids.execution(), identity, seams)[0], flush=True)
sys.stdin.read()
"""


def test_a_real_process_keeps_its_directory_until_it_is_killed(root: Path) -> None:
    child = subprocess.Popen(
        [sys.executable, "-c", CHILD, str(root)], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    )
    assert child.stdin
    assert child.stdout
    with child.stdin, child.stdout:
        directory = Path(child.stdout.readline().strip())
        mine, _ = create_attempt(root, "0e", IDENTITY, Seams())
        assert sweep_orphans(root, Seams()) == []
        child.send_signal(signal.SIGSTOP)  # paused is not dead
        assert sweep_orphans(root, Seams()) == []
        child.kill()
        child.wait()
    assert sweep_orphans(root, Seams()) == [directory]
    assert list(root.iterdir()) == [mine]

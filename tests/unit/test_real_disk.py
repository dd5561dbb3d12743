"""Disks that are really full, really read-only and really closed, in the middle of staging.

Each runs in a child: in a mount namespace of its own with a small tmpfs, or as another user.
"""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

COMMON = """
import json, os, subprocess, sys, time
from fenceline import open_repository
from fenceline.errors import FencelineError
from fenceline.seams import Seams, SystemClock

def report(repo, error):
    return {
        "error": type(error).__name__,
        "outcome": str(error.outcome),
        "message": str(error),
        "notes": getattr(error, "__notes__", []),
        "content": sorted(e.path for e in repo.list("main")),
        "intents": [s.state for s in repo.intents()],
    }

class AnHourLater(SystemClock):
    def now(self):
        return time.time() + 3600

def recovered(root, say):
    repo = open_repository(root, seams=Seams(clock=AnHourLater()))  # the owner lives on, so its lease decides
    say["after"] = sorted(e.path for e in repo.list("main"))
    say["left"] = [s.state for s in repo.intents()]
    say["staged"] = [i.key for area in ("files/", "trees/") for i in repo.native.objects.list(area)
                     if i.key.split("/")[1] == say["execution"]]
    say["records"] = [r.kind for r in repo.recoveries()]
    say["clean"] = repo.fsck().clean
    with repo.transaction() as tx:
        tx.write("works again", b"1")
    print(json.dumps(say))
"""

FULL = """
root = sys.argv[1] + "/repo"
repo = open_repository(root, create=True)
with repo.transaction() as tx:
    tx.write("before", b"1")
try:
    with repo.transaction() as tx:
        for n in range(10_000):
            tx.write(f"dir/{n}", os.urandom(4096))
    raise SystemExit("the disk never filled up")
except FencelineError as error:
    say = report(repo, error)
say["execution"] = tx.execution
subprocess.run(["mount", "-o", "remount,size=64m", sys.argv[1]], check=True)
recovered(root, say)
"""

READ_ONLY = """
root = sys.argv[1] + "/repo"
repo = open_repository(root, create=True)
with repo.transaction() as tx:
    tx.write("before", b"1")
try:
    with repo.transaction() as tx:
        tx.write("first", b"1")
        subprocess.run(["mount", "-o", "remount,ro", sys.argv[1]], check=True)
        tx.write("second", b"2")
    raise SystemExit("a read-only disk was written to")
except FencelineError as error:
    say = report(repo, error)
say["execution"] = tx.execution
reader = open_repository(root, "r")
say["readable"] = reader.read("main", "before").decode()
subprocess.run(["mount", "-o", "remount,rw", sys.argv[1]], check=True)
recovered(root, say)
"""

DENIED = """
root = sys.argv[1] + "/repo"
if os.getuid() == 0:  # root is refused nothing: become someone else, once everything that will be needed is imported
    import tempfile
    with tempfile.TemporaryDirectory() as elsewhere, open_repository(elsewhere, create=True).transaction() as tx:
        tx.write("warm", b"up")
    os.chown(sys.argv[1], 65534, 65534)
    os.setgid(65534)
    os.setuid(65534)
repo = open_repository(root, create=True)
with repo.transaction() as tx:
    tx.write("before", b"1")
try:
    with repo.transaction() as tx:
        tx.write("first", b"1")
        for directory, _, _ in list(os.walk(root)):
            os.chmod(directory, 0o555)
        tx.write("second", b"2")
    raise SystemExit("a closed directory was written to")
except FencelineError as error:
    say = report(repo, error)
say["execution"] = tx.execution
say["readable"] = open_repository(root, "r").read("main", "before").decode()
for directory, _, _ in list(os.walk(root)):
    os.chmod(directory, 0o755)
recovered(root, say)
"""


def run(command: list[str], script: str, directory: Path) -> dict[str, Any]:
    ended = subprocess.run(
        [*command, sys.executable, "-c", COMMON + script, str(directory)],
        capture_output=True,
        text=True,
        check=False,
        timeout=120,
    )
    assert ended.returncode == 0, ended.stderr
    found: dict[str, Any] = json.loads(ended.stdout)
    return found


@pytest.fixture
def small_disk(tmp_path: Path) -> tuple[list[str], Path]:
    """A command prefix that runs the child with a tmpfs of 2 MiB at the path."""
    if shutil.which("unshare") is None:
        pytest.skip("NOT TESTED: real full and read-only disks; `unshare` (util-linux) is not installed")
    disk = tmp_path / "disk"
    disk.mkdir()
    flags = "-m" if os.getuid() == 0 else "-rm"
    probe = subprocess.run(
        ["unshare", flags, "sh", "-c", f"mount -t tmpfs -o size=2m none '{disk}'"],
        capture_output=True,
        text=True,
        check=False,
    )
    if probe.returncode != 0:
        pytest.skip(f"NOT TESTED: real full and read-only disks; the kernel refuses namespaces: {probe.stderr.strip()}")
    mount = f"mount -t tmpfs -o size=2m none '{disk}' && exec \"$@\""
    return ["unshare", flags, "sh", "-c", mount, "sh"], disk


def assert_nothing_published_and_recoverable(say: dict[str, Any]) -> None:
    """INV-7, INV-9, INV-10."""
    assert say["outcome"] == "not_applied"
    assert say["content"] == ["before"], "nothing was published"
    assert say["after"] == ["before"], "and recovery published nothing either"
    assert say["left"] == []
    assert say["staged"] == []
    assert say["records"] == ["published", "aborted"]
    assert say["clean"]


def assert_says_that_the_intent_is_left(say: dict[str, Any]) -> None:
    assert say["intents"] == ["open"]
    (note,) = say["notes"]
    assert "nothing was published" in note
    assert say["execution"] in note
    assert "fenceline recover" in note


def test_a_disk_that_fills_up_in_the_middle_of_staging(small_disk: tuple[list[str], Path]) -> None:
    command, disk = small_disk
    say = run(command, FULL, disk)
    assert say["error"] == "StoreFull"
    assert "no room left" in say["message"]
    assert "free space" in say["message"]
    assert_nothing_published_and_recoverable(say)
    if say["intents"]:  # cleaning up found no room for its verdict either
        assert_says_that_the_intent_is_left(say)


def test_a_disk_that_becomes_read_only_in_the_middle_of_staging(small_disk: tuple[list[str], Path]) -> None:
    command, disk = small_disk
    say = run(command, READ_ONLY, disk)
    assert say["error"] == "StoreReadOnly"
    assert "read-only file system" in say["message"]
    assert say["readable"] == "1"
    assert_says_that_the_intent_is_left(say)
    assert_nothing_published_and_recoverable(say)


def test_a_directory_that_is_closed_in_the_middle_of_staging(tmp_path: Path) -> None:
    for directory in (tmp_path, *tmp_path.parents):  # the child may be another user, who must get here
        if directory.stat().st_uid == os.getuid() and directory != Path("/"):
            directory.chmod(directory.stat().st_mode | 0o011)
    place = tmp_path / "place"
    place.mkdir()
    say = run([], DENIED, place)
    assert say["error"] == "AccessDenied"
    assert "permission denied" in say["message"]
    assert say["readable"] == "1"
    assert_says_that_the_intent_is_left(say)
    assert_nothing_published_and_recoverable(say)

"""Ctrl-C in the middle of a run: it drains or hurries, the terminal is whole, and the next run goes on."""

from __future__ import annotations

import os
import pty
import signal
import subprocess
import termios
from pathlib import Path

import pytest
from run_by_command import Place, wait_until

pytestmark = pytest.mark.slow

SHOW_CURSOR, HIDE_CURSOR = "\x1b[?25h", "\x1b[?25l"


@pytest.fixture
def place(tmp_path: Path) -> Place:
    (tmp_path / "hold").touch()
    return Place(tmp_path)


def wait_for_body(place: Place) -> None:
    wait_until(lambda: "2026-01-01 songs" in place.ran(), "came to the body")


def test_interrupted_run_drains_and_the_next_goes_on(place: Place) -> None:
    with subprocess.Popen(
        place.command(),
        cwd=place.root,
        env=place.environment,
        stderr=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    ) as running:
        wait_for_body(place)
        busy = place.run(code=4).stderr
        assert f"is being run by process {running.pid} on " in busy
        running.send_signal(signal.SIGINT)
        assert running.stderr is not None
        for line in running.stderr:
            if line.startswith("stopping: what runs has 30 s to finish"):
                break
        (place.root / "hold").unlink()  # it finishes within the grace
        _, stderr = running.communicate(timeout=60)
    assert running.returncode == 130
    assert "Traceback" not in stderr
    assert "songs completed" in stderr
    assert "the same command goes on with it" in stderr
    (run,) = place.runs()
    assert (run.status, place.files()) == ("RUNNING", set())
    assert place.call("runs").stdout.splitlines()[1].split()[3] == "interrupted"
    done = place.run()
    assert f"going on with run {run.id}" in done.stderr
    assert place.ran() == ["2026-01-01 fetch", "2026-01-01 songs", "2026-01-01 total"]
    assert len(place.files()) == 3


@pytest.mark.parametrize("workers", ["0", "1"])
def test_second_interrupt_does_not_wait_for_the_body(place: Place, workers: str) -> None:
    with subprocess.Popen(
        place.command("2026-01-01", "-j", workers),
        cwd=place.root,
        env=place.environment,
        stderr=subprocess.PIPE,
        text=True,
    ) as running:
        wait_for_body(place)
        running.send_signal(signal.SIGINT)
        assert running.stderr is not None
        for line in running.stderr:
            if line.startswith("stopping:"):
                running.send_signal(signal.SIGINT)
                break
        stderr = running.stderr.read()
        assert running.wait(timeout=30) == 130
    assert "stopping at once" in stderr
    assert "Traceback" not in stderr
    assert place.files() == set()
    (place.root / "hold").unlink()
    (run,) = place.runs()
    place.call("runs", "resume", run.id[:22])
    assert place.ran().count("2026-01-01 songs") == 2
    assert len(place.files()) == 3


def test_terminal_shows_the_run_in_place_and_is_restored(place: Place) -> None:
    ours, theirs = pty.openpty()
    termios.tcsetwinsize(theirs, (30, 160))
    before = termios.tcgetattr(theirs)
    environment = {**place.environment, "TERM": "xterm-256color"}
    del environment["COLUMNS"]
    shown = ""
    with subprocess.Popen(
        place.command(), cwd=place.root, env=environment, stdin=theirs, stdout=theirs, stderr=theirs
    ) as running:
        while "body" not in shown:
            shown += os.read(ours, 65536).decode()
        wait_for_body(place)
        running.send_signal(signal.SIGINT)
        while "Ctrl-C again" not in shown:
            shown += os.read(ours, 65536).decode()
        (place.root / "hold").unlink()
        while "goes on with it" not in shown:
            shown += os.read(ours, 65536).decode()
        assert running.wait(timeout=60) == 130
    assert termios.tcgetattr(theirs) == before
    os.close(theirs)
    os.close(ours)
    assert shown.count(HIDE_CURSOR) == shown.count(SHOW_CURSOR) == 1
    assert "fetching 2026-01-01" in shown  # what a task prints stands above
    assert "✓ fetch" in shown
    assert "▶ songs" in shown
    assert "of plays on main: " in shown
    assert "Traceback" not in shown


def test_terminated_run_says_so_by_its_code_and_a_cancelled_one_ends(place: Place) -> None:
    with subprocess.Popen(place.command("2026-01-01", "--grace", "0.1"), cwd=place.root, env=place.environment) as it:
        wait_for_body(place)
        it.send_signal(signal.SIGTERM)
        assert it.wait(timeout=30) == 143
    (run,) = place.runs()
    assert place.json("runs", "cancel", run.id)["status"] == "CANCELED"
    (place.root / "hold").unlink()
    place.run()
    assert [each.status for each in place.runs()] == ["COMPLETED", "CANCELED"]

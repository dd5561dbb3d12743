"""The command line as a real process: killed, interrupted, piped, on a terminal, with a disk that fails."""

from __future__ import annotations

import contextlib
import json
import os
import pty
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

import fenceline as fl

COLOUR_SETTINGS = ("FORCE_COLOR", "TTY_COMPATIBLE", "NO_COLOR")  # they hide whether there is a terminal
FENCELINE = (sys.executable, "-m", "fenceline.cli")


class Shell:
    """Runs the command in processes of its own against one repository."""

    def __init__(self, root: Path) -> None:
        self.url = str(root / "repo")
        self.repo = fl.open_repository(self.url, create=True)

    def environment(self, failpoints: str = "", **more: str) -> dict[str, str]:
        kept = {k: v for k, v in os.environ.items() if k not in COLOUR_SETTINGS}
        return {**kept, "FENCELINE_REPO": self.url, "FENCELINE_FAILPOINTS": failpoints, **more}

    def run(
        self, *arguments: str, code: int = 0, stdin: bytes = b"", failpoints: str = ""
    ) -> subprocess.CompletedProcess[bytes]:
        done = subprocess.run(
            [*FENCELINE, *arguments],
            input=stdin,
            capture_output=True,
            env=self.environment(failpoints),
            check=False,
            timeout=60,
        )
        assert done.returncode == code, (arguments, done.returncode, done.stdout, done.stderr)
        return done

    def json(self, *arguments: str, **options: Any) -> Any:
        return json.loads(self.run(*arguments, "--json", **options).stdout)

    def kill_a_put(self, path: str, failpoint: str) -> str:
        """A writer that dies by SIGKILL at the point; returns its execution."""
        before = {status.execution for status in self.repo.intents()}
        self.run(
            "put",
            "main",
            "-",
            path,
            "--actor",
            "ana",
            code=-signal.SIGKILL,
            stdin=b"x",
            failpoints=f"{failpoint}=crash",
        )
        (execution,) = {status.execution for status in self.repo.intents()} - before
        return execution

    def quarantine_a_put(self, path: str) -> str:
        """A writer that dies sealed and whose staged bytes are then lost; returns its execution."""
        execution = self.kill_a_put(path, "verdict.seal.after")
        Path(self.url, "files", execution, path).unlink()
        return execution


@pytest.fixture
def shell(tmp_path: Path) -> Shell:
    return Shell(tmp_path)


# --- killed -----------------------------------------------------------------------------------------------------


@pytest.mark.slow
def test_recover_rolls_a_sealed_writer_forward(shell: Shell) -> None:
    execution = shell.kill_a_put("a", "verdict.seal.after")
    (status,) = shell.json("intents")
    assert (status["execution"], status["state"], status["expired"]) == (execution, "sealed", True)
    (swept,) = shell.json("recover")
    assert swept == {
        "execution": execution,
        "branch": "main",
        "class": "RolledPastExpected",
        "ending": "rolled_forward",
        "why": "",
    }
    assert shell.run("cat", "main", "a").stdout == b"x"
    (item,) = shell.json("log", "--actor", "fenceline:recovery")
    assert (item["commit"]["actor"], item["entry"]["actor"]) == ("ana", "fenceline:recovery")
    assert [r["execution"] for r in shell.json("recoveries", "--kind", "rolled_forward")] == [execution]


def test_recover_takes_an_unsealed_writer_back_and_shows_a_table(shell: Shell) -> None:
    execution = shell.kill_a_put("a", "stage.file.after")
    doctor = {found["check"]: found for found in shell.json("doctor")["findings"]}
    assert doctor["intents"]["state"] == "warn"
    assert doctor["intents"]["next_step"] == "fenceline recover finishes them"
    lines = shell.run("recover").stdout.decode().splitlines()
    assert lines[0].split() == ["execution", "branch", "class", "ending", "why"]
    assert lines[1].split()[:4] == [execution, "main", "NoMovement", "aborted"]
    assert shell.repo.head("main").seq == 1


def test_the_next_writer_mentions_what_it_finished(shell: Shell) -> None:
    shell.kill_a_put("a", "verdict.seal.after")
    done = shell.run("put", "main", "-", "b", stdin=b"y")
    assert done.stderr == b"note: finished 1 transaction of dead writers; fenceline recoveries shows how\n"
    assert {e.path for e in shell.repo.list("main")} == {"a", "b"}


@pytest.mark.slow
def test_quarantine_is_shown_and_resolved(shell: Shell) -> None:
    execution = shell.quarantine_a_put("a")
    (swept,) = shell.json("recover")
    assert (swept["class"], swept["ending"]) == ("InvariantViolation", "quarantined")
    assert shell.run("put", "main", "-", "b", stdin=b"y").stderr == (
        b"note: 1 intent in quarantine; fenceline intents shows why\n"
    )
    assert [(s["execution"], s["state"]) for s in shell.json("intents")] == [(execution, "quarantined")]
    findings = {f["check"]: f for f in shell.json("doctor", code=10)["findings"]}
    assert f"fenceline recover --resolve {execution}" in findings["quarantine"]["next_step"]
    assert [s["ending"] for s in shell.json("recover", "--resolve", execution, "--retry")] == ["quarantined"]
    (resolved,) = shell.json("recover", "--resolve", execution, "--actor", "operator")
    assert (resolved["ending"], resolved["why"]) == ("rolled_back", "given up by operator")
    assert shell.json("intents") == []
    again = shell.run("recover", "--resolve", execution, code=3)
    assert again.stderr.startswith(f"error: intent {execution} is not in quarantine\nhint: ".encode())


# --- failing disks ----------------------------------------------------------------------------------------------


def test_outcome_unknown_has_its_own_code_and_recover_decides(shell: Shell) -> None:
    failpoints = "entry.publish.before=error:EIO;entry.fence.before=error:EIO"
    done = shell.run("put", "main", "-", "a", code=8, stdin=b"x", failpoints=failpoints)
    assert b"whether it was published is not known" in done.stderr
    assert b"hint: nothing is lost" in done.stderr
    assert b"Traceback" not in done.stderr
    assert [swept["ending"] for swept in shell.json("recover")] == ["rolled_forward"]
    assert shell.repo.read("main", "a") == b"x"


def test_full_disk_is_a_store_error_in_json(shell: Shell) -> None:
    done = shell.run("put", "main", "-", "a", "--json", code=6, stdin=b"x", failpoints="stage.file.before=error:ENOSPC")
    document = json.loads(done.stderr)
    assert (document["code"], document["outcome"], done.stdout) == ("store.full", "not_applied", b"")
    assert shell.repo.head("main").seq == 1


def test_writer_that_lost_the_race_is_told_both_heads(shell: Shell) -> None:
    before = shell.repo.head("main").commit.id
    with subprocess.Popen(
        [*FENCELINE, "put", "main", "-", "a", "--json"],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        env=shell.environment(),
    ) as late:
        wait_for_intent(shell)
        with shell.repo.transaction(actor="early") as tx:
            tx.write("a", b"early")
        _, stderr = late.communicate(b"late", timeout=60)
    document = json.loads(stderr)
    assert (late.returncode, document["code"], document["paths"]) == (4, "conflict.publish", ["a"])
    assert (document["context"]["expected"], document["context"]["actual"]) == (before, tx.result.commit)
    assert shell.repo.read("main", "a") == b"early"


def test_unexpected_error_shows_its_traceback(shell: Shell) -> None:
    program = (
        "import fenceline.cli.history as h, sys\n"
        "h.reading = lambda url: 1 / 0\n"
        "from fenceline.cli.main import main\n"
        "sys.argv = ['fenceline', 'log']\n"
        "main()\n"
    )
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, env=shell.environment(), check=False)
    assert done.returncode == 1
    assert b"Traceback" in done.stderr
    assert b"ZeroDivisionError" in done.stderr


# --- interrupted and piped --------------------------------------------------------------------------------------


def wait_until(reached: Callable[[], bool], what: str) -> None:
    deadline = time.monotonic() + 30
    while not reached():
        assert time.monotonic() < deadline, f"the writer never {what}"
        time.sleep(0.01)


def wait_for_intent(shell: Shell) -> None:
    """Until a writer has begun: from here on it is built on the head it saw."""
    wait_until(lambda: any(shell.repo.intents()), "began")


def test_interrupt_ends_cleanly_and_publishes_nothing(shell: Shell) -> None:
    with subprocess.Popen(
        [*FENCELINE, "put", "main", "-", "a"],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        env=shell.environment(),
    ) as writer:
        wait_for_intent(shell)
        wait_until(lambda: any(Path(shell.url, "files").rglob("a")), "asked for bytes")
        writer.send_signal(signal.SIGINT)
        writer.wait(timeout=60)
        assert writer.stdout is not None
        assert writer.stderr is not None
        assert (writer.returncode, writer.stdout.read(), writer.stderr.read()) == (130, b"", b"interrupted\n")
    assert [record.kind for record in shell.repo.recoveries()] == ["aborted"]
    assert shell.repo.head("main").seq == 1


@pytest.mark.parametrize("unbuffered", ["", "1"])
@pytest.mark.parametrize("arguments", [("cat", "main", "big"), ("ls", "-r"), ("ls", "-r", "--json")], ids=" ".join)
def test_reader_that_goes_away_is_no_error(shell: Shell, arguments: tuple[str, ...], unbuffered: str) -> None:
    with shell.repo.transaction() as tx:
        tx.write("big", b"x" * 2_000_000)
        for number in range(2000):
            tx.write(f"some/where/deep/{number:05}-{'long' * 10}", b"")
    environment = shell.environment(PYTHONUNBUFFERED=unbuffered)
    with subprocess.Popen(
        [*FENCELINE, *arguments], stdout=subprocess.PIPE, stderr=subprocess.PIPE, env=environment
    ) as reader:
        assert reader.stdout is not None
        assert reader.stderr is not None
        assert reader.stdout.read(10)
        reader.stdout.close()
        assert reader.stderr.read() == b""
        assert reader.wait(timeout=60) == 141


# --- terminals --------------------------------------------------------------------------------------------------


@contextlib.contextmanager
def terminal() -> Iterator[tuple[int, int]]:
    """A pseudo-terminal: (what the process gets, what we read)."""
    ours, theirs = pty.openpty()
    try:
        yield theirs, ours
    finally:
        for end in (ours, theirs):
            with contextlib.suppress(OSError):
                os.close(end)


def everything_from(fd: int) -> str:
    read = b""
    with contextlib.suppress(OSError):  # the other end is closed: Linux answers EIO
        while piece := os.read(fd, 65536):
            read += piece
    return read.decode()


def test_tables_and_colours_only_on_a_terminal(shell: Shell) -> None:
    environment = shell.environment(TERM="xterm-256color", COLUMNS="120")
    with terminal() as (theirs, ours):
        subprocess.run([*FENCELINE, "log"], stdout=theirs, env=environment, check=True)
        os.close(theirs)
        shown = everything_from(ours)
    piped = shell.run("log").stdout.decode()
    assert "\x1b[" in shown
    assert "──" in shown
    assert "\x1b" not in piped
    assert "──" not in piped
    assert shell.repo.head("main").commit.id[:12] in shown


def test_progress_only_on_a_terminal(shell: Shell, tmp_path: Path) -> None:
    (tmp_path / "in").mkdir()
    for number in range(100):
        (tmp_path / "in" / str(number)).write_bytes(b"x" * 100)
    environment = shell.environment(TERM="xterm-256color")
    put = [*FENCELINE, "put", "main", str(tmp_path / "in"), "data"]
    with terminal() as (theirs, ours):
        subprocess.run(put, stdout=subprocess.DEVNULL, stderr=theirs, env=environment, check=True)
        os.close(theirs)
        shown = everything_from(ours)
    assert "uploading 100/100" in shown
    assert shell.run("get", "main", "data", str(tmp_path / "out")).stderr == b""

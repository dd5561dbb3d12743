"""Real child processes: run, kill, stop and wake them, and look at what they leave."""

from __future__ import annotations

import json
import os
import shutil
import signal
import subprocess
import sys
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import fenceline as fl
from fenceline import failpoints

HERE = Path(__file__).parent
PART = "day=1/first.parquet"


def environment(points: str = "", log: Path | None = None) -> dict[str, str]:
    plain = {k: v for k, v in os.environ.items() if k not in (failpoints.ENV, failpoints.LOG_ENV)}
    plain["PYTHONPATH"] = str(HERE)
    if points:
        plain[failpoints.ENV] = points
    if log:
        plain[failpoints.LOG_ENV] = str(log)
    return plain


def spawn(arguments: Sequence[str | Path], points: str = "", log: Path | None = None) -> subprocess.Popen[str]:
    command = [sys.executable, str(HERE / "children.py"), *map(str, arguments)]
    return subprocess.Popen(
        command, env=environment(points, log), stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    )


def run(arguments: Sequence[str | Path], points: str = "", log: Path | None = None) -> dict[str, Any]:
    """Run a child to its end; what it was told."""
    child = spawn(arguments, points, log)
    out, err = child.communicate(timeout=60)
    assert child.returncode == 0, err
    told: dict[str, Any] = json.loads(out)
    return told


def killed(arguments: Sequence[str | Path], points: str) -> bool:
    """Run a child that shall die at a failpoint; False if it never got there."""
    child = spawn(arguments, points)
    _, err = child.communicate(timeout=60)
    assert child.returncode in (0, -signal.SIGKILL), err
    return child.returncode != 0


@dataclass
class Paused:
    """A real process that a failpoint stopped with SIGSTOP."""

    child: subprocess.Popen[str]

    @classmethod
    def at(cls, point: str, arguments: Sequence[str | Path], more: str = "", every: bool = False) -> Paused:
        """Stopped the first time it passes the point; with `every`, again each further time."""
        child = spawn(arguments, f"{point}{'' if every else '@1'}=pause;{more}")
        paused = cls(child)
        running.append(paused)
        paused.wait_until_stopped()
        return paused

    def wait_until_stopped(self) -> None:
        _, status = os.waitpid(self.child.pid, os.WUNTRACED)
        if not os.WIFSTOPPED(status):
            self.child.returncode = os.waitstatus_to_exitcode(status)
            out, err = self.child.communicate()
            raise AssertionError(f"the child did not stop: {out} {err}")

    def on_to_the_next(self) -> None:
        self.child.send_signal(signal.SIGCONT)
        self.wait_until_stopped()

    def wake(self) -> dict[str, Any]:
        """Let it go on; what it was told."""
        self.child.send_signal(signal.SIGCONT)
        out, err = self.child.communicate(timeout=60)
        assert self.child.returncode == 0, err
        told: dict[str, Any] = json.loads(out)
        return told

    def kill(self) -> None:
        if self.child.returncode is None:
            self.child.kill()
            self.child.communicate()


running: list[Paused] = []


def hits(scenario: Sequence[str | Path], log: Path) -> list[str]:
    """Every point a scenario passes, in order; without those of heartbeats, which come with time."""
    log.unlink(missing_ok=True)
    run(scenario, log=log)
    return [point for point in log.read_text().split() if not point.startswith("beat.")]


def occurrences(points: Sequence[str]) -> list[str]:
    """`point@n` for each time it is passed."""
    count: Counter[str] = Counter()
    found = []
    for point in points:
        count[point] += 1
        found.append(f"{point}@{count[point]}")
    return found


def to_kill_at(points: Sequence[str]) -> list[tuple[int, str]]:
    """The occurrences to try, with their places: all of them with FENCELINE_KILLS=full.

    Else right after the first time of each effect: what is on disk then is what the next effect is killed before.
    """
    if os.environ.get("FENCELINE_KILLS") == "full":
        return list(enumerate(points))
    return [(number, point) for number, point in enumerate(points) if point.endswith(".after@1")]


def prepared(root: Path) -> Path:
    """A repository with some history, a dataset and a second branch."""
    repo = fl.open_repository(root, create=True)
    with repo.transaction("main", message="start", actor="test") as tx:
        tx.write("old/changed.txt", b"before")
        tx.write("old/removed.txt", b"before")
        parts = root.parent / "parts"
        (parts / PART).parent.mkdir(parents=True, exist_ok=True)
        (parts / PART).write_bytes(b"first")
        tx.put_dataset(str(parts), "data", partition_by=["day"])
    repo.create_branch("dev", "main", actor="test")
    with repo.transaction("dev", message="on dev", actor="test") as tx:
        tx.write("dev.txt", b"dev")
    return root


def copy(template: Path, to: Path) -> Path:
    shutil.copytree(template, to)
    return to


def content(repo: fl.Repository, ref: str = "main") -> dict[str, bytes]:
    """Every file a ref shows, part files by their name without the job's directory."""
    found = {}
    for entry in repo.list(ref):
        if entry.address:
            root, mark, rest = entry.path.partition("/_fl=")
            name = f"{root}/{rest.partition('/')[2]}" if mark else entry.path
            found[name] = repo.native.read(entry)
    return found


def state(repo: fl.Repository) -> dict[str, Any]:
    """All that must not change when nothing happens: branches, entries, records, intents."""
    return {
        "refs": {
            h.name: [(e.seq, str(e.op), e.commit, e.execution) for e in repo.entries(h.name)] for h in repo.branches()
        },
        "tags": {h.name: h.commit.id for h in repo.tags()},
        "records": sorted((r.execution, r.kind, r.entry) for r in repo.recoveries()),
        "intents": [i.execution for i in repo.intents()],
        "objects": sorted(i.key for i in repo.native.objects.list("") if not i.key.startswith(("tmp/", "hints/"))),
    }


def assert_sound(repo: fl.Repository) -> None:
    """Nothing is broken, every finished execution has one record, and no branch has a hole (INV-10, INV-13)."""
    report = repo.fsck()
    assert report.clean, report.problems
    published = [r.execution for r in repo.recoveries() if r.kind in ("published", "rolled_forward")]
    for head in repo.branches():
        moves = [e.execution for e in repo.entries(head.name) if e.execution and e.op in ("publish", "merge")]
        assert len(moves) == len(set(moves)), "an execution was published twice (R5)"
        assert [e.seq for e in repo.entries(head.name)] == list(range(head.seq, 0, -1))
        assert set(moves) <= {*published, *(i.execution for i in repo.intents())}

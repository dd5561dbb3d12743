"""The process tree of `fenceline start`, for tests."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path

HERE = Path(__file__).parent


@dataclass
class Workers:
    """Started in a directory; whatever a test does to it, it is gone in the end."""

    server: str
    directory: Path
    environment: dict[str, str] = field(default_factory=dict)
    reference: str = str(HERE / "songs_pipeline.py")
    _started: list[subprocess.Popen[bytes]] = field(default_factory=list)

    def start(self, *options: str, **environment: str) -> subprocess.Popen[bytes]:
        log = (self.directory / "workers.log").open("ab")
        command = [sys.executable, "-m", "fenceline.cli", "start", self.reference]
        place = ["--server", self.server, "--workspace-root", str(self.directory / "workspaces")]
        tree = subprocess.Popen(
            [*command, *place, *options],
            env={**os.environ, **self.environment, **environment},
            stdin=subprocess.DEVNULL,
            stdout=log,
            stderr=subprocess.STDOUT,
        )
        log.close()
        self._started.append(tree)
        return tree

    @property
    def log(self) -> str:
        return (self.directory / "workers.log").read_text()

    def children(self, tree: subprocess.Popen[bytes]) -> list[int]:
        return [int(pid) for pid in Path(f"/proc/{tree.pid}/task/{tree.pid}/children").read_text().split()]

    def stop(self) -> None:
        for tree in self._started:
            if tree.poll() is None:
                tree.send_signal(signal.SIGTERM)
                tree.send_signal(signal.SIGTERM)
                try:
                    tree.wait(30)
                except subprocess.TimeoutExpired:
                    tree.kill()
                    tree.wait()


def until(what: str, holds: Callable[[], bool], seconds: float = 60) -> None:
    """Wait for what other processes do."""
    end = time.monotonic() + seconds
    while not holds():
        assert time.monotonic() < end, f"{what}: not within {seconds} s"
        time.sleep(0.05)


def alive(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    return True

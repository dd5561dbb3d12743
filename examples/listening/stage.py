"""What both demos need: a place to work in, the fenceline command, and claims that are checked when they are made."""

from __future__ import annotations

import argparse
import os
import shlex
import shutil
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path

from rich.console import Console

from fenceline.cli.main import app

EXAMPLES = Path(__file__).resolve().parents[1]
PIPELINE = "listening.pipeline:daily"

JVM = "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC"
"""For a Spark that lives for a minute: what it would compile well, it would not use long enough."""

console = Console(highlight=False)


class DemoFailed(SystemExit):
    """Something the demo claims did not hold."""


def arguments(description: str | None, events: int) -> argparse.Namespace:
    """How many events, and where to leave what the demo makes."""
    read = argparse.ArgumentParser(description=description)
    read.add_argument("--events", type=int, default=events)
    read.add_argument("--output", type=Path, default=Path("demo-output"))
    return read.parse_args()


class Stage:
    """A repository of the demo's own, and the command line on it."""

    def __init__(self, output: Path) -> None:
        self.output = output
        if output.exists():
            shutil.rmtree(output)
        output.mkdir(parents=True)
        self.repo = output / "repository"
        os.environ.setdefault("SPARK_SUBMIT_OPTS", JVM)
        self.scratch = output / "scratch"
        self.scratch.mkdir()

    def environment(self, more: Mapping[str, str] | None = None) -> dict[str, str]:
        path = os.pathsep.join(filter(None, (str(EXAMPLES), os.environ.get("PYTHONPATH"))))
        return {**os.environ, "PYTHONPATH": path, "FENCELINE_REPO": str(self.repo), **(more or {})}

    def fenceline(self, *arguments: str, ends: int = 0) -> None:
        """Run the command on this terminal; `ends` is the exit code that it must have.

        It is called in this process, so that all of its runs share one Spark and one start of Python.
        """
        console.print(f"[dim]$ fenceline {shlex.join(arguments)}[/]")
        os.environ["FENCELINE_REPO"] = str(self.repo)
        code = 0
        try:
            app([*arguments])
        except SystemExit as ended:
            code = ended.code if isinstance(ended.code, int) else 0
        if code != ends:
            raise DemoFailed(f"fenceline {arguments[0]} ended with {code}")

    def start(self, *arguments: str, env: Mapping[str, str] | None = None) -> subprocess.Popen[str]:
        """Run it in a process of its own in the background, its output for us."""
        console.print(f"[dim]$ fenceline {shlex.join(arguments)} &[/]")
        command = [sys.executable, "-m", "fenceline.cli", *arguments]
        return subprocess.Popen(command, env=self.environment(env), stdout=subprocess.PIPE, text=True)


def chapter(title: str, text: str) -> None:
    console.print(f"\n[bold cyan]{title}[/]\n{text}")


def claim(holds: bool, text: str) -> None:
    """Print what was just verified, or end the demo."""
    if not holds:
        raise DemoFailed(f"not true: {text}")
    console.print(f"  [green]✓[/] {text}")

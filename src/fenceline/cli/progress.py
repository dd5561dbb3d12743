"""Progress on standard error, and only on a terminal."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING

from rich.live import Live
from rich.progress import BarColumn, DownloadColumn, SpinnerColumn, TextColumn, TimeElapsedColumn, TransferSpeedColumn
from rich.progress import Progress as Bars
from rich.spinner import Spinner
from rich.text import Text

from fenceline.cli.output import notes
from fenceline.repo.native.fsck import Step
from fenceline.task.result import Phase
from fenceline.txn.upload import Progress, ProgressEvent

if TYPE_CHECKING:
    from fenceline.spark.progress import OnProgress, StageProgress


@contextmanager
def transfer(doing: str) -> Iterator[Progress]:
    """A bar for bytes on their way in or out."""
    console = notes()
    columns = (TextColumn("{task.description}"), BarColumn(), DownloadColumn(), TransferSpeedColumn())
    with Bars(*columns, console=console, transient=True, disable=not console.file.isatty()) as bars:
        task = bars.add_task(doing, total=None)

        def show(event: ProgressEvent) -> None:
            files = f" {event.done}/{event.total}" if event.total else ""
            bars.update(task, description=doing + files, completed=event.done_bytes, total=event.total_bytes or None)

        yield show


@contextmanager
def counting(doing: str) -> Iterator[Step]:
    """A running count for work whose total is not known beforehand."""
    console = notes()
    columns = (SpinnerColumn(), TextColumn("{task.description}"), TimeElapsedColumn())
    with Bars(*columns, console=console, transient=True, disable=not console.file.isatty()) as bars:
        task = bars.add_task(doing, total=None)

        def show(what: str, done: int) -> None:
            bars.update(task, description=f"{doing}: {done} objects, now {what}")

        yield show


@contextmanager
def waiting(text: str) -> Iterator[None]:
    """A spinner while there is nothing to count."""
    console = notes()
    if not console.file.isatty():
        yield
        return
    with console.status(text):
        yield


@dataclass(frozen=True, slots=True)
class Shown:
    """Where an attempt tells what it does; `stage` only where there is someone to look at it."""

    phase: Callable[[Phase], None]
    stage: OnProgress | None


@contextmanager
def attempt(seen: bool) -> Iterator[Shown]:
    """The phases of an attempt, a line each; on a terminal, below them, one line that tells how far Spark is."""
    if not seen:
        yield Shown(lambda phase: None, None)
        return
    console = notes()

    def show_phase(phase: Phase) -> None:
        console.print(f"  {phase.replace('_', ' ')}", style="yellow", soft_wrap=True)

    if not console.file.isatty():
        yield Shown(show_phase, None)
        return
    spinner = Spinner("dots")

    def show_stage(stage: StageProgress) -> None:
        failed = f", {stage.failed} failed" if stage.failed else ""
        spinner.update(text=Text(f"Spark stage {stage.stage}: {stage.done} of {stage.total} tasks{failed}"))

    # what the body prints is its own
    with Live(spinner, console=console, transient=True, redirect_stdout=False, redirect_stderr=False):
        yield Shown(show_phase, show_stage)

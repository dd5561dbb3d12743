"""Progress on standard error, and only on a terminal."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from rich.progress import BarColumn, DownloadColumn, SpinnerColumn, TextColumn, TimeElapsedColumn, TransferSpeedColumn
from rich.progress import Progress as Bars

from fenceline.cli.output import notes
from fenceline.repo.native.fsck import Step
from fenceline.txn.upload import Progress, ProgressEvent


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

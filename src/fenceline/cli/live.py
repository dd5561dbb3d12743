"""The view of a run on a terminal, which stays in place while it changes."""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator
from contextlib import contextmanager

from rich.console import Console, Group
from rich.live import Live
from rich.table import Table
from rich.text import Text

from fenceline.cli.board import Board, Line, StepState
from fenceline.cli.output import one_line, short, size, span
from fenceline.seams import Signal, Threads

MARKS: dict[StepState, tuple[str, str, str]] = {
    "waiting": ("·", ".", "dim"),
    "ready": ("·", ".", ""),
    "running": ("▶", ">", "cyan"),
    "retrying": ("↻", "~", "yellow"),
    "done": ("✓", "+", "green"),
    "failed": ("✗", "x", "red"),
    "timed out": ("✗", "x", "red"),
    "cancelled": ("-", "-", "yellow"),
    "given back": ("↻", "~", "yellow"),
    "skipped": ("-", "-", "dim"),
    "not run": ("·", ".", "dim"),
}
"""For each state its mark, the mark where there is only ASCII, and its colour."""
BAR = 12
AROUND = 6
"""Lines of the terminal that are not for steps."""


class LiveView:
    """Draws a board in place. It has no thread of its own: whoever watches calls `draw`."""

    def __init__(self, console: Console) -> None:
        self._console = console
        self._live = Live(console=console, auto_refresh=False, transient=True, redirect_stdout=False)
        self._note = ""

    def __enter__(self) -> LiveView:
        self._live.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._live.stop()

    def note(self, text: str) -> None:
        self._note = text

    def draw(self, board: Board) -> None:
        about = f"run {board.run} of {board.row.name} on {board.target}: {board.progress} steps, {took(board.seconds)}"
        shown, hidden = fitting(board.lines, self._console.height - AROUND)
        parts = [_table(shown, board.now, self._console.options.ascii_only)]
        if hidden:
            parts.append(Text(hidden, style="dim"))
        parts.append(Text(about, style="dim", no_wrap=True, overflow="ellipsis"))
        if self._note:
            parts.append(Text(self._note, style="yellow"))
        self._live.update(Group(*parts), refresh=True)


def _table(lines: tuple[Line, ...], now: float, ascii_only: bool) -> Table | Text:
    table = Table.grid(padding=(0, 2))
    for justify in ("left", "left", "left", "left", "right", "left", "right", "left"):
        table.add_column(justify=justify, no_wrap=True)
    for line in lines:
        mark, plain, style = MARKS[line.state]
        seconds = line.took(now)
        table.add_row(
            Text(f"{plain if ascii_only else mark} {line.step}", style=style),
            Text(doing(line, now), style=style),
            f"attempt {line.attempt}" if line.attempt > 1 else "",
            bar(line, ascii_only),
            size(line.bytes) if line.bytes else "",
            line.guards and f"guards {line.guards}",
            took(seconds) if seconds is not None else "",
            Text(short(line.commit), style="yellow") if line.commit else "",
        )
    return table


def doing(line: Line, now: float) -> str:
    if line.state == "running" and line.phase:
        return line.phase.replace("_", " ")
    if line.state == "retrying" and line.again is not None:
        return f"again in {max(0.0, line.again - now):.0f} s"
    return line.state


def bar(line: Line, ascii_only: bool = False) -> str:
    """How far Spark is in this attempt."""
    stages, done, total = line.spark
    if not total or line.state != "running":
        return ""
    full = BAR * done // total
    on, off = ("#", "-") if ascii_only else ("━", "╌")
    return f"{on * full}{off * (BAR - full)} {done}/{total} tasks, stage {stages}"


def fitting(lines: tuple[Line, ...], room: int) -> tuple[tuple[Line, ...], str]:
    """As many lines as there is room for: those that work or failed first; and what is told of the others."""
    room = max(room, 3)
    if len(lines) <= room:
        return lines, ""
    order = {"waiting": 3, "skipped": 3, "done": 2, "ready": 1}
    kept = sorted(range(len(lines)), key=lambda at: (order.get(lines[at].state, 0), at))[:room]
    left_out = [lines[at].state for at in sorted(set(range(len(lines))) - set(kept))]
    counts = ", ".join(f"{left_out.count(state)} {state}" for state in dict.fromkeys(left_out))
    return tuple(lines[at] for at in sorted(kept)), f"and {counts}"


def took(seconds: float) -> str:
    return f"{seconds:.1f} s" if seconds < 10 else span(seconds)


# --- what else is printed meanwhile -------------------------------------------------------------------------------


@contextmanager
def terminal_apart(threads: Threads) -> Iterator[Console]:
    """The terminal for the live view alone: what tasks, Spark and worker processes print comes above it, in lines."""
    ours = sys.stdout.fileno(), sys.stderr.fileno()
    with os.fdopen(os.dup(ours[1]), "w", encoding="utf-8", errors="replace") as terminal:
        console = Console(file=terminal, markup=False, emoji=False, highlight=False)
        incoming, outgoing = os.pipe()
        with _standing_in(outgoing, ours):
            os.close(outgoing)
            over = threads.signal()
            copying = threads.start("output", lambda: _copy(incoming, console, over))
            yield console
        copying.join(0.5)  # no longer: Spark's JVM may hold the pipe for as long as this process lives
        over.set()


@contextmanager
def answers_apart() -> Iterator[int | None]:
    """Standard output for answers alone: what tasks print goes to standard error. Gives where to write answers to."""
    try:
        output, errors = sys.stdout.fileno(), sys.stderr.fileno()
    except (OSError, ValueError):  # streams that are no files, as in tests
        yield None
        return
    kept = os.dup(output)
    try:
        with _standing_in(errors, (output,)):
            yield kept
    finally:
        os.close(kept)


@contextmanager
def _standing_in(fd: int, for_these: tuple[int, ...]) -> Iterator[None]:
    _flush()
    kept = [os.dup(each) for each in for_these]
    for each in for_these:
        os.dup2(fd, each)
    try:
        yield
    finally:
        _flush()
        for each, before in zip(for_these, kept, strict=True):
            os.dup2(before, each)
            os.close(before)


def _flush() -> None:
    sys.stdout.flush()
    sys.stderr.flush()


def _copy(incoming: int, console: Console, over: Signal) -> None:
    with os.fdopen(incoming, encoding="utf-8", errors="replace") as lines:
        for line in lines:
            if over.wait(0):
                return
            console.print(one_line(line), style="dim", soft_wrap=True)

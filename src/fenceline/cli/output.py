"""What commands print: tables for people, plain columns for pipes, one JSON document for programs."""

from __future__ import annotations

import json
import sys
import unicodedata
from collections.abc import Iterable, Sequence
from datetime import UTC, datetime
from typing import NamedTuple

from rich.box import SIMPLE_HEAD
from rich.cells import cell_len
from rich.console import Console
from rich.table import Table

SHORT_ID = 12
_GAP = "  "


class Column(NamedTuple):
    title: str
    right: bool = False
    style: str = ""
    fixed: bool = False
    """Never wrapped, as ids and times are."""


class _Terminal(Console):
    """Text from a repository is never read as markup, and a reader that went away is the caller's to handle."""

    def __init__(self, *, stderr: bool) -> None:
        super().__init__(stderr=stderr, markup=False, emoji=False, highlight=False)

    def on_broken_pipe(self) -> None:
        raise BrokenPipeError


def screen() -> Console:
    """Standard output. Made anew each time, because tests and callers replace the stream."""
    return _Terminal(stderr=False)


def notes() -> Console:
    """Standard error: progress, remarks and errors."""
    return _Terminal(stderr=True)


def say(text: str, style: str = "") -> None:
    """One line to standard output, never wrapped."""
    screen().print(text, style=style, soft_wrap=True)


def remark(text: str) -> None:
    """One line to standard error: what is worth knowing but is not the answer."""
    notes().print(text, style="yellow", soft_wrap=True)


def emit(document: object) -> None:
    """One JSON document on standard output."""
    write_bytes((json.dumps(document, indent=2) + "\n").encode())


def write_bytes(data: bytes) -> None:
    """All of it to standard output: an unbuffered stream may take only a part, and says so by its answer alone."""
    sys.stdout.flush()
    left = memoryview(data)
    while left:
        left = left[sys.stdout.buffer.write(left) :]


def table(columns: Sequence[Column], rows: Iterable[Sequence[object]], to: Console | None = None) -> None:
    """A table on a terminal, aligned columns anywhere else."""
    console = to or screen()
    cells = [[one_line(_text(value)) for value in row] for row in rows]
    if console.is_terminal:
        console.print(_framed(columns, cells))
    else:
        for line in _aligned(columns, cells):
            console.print(line, soft_wrap=True)


def fields(pairs: Iterable[tuple[str, object]]) -> None:
    """Name and value, one pair per line; pairs without a value are left out."""
    shown = [(name, value) for name, value in pairs if value not in (None, "")]
    width = max((len(name) for name, _ in shown), default=0)
    for name, value in shown:
        say(f"{name:<{width}}{_GAP}{one_line(_text(value))}")


def short(commit_id: str | None) -> str:
    return commit_id[:SHORT_ID] if commit_id else "-"


def moment(seconds: float) -> str:
    """Local time to the second."""
    return datetime.fromtimestamp(seconds, UTC).astimezone().strftime("%Y-%m-%d %H:%M:%S")


def size(count: float) -> str:
    for unit in ("B", "kB", "MB", "GB"):
        if count < 1000:
            return f"{count:.0f} {unit}" if unit == "B" else f"{count:.1f} {unit}"
        count /= 1000
    return f"{count:.1f} TB"


def span(seconds: float) -> str:
    """A length of time, as precise as a person needs it."""
    for unit, length in (("d", 86400), ("h", 3600), ("min", 60)):
        if seconds >= length:
            return f"{seconds / length:.1f} {unit}"
    return f"{seconds:.0f} s"


def counted(number: int, thing: str) -> str:
    return f"{number} {thing}" if number == 1 else f"{number} {thing}s"


def one_line(text: str) -> str:
    """Text safe to print in a line: control characters, which could drive the terminal, become visible."""
    return "".join(_visible(character) for character in text.strip("\n"))


def first_line(text: str) -> str:
    return one_line(text.strip().partition("\n")[0])


def _visible(character: str) -> str:
    if unicodedata.category(character) in ("Cc", "Cs"):
        return {"\n": "⏎", "\t": " "}.get(character, f"\\x{ord(character):02x}")
    return character


def _text(value: object) -> str:
    return "-" if value is None or value == "" else str(value)


def _framed(columns: Sequence[Column], rows: Iterable[Sequence[str]]) -> Table:
    framed = Table(box=SIMPLE_HEAD, pad_edge=False)
    for column in columns:
        framed.add_column(
            column.title,
            justify="right" if column.right else "left",
            style=column.style or None,
            no_wrap=column.fixed or column.right,
            overflow="fold",
        )
    for row in rows:
        framed.add_row(*row)
    return framed


def _aligned(columns: Sequence[Column], rows: Sequence[Sequence[str]]) -> Iterable[str]:
    lines = [[column.title for column in columns], *rows]
    widths = [max(cell_len(line[n]) for line in lines) for n in range(len(columns))]
    for line in lines:
        padded = []
        for column, cell, width in zip(columns, line, widths, strict=True):
            room = " " * (width - cell_len(cell))
            padded.append(room + cell if column.right else cell + room)
        yield _GAP.join(padded).rstrip()

"""Rows that cannot be loaded, each with its file and line."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict, dataclass
from typing import Any

from fenceline.errors import GuardError
from fenceline.graph.schema.problems import brief

_SHOWN = 20


@dataclass(frozen=True, slots=True)
class BadRow:
    """One row, and what is wrong with it."""

    problem: str
    file: str | None = None
    """None: a row that is in a table already."""
    line: int | None = None
    """Of text; of Parquet the number of the row."""
    type: str | None = None
    property: str | None = None
    value: str | None = None

    def __str__(self) -> str:
        where = f"{self.file}:{self.line}: " if self.file else ""
        return f"{where}{self.problem}"

    def to_json(self) -> dict[str, Any]:
        return asdict(self)


class LoadRefused(GuardError):
    """A load with rows that cannot be read or that break rules; carries them. Nothing was published."""

    code = "guard.load"

    def __init__(self, rows: Sequence[BadRow], *, more: bool = False) -> None:
        shown = "".join(f"\n  {row}" for row in rows[:_SHOWN])
        left = len(rows) - _SHOWN
        if left > 0:
            shown += f"\n  and {left} more"
        count = (
            "a row cannot" if len(rows) == 1 and not more else f"{len(rows)}{' or more' if more else ''} rows cannot"
        )
        super().__init__(
            f"{count} be loaded:{shown}",
            hint="nothing was published; correct these rows and load again",
            rows=[str(row) for row in rows],
            more=more,
        )
        self.rows = tuple(rows)
        self.more = more


def shown(value: object) -> str | None:
    return None if value is None else brief(value)

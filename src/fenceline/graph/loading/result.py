"""What a load was asked for, and what it did."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, Literal

from fenceline.graph.spark_start import EngineName as EngineName
from fenceline.txn.transaction import TransactionResult

Mode = Literal["append", "merge", "overwrite"]
OnError = Literal["fail", "report"]
Phase = Literal["read", "check", "write", "publish"]

MOST_REPORTED = 100


@dataclass(frozen=True, slots=True)
class LoadProgress:
    """How far a load is: pieces and bytes of its input while it reads."""

    phase: Phase
    done: int = 0
    total: int = 0
    done_bytes: int = 0
    total_bytes: int = 0


OnProgress = Callable[[LoadProgress], None]


@dataclass(frozen=True, slots=True)
class TableRows:
    """What became of one table."""

    read: int
    """Rows of the input."""
    inserted: int
    updated: int
    deleted: int
    rows: int
    """In the table afterwards."""


@dataclass(frozen=True, slots=True)
class LoadResult:
    """What a load did, or would do."""

    tables: Mapping[str, TableRows]
    result: TransactionResult | None
    """None: it was a dry run."""
    engine: Literal["local", "spark"]

    @property
    def rows(self) -> int:
        return sum(each.read for each in self.tables.values())

    def to_json(self) -> dict[str, Any]:
        fields = ("read", "inserted", "updated", "deleted", "rows")
        return {
            "engine": self.engine,
            "rows": self.rows,
            "tables": {key: {name: getattr(each, name) for name in fields} for key, each in self.tables.items()},
        }

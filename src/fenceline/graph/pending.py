"""What a transaction has done to one table so far: rows in memory, over the version that it began with."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any, TypeAlias

import pyarrow as pa  # type: ignore[import-untyped]

from fenceline.errors import AlreadyExists
from fenceline.graph.constraints import Change
from fenceline.graph.schema import EdgeType, TableType, arrow_schema

Row: TypeAlias = dict[str, Any]


@dataclass(slots=True)
class Pending:
    """Statements in order have become rows that will be there, and committed rows that will not."""

    table: TableType
    rows: dict[str, Row] = field(default_factory=dict)
    gone: dict[str, Row] = field(default_factory=dict)
    """Committed rows that are deleted or replaced, as they were."""

    @property
    def changed(self) -> bool:
        return bool(self.rows or self.gone)

    @property
    def inserted(self) -> list[Row]:
        return [row for row_id, row in self.rows.items() if row_id not in self.gone]

    @property
    def replaced(self) -> list[Row]:
        return [row for row_id, row in self.rows.items() if row_id in self.gone]

    @property
    def deleted(self) -> list[str]:
        return [row_id for row_id in self.gone if row_id not in self.rows]

    def refuse_taken(self, rows: Iterable[Row]) -> None:
        """Before anything is inserted: ids that this transaction has used already, or that the statement uses twice."""
        seen: set[str] = set()
        for row in rows:
            if row["id"] in self.rows or row["id"] in seen:
                raise AlreadyExists(
                    f"{self.table.table_key} {row['id']!r} was inserted or changed before in this transaction",
                    hint="update it, or use upsert",
                )
            seen.add(row["id"])

    def put(self, row: Row, before: Row | None) -> None:
        """Set a row; `before` is the committed one that it replaces."""
        self.rows[row["id"]] = row
        if before is not None:
            self.gone.setdefault(row["id"], before)

    def remove(self, row_id: str, before: Row | None) -> None:
        self.rows.pop(row_id, None)
        if before is not None:
            self.gone.setdefault(row_id, before)

    def forget_unchanged(self) -> None:
        """A row that was replaced by its equal is no change."""
        for row_id, row in list(self.rows.items()):
            if self.gone.get(row_id) == row:
                del self.rows[row_id], self.gone[row_id]

    def change(self) -> Change:
        """For the evaluator."""
        rows, gone = list(self.rows.values()), list(self.gone.values())
        return Change(
            arrow(self.table, rows) if rows else None,
            _ends_of(self.table, gone) if gone else None,
            inserts=len(rows) > len(self.replaced),
        )


def arrow(table: TableType, rows: Iterable[Mapping[str, Any]]) -> pa.Table:
    return pa.Table.from_pylist(list(rows), schema=arrow_schema(table))


def _ends_of(table: TableType, rows: Iterable[Mapping[str, Any]]) -> pa.Table:
    names = ["id", "src"] if isinstance(table, EdgeType) else ["id"]
    schema = pa.schema([pa.field(name, pa.string()) for name in names])
    return pa.Table.from_pylist([{name: row[name] for name in names} for row in rows], schema=schema)

"""Rows of a table with a transaction's own changes over them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from fenceline.graph.engine import Engine, Relation
from fenceline.graph.lookups import lookup
from fenceline.graph.pending import Pending, Row, arrow
from fenceline.graph.pins import Pin
from fenceline.graph.predicates import Predicate, Where, predicate
from fenceline.graph.schema import NodeType, Rule
from fenceline.graph.storage import TableStore
from fenceline.graph.violations import BrokenRule, ConstraintViolations


@dataclass(frozen=True, slots=True)
class Overlaid:
    """Each row comes with the committed one that it stands for; None for rows that are new."""

    store: TableStore
    engine: Engine
    pin: Pin
    pending: Pending

    def where(self, where: Where | None) -> list[tuple[Row, Row | None]]:
        wanted = predicate(self.pending.table, where)
        committed = self._filtered(self.store.scan(self.pin, None, wanted.scan), wanted) if self.pin.rows else []
        own = list(self.pending.rows.values())
        if wanted.holds is not None:
            own = [row for row in own if wanted.holds(row)]
        elif own:
            own = self._filtered(arrow(self.pending.table, own), wanted)
        return self._joined(committed, own)

    def having(self, column: str, values: Sequence[str]) -> list[tuple[Row, Row | None]]:
        committed = lookup(self.store, self.pin, column, list(values)).to_pylist()
        wanted = set(values)
        return self._joined(committed, [row for row in self.pending.rows.values() if row[column] in wanted])

    def refuse_committed(self, ids: Sequence[str]) -> None:
        """Ids of rows inserted here that a committed row has already."""
        taken = lookup(self.store, self.pin, "id", list(ids), ["id"])["id"].to_pylist()
        taken = [each for each in taken if each not in self.pending.gone]
        if taken:
            table = self.pending.table
            keys = table.key if isinstance(table, NodeType) else ()
            text = f"@key({', '.join(keys)})" if keys else "its id is its own"
            raise ConstraintViolations(
                [BrokenRule(table.table_key, each, Rule.KEY, text, keys or ("id",), each, each) for each in taken]
            )

    def _filtered(self, rows: Relation, wanted: Predicate) -> list[Row]:
        if wanted.sql is None:
            found: list[Row] = rows.read_all().to_pylist()
            return found
        listed: list[Row] = self.engine.query(wanted.select("rows"), {"rows": rows}).to_pylist()
        return listed

    def _joined(self, committed: Sequence[Row], own: Sequence[Row]) -> list[tuple[Row, Row | None]]:
        pending = self.pending
        kept = [(row, row) for row in committed if row["id"] not in pending.rows and row["id"] not in pending.gone]
        return [*kept, *((row, pending.gone.get(row["id"])) for row in own)]

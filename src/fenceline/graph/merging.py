"""Branch merge of a graph: pins that one side changed are taken, rows that both changed are merged, rules checked.

Everything is worked out as changes to our side, so that the same evaluator checks the result as checks transactions.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from typing import Any

from fenceline.errors import NotFound
from fenceline.graph.constraints import Evaluator, Near
from fenceline.graph.deltas import delta
from fenceline.graph.engine import Relation, in_process
from fenceline.graph.lookups import lookup
from fenceline.graph.manifest import Place
from fenceline.graph.pending import Pending
from fenceline.graph.pins import Pin
from fenceline.graph.row_merge import ConflictKind, Delta, GraphConflict, Merged, merge_rows
from fenceline.graph.schema import Catalogue, Rule, TableType, arrow_schema
from fenceline.graph.snapshot import Snapshot
from fenceline.graph.staging import staged
from fenceline.graph.storage import TableStore
from fenceline.graph.violations import BrokenRule
from fenceline.repo.merge import Conflict, Strategy
from fenceline.repo.model import Commit
from fenceline.repo.native.repository import NativeRepository
from fenceline.txn.transaction import Transaction

_ROUNDS = 5
_KINDS = {
    Rule.ENDPOINTS: ConflictKind.ORPHAN_EDGE,
    Rule.UNIQUE: ConflictKind.UNIQUE,
    Rule.CARD: ConflictKind.CARDINALITY,
}


@dataclass(slots=True)
class _Table:
    """One table that they changed."""

    type: TableType
    base: Pin | None
    ours: Pin
    theirs: Pin
    pending: Pending
    own: Delta = field(default_factory=Delta)
    brought: Delta = field(default_factory=Delta)
    as_theirs: bool = False
    """Nothing of ours is in the way, so that their version is taken as it is."""


class GraphMerge:
    """The merge of the graph in one directory."""

    def __init__(
        self,
        repo: NativeRepository,
        place: Place,
        commits: tuple[Commit | None, Commit, Commit],
        strategy: Strategy | None,
    ) -> None:
        self._repo, self._place, self._strategy = repo, place, strategy
        self._base, self._ours, self._theirs = (Snapshot(_reader(repo, commit), place) for commit in commits)
        self._store, self._engine = TableStore(repo.objects), in_process()
        self._tables: dict[str, _Table] = {}
        self.conflicts: list[GraphConflict | Conflict] = []

    @property
    def paths(self) -> frozenset[str]:
        """The pins that were decided here."""
        return frozenset(self._place.pin(key) for key in self._tables)

    def run(self) -> bool:
        """Work it out; nothing is written yet. False where it is a matter of files: the graph is new, or gone."""
        catalogue = self._catalogue()
        if catalogue is None:
            return False
        for key in catalogue.table_keys():
            self._table(catalogue.table(key))
        if not self.conflicts:
            self._check(catalogue)
        return True

    def apply(self, tx: Transaction) -> None:
        """Stage what was merged, and pin it."""
        store = self._store.noting(tx.wrote)
        merged = {key: table for key, table in self._tables.items() if not table.as_theirs and table.pending.changed}
        for table in merged.values():
            tx.declare_table(table.ours.table)
        for key, table in self._tables.items():
            if table.as_theirs:
                tx.write(self._place.pin(key), table.theirs.published_after(table.ours).to_bytes())
            elif key in merged:
                tx.write(self._place.pin(key), staged(store, table.ours, table.pending).to_bytes())

    def _catalogue(self) -> Catalogue | None:
        """The schema of the result: that of the side which changed it."""
        try:
            base, ours, theirs = (each.manifest.schema for each in (self._base, self._ours, self._theirs))
        except NotFound:
            return None
        if theirs in (base, ours):
            return self._ours.catalogue
        return self._theirs.catalogue if ours == base else None

    def _table(self, table: TableType) -> None:
        key = table.table_key
        base, ours, theirs = (_pin(each, key) for each in (self._base, self._ours, self._theirs))
        if ours is None or theirs is None or _same(theirs, base) or _same(theirs, ours):
            return  # one side does not have the type, or they changed nothing: paths say enough
        found = self._tables[key] = _Table(table, base, ours, theirs, Pending(table))
        if any(self._store.schema(pin).names != arrow_schema(table).names for pin in (ours, theirs)):
            if not _same(ours, base):
                self.conflicts.append(
                    Conflict(self._place.pin(key), "its columns were changed on one side, and rows on the other")
                )
            found.as_theirs = True
            return
        found.brought = delta(self._store, self._engine, table, base, theirs)
        found.as_theirs = _same(ours, base)
        if found.as_theirs:
            merged = Merged(dict(found.brought.changed), set(found.brought.deleted))
        else:
            found.own = delta(self._store, self._engine, table, base, ours)
            both = found.own.changed.keys() & found.brought.changed.keys()
            before = {row["id"]: row for row in self._rows(base, both)}
            merged = merge_rows(key, before, found.own, found.brought, self._strategy)
        self.conflicts += merged.conflicts
        self._take(found, merged)

    def _take(self, table: _Table, merged: Merged) -> None:
        there = {row["id"]: row for row in self._rows(table.ours, {*merged.puts, *merged.removes})}
        for row_id, row in merged.puts.items():
            table.pending.put(row, there.get(row_id))
        for row_id in merged.removes:
            table.pending.remove(row_id, there.get(row_id))

    def _rows(self, pin: Pin | None, ids: Iterable[str]) -> list[dict[str, Any]]:
        rows: list[dict[str, Any]] = lookup(self._store, pin, "id", sorted(ids)).to_pylist() if pin else []
        return rows

    # --- rules on the result ------------------------------------------------------------------------------------

    def _check(self, catalogue: Catalogue) -> None:
        for _ in range(_ROUNDS):
            broken = self._broken(catalogue)
            orphans = [each for each in broken if each.rule is Rule.ENDPOINTS]
            if not orphans or self._strategy is None:
                break
            for each in orphans:
                self._settle(each)
        for each in broken:
            kind = _KINDS.get(each.rule, ConflictKind.VALUE)
            self.conflicts.append(GraphConflict(kind, each.table_key, each.id, each.properties, str(each)))

    def _broken(self, catalogue: Catalogue) -> list[BrokenRule]:
        changes = {key: table.pending.change() for key, table in self._tables.items() if table.pending.changed}
        return Evaluator(self._engine, catalogue, changes, self._committed).broken()[0]

    def _committed(self, key: str, columns: Sequence[str], near: Near | None) -> Relation:
        pin = _pin(self._ours, key) or self._theirs.pin(key)
        if near is None:
            return self._store.scan(pin, columns)
        return lookup(self._store, pin, near.column, near.values, columns)

    def _settle(self, orphan: BrokenRule) -> None:
        """An edge on one side, its node deleted on the other: the winner keeps its edge, or its deletion."""
        edges, nodes = self._tables.get(orphan.table_key), self._tables.get(f"node:{orphan.other}")
        node_id = orphan.value or ""
        if edges is not None and orphan.id in edges.pending.rows:  # their edge, our deletion
            if self._strategy == "ours":
                edges.as_theirs = False
                edges.pending.remove(orphan.id, None)
            else:
                self._bring_back(f"node:{orphan.other}", node_id)
        elif nodes is not None and node_id in nodes.pending.gone:  # our edge, their deletion
            if self._strategy == "ours":
                nodes.as_theirs = False
                nodes.pending.rows.pop(node_id, None)
                del nodes.pending.gone[node_id]
            else:
                self._drop_edge(orphan)

    def _bring_back(self, key: str, node_id: str) -> None:
        table = self._touched(key)
        for row in self._rows(table.theirs, [node_id]):
            table.as_theirs = False
            table.pending.put(row, None)

    def _drop_edge(self, orphan: BrokenRule) -> None:
        table = self._touched(orphan.table_key)
        table.as_theirs = False
        for row in self._rows(table.ours, [orphan.id]):
            table.pending.remove(orphan.id, row)

    def _touched(self, key: str) -> _Table:
        """A table that they did not change, and that the merge changes nevertheless."""
        if key not in self._tables:
            table, ours = self._ours.catalogue.table(key), self._ours.pin(key)
            self._tables[key] = _Table(table, _pin(self._base, key), ours, self._theirs.pin(key), Pending(table))
        return self._tables[key]


def _same(one: Pin | None, other: Pin | None) -> bool:
    return one is other or (
        one is not None and other is not None and (one.table, one.version) == (other.table, other.version)
    )


def _pin(snapshot: Snapshot, key: str) -> Pin | None:
    return snapshot.pin(key) if key in snapshot.manifest.tables else None


def _reader(repo: NativeRepository, commit: Commit | None) -> Callable[[str], bytes | None]:
    def read(path: str) -> bytes | None:
        entry = repo.find(commit, path) if commit is not None else None
        return None if entry is None else repo.read(entry)

    return read

"""Branch merge of a graph: its schema, then the tables that they changed, then the rules on the result.

Rows are worked out as changes to our side, so that the same evaluator checks the result as checks transactions. It
runs in this process or on Spark; see `merge_relations.py`.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, TypeVar

from fenceline.errors import NotFound
from fenceline.graph.constraints import Evaluator, Near
from fenceline.graph.engine import Relation
from fenceline.graph.manifest import Manifest, Place
from fenceline.graph.merge_relations import InProcess, MergeRelations, OnSpark
from fenceline.graph.merge_sides import Sides, Who, same, tables_of
from fenceline.graph.pins import Pin
from fenceline.graph.row_merge import ConflictKind, GraphConflict
from fenceline.graph.schema import (
    Catalogue,
    EdgeType,
    MergedSchema,
    NodeType,
    Rule,
    SchemaChangeError,
    Step,
    TableType,
    columns,
    merge_schemas,
    plan,
    render,
    schema_id,
    steps_between,
)
from fenceline.graph.schema_apply import stage_steps
from fenceline.graph.snapshot import Snapshot
from fenceline.graph.spark_start import EngineName, chosen, session_of
from fenceline.graph.storage import TableStore
from fenceline.graph.table_merge import TableMerge
from fenceline.graph.violations import BrokenRule
from fenceline.repo.merge import Strategy
from fenceline.repo.model import Commit
from fenceline.repo.native.repository import NativeRepository
from fenceline.txn.transaction import Transaction

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

MOST_IN_PROCESS = 10_000_000
"""Rows to compare, of all sides: more of them go to Spark where it can be started."""
_ROUNDS = 5
T = TypeVar("T", bound=NodeType | EdgeType)
_KINDS = {
    Rule.ENDPOINTS: ConflictKind.ORPHAN_EDGE,
    Rule.UNIQUE: ConflictKind.UNIQUE,
    Rule.CARD: ConflictKind.CARDINALITY,
}


class GraphMerge:
    """The merge of the graph in one directory."""

    def __init__(
        self,
        repo: NativeRepository,
        place: Place,
        commits: tuple[Commit | None, Commit, Commit],
        strategy: Strategy | None,
        engine: EngineName = "auto",
        session: SparkSession | None = None,
    ) -> None:
        self._place, self._strategy, self._engine, self._session = place, strategy, engine, session
        self._store = TableStore(repo.objects)
        base, ours, theirs = (Snapshot(_reader(repo, commit), place) for commit in commits)
        self._sides = Sides(self._store, base, ours, theirs)
        self._tables: dict[str, TableMerge] = {}
        self._made = MergedSchema(None, {}, {})
        self.conflicts: list[GraphConflict] = []

    @property
    def paths(self) -> frozenset[str]:
        """Every file of the graph: all of them are decided here."""
        keys = tables_of(self._sides.snapshots.values()) | set(self._made.types)
        return frozenset({self._place.manifest, self._place.schema, *(self._place.pin(key) for key in keys)})

    def run(self) -> bool:
        """Work it out; nothing is written yet. False where it is a matter of files: the graph is new, or gone."""
        try:
            made = self._made = self._merged_schema()
        except NotFound:
            return False
        if made.catalogue is None:
            return self._strategy is None  # else one side's graph is taken whole
        self._relations = self._chosen_relations(made)
        for key, token in made.types.items():
            self._table(made.catalogue.table(key), token)
        if not self.conflicts:
            self._check(made.catalogue)
        return True

    def apply(self, tx: Transaction) -> None:
        """Stage what was merged, and pin it."""
        assert self._made.catalogue is not None
        store, ours = self._store.noting(tx.wrote), self._sides.snapshots["ours"]
        pins = {key: self._staged(tx, store, key, token) for key, token in self._made.types.items()}
        kept = {key for key, token in self._made.types.items() if self._sides.key("ours", token) == key}
        for key in ours.manifest.tables:
            if key not in kept:
                tx.delete(self._place.pin(key))
        for key, pin in pins.items():
            before = self._sides.pin("ours", self._made.types[key])
            if key not in kept or not same(pin, before):
                tx.write(self._place.pin(key), pin.published_after(before).to_bytes())
        tables = {key: pin.table for key, pin in pins.items()}
        now = Manifest(schema_id(self._made.catalogue), tables, ours.manifest.published)
        if now != replace(ours.manifest, tables=dict(ours.manifest.tables)):
            tx.write(self._place.schema, render(self._made.catalogue))
            tx.write(self._place.manifest, replace(now, published=now.published + 1).to_bytes())

    # --- the schema ---------------------------------------------------------------------------------------------

    def _merged_schema(self) -> MergedSchema:
        sides = self._sides
        base, ours, theirs = (sides.schema(who) for who in ("base", "ours", "theirs"))
        made = merge_schemas(base, ours, theirs, sides.used, self._strategy)
        for clash in made.clashes:
            found = GraphConflict(ConflictKind.SCHEMA, clash.table_key, "", clash.properties, clash.detail)
            self.conflicts.append(found)
        return made

    def _steps_from_ours(self, catalogue: Catalogue) -> Sequence[Step]:
        """What our tables need to become what the merged schema says, as for any change of schema."""
        ours = self._sides.schema("ours")
        try:
            return plan(ours.catalogue, _renaming(catalogue, self._made, self._sides)).steps
        except SchemaChangeError as error:
            self.conflicts.append(GraphConflict(ConflictKind.SCHEMA, "schema", "", (), str(error)))
            return ()

    # --- rows ---------------------------------------------------------------------------------------------------

    def _chosen_relations(self, made: MergedSchema) -> MergeRelations:
        pins = [
            self._sides.pin(who, token)
            for token in made.types.values()
            if not self._sides.same("theirs", "base", token)
            for who in ("base", "ours", "theirs")
        ]
        rows = sum(pin.rows for pin in pins if pin is not None)
        if chosen(self._engine, rows, MOST_IN_PROCESS, self._session) == "local":
            return InProcess(self._store)
        return OnSpark(self._store, session_of(self._session))

    def _table(self, table: TableType, token: str) -> None:
        if self._sides.pin("theirs", token) is None or self._sides.same("theirs", "base", token):
            return  # they changed nothing
        if not self._sides.same("theirs", "ours", token):
            said = {each.properties for each in self._made.clashes if each.table_key == table.table_key}
            found = self._touched(table, token).compare(self._strategy)
            self.conflicts += [each for each in found if not each.properties or each.properties not in said]

    def _touched(self, table: TableType, token: str) -> TableMerge:
        key = table.table_key
        if key not in self._tables:
            names = self._made.properties[token]
            base, ours, theirs = (self._sides.version(who, token, names) for who in ("base", "ours", "theirs"))
            self._tables[key] = TableMerge(self._relations, table, token, base, ours, theirs)
        return self._tables[key]

    def _unchanged(self, catalogue: Catalogue, key: str) -> TableMerge:
        """A table whose rows they did not change, and that the merge looks at or changes nevertheless."""
        if key not in self._tables:
            made = self._touched(catalogue.table(key), self._made.types[key])
            made.theirs, theirs = made.base, made.theirs
            made.compare(self._strategy)
            made.theirs, made.as_theirs = theirs, False
        return self._tables[key]

    # --- rules on the result ------------------------------------------------------------------------------------

    def _check(self, catalogue: Catalogue) -> None:
        for step in self._steps_from_ours(catalogue):
            if step.effect is step.effect.CHECKS:
                table = catalogue.table(step.on)
                self._unchanged(catalogue, step.on).whole = True
                if step.constraint is not None and step.constraint.rule is Rule.CARD:
                    self._unchanged(catalogue, f"node:{getattr(table, 'source', '')}").whole = True
        for _ in range(_ROUNDS):
            broken = self._broken(catalogue)
            orphans = [each for each in broken if each.rule is Rule.ENDPOINTS]
            if not orphans or self._strategy is None or not self._settle(catalogue, orphans):
                break
        for each in broken:
            kind = _KINDS.get(each.rule, ConflictKind.VALUE)
            self.conflicts.append(GraphConflict(kind, each.table_key, each.id, each.properties, str(each)))

    def _broken(self, catalogue: Catalogue) -> list[BrokenRule]:
        changes = {key: table.change() for key, table in self._tables.items()}
        return Evaluator(self._relations.engine, catalogue, changes, self._committed).broken()[0]

    def _committed(self, key: str, named: Sequence[str], near: Near | None) -> Relation:
        token = self._made.types[key]
        ours = self._sides.version("ours", token, self._made.properties[token])
        catalogue = self._made.catalogue
        assert catalogue is not None
        return self._relations.rows(ours, catalogue.table(key), named, near)

    def _settle(self, catalogue: Catalogue, orphans: Sequence[BrokenRule]) -> bool:
        """An edge on one side, its node deleted on the other: the winner keeps its edge, or its deletion."""
        done = False
        for edge_key, node_key in dict.fromkeys((each.table_key, f"node:{each.other}") for each in orphans):
            ends = {each.id: each.value or "" for each in orphans if each.table_key == edge_key and each.other}
            edges, nodes = self._unchanged(catalogue, edge_key), self._unchanged(catalogue, node_key)
            theirs = edges.having(ends)  # their edges, our deletions
            deleted = nodes.removing(end for edge, end in ends.items() if edge not in theirs)
            ours = [edge for edge, end in ends.items() if edge not in theirs and end in deleted]
            if self._strategy == "ours":
                if theirs:
                    edges.leave(theirs)
                if deleted:
                    nodes.leave(deleted)
            else:
                if theirs:
                    nodes.put(nodes.their_rows({ends[edge] for edge in theirs}))
                if ours:
                    edges.remove(ours)
            done = done or bool(theirs or ours)
        return done

    # --- staging ------------------------------------------------------------------------------------------------

    def _staged(self, tx: Transaction, store: TableStore, key: str, token: str) -> Pin:
        """The version to pin."""
        assert self._made.catalogue is not None
        table, merged = self._made.catalogue.table(key), self._tables.get(key)
        ours, theirs = self._sides.pin("ours", token), self._sides.pin("theirs", token)
        if ours is None or (merged is not None and merged.as_theirs):
            assert theirs is not None
            return self._carried(tx, store, theirs, "theirs", token, table)
        pin = self._carried(tx, store, ours, "ours", token, table)
        if merged is not None and merged.changed:
            tx.declare_table(pin.table)
            pin = merged.relations.staged(store, pin, table, merged.puts, merged.removes, merged.gone)
        return pin

    def _carried(self, tx: Transaction, store: TableStore, pin: Pin, who: Who, token: str, table: TableType) -> Pin:
        """A side's version with the merged type's columns."""
        was, names = self._sides.type(who, token), self._sides.version(who, token, self._made.properties[token])
        assert was is not None
        assert names is not None
        if columns(was) == columns(table) and names.as_they_are(table, columns(table)) and was.index == table.index:
            return pin
        tx.declare_table(pin.table)
        return stage_steps(store, pin, table, steps_between(was, _from(table, names.names)))


def _from(table: T, names: Mapping[str, str]) -> T:
    """The type with a note at each property of what it was called."""
    properties = tuple(
        replace(each, rename_from=names[each.name]) if names.get(each.name, each.name) != each.name else each
        for each in table.properties
    )
    return replace(table, properties=properties)


def _renaming(catalogue: Catalogue, made: MergedSchema, sides: Sides) -> Catalogue:
    """The merged schema with a note at each type and property of what it is called on our side."""

    def of(table: T) -> T:
        token = made.types[table.table_key]
        version, before = sides.version("ours", token, made.properties[token]), sides.type("ours", token)
        if version is None or before is None:
            return table
        named = _from(table, version.names)
        return named if before.name == table.name else replace(named, rename_from=before.name)

    return Catalogue(catalogue.interfaces, tuple(map(of, catalogue.nodes)), tuple(map(of, catalogue.edges)))


def _reader(repo: NativeRepository, commit: Commit | None) -> Callable[[str], bytes | None]:
    def read(path: str) -> bytes | None:
        entry = repo.find(commit, path) if commit is not None else None
        return None if entry is None else repo.read(entry)

    return read

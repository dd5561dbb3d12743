"""The one evaluator of a schema's rules: transactions, loads and merges all ask it, on either engine.

It looks at what changed and at the committed rows that this can collide with, never at more: what was published
before kept the rules.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import pyarrow as pa  # type: ignore[import-untyped]

from fenceline.graph import checks
from fenceline.graph.engine import Engine, Relation
from fenceline.graph.schema import Catalogue, Constraint, EdgeType, NodeType, Rule, TableType, constraints
from fenceline.graph.violations import BrokenRule, ConstraintViolations

MOST = 1_000
"""Rows that a report lists."""


@dataclass(frozen=True, slots=True)
class Change:
    """What becomes of one table."""

    pending: Relation | None
    """Rows that are new, or new in part, with all their columns."""
    gone: Relation | None = None
    """The committed rows that are deleted or replaced: `id`, and of edges `src`."""
    inserts: bool = True
    """Whether any of the pending rows is new."""


@dataclass(frozen=True, slots=True)
class Near:
    """Only committed rows with one of these values in a column are needed. More of them do no harm."""

    column: str
    values: Relation


Committed = Callable[[str, Sequence[str], Near | None], Relation]
"""The committed rows of a table (by its key): some columns, and perhaps only those near some values."""


@dataclass(slots=True)
class _Lookup:
    """All that the checks ask of one table by one column, so that it is read once."""

    name: str
    columns: dict[str, None] = field(default_factory=dict)
    values: list[tuple[Relation, str]] = field(default_factory=list)
    """Columns of what changed, by relation and name."""

    def add(self, columns: Sequence[str], values: Sequence[tuple[Relation, str]]) -> None:
        self.columns.update(dict.fromkeys(columns))
        self.values += [each for each in values if not any(each[0] is v[0] and each[1] == v[1] for v in self.values)]


@dataclass(slots=True)
class _Query:
    """A query as it is put together: each rule adds a SELECT, and the relations that it reads."""

    relations: dict[str, Relation] = field(default_factory=dict)
    selects: list[str] = field(default_factory=list)
    told: list[tuple[str, Constraint, tuple[str, ...]]] = field(default_factory=list)

    def relation(self, relation: Relation) -> str:
        known = next((each for each, other in self.relations.items() if other is relation), None)
        if known is None:
            known = f"r{len(self.relations)}"
            self.relations[known] = relation
        return known

    def add(self, select: str, table_key: str, rule: Constraint, properties: tuple[str, ...] | None = None) -> None:
        self.selects.append(select)
        self.told.append((table_key, rule, rule.columns if properties is None else properties))

    def tell(self, row: Mapping[str, Any]) -> BrokenRule:
        table_key, rule, properties = self.told[row["n"]]
        return BrokenRule(table_key, row["id"], rule.rule, rule.text, properties, row["value"], row["other"])


class Evaluator:
    """Checks one set of changes."""

    def __init__(
        self,
        engine: Engine,
        catalogue: Catalogue,
        changes: Mapping[str, Change],
        committed: Committed,
        *,
        cascaded: bool = False,
    ) -> None:
        self._engine, self._catalogue, self._changes = engine, catalogue, changes
        self._committed = committed
        self._cascaded = cascaded
        self._query = _Query()
        self._lookups: dict[tuple[str, str], _Lookup] = {}

    def broken(self, most: int = MOST) -> tuple[list[BrokenRule], bool]:
        """Every row that breaks a rule, and whether there are more than `most` of them."""
        for key, change in self._changes.items():
            table = self._catalogue.table(key)
            if change.pending is not None:
                self._of_rows(table, change)
            if isinstance(table, NodeType) and change.gone is not None and not self._cascaded:
                self._edges_left_behind(table, change)
        for edge in self._catalogue.edges:
            self._cardinality(edge)
        query = self._query
        if not query.selects:
            return [], False
        for (key, column), asked in self._lookups.items():
            near = Near(column, self._engine.values(asked.values))
            relation = self._committed(key, tuple(asked.columns), near)
            again = relation.read_all() if isinstance(relation, pa.RecordBatchReader) else relation
            query.relations[asked.name] = again
        rows = self._engine.records(checks.all_of(query.selects, most + 1), query.relations)
        return [query.tell(row) for row in rows[:most]], len(rows) > most

    # --- rules --------------------------------------------------------------------------------------------------

    def _of_rows(self, table: TableType, change: Change) -> None:
        pending = self._query.relation(change.pending)
        for rule in constraints(table):
            if rule.rule in (Rule.REQUIRED, Rule.ENUM, Rule.RANGE, Rule.CHECK):
                of = table.property(rule.columns[0])
                self._query.add(checks.of_one_row(rule, of, pending), table.table_key, rule)
            elif rule.rule is Rule.UNIQUE:
                first = rule.columns[0]
                live = self._live(table.table_key, ["id", *rule.columns], first, [(change.pending, first)])
                self._query.add(checks.not_unique(rule.columns, pending, live), table.table_key, rule)
        self._ids(table, change, pending)
        if isinstance(table, EdgeType):
            self._ends(table, change, pending)

    def _ids(self, table: TableType, change: Change, pending: str) -> None:
        keys = table.key if isinstance(table, NodeType) else ()
        rule = Constraint(Rule.KEY, keys or ("id",), f"@key({', '.join(keys)})" if keys else "its id is its own")
        self._query.add(checks.equal_ids(pending), table.table_key, rule)
        if change.inserts:
            there = self._staying(table.table_key, ["id"], "id", [(change.pending, "id")])
            self._query.add(checks.taken_ids(pending, there), table.table_key, rule)

    def _ends(self, edge: EdgeType, change: Change, pending: str) -> None:
        for column, node in (("src", edge.source), ("dst", edge.target)):
            nodes = self._live(f"node:{node}", ["id"], "id", [(change.pending, column)])
            select = checks.without_end(column, node, pending, nodes)
            self._query.add(select, edge.table_key, _endpoints(edge), (column,))

    def _edges_left_behind(self, node: NodeType, change: Change) -> None:
        gone = self._query.relation(change.gone)
        deleted = checks.deleted(gone, None if change.pending is None else self._query.relation(change.pending))
        for edge in self._catalogue.edges_at(node.name):
            for column, end in (("src", edge.source), ("dst", edge.target)):
                if end == node.name:
                    edges = self._staying(edge.table_key, ["id", column], column, [(change.gone, "id")])
                    select = checks.left_behind(column, node.name, edges, deleted)
                    self._query.add(select, edge.table_key, _endpoints(edge), (column,))

    def _cardinality(self, edge: EdgeType) -> None:
        rule = next((each for each in constraints(edge) if each.rule is Rule.CARD), None)
        if rule is None:
            return
        own, source = self._changes.get(edge.table_key), self._changes.get(f"node:{edge.source}")
        touched = [(own.pending, "src")] if own and own.pending is not None else []
        if rule.low:  # fewer edges, and more nodes, matter only then
            touched += [(own.gone, "src")] if own and own.gone is not None else []
            touched += [(source.pending, "id")] if source and source.pending is not None else []
        if not touched:
            return
        ids = checks.ids([(self._query.relation(relation), column) for relation, column in touched])
        edges = self._live(edge.table_key, ["id", "src"], "src", touched)
        nodes = self._live(f"node:{edge.source}", ["id"], "id", touched) if rule.low else None
        self._query.add(checks.wrong_count(rule, edge.name, ids, edges, nodes), f"node:{edge.source}", rule, ())

    # --- relations ----------------------------------------------------------------------------------------------

    def _staying(self, key: str, columns: Sequence[str], near: str, values: Sequence[tuple[Relation, str]]) -> str:
        """Committed rows that are not gone, at least those whose column `near` has one of the values."""
        asked = self._lookups.setdefault((key, near), _Lookup(f"c{len(self._lookups)}"))
        asked.add(columns, values)
        change = self._changes.get(key)
        gone = self._query.relation(change.gone) if change and change.gone is not None else None
        return checks.staying(columns, asked.name, gone)

    def _live(self, key: str, columns: Sequence[str], near: str, values: Sequence[tuple[Relation, str]]) -> str:
        """The same, and the pending rows: all that will be there."""
        staying = self._staying(key, columns, near, values)
        change = self._changes.get(key)
        if change is None or change.pending is None:
            return staying
        return checks.with_pending(columns, staying, self._query.relation(change.pending))


def check(
    engine: Engine, catalogue: Catalogue, changes: Mapping[str, Change], committed: Committed, *, cascaded: bool = False
) -> None:
    """Raise `ConstraintViolations` with everything that is broken. `cascaded`: deleting nodes deleted their edges."""
    broken, more = Evaluator(engine, catalogue, changes, committed, cascaded=cascaded).broken()
    if broken:
        raise ConstraintViolations(broken, more=more)


def _endpoints(edge: EdgeType) -> Constraint:
    return next(rule for rule in constraints(edge) if rule.rule is Rule.ENDPOINTS)

"""A change of schema carried out: the steps of its plan as one transaction, after the data was asked.

Other branches keep their schema. What a step drops is gone from the branch's head only: history still reads it.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import pyarrow as pa  # type: ignore[import-untyped]

from fenceline.errors import ContractError
from fenceline.graph import table_fields
from fenceline.graph.bulk import Bulk, published
from fenceline.graph.constraints import Change, Evaluator, Near
from fenceline.graph.engine import Engine, Relation, in_process
from fenceline.graph.graph import Graph
from fenceline.graph.manifest import Manifest
from fenceline.graph.pins import Pin
from fenceline.graph.schema import (
    Catalogue,
    EdgeType,
    Op,
    Rule,
    SchemaPlan,
    Step,
    TableType,
    arrow_schema,
    parse,
    plan,
    render,
    schema_id,
    settled,
)
from fenceline.graph.storage import TableStore
from fenceline.graph.table_columns import AddColumn, ChangeColumn, ColumnChange, DropColumn, stage_columns
from fenceline.graph.violations import ConstraintViolations
from fenceline.txn.transaction import TransactionResult


class DataLoss(ContractError):
    """A change of schema that would lose data, without leave to do so."""

    code = "schema.data_loss"


@dataclass(frozen=True, slots=True)
class SchemaChange:
    """A change that was made."""

    plan: SchemaPlan
    result: TransactionResult


def plan_schema(graph: Graph, schema: str, ref: str | None = None) -> SchemaPlan:
    """What `apply_schema` would do. Nothing is changed."""
    return plan(graph.at(ref or graph.branch).schema, parse(schema))


def apply_schema(
    graph: Graph,
    schema: str,
    *,
    allow_data_loss: bool = False,
    actor: str | None = None,
    key: str | None = None,
    message: str = "",
) -> SchemaChange:
    """Make the graph's schema what the text says. Data that breaks a new rule is named, row by row."""
    wanted, made = parse(schema), list[SchemaPlan]()

    def work(bulk: Bulk) -> None:
        steps = plan(bulk.snapshot.catalogue, wanted)
        made[:] = [steps]
        if steps.loses_data and not allow_data_loss:
            lost = "".join(f"\n  - {step}" for step in steps.steps if step in steps.having(step.effect.LOSES))
            raise DataLoss(f"this change of schema loses data:{lost}", hint="say --allow-data-loss if it is meant")
        if not steps.empty:
            _Applying(bulk, settled(wanted), steps, graph).run()

    result = published(graph, work, actor=actor, key=key, message=message or "Change the schema")
    return SchemaChange(made[0] if made else plan_schema(graph, schema), result)


class _Applying:
    """One try of a change."""

    def __init__(self, bulk: Bulk, new: Catalogue, steps: SchemaPlan, graph: Graph) -> None:
        self._bulk, self._new, self._plan, self._graph = bulk, new, steps, graph
        self._manifest = bulk.snapshot.manifest
        self._tables = dict(self._manifest.tables)
        self._pins: dict[str, Pin] = {}

    def run(self) -> None:
        self._types()
        for key in self._new.table_keys():
            steps = [step for step in self._plan.steps if step.on == key]
            if key in self._pins or any(step.op in _TOUCHING for step in steps):
                self._columns(key, steps)
        check(in_process(), self._new, self._plan.checks, self._bulk.store, self._pin)
        for key, pin in self._pins.items():
            base = self._bases.get(key)
            self._bulk.tx.write(self._bulk.place.pin(key), pin.published_after(base).to_bytes())
        tx, place = self._bulk.tx, self._bulk.place
        tx.write(place.schema, render(self._new))
        now = Manifest(schema_id(self._new), self._tables, self._manifest.published + 1)
        tx.write(place.manifest, now.to_bytes())

    @property
    def _bases(self) -> dict[str, Pin]:
        """What each table was pinned to before, by its name of now."""
        was = {step.on: _named(step.on, step.before) for step in self._plan.steps if step.op is Op.RENAME_TYPE}
        known = self._manifest.tables
        return {key: self._bulk.snapshot.pin(was.get(key, key)) for key in self._tables if was.get(key, key) in known}

    def _types(self) -> None:
        bulk = self._bulk
        moved: dict[str, Pin] = {}
        for step in self._plan.steps:
            if step.op is Op.DROP_TYPE:
                bulk.tx.delete(bulk.place.pin(step.on))
                del self._tables[step.on]
            elif step.op is Op.RENAME_TYPE:
                old = _named(step.on, step.before)
                moved[step.on] = bulk.snapshot.pin(old)
                bulk.tx.delete(bulk.place.pin(old))
        for key in moved:
            old = next(_named(s.on, s.before) for s in self._plan.steps if s.op is Op.RENAME_TYPE and s.on == key)
            self._tables.pop(old, None)
        for key, pin in moved.items():
            self._tables[key] = pin.table
            self._pins[key] = pin
        for step in self._plan.steps:
            if step.op is Op.ADD_TYPE:
                table = self._graph._repo.seams.ids.execution()
                bulk.tx.declare_table(table)
                self._tables[step.on] = table
                self._pins[step.on] = bulk.store.create(table, arrow_schema(self._new.table(step.on)))

    def _columns(self, key: str, steps: Sequence[Step]) -> None:
        pin = self._pin(key)
        self._bulk.tx.declare_table(pin.table)
        self._pins[key] = stage_steps(self._bulk.store, pin, self._new.table(key), steps)

    def _pin(self, key: str) -> Pin:
        return self._pins[key] if key in self._pins else self._bulk.snapshot.pin(key)


def stage_steps(store: TableStore, pin: Pin, table: TableType, steps: Sequence[Step]) -> Pin:
    """The table's columns as its new type has them, after the steps that lead there; in one more version each."""
    schema: pa.Schema = arrow_schema(table)
    for step in steps:
        if step.op is Op.DROP_INDEX:
            for index in [each for each in pin.indices if each.column == step.property]:
                pin = store.stage_drop_index(pin, index.name)
        for change in _changes(step, schema, store.schema(pin)):
            pin = stage_columns(store, pin, [change])
    return _in_order(store, pin, schema)


_TOUCHING = (Op.DROP_PROPERTY, Op.RENAME_PROPERTY, Op.ADD_PROPERTY, Op.CHANGE_TYPE, Op.REORDER, Op.DROP_INDEX)


def _changes(step: Step, new: pa.Schema, now: pa.Schema) -> Sequence[ColumnChange]:
    name = step.property or ""
    if step.op is Op.DROP_PROPERTY:
        return [DropColumn(name)]
    if step.op is Op.RENAME_PROPERTY:
        return [ChangeColumn(step.before or "", now.field(step.before or "").with_name(name))]
    if step.op is Op.ADD_PROPERTY:
        return [AddColumn(new.field(name))]
    if step.op is Op.CHANGE_TYPE and now.field(name).type != new.field(name).type:
        return [ChangeColumn(name, new.field(name))]
    return []


def _in_order(store: TableStore, pin: Pin, schema: pa.Schema) -> Pin:
    if store.schema(pin).names == schema.names:
        return pin
    fields = {field.name: field for field in table_fields.trees(store.field_messages(pin))}
    return store.stage_fields(pin, [fields[name] for name in schema.names])


def check(
    engine: Engine, catalogue: Catalogue, steps: Sequence[Step], store: TableStore, pin_of: Callable[[str], Pin]
) -> None:
    """Ask the data about every step that needs it: all rows of the tables, as if they were new."""
    asked: set[str] = set()
    for step in steps:
        table = catalogue.table(step.on)
        if step.constraint is None and pin_of(step.on).rows:
            raise ContractError(f"{step}: {table.name} has {pin_of(step.on).rows} rows", hint=step.note)
        if step.constraint is not None:
            asked.add(step.on)
            if step.constraint.rule is Rule.CARD and isinstance(table, EdgeType):
                asked.add(f"node:{table.source}")
    changes: dict[str, Change] = {}
    for key in asked:
        pin = pin_of(key)
        if pin.rows:
            rows = store.scan(pin, arrow_schema(catalogue.table(key)).names).read_all()
            changes[key] = Change(rows, rows, inserts=False)

    def committed(key: str, columns: Sequence[str], _: Near | None) -> Relation:
        return store.scan(pin_of(key), columns).read_all()

    broken, more = Evaluator(engine, catalogue, changes, committed, cascaded=True).broken()
    if broken:
        raise ConstraintViolations(broken, more=more)


def _named(key: str, name: str | None) -> str:
    """The table key of a type's earlier name."""
    return f"{key.partition(':')[0]}:{name}"

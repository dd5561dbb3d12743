"""What a schema change does to the columns of a table. Only a cast and an added value write data."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

import pyarrow as pa  # type: ignore[import-untyped]

from fenceline.errors import ContractError
from fenceline.graph import table_fields
from fenceline.graph.pins import Pin
from fenceline.graph.storage import TableStore
from fenceline.graph.table_fields import FieldTree

_DURING_CAST = "__fenceline_cast"


@dataclass(frozen=True, slots=True)
class AddColumn:
    """A new column: null in every row there is, or one value in all of them."""

    field: pa.Field
    value: Any = None


@dataclass(frozen=True, slots=True)
class DropColumn:
    name: str


@dataclass(frozen=True, slots=True)
class ChangeColumn:
    """The column as `field` says from now on: its name, its type (values are cast, never cut), may it be null."""

    name: str
    field: pa.Field


ColumnChange = AddColumn | DropColumn | ChangeColumn


def stage_columns(store: TableStore, pin: Pin, changes: Iterable[ColumnChange]) -> Pin:
    """One version after all changes, in order. Indices of renamed columns stay, those of dropped and cast ones go."""
    for change in changes:
        if isinstance(change, AddColumn):
            pin = _add(store, pin, change)
        elif isinstance(change, DropColumn):
            pin = store.stage_fields(pin, table_fields.replaced(_fields(store, pin), change.name, None))
        else:
            pin = _change(store, pin, change)
    return pin


def _add(store: TableStore, pin: Pin, change: AddColumn) -> Pin:
    new, fields = change.field, _fields(store, pin)
    _refuse_taken(fields, new.name)
    if not pin.rows or change.value is None:
        if not new.nullable and pin.rows:
            raise ContractError(
                f"{new.name!r} may not be null, and {pin.rows} rows have no value for it", hint="give a value"
            )
        return store.stage_fields(pin, [*fields, store.fresh_field_messages(pin, new)])
    value = pa.scalar(change.value, new.type)
    pin = store.stage_computed(pin, fields[0].name, new.name, lambda column: pa.repeat(value, len(column)))
    *others, added = _fields(store, pin)
    return pin if new.nullable else store.stage_fields(pin, [*others, _as_said(added, new)])


def _change(store: TableStore, pin: Pin, change: ChangeColumn) -> Pin:
    name, new, fields = change.name, change.field, _fields(store, pin)
    if new.name != name:
        _refuse_taken(fields, new.name)
    same = table_fields.named(fields, name)
    if store.schema(pin).field(name).type == new.type:
        return store.stage_fields(pin, table_fields.replaced(fields, name, _as_said(same, new)))
    if pin.fragments:
        pin = store.stage_computed(pin, name, _DURING_CAST, lambda column: column.cast(new.type))
        *fields, cast = _fields(store, pin)
    else:
        cast = store.fresh_field_messages(pin, new)
    return store.stage_fields(pin, table_fields.replaced(fields, name, _as_said(cast, new)))


def _fields(store: TableStore, pin: Pin) -> list[FieldTree]:
    return table_fields.trees(store.field_messages(pin))


def _as_said(field: FieldTree, new: pa.Field) -> FieldTree:
    return field.renamed(new.name).nullable(new.nullable)


def _refuse_taken(fields: Iterable[FieldTree], name: str) -> None:
    if any(field.name == name for field in fields):
        raise ContractError(f"there is a column {name!r} already", hint="choose another name")

"""Rows as files have them, made into rows as tables hold them. Nothing is coerced: what does not fit is an error."""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Mapping
from typing import Any

import pyarrow as pa  # type: ignore[import-untyped]

from fenceline.graph.rows import end_id
from fenceline.graph.schema import (
    Catalogue,
    EdgeType,
    InvalidValue,
    Kind,
    ListOf,
    NodeType,
    Scalar,
    TableType,
    UnknownProperty,
    Vector,
    arrow_schema,
    columns,
    edge_id,
    node_id,
    normaliser,
)
from fenceline.graph.schema.ids import checked
from fenceline.graph.schema.kinds import FLOATS, INTEGERS

Given = tuple[str, ...]
"""The properties that a row says something of."""
ENDS = {"src": ("from", "src"), "dst": ("to", "dst")}
_WHOLE = re.compile(r"[+-]?\d+", re.ASCII)


class RowReader:
    """Reads rows of one table. `patch`: what a row leaves out is left as it is, and not null."""

    def __init__(self, catalogue: Catalogue, table: TableType, *, patch: bool, text: bool) -> None:
        self.table, self.patch = table, patch
        self.schema: pa.Schema = arrow_schema(table)
        self.names: Given = tuple(each.name for each in table.properties)
        self._ends: tuple[tuple[str, NodeType], ...] = ()
        known = {"id", *self.names}
        if isinstance(table, EdgeType):
            self._ends = (("src", catalogue.node(table.source)), ("dst", catalogue.node(table.target)))
            known |= {name for names in ENDS.values() for name in names}
        self.known = frozenset(known)
        self._readers = tuple((each.name, _reader(each.kind, normaliser(each), text)) for each in table.properties)

    def read(self, row: Mapping[str, Any], fresh: Callable[[], str]) -> tuple[Given, list[Any]]:
        """What it gives, and every column of the row."""
        if not row.keys() <= self.known:
            raise self.unknown(next(name for name in row if name not in self.known))
        try:
            values: list[Any] = [self._id(row, fresh)]
            values += [self._end(column, node, row) for column, node in self._ends]
            if not self.patch:
                values += [read(row.get(name)) for name, read in self._readers]
                return self.names, values
            values += [read(row[name]) if name in row else None for name, read in self._readers]
        except InvalidValue as error:
            raise error.of(self.table.name) from None
        return tuple(name for name in self.names if name in row), values

    def unknown(self, name: str) -> UnknownProperty:
        return UnknownProperty(self.table.name, name, columns(self.table))

    def _id(self, row: Mapping[str, Any], fresh: Callable[[], str]) -> str:
        return node_id(self.table, row, fresh) if isinstance(self.table, NodeType) else edge_id(row, fresh)

    def _end(self, column: str, node: NodeType, row: Mapping[str, Any]) -> str:
        first, second = ENDS[column]
        value = row.get(first)
        if value is None:
            value = row.get(second)
        if value is None:
            raise InvalidValue(first, None, f"an end: name the {node.name} by its id or key")
        return checked(first, end_id(node, value))


def _reader(kind: Kind, normalise: Callable[[object], Any], text: bool) -> Callable[[object], Any]:
    convert = _from_text(kind) if text else None
    if convert is None:
        return normalise
    said = convert
    return lambda value: normalise(said(value) if isinstance(value, str) else value)


def _from_text(kind: Kind) -> Callable[[str], Any] | None:
    """CSV has texts only. What is no text of the type is left as it is, for the type to refuse."""
    if isinstance(kind, Vector | ListOf):
        return _listed
    if kind is Scalar.BOOL:
        return lambda text: {"true": True, "false": False}.get(text.lower(), text)
    if kind in INTEGERS:
        return lambda text: int(text) if _WHOLE.fullmatch(text) else text
    return _number if kind in FLOATS else None


def _number(text: str) -> Any:
    try:
        return float(text)
    except ValueError:
        return text


def _listed(text: str) -> Any:
    try:
        return json.loads(text)
    except ValueError:
        return text

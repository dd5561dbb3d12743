"""Rows as callers write them, made into rows as tables hold them."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from fenceline.errors import ContractError
from fenceline.graph.schema import (
    EdgeType,
    NodeType,
    TableType,
    UnknownProperty,
    columns,
    edge_id,
    key_id,
    node_id,
    normalise,
    row_normaliser,
)

Row = dict[str, Any]


def new_node(node: NodeType, row: Mapping[str, Any], fresh: Callable[[], str]) -> Row:
    values = row_normaliser(node)(row)
    return {"id": node_id(node, row, fresh), **values}


def new_edge(edge: EdgeType, ends: tuple[NodeType, NodeType], row: Mapping[str, Any], fresh: Callable[[], str]) -> Row:
    missing = [name for name in ("from", "to") if row.get(name) is None]
    if missing:
        raise ContractError(f"an edge of {edge.name} has no {missing[0]!r}", hint="name both of its nodes")
    given = {name: value for name, value in row.items() if name not in ("from", "to")}
    source, target = ends
    return {
        "id": edge_id(given, fresh),
        "src": end_id(source, row["from"]),
        "dst": end_id(target, row["to"]),
        **row_normaliser(edge)(given),
    }


def end_id(node: NodeType, value: Any) -> str:
    """The id of a node that is named by its id, or by its key: a value, or all of them as a tuple or a mapping."""
    if isinstance(value, str):
        return value
    if isinstance(value, Mapping):
        return key_id(node, [value.get(name) for name in node.key])
    return key_id(node, list(value) if isinstance(value, tuple | list) else [value])


def row_id(node: NodeType, row: Mapping[str, Any]) -> str | None:
    """The id that a row will have; None where it gets a fresh one."""
    if not node.key and row.get("id") is None:
        return None
    return node_id(node, row, str)


def changed_row(table: TableType, row: Mapping[str, Any], values: Mapping[str, Any]) -> Row:
    """The row with some properties set. Ids, ends and keys make a row what it is, and stay."""
    changed = dict(row)
    for name, value in values.items():
        fixed = (*table.own_columns, *(table.key if isinstance(table, NodeType) else ()))
        if name in fixed:
            if value != row[name]:
                raise ContractError(
                    f"{table.name}.{name} of {row['id']!r} cannot be changed: it says which row this is",
                    hint="delete it and insert another",
                )
            continue
        if not table.has(name):
            raise UnknownProperty(table.name, name, columns(table))
        changed[name] = normalise(table.property(name), value)
    return changed

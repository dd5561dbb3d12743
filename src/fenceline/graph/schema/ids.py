"""Ids of rows: a node's id is its key, everything else gets a fresh one that sorts by time.

The id of a key of one property is the value's text; of several, the JSON array of them. So who knows the key knows the
id, on any machine, and an edge can name its ends before they are there.
"""

from __future__ import annotations

import datetime as dt
import json
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from fenceline.errors import ContractError
from fenceline.graph.schema.model import NodeType
from fenceline.graph.schema.problems import InvalidValue
from fenceline.graph.schema.values import normalise

LONGEST_ID = 4096


def node_id(node: NodeType, row: Mapping[str, Any], fresh: Callable[[], str]) -> str:
    """`fresh` makes ids (`Seams.ids.execution`); only a node without a key asks it, or is given its id."""
    given = row.get("id")
    if not node.key:
        return fresh() if given is None else checked("id", given)
    made = key_id(node, [row.get(name) for name in node.key])
    if given not in (None, made):
        raise InvalidValue("id", given, f"the node's id: its key makes that {made!r}", hint="leave id out")
    return made


def edge_id(row: Mapping[str, Any], fresh: Callable[[], str]) -> str:
    given = row.get("id")
    return fresh() if given is None else checked("id", given)


def key_id(node: NodeType, values: Sequence[object]) -> str:
    """The id of the node with this key, whether there is one or not."""
    if len(values) != len(node.key) or not node.key:
        raise ContractError(
            f"{len(values)} values for the key of {node.name}, which has {len(node.key)}",
            hint=f"give {', '.join(node.key)}" if node.key else f"{node.name} has no key: name nodes by their id",
        )
    parts = [_part(normalise(node.property(name), value)) for name, value in zip(node.key, values, strict=True)]
    if len(parts) > 1:
        return checked("id", json.dumps(parts, ensure_ascii=False, separators=(",", ":")))
    (only,) = parts
    return checked(node.key[0], only if isinstance(only, str) else json.dumps(only))


def checked(name: str, value: object) -> str:
    """An id that was given."""
    if not isinstance(value, str) or not 0 < len(value) <= LONGEST_ID:
        raise InvalidValue(name, value, f"an id (a text of 1 to {LONGEST_ID} letters)")
    return value


def _part(value: Any) -> str | int | bool:
    if isinstance(value, dt.datetime):
        return value.isoformat().replace("+00:00", "Z")
    if isinstance(value, dt.date):
        return value.isoformat()
    return value if isinstance(value, str | int) else str(value)

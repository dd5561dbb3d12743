"""The catalogue: what a schema says, as frozen values.

`properties` of a node type are all it has, those of its interfaces first. `key`, `unique` and `index` are kept by the
type, however they were written. What is equal was said alike, so equal catalogues have equal texts.
"""

from __future__ import annotations

import math
import struct
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import ClassVar, TypeAlias

from fenceline.errors import NotFound
from fenceline.graph.schema.kinds import Choice, Kind, Scalar
from fenceline.graph.schema.problems import did_you_mean

Number: TypeAlias = int | float


@dataclass(frozen=True, slots=True)
class Span:
    """Both ends belong to it; an end that is None is open."""

    low: Number | None = None
    high: Number | None = None

    def __str__(self) -> str:
        return f"{_shown(self.low)}..{_shown(self.high)}"

    def holds(self, value: Number) -> bool:
        return (self.low is None or self.low <= value) and (self.high is None or value <= self.high)

    def covers(self, other: Span) -> bool:
        """Whether whatever the other one allows is allowed here too."""
        low = self.low is None or (other.low is not None and self.low <= other.low)
        return low and (self.high is None or (other.high is not None and other.high <= self.high))


def _shown(value: Number | None) -> str:
    """Whole floats without a fraction: what the property's type makes of them is the same."""
    if isinstance(value, float) and value.is_integer() and abs(value) < 1e15:
        return str(int(value))
    return "" if value is None else str(value)


@dataclass(frozen=True, slots=True)
class Card:
    """How many edges of one type may leave a node."""

    low: int = 0
    high: int | None = None

    def __str__(self) -> str:
        return f"{self.low}..{'' if self.high is None else self.high}"


@dataclass(frozen=True, slots=True)
class Embed:
    """A vector stands for the text of another property."""

    source: str
    model: str | None = None


@dataclass(frozen=True, slots=True)
class Property:
    name: str
    kind: Kind
    nullable: bool = False
    range: Span | None = None
    check: str | None = None
    embed: Embed | None = None
    description: str | None = None
    rename_from: str | None = None

    def bounds(self) -> Span | None:
        """What stored values are compared with: the range, rounded as an F32 itself is."""
        if self.range is None or self.kind is not Scalar.F32:
            return self.range
        return Span(_single(self.range.low), _single(self.range.high))


def _single(value: Number | None) -> float | None:
    return None if value is None else float(struct.unpack("<f", struct.pack("<f", value))[0])


@dataclass(frozen=True, slots=True)
class _Declared:
    """What interfaces, nodes and edges share."""

    name: str
    properties: tuple[Property, ...] = ()
    unique: tuple[tuple[str, ...], ...] = ()
    index: tuple[str, ...] = ()
    description: str | None = None
    rename_from: str | None = None
    _named: Mapping[str, Property] = field(init=False, repr=False, compare=False, hash=False)

    def __post_init__(self) -> None:
        object.__setattr__(self, "_named", {each.name: each for each in self.properties})

    def property(self, name: str) -> Property:
        found = self._named.get(name)
        if found is None:
            known = ", ".join(self._named) or "none"
            raise NotFound(
                f"{self.name} has no property {name!r}", hint=did_you_mean(name, self._named) or f"it has {known}"
            )
        return found

    def has(self, name: str) -> bool:
        return name in self._named


@dataclass(frozen=True, slots=True)
class Interface(_Declared):
    """Properties and constraints that several node types share."""

    key: tuple[str, ...] = ()

    own_columns: ClassVar[tuple[str, ...]] = ()


@dataclass(frozen=True, slots=True)
class NodeType(_Declared):
    implements: tuple[str, ...] = ()
    key: tuple[str, ...] = ()

    own_columns: ClassVar[tuple[str, ...]] = ("id",)

    @property
    def table_key(self) -> str:
        return f"node:{self.name}"


@dataclass(frozen=True, slots=True)
class EdgeType(_Declared):
    source: str = ""
    target: str = ""
    card: Card | None = None

    own_columns: ClassVar[tuple[str, ...]] = ("id", "src", "dst")

    @property
    def table_key(self) -> str:
        return f"edge:{self.name}"


TableType: TypeAlias = NodeType | EdgeType


def columns(table: TableType) -> tuple[str, ...]:
    """Every column of the table, in order."""
    return *table.own_columns, *(each.name for each in table.properties)


@dataclass(frozen=True, slots=True)
class Catalogue:
    """A whole schema; each group is sorted by name."""

    interfaces: tuple[Interface, ...] = ()
    nodes: tuple[NodeType, ...] = ()
    edges: tuple[EdgeType, ...] = ()
    _tables: Mapping[str, TableType] = field(init=False, repr=False, compare=False, hash=False)

    def __post_init__(self) -> None:
        for group in ("interfaces", "nodes", "edges"):
            object.__setattr__(self, group, tuple(sorted(getattr(self, group), key=lambda each: each.name)))
        tables: list[TableType] = [*self.nodes, *self.edges]
        object.__setattr__(self, "_tables", {each.table_key: each for each in tables})

    def node(self, name: str) -> NodeType:
        found = self._tables.get(f"node:{name}")
        if isinstance(found, NodeType):
            return found
        raise _missing("node type", name, (each.name for each in self.nodes))

    def edge(self, name: str) -> EdgeType:
        found = self._tables.get(f"edge:{name}")
        if isinstance(found, EdgeType):
            return found
        raise _missing("edge type", name, (each.name for each in self.edges))

    def interface(self, name: str) -> Interface:
        for each in self.interfaces:
            if each.name == name:
                return each
        raise _missing("interface", name, (each.name for each in self.interfaces))

    def table(self, key: str) -> TableType:
        """By table key (`node:Person`) or by name: no two types of a schema have the same one."""
        found = self._tables.get(key) or self._tables.get(f"node:{key}") or self._tables.get(f"edge:{key}")
        if found is None:
            raise _missing("type", key, (each.name for each in self._tables.values()))
        return found

    def table_keys(self) -> tuple[str, ...]:
        """Node types first, then edge types."""
        return tuple(self._tables)

    def tables(self) -> tuple[TableType, ...]:
        return tuple(self._tables.values())

    def implementing(self, interface: str) -> tuple[NodeType, ...]:
        return tuple(each for each in self.nodes if interface in each.implements)

    def edges_at(self, node: str) -> tuple[EdgeType, ...]:
        """The edge types that start from or lead to a node type."""
        return tuple(each for each in self.edges if node in (each.source, each.target))


def _missing(what: str, name: str, known: Iterable[str]) -> NotFound:
    names = sorted(known)
    hint = did_you_mean(name, names) or f"the schema has {', '.join(names) or 'none'}"
    return NotFound(f"the schema has no {what} {name!r}", hint=hint)


def finite(value: Number) -> bool:
    return isinstance(value, int) or math.isfinite(value)


def in_column_order(names: Iterable[str], order: Sequence[str]) -> tuple[str, ...]:
    return tuple(sorted(set(names), key=order.index))


def enum_values(kind: Kind) -> tuple[str, ...]:
    """The texts a value, or each item of a list, must be one of; empty where any is right."""
    item = getattr(kind, "item", kind)
    return item.values if isinstance(item, Choice) else ()

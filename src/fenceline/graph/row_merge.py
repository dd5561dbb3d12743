"""Three-way merge of rows by id, property by property: a pure function of what two sides made of one base."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Any, TypeAlias

from fenceline.repo.merge import Strategy

Row: TypeAlias = dict[str, Any]


class ConflictKind(StrEnum):
    DIVERGENT_INSERT = "DivergentInsert"
    DIVERGENT_UPDATE = "DivergentUpdate"
    DELETE_VS_UPDATE = "DeleteVsUpdate"
    ORPHAN_EDGE = "OrphanEdge"
    UNIQUE = "UniqueViolation"
    CARDINALITY = "CardinalityViolation"
    VALUE = "ValueConstraintViolation"
    SCHEMA = "SchemaConflict"


@dataclass(frozen=True, slots=True)
class GraphConflict:
    """One row that two branches cannot agree on, or that the merged graph may not have; or a part of its schema."""

    kind: ConflictKind
    table_key: str
    id: str
    """Empty where the schema is meant."""
    properties: tuple[str, ...] = ()
    detail: str = ""
    base: Any = None
    ours: Any = None
    theirs: Any = None

    def __str__(self) -> str:
        at = f".{','.join(self.properties)}" if self.properties else ""
        row = f" {self.id!r}" if self.id else ""
        return f"{self.kind} {self.table_key}{row}{at}: {self.detail}"


@dataclass(frozen=True, slots=True)
class Delta:
    """What one side made of the base."""

    changed: Mapping[str, Row] = field(default_factory=dict)
    """Rows that are new or different, whole."""
    deleted: frozenset[str] = frozenset()


@dataclass(slots=True)
class Merged:
    """What to do to our rows."""

    puts: dict[str, Row] = field(default_factory=dict)
    removes: set[str] = field(default_factory=set)
    conflicts: list[GraphConflict] = field(default_factory=list)


def merge_rows(
    table_key: str, base: Mapping[str, Row], ours: Delta, theirs: Delta, strategy: Strategy | None = None
) -> Merged:
    """Their changes on our rows. `base` has at least the rows that both sides changed. A strategy decides conflicts."""
    merged = Merged()

    def conflict(kind: ConflictKind, row_id: str, detail: str, name: str = "", values: tuple[Any, ...] = ()) -> None:
        if strategy is None:
            at = (name,) if name else ()
            merged.conflicts.append(GraphConflict(kind, table_key, row_id, at, detail, *values))

    for row_id, row in theirs.changed.items():
        mine = ours.changed.get(row_id)
        if row_id in ours.deleted:
            conflict(ConflictKind.DELETE_VS_UPDATE, row_id, "deleted by us, changed by them")
            if strategy == "theirs":
                merged.puts[row_id] = row
        elif mine is None:
            merged.puts[row_id] = row
        elif row_id not in base:
            if mine != row:
                differing = ", ".join(name for name in row if row[name] != mine.get(name))
                detail = f"inserted differently on both sides ({differing})"
                conflict(ConflictKind.DIVERGENT_INSERT, row_id, detail, values=(None, mine, row))
                if strategy == "theirs":
                    merged.puts[row_id] = row
        else:
            result = dict(mine)
            for name, value in row.items():
                before, own = base[row_id].get(name), mine.get(name)
                if value in (before, own):
                    continue
                if own != before:
                    detail = f"{before!r} became {own!r} here and {value!r} there"
                    values = (before, own, value)
                    conflict(ConflictKind.DIVERGENT_UPDATE, row_id, detail, name, values)
                    if strategy != "theirs":
                        continue
                result[name] = value
            if result != mine:
                merged.puts[row_id] = result
    for row_id in theirs.deleted - ours.deleted:
        if row_id in ours.changed:
            conflict(ConflictKind.DELETE_VS_UPDATE, row_id, "changed by us, deleted by them")
        if row_id not in ours.changed or strategy == "theirs":
            merged.removes.add(row_id)
    return merged

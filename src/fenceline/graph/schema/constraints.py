"""The rules of a table as one flat list: what every writer checks, and what a change of schema adds or takes away."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum

from fenceline.graph.schema.kinds import quoted
from fenceline.graph.schema.model import Card, EdgeType, Number, TableType, enum_values


class Rule(StrEnum):
    REQUIRED = "required"
    ENUM = "enum"
    KEY = "key"
    UNIQUE = "unique"
    RANGE = "range"
    CHECK = "check"
    ENDPOINTS = "endpoints"
    CARD = "card"


@dataclass(frozen=True, slots=True)
class Constraint:
    """`low` and `high` are those of a range (as stored values compare) or of a cardinality.

    `text` is how the schema says it.
    """

    rule: Rule
    columns: tuple[str, ...]
    text: str
    low: Number | None = None
    high: Number | None = None
    pattern: str | None = None
    values: tuple[str, ...] = ()


def constraints(table: TableType) -> tuple[Constraint, ...]:
    """Every rule that rows of the table keep."""
    found: list[Constraint] = []
    for each in table.properties:
        at, bounds, values = (each.name,), each.bounds(), enum_values(each.kind)
        if not each.nullable:
            found.append(Constraint(Rule.REQUIRED, at, f"{each.name} is required"))
        if values:
            found.append(Constraint(Rule.ENUM, at, f"{each.name}: {each.kind}", values=values))
        if bounds:
            text = f"{each.name} @range({each.range})"
            found.append(Constraint(Rule.RANGE, at, text, low=bounds.low, high=bounds.high))
        if each.check is not None:
            text = f"{each.name} @check({quoted(each.check)})"
            found.append(Constraint(Rule.CHECK, at, text, pattern=each.check))
    if isinstance(table, EdgeType):
        found.append(Constraint(Rule.ENDPOINTS, ("src", "dst"), f"{table.source} -> {table.target}"))
        if table.card:
            found.append(card_constraint(table.card))
    elif table.key:
        found.append(Constraint(Rule.KEY, table.key, f"@key({', '.join(table.key)})"))
    found += [Constraint(Rule.UNIQUE, each, f"@unique({', '.join(each)})") for each in table.unique]
    return tuple(found)


def card_constraint(card: Card) -> Constraint:
    return Constraint(Rule.CARD, ("src",), f"@card({card})", low=card.low, high=card.high)

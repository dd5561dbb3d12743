"""A change of schema as an ordered list of steps, each saying what it does to the data."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum
from typing import Any

from fenceline.graph.schema.constraints import Constraint


class Effect(StrEnum):
    METADATA = "metadata only"
    REWRITES = "rewrites the column"
    CHECKS = "needs a check of the data"
    LOSES = "loses data"


class Op(StrEnum):
    ADD_INTERFACE = "add interface"
    CHANGE_INTERFACE = "change interface"
    RENAME_INTERFACE = "rename interface"
    DROP_INTERFACE = "drop interface"
    DROP_TYPE = "drop type"
    RENAME_TYPE = "rename type"
    ADD_TYPE = "add type"
    IMPLEMENT = "change interfaces"
    DROP_CONSTRAINT = "drop constraint"
    DROP_INDEX = "drop index"
    DROP_PROPERTY = "drop property"
    RENAME_PROPERTY = "rename property"
    ADD_PROPERTY = "add property"
    CHANGE_TYPE = "change type"
    MAKE_NULLABLE = "make nullable"
    MAKE_REQUIRED = "make required"
    ADD_CONSTRAINT = "add constraint"
    ADD_INDEX = "add index"
    CHANGE_EMBED = "change embed"
    DESCRIBE = "describe"
    REORDER = "reorder properties"


@dataclass(frozen=True, slots=True)
class Step:
    """`on` is a table key, or `interface:Name`; after a rename, the new one.

    `before` and `after` are texts of the language: names where something is renamed, types where it is changed.
    """

    op: Op
    on: str
    effect: Effect = Effect.METADATA
    property: str | None = None
    before: str | None = None
    after: str | None = None
    constraint: Constraint | None = None
    """What data must keep, where `effect` is CHECKS; None: the table must have no rows."""
    note: str | None = None

    def __str__(self) -> str:
        at = f"{self.on}.{self.property}" if self.property else self.on
        said = " -> ".join(filter(None, (self.before, self.after)))
        note = f" ({self.note})" if self.note else ""
        return f"{self.op} {at}{f': {said}' if said else ''}{note}"

    def to_json(self) -> dict[str, Any]:
        said = {
            "op": self.op.name.lower(),
            "on": self.on,
            "effect": self.effect.name.lower(),
            "property": self.property,
            "before": self.before,
            "after": self.after,
            "rule": self.constraint.rule.value if self.constraint else None,
            "columns": list(self.constraint.columns) if self.constraint else None,
            "note": self.note,
        }
        return {name: value for name, value in said.items() if value is not None}


@dataclass(frozen=True, slots=True)
class SchemaPlan:
    """What turns one schema into another, in the order in which it can be done."""

    before: str
    """The schema id that it starts from."""
    after: str
    steps: tuple[Step, ...] = ()
    notes: tuple[str, ...] = ()
    """What a reader should look at twice, although it can be done."""

    def having(self, effect: Effect) -> tuple[Step, ...]:
        return tuple(step for step in self.steps if step.effect is effect)

    @property
    def empty(self) -> bool:
        return not self.steps

    @property
    def loses_data(self) -> bool:
        return bool(self.having(Effect.LOSES))

    @property
    def rewrites(self) -> bool:
        return bool(self.having(Effect.REWRITES))

    @property
    def checks(self) -> tuple[Step, ...]:
        """The steps that the data must be asked about before any of it is done."""
        return self.having(Effect.CHECKS)

    def __str__(self) -> str:
        if self.empty:
            return "\n".join(["nothing to change", *(f"note: {each}" for each in self.notes)])
        wide = len(str(len(self.steps)))
        lines = [f"{n:>{wide}}. {step}  [{step.effect}]" for n, step in enumerate(self.steps, 1)]
        return "\n".join([*lines, *(f"note: {each}" for each in self.notes)])

    def to_json(self) -> dict[str, Any]:
        return {
            "before": self.before,
            "after": self.after,
            "loses_data": self.loses_data,
            "steps": [step.to_json() for step in self.steps],
            "notes": list(self.notes),
        }

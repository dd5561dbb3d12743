"""What graph transactions are refused for: broken rules, row by row, and tables that someone else changed first."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from fenceline.errors import ConflictError, GuardError
from fenceline.graph.schema import Rule

_SHOWN = 20


@dataclass(frozen=True, slots=True)
class BrokenRule:
    """One row that breaks one rule of the schema."""

    table_key: str
    id: str
    rule: Rule
    constraint: str
    """As the schema says it."""
    properties: tuple[str, ...] = ()
    value: str | None = None
    """The value that breaks it, as text; of a cardinality, the number of edges."""
    other: str | None = None
    """The id of the row that it collides with, or of the node that is not there."""

    def __str__(self) -> str:
        where = f"{self.table_key} {self.id!r}"
        named = ", ".join(self.properties)
        if self.rule is Rule.ENDPOINTS:
            return f"{where}: {named} is {self.value!r}, and there is no {self.other} with that id"
        if self.rule is Rule.CARD:
            return f"{where}: {self.value} edges of {self.other} leave it, which breaks {self.constraint}"
        if self.rule in (Rule.KEY, Rule.UNIQUE):
            return f"{where}: {named} = {self.value} is taken by {self.other!r}, which breaks {self.constraint}"
        return f"{where}: {named} is {'null' if self.value is None else repr(self.value)}: {self.constraint}"


class ConstraintViolations(GuardError):
    """Rows that break rules of the schema; carries all of them, row by row. Nothing was published."""

    code = "guard.constraint"

    def __init__(self, violations: Sequence[BrokenRule], *, more: bool = False) -> None:
        shown = "".join(f"\n  {violation}" for violation in violations[:_SHOWN])
        left = len(violations) - _SHOWN
        if left > 0:
            shown += f"\n  and {left} more"
        count = f"{len(violations)}{' or more' if more else ''}"
        super().__init__(
            f"{count} row(s) break the schema's rules:{shown}",
            hint="nothing was published; correct these rows and run it again",
            violations=[str(violation) for violation in violations],
        )
        self.violations = tuple(violations)
        self.more = more
        """Whether a rule is broken so often that not every row is listed."""


class ExpectedVersionMismatch(ConflictError):
    """A table was published by someone else since this transaction read it. The numbers count its publications."""

    code = "conflict.expected_version"

    def __init__(self, table_key: str, expected: int | None, actual: int | None, *, branch: str) -> None:
        super().__init__(
            f"{table_key} on {branch} was at publication {expected} when this transaction read it, "
            f"and is at {actual} now",
            hint="run it again on the new state",
            table_key=table_key,
            expected=expected,
            actual=actual,
            branch=branch,
        )
        self.table_key = table_key
        self.expected = expected
        self.actual = actual
        self.branch = branch

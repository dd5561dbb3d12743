"""What can be wrong with a schema or a value, told with its place in the text."""

from __future__ import annotations

import difflib
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field

from fenceline.errors import ContractError

_SHOWN = 20
_WIDEST = 160


@dataclass(frozen=True, slots=True)
class Spot:
    """A place in a text; lines and columns count from 1."""

    line: int
    column: int
    width: int = 1


@dataclass(frozen=True, slots=True)
class Problem:
    """One mistake: where, what, and what to write instead."""

    spot: Spot
    message: str
    hint: str | None = None

    def show(self, text: str, source: str) -> str:
        """With the source line, and a caret below the place."""
        at, number = self.spot, str(self.spot.line)
        line = text.split("\n")[at.line - 1].rstrip("\r")
        before, width = line[: at.column - 1], max(1, min(at.width, len(line) - at.column + 1))
        if len(line) > _WIDEST:  # a line that no terminal shows: what stands around the place is enough
            before = before[-_WIDEST // 2 :]
            line, width = before + line[at.column - 1 :][: _WIDEST // 2], min(width, _WIDEST // 2)
        blank = "".join("\t" if letter == "\t" else " " for letter in before)
        shown = [
            f"{source}:{at.line}:{at.column}: {self.message}",
            f"  {number} | {line}",
            f"  {' ' * len(number)} | {blank}{'^' * width}",
        ]
        return "\n".join([*shown, f"  {' ' * len(number)}   {self.hint}"] if self.hint else shown)


class SchemaError(ContractError):
    """A text that is no schema; carries every problem with its place, not only the first."""

    code = "schema.invalid"

    def __init__(self, problems: Sequence[Problem], text: str, source: str) -> None:
        shown = [problem.show(text, source) for problem in problems[:_SHOWN]]
        if len(problems) > _SHOWN:
            shown.append(f"and {len(problems) - _SHOWN} more")
        said = [f"{source}:{p.spot.line}:{p.spot.column}: {p.message}" for p in problems]
        super().__init__("\n".join(shown), source=source, problems=said)
        self.problems = tuple(problems)

    @property
    def line(self) -> int:
        return self.problems[0].spot.line

    @property
    def column(self) -> int:
        return self.problems[0].spot.column


class SchemaSyntaxError(SchemaError):
    """A text that is not of the language at all: nothing behind its one problem was read."""

    code = "schema.syntax"


class SchemaChangeError(ContractError):
    """A change of schema that cannot be made with the data there is; carries every such change."""

    code = "schema.change"

    def __init__(self, problems: Sequence[str]) -> None:
        listed = "".join(f"\n  - {problem}" for problem in problems)
        super().__init__(f"the schema cannot be changed like this:{listed}", problems=list(problems))
        self.problems = tuple(problems)


class InvalidValue(ContractError):
    """A value that its property does not take."""

    code = "schema.value"

    def __init__(
        self, name: str, value: object, expected: str, hint: str | None = None, table: str | None = None
    ) -> None:
        said = f"{table}.{name}" if table else name
        super().__init__(
            f"{said}: {brief(value)} is not {expected}", hint=hint, table=table, property=name, expected=expected
        )
        self.table = table
        self.property = name
        self.value = value
        self.expected = expected

    def of(self, table: str) -> InvalidValue:
        """The same, saying whose property it is."""
        return InvalidValue(self.property, self.value, self.expected, self.hint, table)


class UnknownProperty(ContractError):
    """A row with a property that its type does not have."""

    code = "schema.unknown_property"

    def __init__(self, table: str, name: str, known: Sequence[str]) -> None:
        hint = did_you_mean(name, known) or f"it has {', '.join(known) or 'none'}"
        super().__init__(f"{table} has no property {name!r}", hint=hint, table=table, property=name)
        self.table = table
        self.property = name


@dataclass(slots=True)
class Problems:
    """Collects what is wrong, so that a reader is told all of it at once."""

    found: list[Problem] = field(default_factory=list)

    def add(self, spot: Spot, message: str, hint: str | None = None) -> None:
        self.found.append(Problem(spot, message, hint))

    def raise_any(self, text: str, source: str) -> None:
        if self.found:
            raise SchemaError(sorted(self.found, key=lambda p: (p.spot.line, p.spot.column)), text, source)


def did_you_mean(wrong: str, known: Iterable[str]) -> str | None:
    """The nearest known name as a question, whatever its case."""
    by_case = {name.lower(): name for name in known}
    close = difflib.get_close_matches(wrong.lower(), by_case, n=1)
    return f"did you mean {by_case[close[0]]}?" if close else None


def either(words: Sequence[str]) -> str:
    """`a, b or c`."""
    return " or ".join(filter(None, [", ".join(words[:-1]), *words[-1:]]))


def brief(value: object) -> str:
    """A value as errors show it."""
    shown = repr(value[:80] if isinstance(value, str | bytes | bytearray | list | tuple) else value)
    return shown if len(shown) <= 80 else f"{shown[:77]}…"

"""From text to declarations with places; what they mean is for `building` to say."""

from __future__ import annotations

import functools
from dataclasses import dataclass
from enum import StrEnum
from importlib import resources
from typing import TYPE_CHECKING, Any, TypeAlias

from fenceline.errors import ConfigError
from fenceline.graph.schema.problems import SchemaSyntaxError, Spot
from fenceline.graph.schema.refusals import refusal

if TYPE_CHECKING:
    from lark import Lark, Token


class Sort(StrEnum):
    """What an argument is."""

    NAME = "name"
    TEXT = "text"
    NUMBER = "number"


@dataclass(frozen=True, slots=True)
class Word:
    text: str
    spot: Spot
    sort: Sort = Sort.NAME


@dataclass(frozen=True, slots=True)
class Bounds:
    """`low..high` as it was written."""

    low: Word | None
    high: Word | None
    spot: Spot


Argument: TypeAlias = Word | Bounds


@dataclass(frozen=True, slots=True)
class Annotation:
    """`name` is without the @, its place is with it. `arguments` is None where there are no parentheses."""

    name: Word
    arguments: tuple[Argument, ...] | None


@dataclass(frozen=True, slots=True)
class TypeUse:
    name: Word
    arguments: tuple[Argument, ...] | None = None
    item: TypeUse | None = None
    nullable: bool = False


@dataclass(frozen=True, slots=True)
class PropertyUse:
    name: Word
    type: TypeUse


@dataclass(frozen=True, slots=True)
class Declaration:
    keyword: str
    name: Word
    implements: tuple[Word, ...] = ()
    source: Word | None = None
    target: Word | None = None
    annotations: tuple[Annotation, ...] = ()
    members: tuple[PropertyUse | Annotation, ...] = ()


def declarations(text: str, source: str) -> tuple[Declaration, ...]:
    """Every declaration of a text; the first thing that is not of the language is an error."""
    from lark import UnexpectedInput

    try:
        found: Any = _parser().parse(text)
    except UnexpectedInput as error:
        raise SchemaSyntaxError([refusal(error, text)], text, source) from None
    return tuple(found)


@functools.cache
def _parser() -> Lark:
    try:
        from lark import Lark, Transformer
    except ModuleNotFoundError as error:
        raise ConfigError("graphs need the package lark", hint="pip install 'fenceline[graph]'") from error

    class Reading(Transformer[Any, Any]):
        """One method for each rule of the grammar."""

        def start(self, children: list[Any]) -> list[Any]:
            return children

        def interface(self, children: list[Any]) -> Declaration:
            return _declaration(children)

        node = edge = interface

        def implements(self, children: list[Any]) -> tuple[Word, ...]:
            return tuple(_word(each) for each in children[1:])

        def body(self, children: list[Any]) -> list[Any]:
            return children

        def property(self, children: list[Any]) -> PropertyUse:
            return PropertyUse(_word(children[0]), children[1])

        def named(self, children: list[Any]) -> TypeUse:
            return TypeUse(_word(children[0]), children[1] if len(children) > 1 else None)

        def many(self, children: list[Any]) -> TypeUse:
            return TypeUse(children[0].name, item=children[0])

        def type(self, children: list[Any]) -> TypeUse:
            kind: TypeUse = children[0]
            return TypeUse(kind.name, kind.arguments, kind.item, nullable=len(children) > 1)

        def annotation(self, children: list[Any]) -> Annotation:
            word = _word(children[0])
            return Annotation(Word(word.text[1:], word.spot), children[1] if len(children) > 1 else None)

        def arguments(self, children: list[Any]) -> tuple[Argument, ...]:
            return tuple(each for each in children if each is not None)

        def argument(self, children: list[Any]) -> Argument:
            return children[0] if isinstance(children[0], Bounds) else _word(children[0])

        def span(self, children: list[Any]) -> Bounds:
            at = next(n for n, each in enumerate(children) if each.type == "DOTS")
            low, high = children[:at], children[at + 1 :]
            first, last = children[0], children[-1]
            width = last.end_column - first.column if first.line == last.end_line else len(first)
            spot = Spot(first.line, first.column, width)
            return Bounds(_word(low[0]) if low else None, _word(high[0]) if high else None, spot)

    grammar = (resources.files(__package__) / "grammar.lark").read_text(encoding="utf-8")
    return Lark(grammar, parser="lalr", lexer="contextual", transformer=Reading(), maybe_placeholders=False)


_SORTS = {"STRING": Sort.TEXT, "NUMBER": Sort.NUMBER}


def _word(token: Token) -> Word:
    spot = Spot(token.line or 1, token.column or 1, len(token))
    return Word(str(token), spot, _SORTS.get(token.type, Sort.NAME))


def _declaration(children: list[Any]) -> Declaration:
    keyword, name, *rest = children
    ends: list[Word] = []
    implements: tuple[Word, ...] = ()
    annotations: list[Annotation] = []
    members: tuple[PropertyUse | Annotation, ...] = ()
    for child in rest:
        if isinstance(child, tuple):
            implements = child
        elif isinstance(child, Annotation):
            annotations.append(child)
        elif isinstance(child, list):
            members = tuple(child)
        else:
            ends.append(_word(child))
    source, target = ends or (None, None)
    return Declaration(str(keyword), _word(name), implements, source, target, tuple(annotations), members)

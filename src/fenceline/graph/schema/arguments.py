"""What stands between parentheses, as values; each reader tells its problem and gives None."""

from __future__ import annotations

import json
import re

from fenceline.graph.schema.kinds import (
    FLOATS,
    INTEGERS,
    LONGEST_VECTOR,
    NAME,
    Choice,
    Kind,
    ListOf,
    Scalar,
    Vector,
)
from fenceline.graph.schema.model import Number, Span, finite
from fenceline.graph.schema.problems import Problems, Spot, did_you_mean
from fenceline.graph.schema.syntax import Annotation, Argument, Bounds, Sort, TypeUse, Word

LONGEST_NAME = 100
_DIGITS = 400
_TYPES = (*(each.value for each in Scalar), "Vector", "enum")
_ELSEWHERE = {  # what these are called in other languages
    "int": "I32 or I64",
    "integer": "I32 or I64",
    "long": "I64",
    "bigint": "I64",
    "uint": "U32 or U64",
    "float": "F32 or F64",
    "double": "F64",
    "number": "F64, I32 or I64",
    "decimal": "F64, or String to keep every digit",
    "text": "String",
    "str": "String",
    "varchar": "String",
    "boolean": "Bool",
    "timestamp": "DateTime",
    "time": "DateTime",
    "bytes": "Blob",
    "binary": "Blob",
    "uuid": "String",
    "json": "String",
    "list": "[T], as in [String]",
    "array": "[T], as in [String]",
}


def kind_of(use: TypeUse, others: frozenset[str], problems: Problems) -> Kind | None:
    """`others`: the names of the schema's own types, which are no types of properties."""
    if use.item is not None:
        return _list(use.item, others, problems)
    name, spot = use.name.text, use.name.spot
    if name == "Vector":
        return _vector(use, problems)
    if name == "enum":
        return _choice(use, problems)
    if use.arguments is not None and name in _TYPES:
        problems.add(spot, f"{name} takes no arguments", f"write {name}")
        return None
    if name in _TYPES:
        return Scalar(name)
    if name in others:
        hint = "properties hold values; declare an edge type to relate nodes"
        problems.add(spot, f"{name} is a type of the schema, not of a property", hint)
        return None
    known = _ELSEWHERE.get(name.lower())
    hint = f"write {known}" if known else did_you_mean(name, _TYPES) or f"there are {', '.join(_TYPES)} and [T]"
    problems.add(spot, f"unknown type {name!r}", hint)
    return None


def _list(item: TypeUse, others: frozenset[str], problems: Problems) -> Kind | None:
    if item.nullable:
        problems.add(item.name.spot, "the items of a list are never null", "take the ? inside [ ] out")
    if item.item is not None:
        problems.add(item.name.spot, "a list cannot hold lists", "its items are scalars or enums")
        return None
    kind = kind_of(item, others, problems)
    if isinstance(kind, Vector):
        problems.add(item.name.spot, "a list cannot hold vectors", "its items are scalars or enums")
        return None
    return None if kind is None or isinstance(kind, ListOf) else ListOf(kind)


def _vector(use: TypeUse, problems: Problems) -> Vector | None:
    given = use.arguments or ()
    size = given[0].text if len(given) == 1 and isinstance(given[0], Word) else ""
    if re.fullmatch(r"[0-9]{1,5}", size) and 1 <= int(size) <= LONGEST_VECTOR:
        return Vector(int(size))
    expected = f"a Vector says its length, from 1 to {LONGEST_VECTOR}"
    problems.add(use.name.spot, expected, "write Vector(384)")
    return None


def _choice(use: TypeUse, problems: Problems) -> Choice | None:
    if not use.arguments:
        problems.add(use.name.spot, "an enum names its values", "write enum(draft, published)")
        return None
    values: list[str] = []
    right = True
    for argument in use.arguments:
        value = _choice_value(argument, problems)
        if value is not None and value in values:
            problems.add(argument.spot, f"the enum has {value!r} twice", "take one of them out")
            value = None
        right = right and value is not None
        values += [] if value is None else [value]
    return Choice(tuple(values)) if right else None


def _choice_value(argument: Argument, problems: Problems) -> str | None:
    if isinstance(argument, Bounds) or argument.sort is Sort.NUMBER:
        problems.add(argument.spot, "the values of an enum are names or texts", 'put it in quotes: "1"')
        return None
    if argument.sort is Sort.NAME:
        return argument.text
    value = text_of(argument, problems)
    if value == "":
        problems.add(argument.spot, "an enum cannot have an empty value", "make the property nullable instead")
        return None
    return value


def text_of(word: Word, problems: Problems) -> str | None:
    """A text without its quotes and escapes."""
    try:
        value = json.loads(word.text, strict=False)
        str(value).encode()
    except UnicodeEncodeError:
        problems.add(word.spot, "this text holds half of a character", "write both halves of \\ud…")
        return None
    except ValueError:
        hint = 'a backslash is written \\\\, a quote \\", a new line \\n'
        problems.add(word.spot, "this text has an escape that does not exist", hint)
        return None
    return str(value)


def one_text(annotation: Annotation, problems: Problems, example: str) -> str | None:
    """The only argument of an annotation, a text."""
    given = annotation.arguments or ()
    if len(given) == 1 and isinstance(given[0], Word) and given[0].sort is Sort.TEXT:
        return text_of(given[0], problems)
    problems.add(annotation.name.spot, f"@{annotation.name.text} takes one text", f"write {example}")
    return None


def one_name(annotation: Annotation, problems: Problems, example: str) -> Word | None:
    given = annotation.arguments or ()
    if len(given) == 1 and isinstance(given[0], Word):
        word = given[0]
        text = text_of(word, problems) if word.sort is Sort.TEXT else word.text
        if text is None:
            return None
        if NAME.fullmatch(text):
            return Word(text, word.spot)
    problems.add(annotation.name.spot, f"@{annotation.name.text} takes one name", f"write {example}")
    return None


def span_of(annotation: Annotation, kind: Kind, problems: Problems) -> Span | None:
    """The bounds of @range, as the property's own numbers."""
    bounds = _bounds(annotation, problems, "@range(0..150), or @range(0..) without an upper bound")
    if bounds is None:
        return None
    low, high = (_number(word, kind, problems) for word in (bounds.low, bounds.high))
    if (low is None) != (bounds.low is None) or (high is None) != (bounds.high is None):
        return None
    if low is not None and high is not None and low > high:
        problems.add(bounds.spot, f"no value is in {low}..{high}", "write the smaller bound first")
        return None
    return Span(low, high)


def card_of(annotation: Annotation, problems: Problems) -> tuple[int, int | None] | None:
    bounds = _bounds(annotation, problems, "@card(0..1), or @card(1..) without an upper bound")
    if bounds is None:
        return None
    for word in filter(None, (bounds.low, bounds.high)):
        if not re.fullmatch(r"[0-9]{1,9}", word.text):
            problems.add(word.spot, "@card counts edges: whole numbers from 0", "write @card(0..1)")
            return None
    low = int(bounds.low.text) if bounds.low else 0
    high = int(bounds.high.text) if bounds.high else None
    if high is not None and (high < low or high == 0):
        what = f"no number of edges is in {low}..{high}" if high < low else "this allows no edge at all"
        problems.add(bounds.spot, what, "write the smaller bound first, and at most from 1")
        return None
    return low, high


def _bounds(annotation: Annotation, problems: Problems, example: str) -> Bounds | None:
    given = annotation.arguments or ()
    if len(given) == 1 and isinstance(given[0], Bounds):
        if given[0].low or given[0].high:
            return given[0]
        problems.add(given[0].spot, f"@{annotation.name.text} needs a bound", f"write {example}")
        return None
    problems.add(annotation.name.spot, f"@{annotation.name.text} takes low..high", f"write {example}")
    return None


def _number(word: Word | None, kind: Kind, problems: Problems) -> Number | None:
    if word is None:
        return None
    if kind in FLOATS:
        value = float(word.text) + 0.0  # -0 is 0
        limit = 3.4028234663852886e38 if kind is Scalar.F32 else float("inf")
        if finite(value) and abs(value) <= limit:
            return value
    elif isinstance(kind, Scalar) and kind in INTEGERS and re.fullmatch(r"-?[0-9]+", word.text):
        low, high = INTEGERS[kind]
        if len(word.text) <= _DIGITS and low <= int(word.text) <= high:
            return int(word.text)
    problems.add(word.spot, f"{word.text[:40]} is not a number that {kind} can hold", "write one that fits")
    return None


def named(word: Word, what: str, problems: Problems) -> bool:
    """Whether a name is one that `what` may have; types begin with a capital, properties with a small letter."""
    first, capital = word.text[0], what != "property"
    if len(word.text) > LONGEST_NAME:
        problems.add(word.spot, f"this name is longer than {LONGEST_NAME} letters", "write a shorter one")
        return False
    if first.isalpha() and first.isupper() == capital:
        return True
    letter = "an upper-case" if capital else "a lower-case"
    bare = word.text.lstrip("_0123456789") or ("Name" if capital else "name")
    better = (bare[0].upper() if capital else bare[0].lower()) + bare[1:]
    problems.add(
        word.spot,
        f"the name of {'an' if what[0] in 'aei' else 'a'} {what} begins with {letter} letter",
        f"write {better}",
    )
    return False


def where(spot: Spot) -> str:
    return f"line {spot.line}"

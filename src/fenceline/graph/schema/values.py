"""Python values as a property stores them. Nothing is coerced: what is not of the type is an error that says so.

`normaliser` gives the function for one column, `row_normaliser` the one for whole rows. Ranges and patterns are the
constraints' to check (`broken_rule`), because they are checked on stored data too.
"""

from __future__ import annotations

import base64
import binascii
import datetime as dt
import functools
import math
import re
import struct
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, TypeAlias

import pyarrow as pa  # type: ignore[import-untyped]
import pyarrow.compute as compute  # type: ignore[import-untyped]

from fenceline.graph.schema.columns import arrow_type
from fenceline.graph.schema.kinds import INTEGERS, Choice, Kind, ListOf, Scalar, Vector
from fenceline.graph.schema.model import Property, TableType
from fenceline.graph.schema.problems import InvalidValue, UnknownProperty, did_you_mean

Reader: TypeAlias = Callable[[str, Any], Any]
"""From a property's name, for errors, and a value that is not None, to what Arrow takes."""

_DATE = re.compile(r"\d{4}-\d\d-\d\d", re.ASCII)
_DATETIME = re.compile(r"\d{4}-\d\d-\d\d[T ]\d\d:\d\d(:\d\d(\.\d{1,6})?)?(Z|[+-]\d\d:\d\d)?", re.ASCII)
_DATE_EXPECTED = 'a Date ("2026-01-31", or a date)'
_DATETIME_EXPECTED = 'a DateTime ("2026-01-31T12:00:00Z" to the microsecond, or a datetime)'


def normaliser(of: Property) -> Callable[[object], Any]:
    """The function that a column's values go through; None only where the property is nullable."""
    read, name, nullable = _reader(of.kind), of.name, of.nullable

    def normalise(value: object) -> Any:
        if value is None:
            if nullable:
                return None
            raise InvalidValue(name, None, f"{_a(of.kind)}: it is required", hint=f"give {name} a value")
        return read(name, value)

    return normalise


def normalise(of: Property, value: object) -> Any:
    return normaliser(of)(value)


def row_normaliser(table: TableType) -> Callable[[Mapping[str, object]], dict[str, Any]]:
    """The function that a table's rows go through: every property in its order, and no name that it does not have.

    The table's own columns (`id`, `src`, `dst`) are passed over: `ids` and the ends of edges are another matter.
    """
    readers = {each.name: normaliser(each) for each in table.properties}
    known = {*readers, *table.own_columns}

    def normalise_row(row: Mapping[str, object]) -> dict[str, Any]:
        if not row.keys() <= known:
            unknown = next(name for name in row if name not in known)
            raise UnknownProperty(table.name, unknown, list(readers))
        try:
            return {name: read(row.get(name)) for name, read in readers.items()}
        except InvalidValue as error:
            raise error.of(table.name) from None

    return normalise_row


def normalise_row(table: TableType, row: Mapping[str, object]) -> dict[str, Any]:
    return row_normaliser(table)(row)


def arrow_array(of: Property, values: Iterable[object]) -> pa.Array:
    read = normaliser(of)
    return pa.array([read(value) for value in values], type=arrow_type(of.kind))


def broken_rule(of: Property, value: Any) -> str | None:
    """Which of the property's own rules a normalised value breaks, as the schema writes it; nulls break none."""
    if value is None:
        return None
    bounds = of.bounds()
    if bounds is not None and not bounds.holds(value):
        return f"@range({of.range})"
    if of.check is not None and not matches(of.check, value):
        return f'@check("{of.check}")'
    return None


def matches(pattern: str, value: str) -> bool:
    """RE2, anywhere in the text: the same answer as DuckDB's `regexp_matches`."""
    return bool(compute.match_substring_regex(pa.scalar(value), pattern).as_py())


@functools.cache
def _reader(kind: Kind) -> Reader:
    if isinstance(kind, Vector):
        return functools.partial(_vector, kind.size)
    if isinstance(kind, ListOf):
        return functools.partial(_list, _reader(kind.item), str(kind))
    if isinstance(kind, Choice):
        return functools.partial(_choice, kind.values, frozenset(kind.values))
    if kind in INTEGERS:
        return functools.partial(_integer, kind, *INTEGERS[kind])
    return _READERS[kind]


def _string(name: str, value: Any) -> str:
    if not isinstance(value, str):
        raise InvalidValue(name, value, "a String")
    try:
        value.encode()
    except UnicodeEncodeError:
        raise InvalidValue(name, value, "a String: it holds half of a character") from None
    return str(value)


def _bool(name: str, value: Any) -> bool:
    value = _plain(value)
    if not isinstance(value, bool):
        raise InvalidValue(name, value, "a Bool (true or false)")
    return value


def _integer(kind: Scalar, low: int, high: int, name: str, value: Any) -> int:
    value = _plain(value)
    if not isinstance(value, int) or isinstance(value, bool) or not low <= value <= high:
        raise InvalidValue(name, value, f"{_a(kind)} (a whole number from {low} to {high})")
    return int(value)


def _f64(name: str, value: Any) -> float:
    value = _plain(value)
    if isinstance(value, int | float) and not isinstance(value, bool):
        try:
            number = float(value)
        except OverflowError:
            number = math.inf
        if math.isfinite(number) and number == value:
            return number
    raise InvalidValue(name, value, "an F64 (a finite number; a whole one that it holds exactly)")


def _f32(name: str, value: Any) -> float:
    """Rounded to the nearest that 32 bits hold."""
    value = _plain(value)
    if isinstance(value, int | float) and not isinstance(value, bool):
        try:
            (number,) = struct.unpack("<f", struct.pack("<f", value))
        except (OverflowError, struct.error):
            number = math.inf
        if math.isfinite(number):
            return float(number)
    raise InvalidValue(name, value, "an F32 (a finite number up to 3.4e38)")


def _date(name: str, value: Any) -> dt.date:
    if isinstance(value, dt.date) and not isinstance(value, dt.datetime):
        return value
    if isinstance(value, str) and _DATE.fullmatch(value):
        try:
            return dt.date.fromisoformat(value)
        except ValueError:
            pass
    raise InvalidValue(name, value, _DATE_EXPECTED)


def _datetime(name: str, value: Any) -> dt.datetime:
    """An instant in UTC. Without an offset it is taken to be in UTC."""
    if isinstance(value, str) and _DATETIME.fullmatch(value):
        try:
            return _in_utc(dt.datetime.fromisoformat(value))
        except (ValueError, OverflowError):
            pass
    elif isinstance(value, dt.datetime) and not getattr(value, "nanosecond", 0):  # pandas counts those too
        try:
            return _in_utc(value)
        except (ValueError, OverflowError):
            pass
    raise InvalidValue(name, value, _DATETIME_EXPECTED)


def _in_utc(value: dt.datetime) -> dt.datetime:
    plain = dt.datetime.combine(value.date(), value.time(), value.tzinfo)
    return plain.replace(tzinfo=dt.UTC) if plain.utcoffset() is None else plain.astimezone(dt.UTC)


def _blob(name: str, value: Any) -> bytes:
    if isinstance(value, bytes | bytearray | memoryview):
        return bytes(value)
    if isinstance(value, str):
        try:
            return base64.b64decode(value, validate=True)
        except (binascii.Error, ValueError):
            pass
    raise InvalidValue(name, value, "a Blob (bytes, or base64 text)")


def _vector(size: int, name: str, value: Any) -> list[float]:
    items = _items(value)
    if items is None or len(items) != size:
        length = "" if items is None else f", not {len(items)}"
        raise InvalidValue(name, value, f"a Vector({size}) ({size} numbers{length})")
    return [_f32(f"{name}[{n}]", each) for n, each in enumerate(items)]


def _list(read: Reader, said: str, name: str, value: Any) -> list[Any]:
    items = _items(value)
    if items is None:
        raise InvalidValue(name, value, f"a list: it is {said}")
    for n, each in enumerate(items):
        if each is None:
            raise InvalidValue(f"{name}[{n}]", None, "an item: those of a list are never null")
    return [read(f"{name}[{n}]", each) for n, each in enumerate(items)]


def _choice(values: Sequence[str], known: frozenset[str], name: str, value: Any) -> str:
    if isinstance(value, str) and value in known:
        return str(value)
    hint = did_you_mean(value, values) if isinstance(value, str) else None
    raise InvalidValue(name, value, f"one of {', '.join(values)}", hint=hint)


def _items(value: Any) -> Sequence[Any] | None:
    if type(value).__module__ == "numpy" and hasattr(value, "tolist"):
        value = value.tolist()
    return value if isinstance(value, list | tuple) else None


def _plain(value: Any) -> Any:
    """A number of numpy as Python's own; it can be nothing else then."""
    return value.item() if type(value).__module__ == "numpy" and hasattr(value, "item") else value


def _a(kind: Kind) -> str:
    return f"{'an' if str(kind)[0] in 'IFe' else 'a'} {kind}"


_READERS: dict[Kind, Reader] = {
    Scalar.STRING: _string,
    Scalar.BOOL: _bool,
    Scalar.F32: _f32,
    Scalar.F64: _f64,
    Scalar.DATE: _date,
    Scalar.DATETIME: _datetime,
    Scalar.BLOB: _blob,
}

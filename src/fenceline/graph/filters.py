"""Pieces of filter text for table scans. Lance lowers unquoted names, and takes double quotes for text."""

from __future__ import annotations

import datetime
from collections.abc import Iterable

from fenceline.errors import ContractError

Value = str | int | float | bool | datetime.date | datetime.datetime


def quoted(column: str) -> str:
    """A column's name, exactly as it is spelled."""
    if "`" in column:
        raise ContractError(f"the column {column!r} has a back-quote in its name", hint="rename it")
    return f"`{column}`"


def literal(value: Value) -> str:
    """A value as text that cannot end early."""
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, int | float):
        return repr(value)
    if isinstance(value, datetime.datetime):
        return f"timestamp '{value.isoformat(sep=' ')}'"
    if isinstance(value, datetime.date):
        return f"date '{value.isoformat()}'"
    return "'" + value.replace("'", "''") + "'"


def any_of(column: str, values: Iterable[Value]) -> str:
    listed = ", ".join(literal(value) for value in values)
    return f"{quoted(column)} IN ({listed})" if listed else "false"

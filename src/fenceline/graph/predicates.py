"""Which rows a statement means: values that columns must have, or a condition in SQL.

A condition runs in process on every row it could be true for. What table scans understand in the same way is pushed
down to them.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, TypeAlias

import sqlglot
from sqlglot import exp

from fenceline.errors import ContractError
from fenceline.graph.filters import any_of, quoted
from fenceline.graph.schema import Choice, Scalar, TableType, UnknownProperty, columns, normalise

Where: TypeAlias = Mapping[str, Any] | str
"""`{"name": "Ada", "city": None, "age": [30, 31]}`, or `"age > 30 AND city IS NULL"`."""

_TEXT = (Scalar.STRING,)
_NUMBERS = (Scalar.I32, Scalar.I64, Scalar.U32, Scalar.U64, Scalar.F64)
_COMPARISONS = (exp.EQ, exp.NEQ, exp.LT, exp.LTE, exp.GT, exp.GTE, exp.In)
_PUSHED = (
    *_COMPARISONS,
    *(exp.And, exp.Or, exp.Not, exp.Paren, exp.Is, exp.Null, exp.Column, exp.Identifier, exp.Literal, exp.Neg),
)


@dataclass(frozen=True, slots=True)
class Predicate:
    """A condition on the rows of one table."""

    scan: str | None
    """For a table scan, which may leave rows in that do not match, never out."""
    sql: str | None = None
    """For DuckDB, over the rows that the scan left in; None where that is exact already."""
    holds: Callable[[Mapping[str, Any]], bool] | None = None
    """The same on one row, where there is no `sql`."""

    def select(self, relation: str) -> str:
        return f"SELECT t.* FROM {relation} AS t WHERE {self.sql}"  # noqa: S608 - parsed, and of known columns only


def predicate(table: TableType, where: Where | None) -> Predicate:
    if where is None:
        return Predicate(None, holds=lambda row: True)
    return _of_text(table, where) if isinstance(where, str) else _of_values(table, where)


def _of_values(table: TableType, where: Mapping[str, Any]) -> Predicate:
    wanted: dict[str, list[Any]] = {}
    for name, value in where.items():
        many = value if isinstance(value, list | tuple | set | frozenset) else [value]
        wanted[name] = [_value(table, name, each) for each in many]
    scans = [_column_is(name, values) for name, values in wanted.items()]
    return Predicate(
        " AND ".join(scans) or None,
        holds=lambda row: all(row[name] in values for name, values in wanted.items()),
    )


def _value(table: TableType, name: str, value: Any) -> Any:
    if name in table.own_columns:
        if not isinstance(value, str):
            raise ContractError(f"{table.name}.{name} is compared with {value!r}", hint="ids are texts")
        return value
    if not table.has(name):
        raise UnknownProperty(table.name, name, columns(table))
    of = table.property(name)
    if not isinstance(of.kind, Scalar | Choice) or of.kind is Scalar.BLOB:
        raise ContractError(f"{table.name}.{name} cannot be compared: it is {of.kind}", hint="filter the rows you read")
    return None if value is None else normalise(of, value)


def _column_is(name: str, values: list[Any]) -> str:
    given = [value for value in values if value is not None]
    options = [any_of(name, given)] if given or None not in values else []
    options += [f"{quoted(name)} IS NULL"] if None in values else []
    return f"({' OR '.join(options)})"


def _of_text(table: TableType, where: str) -> Predicate:
    try:
        statement = sqlglot.parse_one(f"SELECT 1 WHERE {where}", dialect="duckdb")
    except sqlglot.errors.ParseError as error:
        raise ContractError(f"where={where!r} cannot be read: {error}", hint="write a condition of SQL") from error
    tree = statement.args.get("where")
    more = [name for name, part in statement.args.items() if part and name not in ("expressions", "where", "kind")]
    if tree is None or more or tree.find(exp.Select, exp.Subquery) is not None:
        raise ContractError(f"where={where!r} is no plain condition", hint="compare columns of the table")
    known = {each.lower(): each for each in columns(table)}
    for column in tree.find_all(exp.Column):
        if column.name.lower() not in known or column.table:
            raise UnknownProperty(table.name, column.sql(), columns(table))
        column.set("this", exp.to_identifier(known[column.name.lower()], quoted=True))
    condition = tree.this
    return Predicate(_pushed(table, condition), condition.sql(dialect="duckdb"))


def _pushed(table: TableType, condition: exp.Expression) -> str | None:
    """The condition for a table scan, or None where that might not mean the same."""
    for node in condition.walk():
        if not isinstance(node, _PUSHED):
            return None
        if isinstance(node, exp.Literal) and node.is_string and "\\" in node.name:
            return None
        if isinstance(node, _COMPARISONS) and not _alike(table, node):
            return None
    return condition.sql(dialect="spark")


def _alike(table: TableType, node: exp.Expression) -> bool:
    """A column against values of its own type: engines differ in how they convert others."""
    if not isinstance(node.this, exp.Column):
        return False
    name = node.this.name
    kind = Scalar.STRING if name in table.own_columns else table.property(name).kind
    values = node.expressions if isinstance(node, exp.In) else [node.expression]
    plain = [value.this if isinstance(value, exp.Neg) else value for value in values]
    if not plain or not all(isinstance(value, exp.Literal) for value in plain):
        return False
    if kind in _TEXT or isinstance(kind, Choice):
        return all(value.is_string for value in plain)
    return kind in _NUMBERS and not any(value.is_string for value in plain)

"""The rules of a schema as SQL over what changed. Text only: `constraints.py` says what to check and runs it.

Every check is a SELECT of (id, value, other), in DuckDB's dialect. `p` is a row as it will be, `l` one of all rows that
will be there. Names come from a schema, are quoted, and texts are escaped.
"""

# ruff: noqa: S608
from __future__ import annotations

from collections.abc import Sequence

from fenceline.graph.schema import Constraint, ListOf, Property, Rule

_NOTHING = "CAST(NULL AS VARCHAR)"
_ID, _OTHER = 'p."id"', 'MIN(l."id")'


def name(text: str) -> str:
    return '"' + text.replace('"', '""') + '"'


def text(value: str) -> str:
    return "'" + value.replace("'", "''") + "'"


def _found(row_id: str, value: str = _NOTHING, other: str = _NOTHING) -> str:
    return f"SELECT {row_id} AS id, {value} AS value, {other} AS other"


def _as_text(expression: str) -> str:
    return f"CAST({expression} AS VARCHAR)"


def _columns(alias: str, columns: Sequence[str]) -> str:
    return ", ".join(f"{alias}.{name(column)}" for column in columns)


# --- rules ------------------------------------------------------------------------------------------------------


def of_one_row(rule: Constraint, of: Property, pending: str) -> str:
    """Required, enum, range and check: what a row keeps by itself."""
    column = f"p.{name(of.name)}"
    if rule.rule is Rule.REQUIRED:
        return f"{_found(_ID)} FROM {pending} AS p WHERE {column} IS NULL"
    source = f"{pending} AS p"
    if isinstance(of.kind, ListOf):
        source, column = f"{source} CROSS JOIN UNNEST({column}) AS item(v)", "item.v"
    found = f"{_found(_ID, _as_text(column))} FROM {source} WHERE {column} IS NOT NULL"
    if rule.rule is Rule.ENUM:
        return f"{found} AND NOT {column} IN ({', '.join(map(text, rule.values))})"
    if rule.rule is Rule.CHECK:
        return f"{found} AND NOT REGEXP_MATCHES({column}, {text(rule.pattern or '')})"
    bounds = [f"{column} < {rule.low!r}"] if rule.low is not None else []
    bounds += [f"{column} > {rule.high!r}"] if rule.high is not None else []
    return f"{found} AND ({' OR '.join(bounds)})"


def taken_ids(pending: str, there: str) -> str:
    """New rows whose id a row has already; `there` are committed rows that stay as they are."""
    return f'{_found(_ID, _ID, _ID)} FROM {pending} AS p JOIN {there} AS c ON c."id" = p."id"'


def equal_ids(pending: str) -> str:
    return f'{_found(_ID, _ID, _ID)} FROM {pending} AS p GROUP BY p."id" HAVING COUNT(*) > 1'


def not_unique(columns: Sequence[str], pending: str, live: str) -> str:
    """A null is equal to nothing, so rows with one are exempt."""
    same = " AND ".join(f"l.{name(column)} = p.{name(column)}" for column in columns)
    shown = " || ', ' || ".join(_as_text(f"p.{name(column)}") for column in columns)
    found = f'{_found(_ID, shown, _OTHER)} FROM {pending} AS p JOIN {live} AS l ON {same} AND l."id" <> p."id"'
    return f'{found} GROUP BY p."id", {_columns("p", columns)}'


def without_end(column: str, node: str, edges: str, nodes: str) -> str:
    """Edges that lead from or to a node that is not there."""
    found = _found(_ID, f"p.{name(column)}", text(node))
    return f'{found} FROM {edges} AS p LEFT JOIN {nodes} AS l ON l."id" = p.{name(column)} WHERE l."id" IS NULL'


def left_behind(column: str, node: str, edges: str, deleted: str) -> str:
    """Edges that stay, at nodes that go."""
    found = _found('e."id"', f"e.{name(column)}", text(node))
    return f'{found} FROM {edges} AS e JOIN {deleted} AS d ON d."id" = e.{name(column)}'


def wrong_count(rule: Constraint, edge: str, touched: str, edges: str, nodes: str | None) -> str:
    """Nodes that too few or too many edges leave; `touched` are the ids of those whose number may have changed."""
    count = 'COUNT(l."id")'
    bounds = [f"{count} < {rule.low}"] if rule.low else []
    bounds += [f"{count} > {rule.high}"] if rule.high is not None else []
    there = f' WHERE EXISTS (SELECT 1 FROM {nodes} AS s WHERE s."id" = a."id")' if nodes else ""
    found = _found('a."id"', _as_text(count), text(edge))
    joined = f'FROM {touched} AS a LEFT JOIN {edges} AS l ON l."src" = a."id"{there}'
    return f'{found} {joined} GROUP BY a."id" HAVING {" OR ".join(bounds)}'


# --- relations, and all of it together --------------------------------------------------------------------------


def staying(columns: Sequence[str], committed: str, gone: str | None) -> str:
    """Committed rows that are neither deleted nor replaced."""
    rows = f"SELECT {_columns('c', columns)} FROM {committed} AS c"
    if gone is not None:
        rows += f' WHERE NOT EXISTS (SELECT 1 FROM {gone} AS g WHERE g."id" = c."id")'
    return f"({rows})"


def with_pending(columns: Sequence[str], rows: str, pending: str) -> str:
    return f"({rows[1:-1]} UNION ALL SELECT {_columns('w', columns)} FROM {pending} AS w)"


def deleted(gone: str, pending: str | None) -> str:
    """What goes and does not come back."""
    back = f' WHERE NOT EXISTS (SELECT 1 FROM {pending} AS w WHERE w."id" = g."id")' if pending else ""
    return f'(SELECT g."id" FROM {gone} AS g{back})'


def ids(columns: Sequence[tuple[str, str]]) -> str:
    """The distinct values of columns, given as relation and name."""
    parts = (f'SELECT DISTINCT a.{name(column)} AS "id" FROM {relation} AS a' for relation, column in columns)
    return f"({' UNION '.join(parts)})"


def all_of(selects: Sequence[str], most: int) -> str:
    """One query for all checks; `n` says which of them a row comes from."""
    numbered = (f"SELECT {n} AS n, q.id, q.value, q.other FROM ({each}) AS q" for n, each in enumerate(selects))
    return f"SELECT u.* FROM ({' UNION ALL '.join(numbered)}) AS u ORDER BY u.n, u.id LIMIT {most}"


def other_values(new: str, base: str) -> str:
    """A row with another value than the base has; one that is new and has none is no such."""
    differs = f"n.{name(new)} IS DISTINCT FROM b.{name(base)}"
    return f'SELECT n."id" FROM "new" AS n LEFT JOIN "base" AS b ON b."id" = n."id" WHERE {differs} LIMIT 1'

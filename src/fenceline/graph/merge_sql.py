"""The three-way merge of rows as SQL, for both engines; `row_merge.py` says the same for a few rows, in Python.

Relations: `own` and `brought` are the rows that we and they changed or added, whole; `own_gone` and `their_gone` the
ids of those that were deleted; `before` the base's rows that both changed; `ours` all of our rows.
"""

# ruff: noqa: S608
from __future__ import annotations

from collections.abc import Sequence

from fenceline.graph.checks import name
from fenceline.repo.merge import Strategy

GONE = "gone?"
"""A column that no property is called like."""
_JOINED = (
    '"brought" AS t LEFT JOIN "own" AS o ON o."id" = t."id" '
    'LEFT JOIN "own_gone" AS g ON g."id" = t."id" LEFT JOIN "before" AS b ON b."id" = t."id"'
)
_BOTH = 'o."id" IS NOT NULL AND b."id" IS NOT NULL'
_BOTH_NEW = 'o."id" IS NOT NULL AND b."id" IS NULL'
_DELETED = 'g."id" IS NOT NULL'


def delta(columns: Sequence[str]) -> str:
    """What one side made of the base, in one pass: rows that are new or different, and ids of those that are gone."""
    shown = ", ".join(f"n.{name(each)}" for each in columns if each != "id")
    also = f", {shown}" if shown else ""
    lists = f'SELECT COALESCE(n."id", b."id") AS "id"{also}, n."id" IS NULL AS {name(GONE)}'
    other = f'n."id" IS NULL OR b."id" IS NULL OR {_any(columns, "n", "b")}'
    return f'{lists} FROM "new" AS n FULL OUTER JOIN "base" AS b ON b."id" = n."id" WHERE {other}'


def of_delta(columns: Sequence[str], *, gone: bool) -> str:
    listed = ", ".join(f"d.{name(each)}" for each in columns)
    return f'SELECT {listed} FROM "delta" AS d WHERE {"" if gone else "NOT "}d.{name(GONE)}'


def puts(columns: Sequence[str], strategy: Strategy | None) -> str:
    """Rows of ours as they will be: what they changed, with what we changed of the same row."""
    shown = ", ".join(f"{_merged(each, strategy)} AS {name(each)}" for each in columns)
    taken = ['(g."id" IS NULL AND o."id" IS NULL)', f"({_BOTH} AND ({_taken(columns, strategy)}))"]
    if strategy == "theirs":
        taken += [_DELETED, f"({_BOTH_NEW} AND ({_any(columns, 't', 'o')}))"]
    return f"SELECT {shown} FROM {_JOINED} WHERE {' OR '.join(taken)}"


def removes(strategy: Strategy | None) -> str:
    """Ids of ours that they deleted."""
    kept = "" if strategy == "theirs" else f" AND NOT {_exists('own')}"
    return f'SELECT d."id" FROM "their_gone" AS d WHERE NOT {_exists("own_gone")}{kept}'


def conflicting(columns: Sequence[str], most: int) -> str:
    """Ids of rows that need a decision."""
    differing = " OR ".join(
        f"({_differs(each, 't', 'b')} AND {_differs(each, 'o', 'b')} AND {_differs(each, 't', 'o')})"
        for each in columns
    )
    cases = [_DELETED, f"({_BOTH_NEW} AND ({_any(columns, 't', 'o')}))", f"({_BOTH} AND ({differing}))"]
    changed = f'SELECT t."id" AS "id" FROM {_JOINED} WHERE {" OR ".join(cases)}'
    deleted = f'SELECT d."id" AS "id" FROM "their_gone" AS d WHERE {_exists("own")}'
    return f'SELECT q."id" FROM ({changed} UNION {deleted}) AS q ORDER BY q."id" LIMIT {most}'


def changed_by_both(columns: Sequence[str]) -> str:
    """Of the base's rows those that `before` is."""
    listed = ", ".join(f"d.{name(each)}" for each in columns)
    return f'SELECT {listed} FROM "base" AS d WHERE {_exists("own")} AND {_exists("brought")}'


def replaced(columns: Sequence[str]) -> str:
    """Rows of ours that are replaced or deleted."""
    listed = ", ".join(f"d.{name(each)}" for each in columns)
    return f'SELECT {listed} FROM "ours" AS d WHERE {_exists("puts")} OR {_exists("removes")}'


def result(columns: Sequence[str]) -> str:
    """All rows as they will be."""
    kept = ", ".join(f"d.{name(each)}" for each in columns)
    new = ", ".join(f"p.{name(each)}" for each in columns)
    stay = f'SELECT {kept} FROM "ours" AS d WHERE NOT {_exists("puts")} AND NOT {_exists("removes")}'
    return f'{stay} UNION ALL SELECT {new} FROM "puts" AS p'


def of_ids(relation: str, columns: Sequence[str], *, without: bool = False) -> str:
    """The rows of a relation whose ids are listed in `wanted`, or all the others."""
    listed = ", ".join(f"d.{name(each)}" for each in columns)
    return f'SELECT {listed} FROM "{relation}" AS d WHERE {"NOT " if without else ""}{_exists("wanted")}'


def both(columns: Sequence[str]) -> str:
    listed = (", ".join(f"{alias}.{name(each)}" for each in columns) for alias in ("d", "e"))
    return 'SELECT {} FROM "one" AS d UNION ALL SELECT {} FROM "other" AS e'.format(*listed)


def _exists(relation: str) -> str:
    return f'EXISTS (SELECT 1 FROM "{relation}" AS x WHERE x."id" = d."id")'


def _differs(column: str, one: str, other: str) -> str:
    return f"{one}.{name(column)} IS DISTINCT FROM {other}.{name(column)}"


def _any(columns: Sequence[str], one: str, other: str) -> str:
    return " OR ".join(_differs(each, one, other) for each in columns)


def _taken(columns: Sequence[str], strategy: Strategy | None) -> str:
    """Whether the merged row is another one than ours."""
    free = "" if strategy == "theirs" else " AND NOT {}"
    return " OR ".join(
        f"({_differs(each, 't', 'b')} AND {_differs(each, 't', 'o')}{free.format(_differs(each, 'o', 'b'))})"
        for each in columns
    )


def _merged(column: str, strategy: Strategy | None) -> str:
    t, o = f"t.{name(column)}", f"o.{name(column)}"
    if column == "id":
        return t
    winner = t if strategy == "theirs" else o
    unchanged = f"NOT ({_differs(column, 't', 'b')})"
    cell = f"CASE WHEN {unchanged} THEN {o} WHEN NOT ({_differs(column, 'o', 'b')}) THEN {t} ELSE {winner} END"
    return f"CASE WHEN {_BOTH} THEN {cell} ELSE {t} END"

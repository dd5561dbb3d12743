"""Merge: rows of one id folded into one, over the row that the table has. SQL, for both engines.

`r.g` numbers the sets of properties that rows give, `r.o` counts rows in input order. Of each property the latest row
that gives it wins; what no row gives stays as it was committed.
"""

# ruff: noqa: S608
from __future__ import annotations

from collections.abc import Sequence

from fenceline.graph.checks import name
from fenceline.graph.loading.row_reading import Given
from fenceline.graph.schema import TableType


def fold(table: TableType, sets: Sequence[Given], incoming: str, committed: str | None) -> str:
    """SELECT of every column; `committed` names the relation of committed rows with such ids."""
    own = [each for each in table.own_columns if each != "id"]
    latest = [f"MAX_BY(r.{name(each)}, r.o) AS {name(each)}" for each in own]
    shown = [f"q.{name(each)}" for each in ("id", *own)]
    for n, each in enumerate(table.properties):
        given = ", ".join(str(number) for number, names in enumerate(sets) if each.name in names)
        old = f"c.{name(each.name)}" if committed else "NULL"
        if not given:
            shown.append(f"{old} AS {name(each.name)}")
            continue
        # in a struct: the latest value may be null, which aggregates pass over
        latest.append(f"MAX_BY(STRUCT_PACK(v := r.{name(each.name)}), r.o) FILTER (WHERE r.g IN ({given})) AS v{n}")
        latest.append(f"MAX(CASE WHEN r.g IN ({given}) THEN 1 ELSE 0 END) AS h{n}")
        shown.append(f"CASE WHEN q.h{n} = 1 THEN q.v{n}.v ELSE {old} END AS {name(each.name)}")
    grouped = f"(SELECT {', '.join(['r.id', *latest])} FROM {incoming} AS r GROUP BY r.id) AS q"
    joined = f" LEFT JOIN {committed} AS c ON c.id = q.id" if committed else ""
    return f"SELECT {', '.join(shown)} FROM {grouped}{joined}"


def replaced(table: TableType, pending: str, committed: str, *more: str) -> str:
    """The committed rows that pending ones replace: what the evaluator calls gone, and `more` of their columns."""
    own = [each for each in table.own_columns if each != "dst"]
    listed = ", ".join(f"c.{name(each)}" for each in (*own, *more))
    return f"SELECT {listed} FROM {committed} AS c WHERE EXISTS (SELECT 1 FROM {pending} AS p WHERE p.id = c.id)"

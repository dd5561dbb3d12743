"""What differs between two versions of a table, row by row."""

from __future__ import annotations

from fenceline.graph import checks
from fenceline.graph.engine import Engine
from fenceline.graph.pins import Pin
from fenceline.graph.row_merge import Delta
from fenceline.graph.schema import TableType, columns
from fenceline.graph.storage import TableStore


def delta(store: TableStore, engine: Engine, table: TableType, base: Pin | None, new: Pin) -> Delta:
    """Both versions are read once for what changed, and their ids once more for what is gone."""
    named = columns(table)
    if base is None or store.schema(base).names != store.schema(new).names:
        rows = store.scan(new, named).read_all().to_pylist()
        there = set() if base is None else set(store.scan(base, ["id"]).read_all()["id"].to_pylist())
        return Delta({row["id"]: row for row in rows}, frozenset(there - {row["id"] for row in rows}))
    changed = engine.query(
        checks.differing(named), {"new": store.scan(new, named), "base": store.scan(base, named)}
    ).to_pylist()
    gone = engine.query(checks.missing(), {"new": store.scan(new, ["id"]), "base": store.scan(base, ["id"])})
    return Delta({row["id"]: row for row in changed}, frozenset(gone["id"].to_pylist()))

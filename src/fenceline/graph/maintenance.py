"""Looking after a graph's tables: indices that its schema asks for, and fewer, larger fragments. Each is a commit."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass

from fenceline.graph.bulk import Bulk, published
from fenceline.graph.graph import Graph
from fenceline.graph.pins import IndexKind, Pin
from fenceline.graph.schema import Scalar, TableType, Vector
from fenceline.txn.transaction import TransactionResult


@dataclass(frozen=True, slots=True)
class Maintained:
    """What was done to which tables."""

    tables: dict[str, Pin]
    """Those that have a new version."""
    result: TransactionResult


def wanted_indices(table: TableType) -> list[tuple[str, IndexKind]]:
    """What look-ups and checks go through, and what the schema says: texts are indexed by value and by word."""
    found: dict[tuple[str, IndexKind], None] = {(name, "btree"): None for name in table.own_columns}
    for columns in table.unique:
        found[columns[0], "btree"] = None
    for name in table.index:
        kind = table.property(name).kind
        if isinstance(kind, Vector):
            found[name, "vector"] = None
            continue
        found[name, "btree"] = None
        if kind is Scalar.STRING:
            found[name, "inverted"] = None
    return list(found)


def ensure_indices(
    graph: Graph, tables: Sequence[str] = (), *, actor: str | None = None, key: str | None = None, message: str = ""
) -> Maintained:
    """Build what indices do not cover yet; nothing is published where they cover everything."""

    def indexed(bulk: Bulk, table: TableType, pin: Pin) -> Pin:
        for column, kind in wanted_indices(table) if pin.rows else ():
            pin = bulk.store.stage_index(pin, column, kind)
        return pin

    return _maintained(graph, tables, indexed, actor, key, message or "Ensure indices")


def optimize(
    graph: Graph,
    tables: Sequence[str] = (),
    *,
    target_rows: int = 1024 * 1024,
    actor: str | None = None,
    key: str | None = None,
    message: str = "",
) -> Maintained:
    """Compact tables: small fragments become few large ones, deleted rows go, indices are built again."""

    def compacted(bulk: Bulk, _: TableType, pin: Pin) -> Pin:
        return bulk.store.stage_compaction(pin, target_rows)

    return _maintained(graph, tables, compacted, actor, key, message or "Optimize tables")


def _maintained(
    graph: Graph,
    tables: Iterable[str],
    work: Callable[[Bulk, TableType, Pin], Pin],
    actor: str | None,
    key: str | None,
    message: str,
) -> Maintained:
    named, done = list(tables), dict[str, Pin]()

    def run(bulk: Bulk) -> None:
        done.clear()
        catalogue = bulk.snapshot.catalogue
        chosen = [catalogue.table(name) for name in named] or catalogue.tables()
        for table in chosen:
            base = bulk.snapshot.pin(table.table_key)
            if not base.fragments:
                continue
            bulk.declare(table.table_key)
            pin = work(bulk, table, base)
            if pin.version != base.version:
                bulk.publish(table.table_key, pin)
                done[table.table_key] = pin

    result = published(graph, run, actor=actor, key=key, message=message)
    return Maintained(done, result)

"""The statements of a transaction over the tables of a graph: they change rows in memory only, and see their own."""

# ruff: noqa: A002
from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any, overload

from fenceline.errors import ContractError, TransactionClosed
from fenceline.graph.constraints import Near
from fenceline.graph.engine import Engine, Relation
from fenceline.graph.lookups import lookup
from fenceline.graph.manifest import Place
from fenceline.graph.pending import Pending, Row
from fenceline.graph.pending_files import PendingFiles
from fenceline.graph.predicates import Where
from fenceline.graph.reading import Overlaid
from fenceline.graph.rows import changed_row, end_id, new_edge, new_node, row_id
from fenceline.graph.schema import Catalogue, NodeType, TableType
from fenceline.graph.snapshot import Snapshot
from fenceline.graph.storage import TableStore
from fenceline.repo.native.repository import NativeRepository
from fenceline.txn.transaction import Transaction, TransactionResult


class Statements:
    """Rows of a graph with a transaction's own changes over them."""

    def __init__(
        self, repo: NativeRepository, tx: Transaction, place: Place, store: TableStore, engine: Engine
    ) -> None:
        self._repo, self._place, self._store, self._engine = repo, place, store, engine
        self._pending: dict[str, Pending] = {}
        self._seen: set[str] = set()
        """Pins of tables whose rows a statement has looked at."""
        self._open = False
        self.files = PendingFiles(lambda: self._tx, place)
        self._on(tx)

    def _on(self, tx: Transaction) -> None:
        self._tx = tx
        self._snapshot = Snapshot(self._read, self._place)

    def _read(self, path: str) -> bytes | None:
        entry = self._tx.stat(path)
        return None if entry is None else self._repo.read(entry)

    # --- what a caller may ask ----------------------------------------------------------------------------------

    @property
    def schema(self) -> Catalogue:
        return self._snapshot.catalogue

    @property
    def already_applied(self) -> bool:
        """Whether this key was applied before. Then statements change nothing, and the earlier result is reported."""
        return self._tx.already_applied

    @property
    def execution(self) -> str:
        return self._tx.execution

    @property
    def result(self) -> TransactionResult:
        return self._tx.result

    def rows(self, name: str, where: Where | None = None, *, id: Any = None) -> list[Row]:
        """Rows of a node or edge type, own changes included."""
        self._check_open()
        return [row for row, _ in self._matching(self.schema.table(name), id, where)]

    def count(self, name: str, where: Where | None = None) -> int:
        return len(self.rows(name, where))

    # --- statements ---------------------------------------------------------------------------------------------

    @overload
    def insert(self, name: str, rows: Mapping[str, Any]) -> str: ...

    @overload
    def insert(self, name: str, rows: Iterable[Mapping[str, Any]]) -> list[str]: ...

    def insert(self, name: str, rows: Mapping[str, Any] | Iterable[Mapping[str, Any]]) -> str | list[str]:
        """New nodes; returns their ids. That no node has such an id already is checked when the block ends."""
        node = self.schema.node(name)
        many = [rows] if isinstance(rows, Mapping) else list(rows)
        ids = self._add(node, [new_node(node, row, self._repo.seams.ids.execution) for row in many])
        return ids[0] if isinstance(rows, Mapping) else ids

    def upsert(self, name: str, rows: Mapping[str, Any] | Iterable[Mapping[str, Any]]) -> int:
        """Change the nodes that are there in the properties that are given, and insert the others; returns how many."""
        node = self.schema.node(name)
        if self._dropping():
            return 0
        many = [rows] if isinstance(rows, Mapping) else list(rows)
        ids = [row_id(node, row) for row in many]
        known = {row["id"]: (row, before) for row, before in self._matching(node, [i for i in ids if i], None)}
        made: dict[str, tuple[Row, Row | None]] = {}
        for given, given_id in zip(many, ids, strict=True):
            old = made.get(given_id or "") or known.get(given_id or "")
            if old is None:
                row, before = new_node(node, given, self._repo.seams.ids.execution), None
            else:
                row, before = changed_row(node, old[0], given), old[1]
            made[row["id"]] = row, before
        for row, before in made.values():
            self._of(node).put(row, before)
        return len(made)

    def insert_edge(
        self,
        name: str,
        from_: Any,
        to: Any,
        data: Mapping[str, Any] | None = None,
        *,
        id: str | None = None,
    ) -> str:
        """A new edge between two nodes, named by id or key; returns its id."""
        return self.insert_edges(name, [{**(data or {}), "from": from_, "to": to, "id": id}])[0]

    def insert_edges(self, name: str, rows: Iterable[Mapping[str, Any]]) -> list[str]:
        """New edges: `from`, `to` and their properties."""
        edge = self.schema.edge(name)
        ends = self.schema.node(edge.source), self.schema.node(edge.target)
        return self._add(edge, [new_edge(edge, ends, row, self._repo.seams.ids.execution) for row in rows])

    def update(
        self,
        name: str,
        id: Any = None,
        set: Mapping[str, Any] | None = None,
        *,
        where: Where | None = None,
    ) -> int:
        """Set properties of the node with an id or key, or of all that match; returns how many there were."""
        return self._update(self.schema.node(name), id, set, where)

    def update_edge(
        self,
        name: str,
        id: str | None = None,
        set: Mapping[str, Any] | None = None,
        *,
        where: Where | None = None,
    ) -> int:
        return self._update(self.schema.edge(name), id, set, where)

    def delete(self, name: str, id: Any = None, *, where: Where | None = None) -> int:
        """Delete nodes, and with them every edge that leaves or enters them; returns how many nodes there were."""
        node = self.schema.node(name)
        gone = self._delete(node, id, where)
        for edge in self.schema.edges_at(name) if gone else ():
            columns = [c for c, end in (("src", edge.source), ("dst", edge.target)) if end == name]
            for column in columns:
                for row, before in self._reading(edge).having(column, gone):
                    self._of(edge).remove(row["id"], before)
        return len(gone)

    def delete_edge(self, name: str, id: str | None = None, *, where: Where | None = None) -> int:
        return len(self._delete(self.schema.edge(name), id, where))

    def _add(self, table: TableType, rows: Sequence[Row]) -> list[str]:
        if self._dropping():
            return [row["id"] for row in rows]
        pending = self._of(table)
        pending.refuse_taken(rows)
        for row in rows:
            pending.put(row, None)
        return [row["id"] for row in rows]

    def _update(self, table: TableType, of: Any, values: Mapping[str, Any] | None, where: Where | None) -> int:
        if self._dropping():
            return 0
        _one_of(of, where)
        found = self._matching(table, of, where)
        changed = [(changed_row(table, row, values or {}), before) for row, before in found]
        for row, before in changed:
            self._of(table).put(row, before)
        return len(changed)

    def _delete(self, table: TableType, of: Any, where: Where | None) -> list[str]:
        if self._dropping():
            return []
        _one_of(of, where)
        found = self._matching(table, of, where)
        pending = self._of(table)
        new = [row["id"] for row, before in found if before is None]
        if new:  # inserted here: were they there before, the insert was wrong, and must not be hidden by this
            self._reading(table).refuse_committed(new)
        for row, before in found:
            pending.remove(row["id"], before)
        return [row["id"] for row, _ in found]

    # --- reading ------------------------------------------------------------------------------------------------

    def _of(self, table: TableType) -> Pending:
        return self._pending.setdefault(table.table_key, Pending(table))

    def _reading(self, table: TableType) -> Overlaid:
        """Rows with own changes over them. From here on the block depends on what it has seen of the table."""
        self._seen.add(self._place.pin(table.table_key))
        pin = self._snapshot.pin(table.table_key)
        return Overlaid(self._store, self._engine, pin, self._pending.get(table.table_key, Pending(table)))

    def _matching(self, table: TableType, of: Any, where: Where | None) -> list[tuple[Row, Row | None]]:
        if of is None:
            return self._reading(table).where(where)
        ids = list(of) if isinstance(of, list) else [of]
        if isinstance(table, NodeType):
            ids = [end_id(table, each) for each in ids]
        pending = self._pending.get(table.table_key)
        if pending and all(each in pending.rows for each in ids):  # nothing committed is looked at
            return [(pending.rows[each], pending.gone.get(each)) for each in ids]
        return self._reading(table).having("id", ids)

    def _committed(self, table_key: str, columns: Sequence[str], near: Near | None) -> Relation:
        pin = self._snapshot.pin(table_key)
        if near is None:
            return self._store.scan(pin, columns)
        return lookup(self._store, pin, near.column, near.values, columns)

    def _dropping(self) -> bool:
        self._check_open()
        return self.already_applied

    def _check_open(self) -> None:
        if not self._open:
            raise TransactionClosed("the transaction is not open", hint="use it inside its with block")


def _one_of(of: Any, where: Where | None) -> None:
    if (of is None) == (where is None):
        raise ContractError("name the rows by id, or by where", hint="where={} means all rows of the type")

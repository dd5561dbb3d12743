"""Transactions over the tables of a graph: statements in order, read-your-writes, one commit.

Statements change rows in memory only. When the block ends: the rules are checked, each touched table gets one more
version, and pins and files are published as one repository transaction. If the branch moved meanwhile, the same is
done again on its new head, as long as nothing that the block itself has looked at was changed.
"""

# ruff: noqa: A002
from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from types import TracebackType
from typing import Any, Self, TypeVar, overload

from fenceline.errors import ContractError, PublishConflict, TransactionClosed
from fenceline.graph.constraints import Near, check
from fenceline.graph.engine import Engine, Relation
from fenceline.graph.lookups import lookup
from fenceline.graph.manifest import SCHEMA_KEY, Place
from fenceline.graph.pending import Pending, Row
from fenceline.graph.pending_files import PendingFiles
from fenceline.graph.pins import Pin
from fenceline.graph.predicates import Where
from fenceline.graph.reading import Overlaid
from fenceline.graph.rows import changed_row, end_id, new_edge, new_node, row_id
from fenceline.graph.schema import Catalogue, EdgeType, NodeType, TableType
from fenceline.graph.snapshot import Snapshot
from fenceline.graph.staging import staged
from fenceline.graph.storage import TableStore
from fenceline.graph.violations import ExpectedVersionMismatch
from fenceline.repo.native.repository import NativeRepository
from fenceline.txn.transaction import Transaction, TransactionResult

TRIES = 5
_PAUSE, _LONGEST_PAUSE = 0.005, 0.2
T = TypeVar("T", NodeType, EdgeType)


class GraphTransaction:
    """Changes to a graph, and to files beside it, that become visible together or not at all."""

    def __init__(
        self,
        repo: NativeRepository,
        begin: Callable[[], Transaction],
        branch: str,
        place: Place,
        store: TableStore,
        engine: Engine,
        tries: int = TRIES,
    ) -> None:
        if tries < 1:
            raise ContractError(f"tries is {tries}", hint="give 1 or more")
        self._repo, self._begin, self._branch, self._place = repo, begin, branch, place
        self._store, self._engine, self._tries = store, engine, tries
        self._pending: dict[str, Pending] = {}
        self._seen: set[str] = set()
        self._open = False
        self.files = PendingFiles(lambda: self._tx, place)
        self._on(begin())

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

    # --- the block ----------------------------------------------------------------------------------------------

    def __enter__(self) -> Self:
        self._tx.__enter__()
        self._open = True
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._open = False
        if error is not None:
            self._tx.__exit__(kind, error, trace)
            return
        for number in range(1, self._tries + 1):
            try:
                self._publish()
                return
            except PublishConflict as conflict:
                self._begin_again(conflict, number)

    def _publish(self) -> None:
        """Everything from the checks to the entry, inside the repository transaction: what fails here, it cancels."""
        try:
            if not self._tx.already_applied:
                self._stage()
        except BaseException as error:
            self._tx.__exit__(type(error), error, error.__traceback__)
            raise
        self._tx.__exit__(None, None, None)

    def _stage(self) -> None:
        for pending in self._pending.values():
            pending.forget_unchanged()
        changed = {key: pending for key, pending in self._pending.items() if pending.changed}
        if changed:
            changes = {key: pending.change() for key, pending in changed.items()}
            check(self._engine, self.schema, changes, self._committed, cascaded=True)
        bases = {key: self._snapshot.pin(key) for key in changed}
        for base in bases.values():
            self._tx.declare_table(base.table)
        store = self._store.noting(self._tx.wrote)
        for key, pending in changed.items():
            self._tx.write(self._place.pin(key), staged(store, bases[key], pending).to_bytes())
        self.files.apply(self._tx)

    def _begin_again(self, conflict: PublishConflict, number: int) -> None:
        """On the new head, if what the block has seen is still so. Else the conflict is the caller's."""
        seams, last = self._repo.seams, number == self._tries
        if not last:
            seams.clock.sleep(min(_PAUSE * 2**number, _LONGEST_PAUSE) * seams.random.random())
        old, before = self._snapshot, self._tx.input
        tx = self._begin()
        depends = {*self._seen, *self.files.touched, self._place.manifest}
        for path in sorted({*depends, *conflict.paths} if last else depends):
            one, other = self._repo.find(before, path), self._repo.find(tx.input, path)
            if one != other and (one is None or other is None or not one.same_content(other)):
                raise self._mismatch(path, old, tx) or conflict from conflict
        if last:
            raise conflict
        self._on(tx)
        tx.__enter__()

    def _mismatch(self, path: str, old: Snapshot, tx: Transaction) -> ExpectedVersionMismatch | None:
        key = self._place.table_key(path)
        if key is None:
            return None

        def bytes_now(path: str) -> bytes | None:
            entry = self._repo.find(tx.input, path)
            return None if entry is None else self._repo.read(entry)

        new = Snapshot(bytes_now, self._place)
        if key == SCHEMA_KEY:
            return ExpectedVersionMismatch(key, old.manifest.published, new.manifest.published, branch=self._branch)
        raw = bytes_now(path)
        actual = Pin.from_bytes(raw, path).published if raw is not None else None
        return ExpectedVersionMismatch(key, old.pin(key).published, actual, branch=self._branch)

    def _dropping(self) -> bool:
        self._check_open()
        return self.already_applied

    def _check_open(self) -> None:
        if not self._open:
            raise TransactionClosed("the transaction is not open", hint="use it inside its with block")


def _one_of(of: Any, where: Where | None) -> None:
    if (of is None) == (where is None):
        raise ContractError("name the rows by id, or by where", hint="where={} means all rows of the type")

"""Changes to whole tables as one repository transaction: loads, changes of schema, indices, compaction.

Where `transaction.py` keeps rows in memory, these stage versions as they go. If someone else publishes meanwhile, the
work is done again on the new head.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping

from fenceline.errors import PublishConflict
from fenceline.graph.graph import Graph
from fenceline.graph.manifest import SCHEMA_KEY, Place
from fenceline.graph.pins import Pin
from fenceline.graph.snapshot import Snapshot
from fenceline.graph.storage import TableStore
from fenceline.graph.transaction import TRIES
from fenceline.graph.violations import ExpectedVersionMismatch
from fenceline.repo.model import Commit
from fenceline.repo.native.repository import NativeRepository
from fenceline.txn.transaction import Transaction, TransactionResult

_PAUSE = 0.05


class Bulk:
    """One try. Everything it looks at counts as read; what it stages is declared first."""

    def __init__(self, repo: NativeRepository, tx: Transaction, place: Place, store: TableStore) -> None:
        self._repo = repo
        self.tx, self.place = tx, place
        self.snapshot = Snapshot(self._read, place)
        self.store = store.noting(tx.wrote)

    def _read(self, path: str) -> bytes | None:
        entry = self.tx.stat(path)
        return None if entry is None else self._repo.read(entry)

    def declare(self, table_key: str) -> Pin:
        """The pin to build on; from here on something may be written into its table."""
        pin = self.snapshot.pin(table_key)
        self.tx.declare_table(pin.table)
        return pin

    def publish(self, table_key: str, pin: Pin) -> None:
        """Publish a version of a table, however many steps it was staged in; nothing if it is the one there is."""
        base = self.snapshot.pin(table_key)
        if pin.version != base.version:
            self.tx.write(self.place.pin(table_key), pin.published_after(base).to_bytes())


def published(
    graph: Graph,
    work: Callable[[Bulk], None],
    *,
    actor: str | None = None,
    key: str | None = None,
    message: str = "",
    metadata: Mapping[str, str] | None = None,
    tries: int = TRIES,
) -> TransactionResult:
    """Do the work and publish it, again on a newer head if it must be. With a key applied before it is not done."""
    repo = graph._repo
    for left in range(tries - 1, -1, -1):
        tx = graph._begin(actor, key, message, metadata)
        try:
            with tx:
                if not tx.already_applied:
                    work(Bulk(repo, tx, graph.place, graph._store))
            return tx.result
        except PublishConflict as conflict:
            if not left:
                raise _mismatch(graph, tx.input, conflict) or conflict from conflict
            repo.seams.clock.sleep(_PAUSE * repo.seams.random.random())
    raise AssertionError("tries is at least 1")


def _mismatch(graph: Graph, before: Commit, conflict: PublishConflict) -> ExpectedVersionMismatch | None:
    """The conflict in terms of tables: the first one that someone else published."""
    now = graph._repo.head(graph.branch).commit
    for path in conflict.paths:
        key = graph.place.table_key(path)
        if key is not None:
            counts = (_publications(graph, commit, path, key) for commit in (before, now))
            return ExpectedVersionMismatch(key, *counts, branch=graph.branch)
    return None


def _publications(graph: Graph, commit: Commit, path: str, key: str) -> int | None:
    def read(path: str) -> bytes | None:
        entry = graph._repo.find(commit, path)
        return None if entry is None else graph._repo.read(entry)

    if key == SCHEMA_KEY:
        return Snapshot(read, graph.place).manifest.published
    raw = read(path)
    return None if raw is None else Pin.from_bytes(raw, path).published

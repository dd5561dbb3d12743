"""A graph as an attempt has it: its own input with its own changes, staged where the attempt stages its files.

The graph's transactions and loads run on it as they do on a branch. What they would publish they leave in the attempt,
which seals and publishes all of it together with its files: one commit, one verdict, one entry.
"""

from __future__ import annotations

from collections.abc import Iterable
from threading import RLock
from types import TracebackType
from typing import Any, Self

from fenceline.errors import ContractError, Outcome
from fenceline.graph.engine import Engine, in_process
from fenceline.graph.graph import Graph, GraphView
from fenceline.graph.manifest import Place
from fenceline.graph.pins import Pin
from fenceline.graph.storage import TableStore
from fenceline.repo.model import Entry
from fenceline.repo.native.pinned import SUFFIX
from fenceline.repo.native.repository import NativeRepository
from fenceline.txn.intent import IntentStore
from fenceline.txn.transaction import Transaction, TransactionResult
from fenceline.txn.trying import Try


class Inner(Transaction):
    """A transaction's calls on an attempt that is under way. It begins and ends nothing: the attempt does."""

    def __init__(self, repo: NativeRepository, trying: Try, lock: RLock, written: set[str]) -> None:
        self._repo, self._try, self._tree = repo, trying, trying.tree
        self._lock, self._written = lock, written
        self._progress, self._found = None, None
        self._entered, self._closed = True, False

    def stat(self, path: str) -> Entry | None:
        with self._lock:
            return super().stat(path)

    def write(self, path: str, data: Any, mode: int | None = None) -> None:
        if path.endswith(SUFFIX):
            data = self._next(path, data)
        with self._lock:
            super().write(path, data, mode)
        self._written.add(path)

    def _next(self, path: str, data: bytes) -> bytes:
        """However often an attempt changes a table, it publishes it once."""
        entry = self._repo.find(self.input, path)
        base = None if entry is None else Pin.from_bytes(self._repo.read(entry), path)
        return Pin.from_bytes(data, path).published_after(base).to_bytes()

    def declare_table(self, *tables: str) -> None:
        with self._lock:
            super().declare_table(*tables)

    def overtaken(self) -> bool:
        """The attempt goes on with its input; whether that still counts is decided when it publishes."""
        return False

    def wrote(self, keys: Iterable[str]) -> None:
        with self._lock:
            super().wrote(keys)

    @property
    def result(self) -> TransactionResult:
        """Nothing is applied before the attempt publishes."""
        return TransactionResult(
            Outcome.NOT_APPLIED, "staged", self.input.id, self._try.intent.base, self._try.execution
        )

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._closed = True


class AttemptView(GraphView):
    """The graph at the attempt's input, with what the attempt staged so far. What is looked at counts as read."""

    def __init__(self, tx: Inner, repo: NativeRepository, place: Place, store: TableStore, engine: Engine) -> None:
        self._tx = tx
        super().__init__(repo, tx.input, place, store, engine)

    def _read(self, path: str) -> bytes | None:
        entry = self._tx.stat(path)
        return None if entry is None else self._repo.read(entry)


class AttemptGraph(Graph):
    """A graph whose branch is the attempt."""

    def __init__(self, repo: NativeRepository, trying: Try, path: str, lock: RLock, *, read_only: bool) -> None:
        intents = IntentStore(repo.objects, repo.seams)
        super().__init__(repo, intents, trying.intent.branch, path, writable=not read_only)
        self._try, self._lock = trying, lock
        self.written: set[str] = set()
        """Paths of files of the graph that the attempt has staged."""

    @property
    def repo(self) -> NativeRepository:
        return self._repo

    @property
    def store(self) -> TableStore:
        return self._store

    def at(self, ref: str) -> GraphView:
        if ref != self.branch:
            return super().at(ref)
        return AttemptView(self.inner(), self._repo, self.place, self._store, in_process())

    def inner(self) -> Inner:
        return Inner(self._repo, self._try, self._lock, self.written)

    def _begin(self, *args: Any, **options: Any) -> Transaction:
        self.check_writable()
        return self.inner()

    def check_writable(self) -> None:
        if not self._writable:
            where = self.place.root or "the graph"
            raise ContractError(
                f"cannot change {where}: the task is read-only", hint="declare WorkspaceSpec(read_only=False)"
            )

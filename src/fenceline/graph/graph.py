"""What people hold of a graph: its schema, its tables at any commit, and transactions."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from functools import cached_property
from typing import TYPE_CHECKING, Any

import pyarrow as pa  # type: ignore[import-untyped]

from fenceline.errors import AlreadyExists, TransactionClosed
from fenceline.graph.engine import Engine, in_process
from fenceline.graph.manifest import Manifest, Place
from fenceline.graph.pending import Pending
from fenceline.graph.pins import Pin
from fenceline.graph.predicates import Where
from fenceline.graph.reading import Overlaid
from fenceline.graph.schema import Catalogue, TableType, arrow_schema, parse, render, schema_id, settled
from fenceline.graph.snapshot import Snapshot
from fenceline.graph.storage import TableStore
from fenceline.graph.transaction import TRIES, GraphTransaction
from fenceline.repo.model import Commit
from fenceline.repo.native.repository import NativeRepository
from fenceline.txn.intent import DEFAULT_LEASE, IntentStore
from fenceline.txn.transaction import Transaction, TransactionResult

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

    from fenceline.graph.loading.job import FrameSource
    from fenceline.graph.loading.result import EngineName, LoadResult, Mode, OnError, OnProgress
    from fenceline.graph.loading.sources import Source


class GraphView:
    """A graph at one commit."""

    def __init__(self, repo: NativeRepository, commit: Commit, place: Place, store: TableStore, engine: Engine) -> None:
        self._repo, self._commit, self._store, self._engine = repo, commit, store, engine
        self.snapshot = Snapshot(self._read, place)

    @property
    def commit(self) -> Commit:
        return self._commit

    @property
    def schema(self) -> Catalogue:
        return self.snapshot.catalogue

    def table(self, name: str) -> TableView:
        """The rows of a node or edge type: `Person`, `node:Person`."""
        table = self.schema.table(name)
        return TableView(self._store, self._engine, table, self.snapshot.pin(table.table_key))

    def _read(self, path: str) -> bytes | None:
        entry = self._repo.find(self._commit, path)
        return None if entry is None else self._repo.read(entry)


class TableView:
    """The rows of one type at one commit."""

    def __init__(self, store: TableStore, engine: Engine, table: TableType, pin: Pin) -> None:
        self._store, self._engine = store, engine
        self.type = table
        self.pin = pin

    def scan(self, columns: Sequence[str] | None = None) -> pa.RecordBatchReader:
        """The rows as a stream, for tables of any size."""
        return self._store.scan(self.pin, columns or arrow_schema(self.type).names)

    def to_arrow(self, columns: Sequence[str] | None = None) -> pa.Table:
        return self.scan(columns).read_all()

    def to_pandas(self, columns: Sequence[str] | None = None) -> Any:
        return self.to_arrow(columns).to_pandas()

    def to_spark(self, session: SparkSession | None = None, columns: Sequence[str] | None = None) -> DataFrame:
        """The rows as a frame that executors read. Nodes have `id`, edges `src` and `dst`, as for GraphFrames."""
        from fenceline.graph.spark_frames import frame
        from fenceline.spark.session import get_session

        return frame(session or get_session(), self._store, self.pin, self.type, columns)

    def rows(self, where: Where | None = None) -> list[dict[str, Any]]:
        found = Overlaid(self._store, self._engine, self.pin, Pending(self.type)).where(where)
        return [row for row, _ in found]

    def count(self, where: Where | None = None) -> int:
        return self.pin.rows if where is None else len(self.rows(where))


class Graph:
    """A graph on a branch. Reads see the branch's head at that moment; `at(ref)` keeps to one commit."""

    def __init__(
        self, repo: NativeRepository, intents: IntentStore, branch: str, path: str = "", *, writable: bool = True
    ) -> None:
        self._repo, self._intents, self._writable = repo, intents, writable
        self.branch = branch
        self.place = Place.at(path)

    @cached_property
    def _store(self) -> TableStore:
        return TableStore(self._repo.objects)

    def at(self, ref: str) -> GraphView:
        """The graph as it is at a ref: a branch, a tag, a commit id, `main~3`, `main@12`."""
        return GraphView(self._repo, self._repo.resolve(ref), self.place, self._store, in_process())

    @property
    def schema(self) -> Catalogue:
        return self.at(self.branch).schema

    def table(self, name: str) -> TableView:
        return self.at(self.branch).table(name)

    def init(
        self, schema: str, *, actor: str | None = None, key: str | None = None, message: str = "Create the graph"
    ) -> TransactionResult:
        """Create the graph: an empty table for every type of the schema."""
        catalogue = settled(parse(schema))
        with self._begin(actor, key, message, None) as tx:
            if tx.stat(self.place.manifest) is not None and not tx.already_applied:
                raise AlreadyExists(
                    f"there is a graph already: {self.place.manifest}", hint="use it, or choose another path"
                )
            if not tx.already_applied:
                self._create(tx, catalogue)
        return tx.result

    def _create(self, tx: Transaction, catalogue: Catalogue) -> None:
        tables = {table.table_key: self._repo.seams.ids.execution() for table in catalogue.tables()}
        store = self._store.noting(tx.wrote)
        for key, table in tables.items():
            tx.declare_table(table)
            pin = store.create(table, arrow_schema(catalogue.table(key)))
            tx.write(self.place.pin(key), pin.published_after(None).to_bytes())
        tx.write(self.place.schema, render(catalogue))
        tx.write(self.place.manifest, Manifest(schema_id(catalogue), tables).to_bytes())

    def transaction(
        self,
        *,
        actor: str | None = None,
        key: str | None = None,
        message: str = "",
        tries: int = TRIES,
        metadata: Mapping[str, str] | None = None,
        lease: float = DEFAULT_LEASE,
    ) -> GraphTransaction:
        """Changes that become visible together or not at all: publish on exit, cancel on an exception.

        If others publish meanwhile, it goes on where nothing that it has seen was changed, and is checked again, up to
        `tries` times. The same `key` never applies twice on a branch.
        """
        return GraphTransaction(
            self._repo,
            lambda: self._begin(actor, key, message, metadata, lease),
            self.branch,
            self.place,
            self._store,
            in_process(),
            tries,
        )

    def load(
        self,
        sources: str | Source | FrameSource | DataFrame | Iterable[str | Source | FrameSource],
        *,
        table: str | None = None,
        mapping: Mapping[str, str] | None = None,
        mode: Mode = "append",
        engine: EngineName = "auto",
        on_error: OnError = "fail",
        most: int | None = None,
        dry_run: bool = False,
        source_branch: str | None = None,
        actor: str | None = None,
        key: str | None = None,
        message: str = "",
        progress: OnProgress = lambda progress: None,
        session: SparkSession | None = None,
    ) -> LoadResult:
        """Load files (JSONL, Parquet, CSV) or Spark frames into the tables: all of it in one commit, or nothing.

        `table` is the type of all rows, where neither rows nor file names say it; `mapping` leads from columns to
        properties. The rest is that of `fenceline graph load`; see `fenceline.graph.load`.
        """
        from fenceline.graph.load import given, load
        from fenceline.graph.loading.result import MOST_REPORTED

        return load(
            self,
            given(sources, table, mapping or {}),
            mode=mode,
            engine=engine,
            on_error=on_error,
            most=MOST_REPORTED if most is None else most,
            dry_run=dry_run,
            source_branch=source_branch,
            actor=actor,
            key=key,
            message=message,
            progress=progress,
            session=session,
        )

    def _begin(
        self,
        actor: str | None,
        key: str | None,
        message: str,
        metadata: Mapping[str, str] | None,
        lease: float = DEFAULT_LEASE,
    ) -> Transaction:
        if not self._writable:
            raise TransactionClosed(
                f"cannot begin a transaction: {self._repo.url} was opened read-only", hint="open it with mode='rw'"
            )
        return Transaction(
            self._repo,
            self._intents,
            self.branch,
            actor=actor or self._repo.seams.actor(),
            key=key,
            message=message,
            on_conflict="rebase",
            metadata=metadata,
            lease=lease,
            kind="graph",
        )

"""The load in this process: rows as Arrow in memory, rules on DuckDB."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

import pyarrow as pa  # type: ignore[import-untyped]

from fenceline.graph.bulk import Bulk, published
from fenceline.graph.constraints import Change, Evaluator, Near
from fenceline.graph.engine import Engine, Relation, in_process
from fenceline.graph.loading.bad_rows import BadRow, LoadRefused
from fenceline.graph.loading.job import Job
from fenceline.graph.loading.locating import bad_rows
from fenceline.graph.loading.merging import fold, replaced
from fenceline.graph.loading.reading import Bad, Batch, PieceReader
from fenceline.graph.loading.result import LoadProgress, LoadResult, Mode, OnProgress, TableRows
from fenceline.graph.loading.row_reading import Given
from fenceline.graph.loading.sources import Piece
from fenceline.graph.lookups import lookup
from fenceline.graph.pins import Pin
from fenceline.graph.schema import Catalogue, TableType, arrow_schema
from fenceline.graph.snapshot import Snapshot
from fenceline.graph.storage import TableStore

_LOOKED_UP = 1_000


@dataclass(slots=True)
class Incoming:
    """The rows of the input for one table, in order, by what they give."""

    table: TableType
    batches: list[tuple[Given, pa.RecordBatch]] = field(default_factory=list)
    read: int = 0

    def add(self, batch: Batch) -> None:
        self.batches.append((batch.given, batch.rows))
        self.read += len(batch.rows) + batch.folded

    def whole(self) -> pa.Table:
        return pa.Table.from_batches([batch for _, batch in self.batches], arrow_schema(self.table))

    @property
    def plain(self) -> bool:
        """Whether every row says everything."""
        names = tuple(each.name for each in self.table.properties)
        return all(given == names for given, _ in self.batches)


@dataclass(frozen=True, slots=True)
class Prepared:
    """What becomes of one table, ready to be checked and staged."""

    base: Pin
    pending: pa.Table
    gone: pa.Table | None
    read: int

    def change(self, mode: Mode) -> Change:
        return Change(self.pending, self.gone, inserts=mode != "merge")

    def outcome(self, mode: Mode) -> TableRows:
        gone, rows = len(self.gone) if self.gone is not None else 0, len(self.pending)
        if mode == "overwrite":
            return TableRows(self.read, rows, 0, gone, rows)
        return TableRows(self.read, rows - gone, gone, 0, self.base.rows + rows - gone)


def load_here(job: Job) -> LoadResult:
    """Read once, then check and publish, however often another writer comes first."""
    work = LocalLoad(in_process(), job.pieces, job.reader, job.mode)
    work.read(job.progress)
    done: dict[str, TableRows] = {}
    if job.dry_run:
        job.progress(LoadProgress("check"))
        prepared = work.prepare(job.graph.at(job.ref).snapshot, job.graph._store)
        return LoadResult({name: each.outcome(job.mode) for name, each in prepared.items()}, None, "local")

    def stage(bulk: Bulk) -> None:
        job.refuse_other_schema(bulk)
        job.progress(LoadProgress("check"))
        prepared = work.prepare(bulk.snapshot, bulk.store)
        done.clear()
        for n, (name, each) in enumerate(prepared.items()):
            job.progress(LoadProgress("write", n, len(prepared)))
            bulk.declare(name)
            bulk.publish(name, work.stage(bulk.store, each))
            done[name] = each.outcome(job.mode)
        job.progress(LoadProgress("publish"))

    result = published(job.graph, stage, actor=job.actor, key=job.key, message=job.title)
    return LoadResult(done, result, "local")


class LocalLoad:
    """One load, whose input is read once, however often it is published."""

    def __init__(self, engine: Engine, pieces: Sequence[Piece], reader: PieceReader, mode: Mode) -> None:
        self._engine, self._pieces, self._reader, self._mode = engine, pieces, reader, mode
        self._incoming: dict[str, Incoming] = {}

    def read(self, progress: OnProgress) -> None:
        """Everything into memory; raises `LoadRefused` with the rows that cannot be read."""
        catalogue, bad = self._reader.catalogue, list[BadRow]()
        total, done = sum(piece.size for piece in self._pieces), 0
        for n, piece in enumerate(self._pieces):
            progress(LoadProgress("read", n, len(self._pieces), done, total))
            if piece.table is not None:
                self._of(catalogue, piece.table)
            for found in self._reader.read(piece):
                if isinstance(found, Bad):
                    bad.append(found.row(piece))
                    if len(bad) >= self._reader.most:
                        raise LoadRefused(bad, more=True)
                else:
                    self._of(catalogue, found.table_key).add(found)
            done += piece.size
        if bad:
            raise LoadRefused(bad)

    def _of(self, catalogue: Catalogue, table_key: str) -> Incoming:
        return self._incoming.setdefault(table_key, Incoming(catalogue.table(table_key)))

    def prepare(self, snapshot: Snapshot, store: TableStore) -> dict[str, Prepared]:
        """Against what is committed: what to write, after every rule was checked."""
        committed = Committed(store, snapshot)
        prepared = {
            key: self._prepared(key, incoming, snapshot.pin(key), committed)
            for key, incoming in self._incoming.items()
            if incoming.read or self._mode == "overwrite"
        }
        changes = {key: each.change(self._mode) for key, each in prepared.items()}
        broken, more = Evaluator(self._engine, snapshot.catalogue, changes, committed).broken(self._reader.most)
        if broken:
            raise LoadRefused(bad_rows(broken, self._pieces, self._reader), more=more)
        return prepared

    def stage(self, store: TableStore, each: Prepared) -> Pin:
        if self._mode == "overwrite":
            return store.stage_overwrite(each.base, each.pending.schema, each.pending if len(each.pending) else None)
        if each.gone is not None and len(each.gone):
            return store.stage_merge(each.base, each.pending)
        return store.stage_append(each.base, each.pending)

    def _prepared(self, key: str, incoming: Incoming, base: Pin, committed: Committed) -> Prepared:
        whole = incoming.whole()
        if self._mode == "append":
            return Prepared(base, whole, None, incoming.read)
        own = [name for name in incoming.table.own_columns if name != "dst"]
        if self._mode == "overwrite":
            return Prepared(base, whole, committed(key, own, None) if base.rows else None, incoming.read)
        near = Near("id", self._engine.values([(whole, "id")]))
        pending = self._folded(incoming, whole, near, key, committed)
        if not base.rows:
            return Prepared(base, pending, None, incoming.read)
        found = {"pending": pending.select(["id"]), "committed": committed(key, own, near)}
        gone = self._engine.query(replaced(incoming.table, "pending", "committed"), found)
        return Prepared(base, pending, gone, incoming.read)

    def _folded(self, incoming: Incoming, whole: pa.Table, near: Near, key: str, committed: Committed) -> pa.Table:
        if incoming.plain and len(near.values) == len(whole):
            return whole
        sets = list(dict.fromkeys(given for given, _ in incoming.batches))
        numbers = [pa.repeat(pa.scalar(sets.index(given), pa.int32()), len(rows)) for given, rows in incoming.batches]
        order = pa.array(range(len(whole)), pa.int64())
        relations = {"incoming": whole.append_column("g", pa.chunked_array(numbers)).append_column("o", [order])}
        if not incoming.plain:
            relations["committed"] = committed(key, whole.schema.names, near)
        sql = fold(incoming.table, sets, "incoming", "committed" if not incoming.plain else None)
        return self._engine.query(sql, relations).cast(whole.schema)


class Committed:
    """Committed rows for the evaluator: looked up while they are few, else all of the columns, read once."""

    def __init__(self, store: TableStore, snapshot: Snapshot) -> None:
        self._store, self._snapshot = store, snapshot
        self._read: dict[tuple[str, tuple[str, ...]], pa.Table] = {}

    def __call__(self, table_key: str, columns: Sequence[str], near: Near | None) -> Relation:
        pin = self._snapshot.pin(table_key)
        if near is not None and len(near.values) <= _LOOKED_UP:
            return lookup(self._store, pin, near.column, near.values, columns)
        known = self._read.get((table_key, tuple(columns)))
        if known is None:
            known = self._read[table_key, tuple(columns)] = self._store.scan(pin, columns).read_all()
        return known

"""The load on Spark: executors read pieces and write fragments, rules are Spark SQL, the driver publishes once.

Fragments become visible by the versions that the driver stages, and these by the one commit. What the input says of a
table lies in the fragments that are new in a version, in input order: where ids meet, the greatest address wins.
"""

from __future__ import annotations

import importlib.util
import json
import warnings
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any

import pyarrow as pa  # type: ignore[import-untyped]

from fenceline.errors import ConfigError
from fenceline.graph.bulk import Bulk, published
from fenceline.graph.constraints import Change, Evaluator, Near
from fenceline.graph.engine import Relation, _for_spark
from fenceline.graph.loading.bad_rows import BadRow, LoadRefused
from fenceline.graph.loading.job import FrameSource, Job
from fenceline.graph.loading.locating import bad_rows
from fenceline.graph.loading.merging import fold
from fenceline.graph.loading.reading import Bad, Batch, PieceReader
from fenceline.graph.loading.relations import MOST_IN_PROCESS, InProcess, OnSpark, Relations
from fenceline.graph.loading.result import LoadProgress, LoadResult, TableRows
from fenceline.graph.loading.row_reading import Given
from fenceline.graph.loading.sources import PIECE, Piece
from fenceline.graph.pins import Pin
from fenceline.graph.schema import TableType, arrow_schema, constraints
from fenceline.graph.spark_frames import ADDRESS, fragment_ids, frame, rows_at, write_frame
from fenceline.graph.storage import TablePlace, write_fragments, write_fresh_fragments
from fenceline.spark.java import check_java
from fenceline.spark.session import get_session
from fenceline.spark.shipping import ship_module

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

_ROWS = "piece int, part int, table_key string, given string, fragment string, rows bigint, folded bigint, bad string"
_ARROW = pa.schema(
    [
        ("piece", pa.int32()),
        ("part", pa.int32()),
        ("table_key", pa.string()),
        ("given", pa.string()),
        ("fragment", pa.string()),
        ("rows", pa.int64()),
        ("folded", pa.int64()),
        ("bad", pa.string()),
    ]
)
_FRAME = 1_000_000
"""Numbers of pieces that a frame has for its partitions."""


class _DryRun(Exception):
    """Ends the transaction of a dry run, which takes back what it wrote."""


def available() -> bool:
    """Whether Spark can be started here."""
    if importlib.util.find_spec("pyspark") is None:
        return False
    try:
        check_java()
    except ConfigError:
        return False
    return True


def load_on_spark(job: Job, session: SparkSession | None) -> LoadResult:
    spark = session or _session()
    ship_module(spark, "fenceline")
    done: dict[str, TableRows] = {}

    def work(bulk: Bulk) -> None:
        job.refuse_other_schema(bulk)
        done.clear()
        done.update(SparkLoad(job, spark, bulk).run())
        if job.dry_run:
            raise _DryRun

    try:
        result = published(job.graph, work, actor=job.actor, key=job.key, message=job.title)
    except _DryRun:
        return LoadResult(done, None, "spark")
    return LoadResult(done, result, "spark")


def _session() -> SparkSession:
    with warnings.catch_warnings():
        # starting the JVM forks and executes it at once: nothing of Lance runs in between
        warnings.filterwarnings("ignore", message="lance is not fork-safe")
        return get_session()


@dataclass(frozen=True, slots=True)
class Written:
    """A fragment, what its rows give, and where in the input they stand."""

    order: tuple[int, int]
    given: Given
    fragment: str
    rows: int
    folded: int


@dataclass(slots=True)
class Incoming:
    """What the input has for one table, as fragments of a version staged on its pin."""

    table: TableType
    base: Pin
    written: list[Written] = field(default_factory=list)
    raw: Pin | None = None
    """A version that holds them; its new fragments are the input."""
    pending: Relation = None
    """Rows as they will be, in the columns that rules look at."""
    gone: Relation = None

    @property
    def read(self) -> int:
        return sum(each.rows + each.folded for each in self.written)

    @property
    def fragments(self) -> list[str]:
        return [each.fragment for each in self.written]


class SparkLoad:
    """One try of a load."""

    def __init__(self, job: Job, session: SparkSession, bulk: Bulk) -> None:
        self._job, self._session, self._bulk = job, session, bulk
        self._catalogue = job.reader.catalogue

    def run(self) -> dict[str, TableRows]:
        progress, mode = self._job.progress, self._job.mode
        incoming = self._read()
        self._rules = relations = self._relations(incoming)
        try:
            progress(LoadProgress("check"))
            for each in incoming.values():
                self._prepare(each)
            self._check(incoming)
            outcome: dict[str, TableRows] = {}
            for n, (key, each) in enumerate(incoming.items()):
                progress(LoadProgress("write", n, len(incoming)))
                pin, replaced = self._stage(each)
                self._bulk.publish(key, pin)
                rows = sum(one.rows for one in each.written)
                if mode == "overwrite":
                    outcome[key] = TableRows(each.read, rows, 0, each.base.rows, pin.rows)
                else:
                    outcome[key] = TableRows(each.read, rows - replaced, replaced, 0, pin.rows)
            progress(LoadProgress("publish"))
            return outcome
        finally:
            relations.close()

    def _relations(self, incoming: dict[str, Incoming]) -> Relations:
        rows = sum(one.rows for each in incoming.values() for one in each.written)
        rows += sum(self._bulk.snapshot.pin(key).rows for key in self._catalogue.table_keys())
        if rows <= MOST_IN_PROCESS:
            return InProcess(self._bulk.store)
        return OnSpark(self._bulk.store, self._session)

    # --- reading ------------------------------------------------------------------------------------------------

    def _read(self) -> dict[str, Incoming]:
        """Every piece on some executor; raises `LoadRefused` with the rows that cannot be read."""
        keys, job = self._catalogue.table_keys(), self._job
        bases = {key: self._bulk.declare(key) for key in keys}
        places = {key: self._bulk.store.place(base) for key, base in bases.items()}
        groups, reader, fresh = _grouped(job.pieces), job.reader, job.mode == "overwrite"
        total = sum(piece.size for piece in job.pieces)
        job.progress(LoadProgress("read", 0, len(job.pieces), 0, total))

        def read(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
            for batch in batches:
                for group in batch.column(0).to_pylist():
                    yield pa.RecordBatch.from_pylist(list(_read_group(groups[group], reader, places, fresh)), _ARROW)

        rows = self._session.range(0, len(groups), 1, len(groups)).mapInArrow(read, _ROWS).collect() if groups else []
        pieces = {piece.number: piece for piece in job.pieces}
        named = [piece.table for piece in job.pieces if piece.table]
        for n, source in enumerate(job.frames, 1):
            whole = self._frame_piece(source, n * _FRAME)
            named.append(whole.table or "")
            found = source.frame.mapInArrow(_frame_reader(whole, reader, places, fresh), _ROWS).collect()
            pieces.update({row["piece"]: _part(whole, row["piece"] - whole.number) for row in found})
            rows += found
        incoming: dict[str, Incoming] = {}
        for key in dict.fromkeys(named if fresh else ()):
            incoming[key] = Incoming(self._catalogue.table(key), bases[key])
        bad: list[BadRow] = []
        for row in sorted(rows, key=lambda row: (row["piece"], row["part"])):
            if row["bad"] is not None:
                bad.append(Bad(**json.loads(row["bad"])).row(pieces[row["piece"]]))
                continue
            key = row["table_key"]
            each = incoming.setdefault(key, Incoming(self._catalogue.table(key), bases[key]))
            given = tuple(json.loads(row["given"]))
            order = (row["piece"], row["part"])
            each.written.append(Written(order, given, row["fragment"], row["rows"], row["folded"]))
        for each in incoming.values():
            self._bulk.tx.wrote(self._bulk.store.fragment_files(each.base.table, each.fragments))
        if bad:
            most = reader.most
            raise LoadRefused(bad[:most], more=len(bad) >= most)
        return incoming

    def _frame_piece(self, source: FrameSource, number: int) -> Piece:
        table = self._catalogue.table(source.table)
        mapping = tuple(sorted(source.mapping.items()))
        return Piece(number, f"a frame of {table.name}", "parquet", table.table_key, mapping, 0, 0, 0)

    # --- checking -----------------------------------------------------------------------------------------------

    def _prepare(self, each: Incoming) -> None:
        rules, mode = self._rules, self._job.mode
        self._stage_raw(each)
        if mode == "merge" and not self._says_everything(each):
            self._fold(each)
        each.pending = self._pending(each)
        if mode == "merge" and not rules.distinct(each.pending):
            self._fold(each)
            each.pending = self._pending(each)
        own = [name for name in each.table.own_columns if name != "dst"]
        if each.base.rows and mode != "append":
            each.gone = rules.rows(each.base, each.table, own, addresses=mode == "merge")
        if each.base.rows and mode == "merge":
            each.gone = rules.replaced(each.table, each.pending, each.gone)

    def _pending(self, each: Incoming) -> Relation:
        assert each.raw is not None
        return self._rules.rows(each.raw, each.table, rule_columns(each.table), self._new_fragments(each))

    def _stage_raw(self, each: Incoming) -> None:
        store, schema = self._bulk.store, arrow_schema(each.table)
        if self._job.mode == "overwrite":
            each.raw = store.stage_overwrite(each.base, schema, fragments=each.fragments)
        else:
            each.raw = store.stage_append(each.base, fragments=each.fragments)

    def _new_fragments(self, each: Incoming) -> list[int]:
        """In the order in which they were written, which is that of the input."""
        assert each.raw is not None
        ids = fragment_ids(self._bulk.store, each.raw)
        before = set() if self._job.mode == "overwrite" else set(fragment_ids(self._bulk.store, each.base))
        return sorted(set(ids) - before)

    def _says_everything(self, each: Incoming) -> bool:
        names = tuple(one.name for one in each.table.properties)
        return all(one.given == names for one in each.written)

    def _fold(self, each: Incoming) -> None:
        """Rows of one id become one, over the committed row; they are written once more."""
        sets = list(dict.fromkeys(one.given for one in each.written))
        new = self._new_fragments(each)
        cases = [f"WHEN {n} THEN {sets.index(one.given)}" for n, one in zip(new, each.written, strict=True)]
        number = f"CASE shiftright({ADDRESS}, 32) {' '.join(cases)} END AS g"
        assert each.raw is not None
        found = frame(self._session, self._bulk.store, each.raw, each.table, fragments=new, addresses=True)
        rows = found.selectExpr("*", number, f"{ADDRESS} AS o")
        names = tuple(one.name for one in each.table.properties)
        whole = all(given == names for given in sets) or not each.base.rows
        views = {"incoming": rows}
        if not whole:
            views["committed"] = frame(self._session, self._bulk.store, each.base, each.table)
        folded = self._sql(fold(each.table, sets, "incoming", None if whole else "committed"), views)
        place = self._bulk.store.place(each.base)
        fragments = write_frame(folded, place, each.table)
        self._bulk.tx.wrote(self._bulk.store.fragment_files(each.base.table, [one for one, _ in fragments]))
        lost = each.read - sum(rows for _, rows in fragments)
        each.written = [
            Written((0, n), names, fragment, rows, lost if n == 0 else 0)
            for n, (fragment, rows) in enumerate(fragments)
        ]
        self._stage_raw(each)

    def _sql(self, sql: str, frames: dict[str, DataFrame]) -> DataFrame:
        names = {name: f"fenceline_load_{id(self)}_{name}" for name in frames}
        for name, one in frames.items():
            one.createOrReplaceTempView(names[name])
        try:
            return self._session.sql(_for_spark(sql, names))
        finally:
            for name in names.values():
                self._session.catalog.dropTempView(name)

    def _check(self, incoming: dict[str, Incoming]) -> None:
        changes = {
            key: Change(each.pending, each.gone, inserts=self._job.mode != "merge") for key, each in incoming.items()
        }
        reader: PieceReader = self._job.reader
        evaluator = Evaluator(self._rules.engine, self._catalogue, changes, self._committed)
        broken, more = evaluator.broken(reader.most)
        if broken:
            raise LoadRefused(bad_rows(broken, self._job.pieces, reader), more=more)

    def _committed(self, table_key: str, columns: Sequence[str], near: Near | None) -> Any:
        pin = self._bulk.snapshot.pin(table_key)
        return self._rules.rows(pin, self._catalogue.table(table_key), columns)

    # --- staging ------------------------------------------------------------------------------------------------

    def _stage(self, each: Incoming) -> tuple[Pin, int]:
        """The version to publish, and how many rows it replaces."""
        assert each.raw is not None
        if self._job.mode != "merge" or each.gone is None:
            return each.raw, 0
        addresses = self._rules.addresses(each.gone)
        if not len(addresses):
            return each.raw, 0
        left = self._bulk.store.stage_delete(each.base, rows=rows_at(addresses))
        return self._bulk.store.stage_append(left, fragments=each.fragments), len(addresses)


def rule_columns(table: TableType) -> list[str]:
    """The columns that some rule of the table looks at."""
    ruled = {name for rule in constraints(table) for name in rule.columns}
    own = table.own_columns
    return [*own, *(each.name for each in table.properties if each.name in ruled and each.name not in own)]


def _grouped(pieces: Sequence[Piece]) -> list[list[Piece]]:
    """Pieces in order, so many that a task has something to do."""
    groups: list[list[Piece]] = []
    weight = PIECE
    for piece in pieces:
        if weight + piece.size > PIECE:
            groups.append([])
            weight = 0
        groups[-1].append(piece)
        weight += piece.size
    return groups


def _read_group(
    group: Sequence[Piece], reader: PieceReader, places: dict[str, TablePlace], fresh: bool
) -> Iterator[dict[str, Any]]:
    """On an executor: rows into fragments, one for each table and each set of properties that rows give."""
    for piece in group:
        yield from _written(piece, reader.read(piece), places, fresh)


def _frame_reader(
    whole: Piece, reader: PieceReader, places: dict[str, TablePlace], fresh: bool
) -> Callable[[Iterator[pa.RecordBatch]], Iterator[pa.RecordBatch]]:
    """The same for the partitions of a frame, each of them a piece."""

    def read(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        from pyspark import TaskContext

        context = TaskContext.get()
        piece = _part(whole, context.partitionId() if context else 0)
        found = reader.read_batches(piece, _placed(batches))
        yield pa.RecordBatch.from_pylist(list(_written(piece, found, places, fresh)), _ARROW)

    return read


def _part(whole: Piece, partition: int) -> Piece:
    return replace(whole, number=whole.number + partition, path=f"{whole.path}, partition {partition}")


def _placed(batches: Iterator[pa.RecordBatch]) -> Iterator[tuple[int, pa.RecordBatch]]:
    at = 0
    for batch in batches:
        yield at, batch
        at += len(batch)


def _written(
    piece: Piece, found: Iterator[Batch | Bad], places: dict[str, TablePlace], fresh: bool
) -> Iterator[dict[str, Any]]:
    write = write_fresh_fragments if fresh else write_fragments
    gathered: dict[tuple[str, Given], list[Batch]] = {}
    bad = False
    for each in found:
        if isinstance(each, Bad):
            bad = True
            said = {name: getattr(each, name) for name in ("at", "problem", "type", "property", "value")}
            yield {"piece": piece.number, "part": 0, "bad": json.dumps(said)}
        elif not bad:
            gathered.setdefault((each.table_key, each.given), []).append(each)
    if bad:
        return
    part = 0
    for (key, given), batches in gathered.items():
        rows = [batch.rows for batch in batches]
        folded = sum(batch.folded for batch in batches)
        for n, fragment in enumerate(write(places[key], rows, rows[0].schema)):
            yield {
                "piece": piece.number,
                "part": part,
                "table_key": key,
                "given": json.dumps(given),
                "fragment": fragment,
                "rows": int(json.loads(fragment)["physical_rows"]),
                "folded": 0 if n else folded,
            }
            part += 1

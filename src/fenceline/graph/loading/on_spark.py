"""The load on Spark: executors read pieces and write fragments, rules are Spark SQL, the driver publishes once.

Fragments become visible by the versions that the driver stages, and these by the one commit. What the input says of a
table lies in the fragments that are new in a version, in input order: where ids meet, the greatest address wins.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from fenceline.graph.bulk import Bulk, published
from fenceline.graph.constraints import Change, Evaluator, Near
from fenceline.graph.engine import Relation, SparkEngine
from fenceline.graph.loading.bad_rows import LoadRefused
from fenceline.graph.loading.job import Job
from fenceline.graph.loading.locating import bad_rows
from fenceline.graph.loading.merging import fold
from fenceline.graph.loading.reading import PieceReader
from fenceline.graph.loading.relations import MOST_IN_PROCESS, InProcess, OnSpark, Relations
from fenceline.graph.loading.result import LoadProgress, LoadResult, TableRows
from fenceline.graph.loading.spark_reading import Written, read_on_spark
from fenceline.graph.pins import Pin
from fenceline.graph.schema import TableType, arrow_schema, constraints
from fenceline.graph.spark_frames import ADDRESS, fragment_ids, frame, rows_at, write_frame
from fenceline.graph.spark_start import session_of

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession


class _DryRun(Exception):
    """Ends the transaction of a dry run, which takes back what it wrote."""


def load_on_spark(job: Job, session: SparkSession | None) -> LoadResult:
    spark = session_of(session)
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
        keys, job, bulk = self._catalogue.table_keys(), self._job, self._bulk
        bases = {key: bulk.declare(key) for key in keys}
        total = sum(piece.size for piece in job.pieces)
        job.progress(LoadProgress("read", 0, len(job.pieces), 0, total))
        found = read_on_spark(self._session, job, {key: bulk.store.place(base) for key, base in bases.items()})
        listed = dict.fromkeys((*(found.named if job.mode == "overwrite" else ()), *found.written))
        incoming = {
            key: Incoming(self._catalogue.table(key), bases[key], list(found.written.get(key, ()))) for key in listed
        }
        for each in incoming.values():
            bulk.tx.wrote(bulk.store.fragment_files(each.base.table, each.fragments))
        if found.bad:
            most = job.reader.most
            raise LoadRefused(found.bad[:most], more=len(found.bad) >= most)
        return incoming

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
        sql = fold(each.table, sets, "incoming", None if whole else "committed")
        folded: DataFrame = SparkEngine(self._session).frame(sql, views)
        place = self._bulk.store.place(each.base)
        fragments = write_frame(folded, place, each.table)
        self._bulk.tx.wrote(self._bulk.store.fragment_files(each.base.table, [one for one, _ in fragments]))
        lost = each.read - sum(rows for _, rows in fragments)
        each.written = [
            Written((0, n), names, fragment, rows, lost if n == 0 else 0)
            for n, (fragment, rows) in enumerate(fragments)
        ]
        self._stage_raw(each)

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

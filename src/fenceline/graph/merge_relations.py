"""The versions of a table that a merge compares, as relations of one engine; and the merged rows as a new version."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Protocol

import pyarrow as pa  # type: ignore[import-untyped]

from fenceline.graph import merge_sql
from fenceline.graph.constraints import Near
from fenceline.graph.engine import EitherEngine, Engine, Relation, in_process, is_here
from fenceline.graph.lookups import lookup
from fenceline.graph.pins import Pin
from fenceline.graph.schema import TableType, arrow_schema, columns, spark_types
from fenceline.graph.spark_frames import ADDRESS, frame, from_spark, rows_at, write_frame
from fenceline.graph.staging import folded
from fenceline.graph.storage import TableStore

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

Row = dict[str, Any]
MOST_HERE = 1_000_000
"""Rows of a table that differ between two versions, and that this process has room for."""


@dataclass(frozen=True, slots=True)
class Version:
    """One side's rows of a table, seen as the merged type has them."""

    pin: Pin
    type: TableType
    """As this side has it."""
    names: Mapping[str, str]
    """From the merged type's columns to those of this side; a column that is not listed is null here."""

    def as_they_are(self, merged: TableType, wanted: Sequence[str]) -> bool:
        """Whether the columns are the merged type's own."""
        mine, its = arrow_schema(self.type), arrow_schema(merged)
        return all(self.names.get(each) == each and mine.field(each).type == its.field(each).type for each in wanted)


class MergeRelations(Protocol):
    engine: Engine

    def rows(
        self, version: Version | None, table: TableType, named: Sequence[str] | None = None, near: Near | None = None
    ) -> Relation:
        """Rows in the merged type's columns; none where a side has no such table."""
        ...

    def query(self, sql: str, relations: Mapping[str, Relation]) -> Relation:
        """A relation that is worked out once, however often it is used."""
        ...

    def delta(self, sql: str, relations: Mapping[str, Relation], table: TableType) -> Relation:
        """The same for what differs between two versions: much is read, and mostly little comes out."""
        ...

    def given(self, table: TableType, rows: Sequence[Row], named: Sequence[str] | None = None) -> Relation: ...

    def empty(self, relation: Relation) -> bool: ...

    def kept(self, relation: Relation) -> Relation:
        """A relation that can be used more than once."""
        ...

    def few(self, sql: str, relations: Mapping[str, Relation], table: TableType) -> list[Row]:
        """As many rows as a person reads, as the table's type has their values."""
        ...

    def staged(
        self, store: TableStore, pin: Pin, table: TableType, puts: Relation, removes: Relation, gone: Relation
    ) -> Pin:
        """The version with those rows. `gone` are the rows that are replaced or deleted."""
        ...


class InProcess:
    """Arrow tables and scans, on DuckDB."""

    def __init__(self, store: TableStore) -> None:
        self._store = store
        self.engine: Engine = in_process()

    def rows(
        self, version: Version | None, table: TableType, named: Sequence[str] | None = None, near: Near | None = None
    ) -> Relation:
        wanted = list(named or columns(table))
        schema = _compared(table, wanted)
        if version is None or not version.pin.rows:
            return schema.empty_table()
        if version.as_they_are(table, wanted) and schema == _stored(table, wanted):
            if near is not None and near.column in version.names:
                return lookup(self._store, version.pin, near.column, near.values, wanted)
            return self._store.scan(version.pin, wanted)
        reader = self._store.scan(version.pin, [version.names[each] for each in wanted if each in version.names])
        return pa.RecordBatchReader.from_batches(schema, _projected(reader, version, schema))

    def query(self, sql: str, relations: Mapping[str, Relation]) -> Relation:
        return self.engine.query(sql, relations)

    def delta(self, sql: str, relations: Mapping[str, Relation], table: TableType) -> Relation:
        return self.engine.query(sql, relations)

    def given(self, table: TableType, rows: Sequence[Row], named: Sequence[str] | None = None) -> Relation:
        return pa.Table.from_pylist(list(rows), schema=_compared(table, named or columns(table)))

    def empty(self, relation: Relation) -> bool:
        return len(relation) == 0

    def kept(self, relation: Relation) -> Relation:
        return relation.read_all() if isinstance(relation, pa.RecordBatchReader) else relation

    def few(self, sql: str, relations: Mapping[str, Relation], table: TableType) -> list[Row]:
        rows: list[Row] = typed(self.engine.query(sql, relations), table).to_pylist()
        return rows

    def staged(
        self, store: TableStore, pin: Pin, table: TableType, puts: Relation, removes: Relation, gone: Relation
    ) -> Pin:
        made, replaced = pin, set(gone["id"].to_pylist())
        if len(removes):
            made = store.stage_delete(made, ids=removes["id"].to_pylist())
        rows = typed(puts.select(columns(table)), table)
        if replaced.isdisjoint(rows["id"].to_pylist()):
            made = store.stage_append(made, rows) if len(rows) else made
        else:
            made = store.stage_merge(made, rows)
        return folded(store, made)


class OnSpark:
    """Executors compare versions. What differs comes here while it is little, and stays with them while it is not."""

    def __init__(self, store: TableStore, session: SparkSession) -> None:
        self._store, self._session = store, session
        self._engine = EitherEngine(session)
        self.engine: Engine = self._engine
        self._here = InProcess(store)

    def rows(
        self, version: Version | None, table: TableType, named: Sequence[str] | None = None, near: Near | None = None
    ) -> Relation:
        if version is None or (near is not None and is_here(near.values)):
            return self._here.rows(version, table, named, near)
        wanted = list(named or columns(table))
        types = spark_types(table)
        own = dict.fromkeys(version.names[each] for each in wanted if each in version.names)
        found = frame(self._session, self._store, version.pin, version.type, list(own))
        told = [
            f"CAST({f'`{version.names[each]}`' if each in version.names else 'NULL'} AS {types[each]}) AS `{each}`"
            for each in wanted
        ]
        return found.selectExpr(*told)

    def query(self, sql: str, relations: Mapping[str, Relation]) -> Relation:
        if all(map(is_here, relations.values())):
            return self._here.query(sql, relations)
        return _worked_out(self._engine.spark.frame(sql, relations))

    def delta(self, sql: str, relations: Mapping[str, Relation], table: TableType) -> Relation:
        if all(map(is_here, relations.values())):
            return self._here.query(sql, relations)
        found = self._engine.spark.frame(sql, relations)
        few = found.limit(MOST_HERE + 1).toArrow()
        return _as_compared(few, table) if len(few) <= MOST_HERE else _worked_out(found)

    def given(self, table: TableType, rows: Sequence[Row], named: Sequence[str] | None = None) -> Relation:
        return self._here.given(table, rows, named)

    def empty(self, relation: Relation) -> bool:
        return self._here.empty(relation) if is_here(relation) else bool(relation.isEmpty())

    def kept(self, relation: Relation) -> Relation:
        return self._here.kept(relation)

    def few(self, sql: str, relations: Mapping[str, Relation], table: TableType) -> list[Row]:
        found = self.engine.query(sql, relations)
        rows: list[Row] = typed(found, table).to_pylist()
        return rows

    def staged(
        self, store: TableStore, pin: Pin, table: TableType, puts: Relation, removes: Relation, gone: Relation
    ) -> Pin:
        if all(map(is_here, (puts, removes, gone))):
            return self._here.staged(store, pin, table, puts, removes, gone)
        made, keys = pin, self._engine.spark.frame('SELECT g."id" FROM "gone" AS g', {"gone": gone})
        found = frame(self._session, store, pin, table, ["id"], addresses=True)
        doomed = found.join(keys, "id", "left_semi").select(ADDRESS).toArrow().column(0)
        if len(doomed):
            made = store.stage_delete(made, rows=rows_at(doomed))
        rows = self._engine.spark.frame(merge_sql.both(columns(table)), {"one": puts, "other": self.given(table, ())})
        written = write_frame(rows, store.place(made), table)
        return store.stage_append(made, fragments=[fragment for fragment, _ in written])


def _worked_out(rows: DataFrame) -> DataFrame:
    """Kept by the executors, and without the plan that made it: plans over plans grow beyond all bounds."""
    return rows.localCheckpoint()


def typed(rows: pa.Table, table: TableType) -> pa.Table:
    """Columns of a table as its type has them; engines know fewer types."""
    return _cast(rows, arrow_schema(table))


def _as_compared(rows: pa.Table, table: TableType) -> pa.Table:
    return _cast(rows, _compared(table, columns(table)))


def _cast(rows: pa.Table, known: pa.Schema) -> pa.Table:
    fields = [known.field(each.name) if each.name in known.names else each for each in rows.schema]
    return pa.table([from_spark(rows[each.name], each.type) for each in fields], schema=pa.schema(fields))


def _stored(table: TableType, wanted: Sequence[str]) -> pa.Schema:
    return pa.schema([arrow_schema(table).field(each) for each in wanted])


def _compared(table: TableType, wanted: Sequence[str]) -> pa.Schema:
    """The columns as engines compare them: as lists where a vector has its fixed size, which null ones do not have."""
    return pa.schema(
        [
            each.with_type(pa.list_(each.type.value_type)) if pa.types.is_fixed_size_list(each.type) else each
            for each in _stored(table, wanted)
        ]
    )


def _projected(reader: pa.RecordBatchReader, version: Version, schema: pa.Schema) -> Iterator[pa.RecordBatch]:
    for batch in reader:
        arrays = [
            batch.column(version.names[each.name]).cast(each.type)
            if each.name in version.names
            else pa.nulls(len(batch), each.type)
            for each in schema
        ]
        yield pa.RecordBatch.from_arrays(arrays, schema=schema)

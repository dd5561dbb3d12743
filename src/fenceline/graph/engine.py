"""The engines that constraint checks run on: DuckDB in this process, or Spark SQL. One text of SQL, two dialects.

Checks are written in DuckDB's dialect, with every identifier in double quotes; sqlglot translates them for Spark.
"""

from __future__ import annotations

import contextlib
import functools
import threading
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from functools import cached_property
from typing import Any, Protocol, TypeAlias

import duckdb
import pyarrow as pa  # type: ignore[import-untyped]
import sqlglot

Relation: TypeAlias = Any
"""What an engine takes as a table: Arrow tables and readers; Spark takes its frames too."""


class Engine(Protocol):
    """Runs a query over named relations."""

    def query(self, sql: str, relations: Mapping[str, Relation]) -> pa.Table: ...

    def records(self, sql: str, relations: Mapping[str, Relation]) -> list[dict[str, Any]]:
        """The same for a few rows of texts and whole numbers, and quicker."""
        ...

    def values(self, columns: Sequence[tuple[Relation, str]]) -> Relation:
        """The distinct values of columns of one type, null left out: an Arrow array, or a frame of one column."""
        ...


class DuckEngine:
    """In process, over Arrow and Lance scans. Any number of threads may share one."""

    def __init__(self) -> None:
        self._lock = threading.Lock()

    @cached_property
    def _connection(self) -> duckdb.DuckDBPyConnection:
        connection = duckdb.connect()  # in memory; opening one takes longer than most checks, so it is kept
        connection.execute("SET TimeZone = 'UTC'")
        return connection

    def query(self, sql: str, relations: Mapping[str, Relation]) -> pa.Table:
        with self._over(relations) as connection:
            return connection.sql(sql).to_arrow_table()

    def records(self, sql: str, relations: Mapping[str, Relation]) -> list[dict[str, Any]]:
        with self._over(relations) as connection:
            found = connection.execute(sql)
            names = [column[0] for column in found.description or ()]
            return [dict(zip(names, row, strict=True)) for row in found.fetchall()]

    @contextlib.contextmanager
    def _over(self, relations: Mapping[str, Relation]) -> Iterator[duckdb.DuckDBPyConnection]:
        with self._lock:  # registered names are shared by all cursors of a connection
            try:
                for name, relation in relations.items():
                    self._connection.register(name, relation)
                yield self._connection
            finally:
                for name in relations:
                    self._connection.unregister(name)

    def values(self, columns: Sequence[tuple[Relation, str]]) -> Relation:
        parts = [relation[name] for relation, name in columns]
        found = pa.chunked_array([chunk for part in parts for chunk in part.chunks], parts[0].type)
        return found.unique().drop_null()


class SparkEngine:
    """On a Spark session, for loads and merges of any size."""

    def __init__(self, session: Any) -> None:
        self._session = session

    def query(self, sql: str, relations: Mapping[str, Relation]) -> pa.Table:
        """What comes back goes through this process: ask for as many rows as a person reads."""
        return self.frame(sql, relations, lambda frame: frame.toArrow())

    def frame(
        self, sql: str, relations: Mapping[str, Relation], then: Callable[[Any], Any] = lambda frame: frame
    ) -> Any:
        """The same as a frame, or what `then` makes of it."""
        names = {name: f"fenceline_{id(self)}_{name}" for name in relations}
        try:
            for name, relation in relations.items():
                self._frame(relation).createOrReplaceTempView(names[name])
            return then(self._session.sql(_for_spark(sql, names)))
        finally:
            for name in names.values():
                self._session.catalog.dropTempView(name)

    def records(self, sql: str, relations: Mapping[str, Relation]) -> list[dict[str, Any]]:
        found: list[dict[str, Any]] = self.query(sql, relations).to_pylist()
        return found

    def values(self, columns: Sequence[tuple[Relation, str]]) -> Relation:
        first, *others = (self._frame(relation).selectExpr(f"`{name}` AS value") for relation, name in columns)
        for other in others:
            first = first.union(other)
        return first.where("value IS NOT NULL").distinct()

    def _frame(self, relation: Relation) -> Any:
        if isinstance(relation, pa.RecordBatchReader):
            relation = relation.read_all()
        return self._session.createDataFrame(_signed(relation)) if isinstance(relation, pa.Table) else relation


class EitherEngine:
    """What is in this process is asked here; Spark is asked where a frame takes part."""

    def __init__(self, session: Any) -> None:
        self.spark = SparkEngine(session)

    def over(self, relations: Iterable[Relation]) -> Engine:
        return in_process() if all(map(is_here, relations)) else self.spark

    def query(self, sql: str, relations: Mapping[str, Relation]) -> pa.Table:
        return self.over(relations.values()).query(sql, relations)

    def records(self, sql: str, relations: Mapping[str, Relation]) -> list[dict[str, Any]]:
        return self.over(relations.values()).records(sql, relations)

    def values(self, columns: Sequence[tuple[Relation, str]]) -> Relation:
        return self.over(relation for relation, _ in columns).values(columns)


def is_here(relation: Relation) -> bool:
    return isinstance(relation, pa.Table | pa.RecordBatchReader | pa.Array | pa.ChunkedArray)


def _for_spark(sql: str, names: Mapping[str, str]) -> str:
    tree = sqlglot.parse_one(sql, dialect="duckdb")
    for table in tree.find_all(sqlglot.exp.Table):
        if table.name in names:
            table.set("this", sqlglot.exp.to_identifier(names[table.name], quoted=True))
            if not table.alias:
                raise AssertionError(f"{table.name} has no alias")
    return tree.sql(dialect="spark")


def spark_field(field: pa.Field) -> pa.Field:
    """The field as Spark has it: no unsigned numbers, no lists of a fixed size."""
    wider: Mapping[Any, Any] = {pa.uint32(): pa.int64(), pa.uint64(): pa.decimal128(20, 0)}
    if pa.types.is_fixed_size_list(field.type):
        return field.with_type(pa.list_(field.type.value_type))
    if pa.types.is_list(field.type):
        item = field.type.value_type
        return field.with_type(pa.list_(wider.get(item, item)))
    return field.with_type(wider.get(field.type, field.type))


def _signed(table: pa.Table) -> pa.Table:
    return table.cast(pa.schema([spark_field(field) for field in table.schema]))


@functools.cache
def in_process() -> DuckEngine:
    """One for the whole process."""
    return DuckEngine()

"""Graph tables as a Spark data source, for SQL and for people who know Spark only.

    register(spark)
    spark.read.format("fenceline").option("table", "Person").load("songs@main:graphs/social")

The commit is fixed when the frame is made. `columns` reads only some of them; filters are pushed down to the scan where
the session has spark.sql.python.filterPushdown.enabled.
"""

from __future__ import annotations

import datetime as dt
import math
from collections.abc import Iterable, Iterator, Sequence
from typing import TYPE_CHECKING, Any
from urllib.parse import unquote, urlsplit

import pyarrow as pa  # type: ignore[import-untyped]
from pyspark.sql.datasource import (
    DataSource,
    DataSourceReader,
    EqualTo,
    Filter,
    GreaterThan,
    GreaterThanOrEqual,
    In,
    InputPartition,
    IsNotNull,
    IsNull,
    LessThan,
    LessThanOrEqual,
)
from pyspark.sql.types import StructType

from fenceline.errors import ContractError
from fenceline.graph.engine import in_process
from fenceline.graph.filters import any_of, literal, quoted
from fenceline.graph.graph import GraphView
from fenceline.graph.manifest import Place
from fenceline.graph.schema import Choice, Scalar, TableType, UnknownProperty, columns, spark_schema
from fenceline.graph.spark_frames import Scan, fragment_groups, spark_arrow
from fenceline.graph.storage import TableStore
from fenceline.repo.model import DEFAULT_BRANCH
from fenceline.repo.native.local import LocalObjects
from fenceline.repo.native.remote.location import is_remote
from fenceline.repo.native.remote.objects import RemoteObjects
from fenceline.repo.native.repository import NativeRepository
from fenceline.seams import Seams

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

_PARTS = 32
_COMPARED = {EqualTo: "=", GreaterThan: ">", GreaterThanOrEqual: ">=", LessThan: "<", LessThanOrEqual: "<="}
_EXACT = (Scalar.STRING, Scalar.BOOL, Scalar.I32, Scalar.I64, Scalar.U32, Scalar.F64, Scalar.DATE)


def register(session: SparkSession) -> None:
    """Make the format `fenceline` known to a session."""
    session.dataSource.register(GraphSource)


class GraphSource(DataSource):
    """One table of a graph at one commit."""

    def __init__(self, options: dict[str, str]) -> None:
        super().__init__(options)
        repo, ref, path = _place(options)
        if "table" not in options:
            raise ContractError("no table is named", hint='.option("table", "Person")')
        objects = RemoteObjects.at(repo) if is_remote(repo) else LocalObjects(repo)
        native = NativeRepository.open(objects, Seams())
        store = TableStore(native.objects)
        view = GraphView(native, native.resolve(ref), Place.at(path), store, in_process())
        table = view.schema.table(options["table"])
        pin = view.snapshot.pin(table.table_key)
        self._table = table
        self._columns = _columns(table, options.get("columns"))
        self._scan = Scan(
            store.place(pin),
            fragment_groups(store, pin, _PARTS),
            self._columns,
            spark_arrow(table, self._columns),
        )

    @classmethod
    def name(cls) -> str:
        return "fenceline"

    def schema(self) -> StructType:
        whole = spark_schema(self._table)["fields"]
        chosen = {field["name"]: field for field in whole}
        return StructType.fromJson({"type": "struct", "fields": [chosen[name] for name in self._columns]})

    def reader(self, schema: StructType) -> DataSourceReader:
        return _Reader(self._scan, self._table)


class _Group(InputPartition):
    def __init__(self, number: int) -> None:
        super().__init__(number)
        self.number = number


class _Reader(DataSourceReader):
    def __init__(self, scan: Scan, table: TableType) -> None:
        self._scan, self._table = scan, table

    def pushFilters(self, filters: list[Filter]) -> Iterable[Filter]:  # noqa: N802
        """Rows that cannot match are not read. Spark still looks at the others itself: it has the last word."""
        found = [text for each in filters if (text := _filter(self._table, each)) is not None]
        if found:
            scan = self._scan
            where = " AND ".join(found)
            self._scan = Scan(scan.place, scan.groups, scan.columns, scan.schema, where)
        return filters

    def partitions(self) -> Sequence[InputPartition]:
        return [_Group(number) for number in range(len(self._scan.groups))] or [_Group(-1)]

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        assert isinstance(partition, _Group)
        if partition.number >= 0:
            yield from self._scan.read(partition.number)


def _place(options: dict[str, str]) -> tuple[str, str, str]:
    """`<repository>@<ref>:<graph>`; each of them may also be an option of its own."""
    repo, _, rest = options.get("path", "").partition("@")
    ref, _, graph = rest.partition(":")
    repo, ref, graph = (options.get(name, said) for name, said in (("repo", repo), ("ref", ref), ("graph", graph)))
    if not repo:
        raise ContractError("no repository is named", hint='.load("<repository>@<ref>:<graph>")')
    return unquote(urlsplit(repo).path) if repo.startswith("file://") else repo, ref or DEFAULT_BRANCH, graph


def _columns(table: TableType, named: str | None) -> tuple[str, ...]:
    known = columns(table)
    if named is None:
        return known
    chosen = tuple(name.strip() for name in named.split(","))
    for name in chosen:
        if name not in known:
            raise UnknownProperty(table.name, name, known)
    return chosen


def _filter(table: TableType, each: Filter) -> str | None:
    """For a table scan, where it means the same there."""
    attribute: Any = getattr(each, "attribute", ())
    if len(attribute) != 1 or attribute[0] not in columns(table):
        return None
    name = attribute[0]
    if isinstance(each, IsNull | IsNotNull):
        return f"{quoted(name)} IS {'NOT ' if isinstance(each, IsNotNull) else ''}NULL"
    kind = Scalar.STRING if name in table.own_columns else table.property(name).kind
    if kind not in _EXACT and not isinstance(kind, Choice):
        return None
    if isinstance(each, In):
        values = [value for value in each.value if value is not None]
        return any_of(name, values) if all(map(_plain, values)) else None
    sign = _COMPARED.get(type(each))
    value: Any = getattr(each, "value", None)
    return f"{quoted(name)} {sign} {literal(value)}" if sign and _plain(value) else None


def _plain(value: object) -> bool:
    if isinstance(value, float) and not math.isfinite(value):
        return False
    return isinstance(value, str | bool | int | float | dt.date) and not isinstance(value, dt.datetime)

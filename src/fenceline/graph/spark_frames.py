"""Table versions as Spark frames: executors read fragments, and write them."""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import pyarrow as pa  # type: ignore[import-untyped]
import pyarrow.compute as pc  # type: ignore[import-untyped]

from fenceline.graph.engine import spark_field
from fenceline.graph.pins import Pin
from fenceline.graph.schema import TableType, arrow_schema, spark_schema
from fenceline.graph.storage import TablePlace, TableStore, open_place, write_fragments, write_fresh_fragments

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

ADDRESS = "_rowaddr"
"""Where a row lies: its fragment in the upper 32 bits, its place there in the lower."""
_WRITTEN = "fragment string, rows bigint"
_PARTS_A_CORE = 4


@dataclass(frozen=True, slots=True)
class Scan:
    """What executors read of a version; it pickles."""

    place: TablePlace
    groups: tuple[tuple[int, ...], ...]
    columns: tuple[str, ...]
    schema: pa.Schema
    where: str | None = None
    addresses: bool = False

    def read(self, group: int) -> Iterator[pa.RecordBatch]:
        dataset = open_place(self.place)
        wanted = set(self.groups[group])
        fragments = [each for each in dataset.get_fragments() if each.fragment_id in wanted]
        scanner = dataset.scanner(
            columns=list(self.columns), filter=self.where, fragments=fragments, with_row_address=self.addresses
        )
        for batch in scanner.to_batches():
            yield for_spark(batch, self.schema)


def frame(
    session: SparkSession,
    store: TableStore,
    pin: Pin,
    table: TableType,
    columns: Sequence[str] | None = None,
    *,
    fragments: Iterable[int] | None = None,
    where: str | None = None,
    addresses: bool = False,
) -> DataFrame:
    """The rows of a version, or of some of its fragments. `addresses` adds the column `_rowaddr`."""
    from pyspark.sql.types import StructType

    names = tuple(columns) if columns is not None else tuple(arrow_schema(table).names)
    chosen = sorted(fragment_ids(store, pin) if fragments is None else fragments)
    fields = {field["name"]: field for field in spark_schema(table)["fields"]}
    listed = [fields[name] for name in names]
    if addresses:
        listed.append({"name": ADDRESS, "type": "long", "nullable": True, "metadata": {}})
    struct = StructType.fromJson({"type": "struct", "fields": listed})
    if not chosen:
        return session.createDataFrame([], struct)
    groups = _groups(chosen, _parallel(session) * _PARTS_A_CORE)
    scan = Scan(store.place(pin), groups, names, spark_arrow(table, names, addresses), where, addresses)

    def read(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        for batch in batches:
            for group in batch.column(0).to_pylist():
                yield from scan.read(group)

    return session.range(0, len(groups), 1, len(groups)).mapInArrow(read, struct)


def write_frame(frame: DataFrame, place: TablePlace, table: TableType, *, fresh: bool = False) -> list[tuple[str, int]]:
    """Write a frame's rows as fragments that no version names yet: their records, and how many rows each has."""
    schema = arrow_schema(table)
    write = write_fresh_fragments if fresh else write_fragments

    def write_part(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        rows = (_from_spark(batch, schema) for batch in batches if len(batch))
        first = next(rows, None)
        if first is None:
            return
        made = write(place, _chained(first, rows), schema)
        yield pa.RecordBatch.from_pylist(
            [{"fragment": each, "rows": int(json.loads(each)["physical_rows"])} for each in made]
        )

    return [(row["fragment"], row["rows"]) for row in frame.mapInArrow(write_part, _WRITTEN).collect()]


def fragment_ids(store: TableStore, pin: Pin) -> list[int]:
    return [each.fragment_id for each in store.open(pin).get_fragments()]


def fragment_groups(store: TableStore, pin: Pin, most: int) -> tuple[tuple[int, ...], ...]:
    """The fragments of a version in at most so many parts."""
    return _groups(sorted(fragment_ids(store, pin)), most)


def rows_at(addresses: Any) -> dict[int, list[int]]:
    """Addresses as `stage_delete` takes them."""
    found: dict[int, list[int]] = {}
    for address in addresses.to_pylist():
        found.setdefault(address >> 32, []).append(address & 0xFFFFFFFF)
    return found


def spark_arrow(table: TableType, names: Sequence[str], addresses: bool = False) -> pa.Schema:
    """The Arrow types that Spark has for some columns: no unsigned numbers, no lists of a fixed size."""
    fields = [spark_field(arrow_schema(table).field(name)) for name in names]
    return pa.schema([*fields, pa.field(ADDRESS, pa.int64())] if addresses else fields)


def for_spark(batch: pa.RecordBatch, schema: pa.Schema) -> pa.RecordBatch:
    return batch.select(schema.names).cast(schema)


def _from_spark(batch: pa.RecordBatch, schema: pa.Schema) -> pa.RecordBatch:
    arrays = [from_spark(batch.column(field.name), field.type) for field in schema]
    return pa.RecordBatch.from_arrays(arrays, schema=schema)


def from_spark(column: Any, kind: pa.DataType) -> Any:
    """A column as a table has it. Arrow does not survive casting lists that are null to a fixed size."""
    if column.null_count == len(column):
        return pa.nulls(len(column), kind)
    if not pa.types.is_fixed_size_list(kind) or column.type == kind:
        return column.cast(kind)
    if isinstance(column, pa.ChunkedArray):
        column = column.combine_chunks()
    there = column.is_valid()
    items = pc.list_flatten(column.drop_null()).cast(kind.value_type)
    places = pc.subtract(pc.cumulative_sum(there.cast(pa.int64())), 1)
    lists = pa.FixedSizeListArray.from_arrays(items, type=kind)
    return lists.take(pc.if_else(there, places, pa.scalar(None, pa.int64())))


def _chained(first: pa.RecordBatch, rest: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    yield first
    yield from rest


def _groups(fragments: Sequence[int], most: int) -> tuple[tuple[int, ...], ...]:
    size = max(1, -(-len(fragments) // most))
    return tuple(tuple(fragments[at : at + size]) for at in range(0, len(fragments), size))


def _parallel(session: SparkSession) -> int:
    from fenceline.spark.session import is_connect

    return 8 if is_connect(session) else session.sparkContext.defaultParallelism

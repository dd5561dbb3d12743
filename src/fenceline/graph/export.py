"""A graph as files that load again: JSONL or Parquet, one file for each type."""

from __future__ import annotations

import base64
import datetime as dt
import json
import os
from collections.abc import Iterator, Sequence
from typing import Any, Literal

import pyarrow as pa  # type: ignore[import-untyped]
import pyarrow.parquet as pq  # type: ignore[import-untyped]

from fenceline.errors import AlreadyExists, ContractError
from fenceline.graph.graph import GraphView
from fenceline.graph.schema import EdgeType, TableType
from fenceline.repo.whole_file import written_whole

ExportFormat = Literal["jsonl", "parquet"]


def export(
    view: GraphView,
    directory: str,
    *,
    format: ExportFormat = "jsonl",  # noqa: A002
    tables: Sequence[str] = (),
) -> dict[str, int]:
    """Write the tables of a commit below a directory; returns rows by table key. Each file appears whole."""
    if format not in ("jsonl", "parquet"):
        raise ContractError(f"format is {format!r}", hint="use jsonl or parquet")
    chosen = [view.schema.table(name) for name in tables] or view.schema.tables()
    targets = {table.table_key: os.path.join(directory, f"{table.name}.{format}") for table in chosen}
    for target in targets.values():
        if os.path.exists(target):
            raise AlreadyExists(f"{target} exists", hint="choose an empty directory")
    counts: dict[str, int] = {}
    for table in chosen:
        reader = view.table(table.table_key).scan()
        write = _parquet if format == "parquet" else _jsonl
        with written_whole(targets[table.table_key]) as part:
            counts[table.table_key] = write(part, reader, table)
    return counts


def _parquet(path: str, reader: pa.RecordBatchReader, _: TableType) -> int:
    rows = 0
    with pq.ParquetWriter(path, reader.schema) as writer:
        for batch in reader:
            writer.write_batch(batch)
            rows += len(batch)
    return rows


def _jsonl(path: str, reader: pa.RecordBatchReader, table: TableType) -> int:
    rows = 0
    with open(path, "w", encoding="utf-8") as file:
        for batch in reader:
            file.writelines(lines(table, batch))
            rows += len(batch)
    return rows


def lines(table: TableType, batch: pa.RecordBatch) -> Iterator[str]:
    """Rows as a load reads them."""
    keyed = not isinstance(table, EdgeType) and bool(table.key)
    for row in batch.to_pylist():
        data = {each.name: _plain(row[each.name]) for each in table.properties}
        if isinstance(table, EdgeType):
            said: dict[str, Any] = {"edge": table.name, "id": row["id"], "from": row["src"], "to": row["dst"]}
        else:
            said = {"type": table.name} if keyed else {"type": table.name, "id": row["id"]}
        yield json.dumps({**said, "data": data}, ensure_ascii=False) + "\n"


def _plain(value: Any) -> Any:
    if isinstance(value, dt.datetime):
        return value.isoformat().replace("+00:00", "Z")
    if isinstance(value, dt.date):
        return value.isoformat()
    if isinstance(value, bytes):
        return base64.b64encode(value).decode()
    return [_plain(each) for each in value] if isinstance(value, list) else value

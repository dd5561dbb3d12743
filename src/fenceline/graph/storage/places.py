"""Where a version lies, for processes that have no store: executors that read or write a part of a table."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import TypeAlias

import lance
import pyarrow as pa  # type: ignore[import-untyped]
from lance.fragment import write_fragments as _write_fragments

from fenceline.graph.effects import WRITE
from fenceline.graph.lance_errors import translated

Rows: TypeAlias = pa.Table | pa.RecordBatchReader


@dataclass(frozen=True, slots=True)
class TablePlace:
    """Where executors write fragments for a version: small, and it pickles."""

    uri: str
    version: int
    options: Mapping[str, str]


def open_place(place: TablePlace) -> lance.LanceDataset:
    """The version, to read."""
    with translated(f"opening {place.uri}"):
        return lance.dataset(place.uri, version=place.version, storage_options=dict(place.options) or None)


def write_fragments(place: TablePlace, data: Rows | Iterable[pa.RecordBatch], schema: pa.Schema) -> list[str]:
    """Write rows as fragments that no version names yet; their records, as JSON, go to `stage_append`."""
    return written(open_place(place), reader(data, schema), "append")


def write_fresh_fragments(place: TablePlace, data: Rows | Iterable[pa.RecordBatch], schema: pa.Schema) -> list[str]:
    """The same for `stage_overwrite`, with a schema that may be another one."""
    return written(open_place(place), reader(data, schema), "overwrite")


def written(dataset: lance.LanceDataset, rows: pa.RecordBatchReader, mode: str) -> list[str]:
    with translated(f"writing rows to {dataset.uri}"), WRITE:
        fragments = _write_fragments(rows, dataset, mode=mode)
    return [json.dumps(fragment.to_json()) for fragment in fragments if fragment.physical_rows]


def reader(data: Rows | Iterable[pa.RecordBatch], schema: pa.Schema | None = None) -> pa.RecordBatchReader:
    if isinstance(data, pa.RecordBatchReader):
        return data
    if isinstance(data, pa.Table):
        return data.to_reader()
    return pa.RecordBatchReader.from_batches(schema, data)

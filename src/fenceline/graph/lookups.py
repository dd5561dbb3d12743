"""Committed rows by the values of a column: through the scan's filter while they are few, by one scan when many."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import pyarrow as pa  # type: ignore[import-untyped]
import pyarrow.compute as pc  # type: ignore[import-untyped]

from fenceline.graph.filters import any_of
from fenceline.graph.pins import Pin
from fenceline.graph.storage import TableStore

_IN_A_FILTER = 1_000


def lookup(store: TableStore, pin: Pin, column: str, values: Any, columns: Sequence[str] | None = None) -> pa.Table:
    """Rows whose `column` has one of the values, given as a list or an Arrow array."""
    schema = store.schema(pin)
    named = list(columns or schema.names)
    if not pin.rows or not len(values):
        return pa.schema([schema.field(name) for name in named]).empty_table()
    if len(values) <= _IN_A_FILTER:
        listed = values if isinstance(values, list) else values.to_pylist()
        return store.scan(pin, named, any_of(column, listed)).read_all()
    wanted = pa.array(values, schema.field(column).type) if isinstance(values, list) else values
    extra = [] if column in named else [column]
    reader = store.scan(pin, [*named, *extra])
    hits = [batch.filter(pc.is_in(batch[column], value_set=wanted)) for batch in reader]
    return pa.Table.from_batches(hits, reader.schema).select(named)

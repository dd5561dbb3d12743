"""Where the rows of a table version lie: fragment → offsets in it."""

from __future__ import annotations

from collections import defaultdict
from typing import Any

import pyarrow as pa  # type: ignore[import-untyped]
import pyarrow.compute as pc  # type: ignore[import-untyped]

from fenceline.graph.filters import Value, any_of

_IDS_IN_A_FILTER = 1_000
_ROWS_AT_ONCE = 1 << 20  # every batch builds its own look-up of the values: few large ones


def rows_where(dataset: Any, where: str | None) -> dict[int, list[int]]:
    found = dataset.scanner(columns=[], filter=where, with_row_address=True).to_table()
    return _by_fragment(found["_rowaddr"])


def rows_with(dataset: Any, column: str, values: list[Value]) -> dict[int, list[int]]:
    """By the index while the values are few, by one scan when they are many."""
    if not values:
        return {}
    if len(values) <= _IDS_IN_A_FILTER:
        return rows_where(dataset, any_of(column, values))
    wanted = pa.array(values, dataset.schema.field(column).type)
    found: dict[int, list[int]] = defaultdict(list)
    for batch in _scanned(dataset, column):
        hits = batch["_rowaddr"].filter(pc.is_in(batch[column], value_set=wanted))
        for fragment, offsets in _by_fragment(hits).items():
            found[fragment] += offsets
    return dict(found)


def _scanned(dataset: Any, column: str) -> Any:
    return dataset.scanner(columns=[column], with_row_address=True, batch_size=_ROWS_AT_ONCE).to_reader()


def _by_fragment(addresses: Any) -> dict[int, list[int]]:
    found: dict[int, list[int]] = defaultdict(list)
    for address in addresses.to_pylist():
        found[address >> 32].append(address & 0xFFFFFFFF)
    return dict(found)

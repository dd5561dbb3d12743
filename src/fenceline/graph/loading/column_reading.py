"""Batches of columns whose types are those of the table already, without a look at each row.

Whatever is not plain gives None: then rows are read one by one, and what is wrong is found at its row.
"""

from __future__ import annotations

from typing import Any

import pyarrow as pa  # type: ignore[import-untyped]
import pyarrow.compute as pc  # type: ignore[import-untyped]

from fenceline.graph.loading.fresh_ids import FreshIds
from fenceline.graph.loading.row_reading import ENDS, Given, RowReader
from fenceline.graph.schema import NodeType, Scalar, arrow_type
from fenceline.graph.schema.ids import LONGEST_ID
from fenceline.graph.schema.kinds import FLOATS, INTEGERS

_IDS_OF = (Scalar.STRING, Scalar.DATE, *INTEGERS)


def read_columns(reader: RowReader, batch: pa.RecordBatch, fresh: FreshIds, at: int) -> tuple[Given, Any] | None:
    """What the rows give, and the table's own batch."""
    names = batch.schema.names
    if not reader.known.issuperset(names) or len(set(names)) != len(names):
        return None
    given: dict[str, pa.Array] = {}
    for each in reader.table.properties:
        if each.name not in names:
            if not reader.patch and not each.nullable:
                return None
            continue
        column = _plain(batch.column(each.name), arrow_type(each.kind), each.kind in FLOATS)
        if column is None or (column.null_count and not each.nullable):
            return None
        given[each.name] = column
    own = _own(reader, batch, given, fresh, at)
    if own is None:
        return None
    arrays = [
        *own,
        *(given[n] if n in given else pa.nulls(len(batch), reader.schema.field(n).type) for n in reader.names),
    ]
    saying = tuple(given) if reader.patch else reader.names
    return saying, pa.RecordBatch.from_arrays(arrays, schema=reader.schema)


def _own(
    reader: RowReader, batch: pa.RecordBatch, given: dict[str, pa.Array], fresh: FreshIds, at: int
) -> list[pa.Array] | None:
    table, names = reader.table, batch.schema.names
    told = _texts(batch.column("id")) if "id" in names else None
    if isinstance(table, NodeType) and table.key:
        if len(table.key) > 1 or table.key[0] not in given or table.property(table.key[0]).kind not in _IDS_OF:
            return None
        ids = _texts(given[table.key[0]].cast(pa.string()))
        if "id" in names and (told is None or ids is None or not told.equals(ids)):
            return None
    else:
        ids = told if "id" in names else fresh.between(at, at + len(batch))
    own = [ids]
    if not isinstance(table, NodeType):
        for pair in ENDS.values():
            named = [name for name in pair if name in names]
            own.append(_texts(batch.column(named[0])) if len(named) == 1 else None)
    return None if any(each is None for each in own) else own


def _plain(column: pa.Array, wanted: pa.DataType, is_float: bool) -> pa.Array | None:
    """The column in the table's type, where that is the same value for certain."""
    found = column.type
    if pa.types.is_dictionary(found):
        column = column.dictionary_decode()
        found = column.type
    if is_float and not _finite(column, wanted):
        return None
    if found == wanted:
        return column
    if not _alike(found, wanted):
        return pa.nulls(len(column), wanted) if pa.types.is_null(found) else None
    try:
        return column.cast(wanted)
    except pa.ArrowInvalid:
        return None


def _alike(found: pa.DataType, wanted: pa.DataType) -> bool:
    types = pa.types
    if types.is_integer(wanted):
        return bool(types.is_integer(found))
    if types.is_timestamp(wanted):
        return bool(types.is_timestamp(found)) and found.unit != "ns"
    if types.is_floating(wanted):
        return bool(types.is_floating(found))
    pairs = ((types.is_string, types.is_large_string), (types.is_binary, types.is_large_binary))
    return any(one(wanted) and other(found) for one, other in pairs)


def _finite(column: pa.Array, wanted: pa.DataType) -> bool:
    if not pa.types.is_floating(column.type):
        return bool(pa.types.is_null(column.type))
    narrowed = column.cast(wanted) if column.type != wanted else column
    return bool(pc.all(pc.is_finite(narrowed), min_count=0).as_py())


def _texts(column: pa.Array) -> pa.Array | None:
    """Texts that can be ids."""
    if pa.types.is_large_string(column.type):
        column = column.cast(pa.string())
    if not pa.types.is_string(column.type) or column.null_count:
        return None
    lengths = pc.min_max(pc.utf8_length(column)).as_py()
    fits = not len(column) or (lengths["min"] > 0 and lengths["max"] <= LONGEST_ID)
    return column if fits else None

"""The columns of a table: as Arrow and as Spark know them.

Arrow fields may all be null but `id`, `src` and `dst`: whether a property is required is checked by us, so that making
it nullable, or adding it to old rows, never rewrites a table.
"""

from __future__ import annotations

from typing import Any

import pyarrow as pa  # type: ignore[import-untyped]

from fenceline.graph.schema.kinds import Choice, Kind, ListOf, Scalar, Vector
from fenceline.graph.schema.model import TableType

_ARROW = {
    Scalar.STRING: pa.string(),
    Scalar.BOOL: pa.bool_(),
    Scalar.I32: pa.int32(),
    Scalar.I64: pa.int64(),
    Scalar.U32: pa.uint32(),
    Scalar.U64: pa.uint64(),
    Scalar.F32: pa.float32(),
    Scalar.F64: pa.float64(),
    Scalar.DATE: pa.date32(),
    Scalar.DATETIME: pa.timestamp("us", tz="UTC"),
    Scalar.BLOB: pa.binary(),
}
_SPARK = {  # as Spark's JSON and its SQL call them; it has no unsigned numbers
    Scalar.STRING: ("string", "STRING"),
    Scalar.BOOL: ("boolean", "BOOLEAN"),
    Scalar.I32: ("integer", "INT"),
    Scalar.I64: ("long", "BIGINT"),
    Scalar.U32: ("long", "BIGINT"),
    Scalar.U64: ("decimal(20,0)", "DECIMAL(20,0)"),
    Scalar.F32: ("float", "FLOAT"),
    Scalar.F64: ("double", "DOUBLE"),
    Scalar.DATE: ("date", "DATE"),
    Scalar.DATETIME: ("timestamp", "TIMESTAMP"),
    Scalar.BLOB: ("binary", "BINARY"),
}


def arrow_type(kind: Kind) -> pa.DataType:
    if isinstance(kind, Vector):
        return pa.list_(pa.float32(), kind.size)
    if isinstance(kind, ListOf):
        return pa.list_(arrow_type(kind.item))
    return pa.string() if isinstance(kind, Choice) else _ARROW[kind]


def arrow_schema(table: TableType) -> pa.Schema:
    own = [pa.field(name, pa.string(), nullable=False) for name in table.own_columns]
    return pa.schema([*own, *(pa.field(each.name, arrow_type(each.kind)) for each in table.properties)])


def spark_schema(table: TableType) -> dict[str, Any]:
    """What `StructType.fromJson` reads."""
    fields = [_field(name, "string", nullable=False) for name in table.own_columns]
    fields += [_field(each.name, _spark_json(each.kind), nullable=True) for each in table.properties]
    return {"type": "struct", "fields": fields}


def spark_ddl(table: TableType) -> str:
    """The same for `DataFrameReader.schema` and `CREATE TABLE`."""
    own = [f"`{name}` STRING NOT NULL" for name in table.own_columns]
    return ", ".join([*own, *(f"`{each.name}` {_spark_sql(each.kind)}" for each in table.properties)])


def spark_types(table: TableType) -> dict[str, str]:
    """The type of each column, as Spark's SQL calls it."""
    return dict.fromkeys(table.own_columns, "STRING") | {p.name: _spark_sql(p.kind) for p in table.properties}


def _field(name: str, kind: Any, *, nullable: bool) -> dict[str, Any]:
    return {"name": name, "type": kind, "nullable": nullable, "metadata": {}}


def _spark_json(kind: Kind) -> Any:
    if isinstance(kind, Vector | ListOf):
        item = Scalar.F32 if isinstance(kind, Vector) else kind.item
        return {"type": "array", "elementType": _spark_json(item), "containsNull": True}
    return _SPARK[Scalar.STRING if isinstance(kind, Choice) else kind][0]


def _spark_sql(kind: Kind) -> str:
    if isinstance(kind, Vector | ListOf):
        return f"ARRAY<{_spark_sql(Scalar.F32 if isinstance(kind, Vector) else kind.item)}>"
    return _SPARK[Scalar.STRING if isinstance(kind, Choice) else kind][1]

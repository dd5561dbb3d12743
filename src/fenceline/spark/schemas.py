"""The stored schema of a dataset, and whether a frame fits it."""

from __future__ import annotations

import json
from collections.abc import Collection, Sequence
from typing import TYPE_CHECKING

from fenceline.errors import ContractError

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame
    from pyspark.sql.types import DataType, StructType

JOB_COLUMN = "_fl"  # what Spark calls the `_fl=<job>` directories


def nullable(schema: StructType) -> StructType:
    """As files give it back: every field may be null, whatever the frame said."""
    from pyspark.sql.types import ArrayType, MapType, StructField, StructType

    def relaxed(kind: DataType) -> DataType:
        if isinstance(kind, StructType):
            return StructType([StructField(f.name, relaxed(f.dataType), True, f.metadata) for f in kind.fields])
        if isinstance(kind, ArrayType):
            return ArrayType(relaxed(kind.elementType), True)
        if isinstance(kind, MapType):
            return MapType(relaxed(kind.keyType), relaxed(kind.valueType), True)
        return kind

    return StructType([StructField(f.name, relaxed(f.dataType), True, f.metadata) for f in schema.fields])


def parse(text: str) -> StructType:
    """A stored schema: Spark's JSON."""
    from pyspark.sql.types import StructType

    try:
        return StructType.fromJson(json.loads(text))
    except (ValueError, KeyError, TypeError, AttributeError) as error:
        raise ContractError(
            f"the schema kept with the dataset is not Spark's JSON: {text[:80]!r}",
            hint="read it with a schema of your own, or write it again with mode='overwrite'",
        ) from error


def without(schema: StructType, names: Collection[str]) -> StructType:
    from pyspark.sql.types import StructType

    return StructType([field for field in schema.fields if field.name not in names])


def dump(schema: StructType) -> str:
    return schema.json()


def column(name: str) -> Column:
    """A column by its exact name, dots and all."""
    from pyspark.sql import functions

    return functions.col("`" + name.replace("`", "``") + "`")


def check_frame(df: DataFrame, partition_by: Sequence[str]) -> None:
    """What no dataset can hold."""
    if df.isStreaming:
        raise ContractError(
            "a streaming frame cannot be written: it has no end at which to publish",
            hint="read its source as a batch, or write inside foreachBatch",
        )
    if JOB_COLUMN in (name.lower() for name in df.columns):
        raise ContractError(
            f"a column cannot be called {JOB_COLUMN!r}: datasets use that name for their directories", hint="rename it"
        )
    missing = [name for name in partition_by if name not in df.columns]
    if missing:
        raise ContractError(
            f"partition_by names {', '.join(missing)}, which the frame does not have", hint=f"it has {df.columns}"
        )
    if len(set(partition_by)) < len(partition_by):
        raise ContractError(f"partition_by names a column twice: {list(partition_by)}", hint="name each once")


def fitted(df: DataFrame, stored: StructType, path: str, ordered: bool) -> DataFrame:
    """The frame with the stored schema's columns in their order and types, or an error that names what differs.

    Numbers may be narrower than what is stored. `ordered`: the format tells columns apart by their place only.
    """
    frame = nullable(df.schema)
    given = {field.name: field.dataType for field in frame.fields}
    wanted = {field.name: field.dataType for field in stored.fields}
    missing, new = [n for n in wanted if n not in given], [n for n in given if n not in wanted]
    if missing or new:
        said = [f"lacks {', '.join(missing)}" if missing else "", f"adds {', '.join(new)}" if new else ""]
        raise ContractError(
            f"the frame does not fit the dataset {path}: it {' and '.join(filter(None, said))}",
            hint="write the same columns, or change the schema with mode='overwrite'",
        )
    differing = [
        f"{name} is {wanted[name].simpleString()} in the dataset and {kind.simpleString()} in the frame"
        for name, kind in given.items()
        if kind != wanted[name] and not _widens(kind, wanted[name])
    ]
    if differing:
        raise ContractError(
            f"the frame does not fit the dataset {path}: {'; '.join(differing)}",
            hint="cast the columns, or change the schema with mode='overwrite'",
        )
    if ordered and list(given) != list(wanted):
        raise ContractError(
            f"the frame's columns are {list(given)}, the dataset {path} has {list(wanted)}: this format tells them "
            "apart by their order",
            hint="select() them in the dataset's order",
        )
    if list(given) == list(wanted) and given == wanted:
        return df
    return df.select(*(column(name).cast(kind).alias(name) for name, kind in wanted.items()))


def _widens(narrow: DataType, wide: DataType) -> bool:
    """Whether every value of one type is a value of the other, without rounding."""
    from pyspark.sql import types

    whole: list[type[DataType]] = [types.ByteType, types.ShortType, types.IntegerType, types.LongType]
    if type(narrow) in whole and type(wide) in whole:
        return whole.index(type(narrow)) <= whole.index(type(wide))
    if isinstance(narrow, types.DecimalType) and isinstance(wide, types.DecimalType):
        return narrow.scale <= wide.scale and narrow.precision - narrow.scale <= wide.precision - wide.scale
    return isinstance(narrow, types.FloatType) and isinstance(wide, types.DoubleType)

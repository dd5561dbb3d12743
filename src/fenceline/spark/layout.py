"""Plain directories laid out as `column=value/…`: files that Spark did not write through us keep their columns.

Uploads of several executions lie under several roots, which Spark's own discovery refuses; and it would read `01` as a
number. So the columns and their types are found here, from the paths.
"""

from __future__ import annotations

import datetime
import re
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, NamedTuple
from urllib.parse import unquote

from fenceline.errors import ContractError

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame
    from pyspark.sql.types import DataType, StructType

_NULL = "__HIVE_DEFAULT_PARTITION__"
_WHOLE = re.compile(r"-?(0|[1-9][0-9]{0,17})")
_DAY = re.compile(r"[0-9]{4}-[0-9]{2}-[0-9]{2}")


class Placed(NamedTuple):
    """A file: where it lies on disk, and its path below the directory that is read."""

    path: str
    relative: str


class Layout(NamedTuple):
    """The partition columns of a directory, outermost first, with their types; and the one root all files share."""

    columns: dict[str, DataType]
    directories: tuple[str, ...]
    """The columns as the directories spell them: special characters escaped."""
    root: str | None


def find_layout(files: Sequence[Placed], where: str) -> Layout | None:
    """The layout of these files; None where their directories name no columns."""
    chains = {tuple(d for d in file.relative.split("/")[:-1] if "=" in d) for file in files}
    shapes = {tuple(d.partition("=")[0] for d in chain) for chain in chains}
    if shapes <= {()}:
        return None
    if len(shapes) > 1 or any("=" not in d for file in files for d in file.relative.split("/")[:-1]):
        raise ContractError(
            f"{where}: some files lie in column=value directories and some do not, or in others",
            hint="read the directories one by one",
        )
    (shape,) = shapes
    values = {name: {unquote(chain[at].partition("=")[2]) for chain in chains} for at, name in enumerate(shape)}
    roots = {file.path.removesuffix("/" + file.relative) for file in files}
    return Layout(
        {unquote(name): _type_of(found) for name, found in values.items()},
        shape,
        roots.pop() if len(roots) == 1 else None,
    )


def _type_of(values: set[str]) -> DataType:
    from pyspark.sql.types import DateType, IntegerType, LongType, StringType

    said = values - {_NULL}
    if said and all(_WHOLE.fullmatch(value) for value in said):
        small = all(-(2**31) <= int(value) < 2**31 for value in said)
        return IntegerType() if small else LongType()
    return DateType() if said and all(_is_day(value) for value in said) else StringType()


def _is_day(value: str) -> bool:
    if not _DAY.fullmatch(value):
        return False
    try:
        datetime.date.fromisoformat(value)
    except ValueError:
        return False
    return True


def with_columns(schema: StructType, columns: Mapping[str, DataType]) -> StructType:
    """A schema with partition columns at its end; one that it has already keeps its type."""
    from pyspark.sql.types import StructField, StructType

    own = {field.name for field in schema.fields}
    return StructType([*schema.fields, *(StructField(n, kind) for n, kind in columns.items() if n not in own)])


def add_columns(df: DataFrame, layout: Layout, schema: StructType | None) -> DataFrame:
    """Partition columns taken from each file's path: for files under several roots, in one scan."""
    from pyspark.sql import functions

    path = _decoded(functions.col("_metadata.file_path"))
    chain = "/".join(rf"\Q{name}\E=([^/]*)" for name in layout.directories)
    given = {field.name: field.dataType for field in schema.fields} if schema else {}
    for at, (name, kind) in enumerate(layout.columns.items(), 1):
        value = _decoded(functions.regexp_extract(path, rf"^.*/{chain}/[^/]*$", at))
        known = functions.when(value != _NULL, value)
        df = df.withColumn(name, known.cast(given.get(name, kind)))
    return df


def _decoded(text: Column) -> Column:
    """Percent-decoding; a plus sign is itself, unlike in web forms."""
    from pyspark.sql import functions

    return functions.url_decode(functions.replace(text, functions.lit("+"), functions.lit("%2B")))

"""What a schema change does to the columns of a table."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import pyarrow as pa


@dataclass(frozen=True, slots=True)
class AddColumn:
    """A new column: null in every row there is, or one value in all of them."""

    field: pa.Field
    value: Any = None


@dataclass(frozen=True, slots=True)
class DropColumn:
    name: str


@dataclass(frozen=True, slots=True)
class ChangeColumn:
    """The column as `field` says from now on: its name, its type (values are cast, never cut), whether it may be null."""

    name: str
    field: pa.Field


ColumnChange = AddColumn | DropColumn | ChangeColumn

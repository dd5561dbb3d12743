"""The types of properties, as values: what the language can say, and nothing else."""

from __future__ import annotations

import json
import re
from dataclasses import dataclass
from enum import StrEnum
from typing import TypeAlias

NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")
LONGEST_VECTOR = 65_536


class Scalar(StrEnum):
    STRING = "String"
    BOOL = "Bool"
    I32 = "I32"
    I64 = "I64"
    U32 = "U32"
    U64 = "U64"
    F32 = "F32"
    F64 = "F64"
    DATE = "Date"
    DATETIME = "DateTime"
    BLOB = "Blob"


@dataclass(frozen=True, slots=True)
class Vector:
    """A fixed number of 32-bit floats."""

    size: int

    def __str__(self) -> str:
        return f"Vector({self.size})"


@dataclass(frozen=True, slots=True)
class Choice:
    """One of some texts: `enum(a, b)`."""

    values: tuple[str, ...]

    def __str__(self) -> str:
        return f"enum({', '.join(v if NAME.fullmatch(v) else quoted(v) for v in self.values)})"


@dataclass(frozen=True, slots=True)
class ListOf:
    """Any number of items, none of them null."""

    item: Scalar | Choice

    def __str__(self) -> str:
        return f"[{self.item}]"


Kind: TypeAlias = Scalar | Vector | Choice | ListOf

INTEGERS = {
    Scalar.I32: (-(2**31), 2**31 - 1),
    Scalar.I64: (-(2**63), 2**63 - 1),
    Scalar.U32: (0, 2**32 - 1),
    Scalar.U64: (0, 2**64 - 1),
}
FLOATS = (Scalar.F32, Scalar.F64)


def can_be_key(kind: Kind) -> bool:
    """Whether a value has one exact text, which then is the node's id."""
    return isinstance(kind, Choice) or (isinstance(kind, Scalar) and kind not in (*FLOATS, Scalar.BLOB))


def can_be_unique(kind: Kind) -> bool:
    return isinstance(kind, Choice) or (isinstance(kind, Scalar) and kind is not Scalar.BLOB)


def can_be_indexed(kind: Kind) -> bool:
    return not isinstance(kind, ListOf) and kind is not Scalar.BLOB


def quoted(text: str) -> str:
    """A text as the language writes it: JSON's escapes."""
    return json.dumps(text, ensure_ascii=False)

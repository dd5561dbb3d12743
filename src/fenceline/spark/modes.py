"""How a write treats what is there already."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal, TypeAlias, get_args

from fenceline.errors import ContractError


@dataclass(frozen=True, slots=True)
class ReplaceWhere:
    """Rows that match the predicate are replaced by the frame's; all others stay."""

    predicate: str


ModeName: TypeAlias = Literal["error", "append", "overwrite", "overwrite_partitions"]
Mode: TypeAlias = ModeName | ReplaceWhere

_NAMES = get_args(ModeName)


def replace_where(predicate: str) -> ReplaceWhere:
    """The mode that replaces the rows matching a SQL predicate: `mode=replace_where("day = '2026-01-01'")`."""
    if not isinstance(predicate, str) or not predicate.strip():
        raise ContractError("replace_where needs a SQL predicate", hint="for all rows say mode='overwrite'")
    return ReplaceWhere(predicate)


def check_mode(mode: Mode) -> str:
    """The mode's name, as datasets record it."""
    if isinstance(mode, ReplaceWhere):
        return "replace_where"
    if mode not in _NAMES:
        raise ContractError(f"mode is {mode!r}", hint=f"use one of {', '.join(_NAMES)}, or replace_where(predicate)")
    return mode

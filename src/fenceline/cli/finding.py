"""What a check of `fenceline doctor` finds."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal


@dataclass(frozen=True, slots=True)
class Finding:
    """One check and what to do about it."""

    check: str
    state: Literal["ok", "warn", "fail"]
    what: str
    next_step: str = ""

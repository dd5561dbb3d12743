"""Files of a commit that keep data alive outside its tree: pins of table versions.

A pin is a file whose name ends in `.pin` and whose content says so. What it keeps lies below `tables/`. Which objects
those are, only the engine behind the tables can tell, so it comes in as `Pinned`.
"""

from __future__ import annotations

import json
from collections.abc import Iterable
from typing import Protocol

from fenceline.errors import ConfigError

AREA = "tables/"
SUFFIX = ".pin"
MARKER = "fenceline.pin"


class Pinned(Protocol):
    """What the pins of a repository keep alive."""

    def files(self, content: bytes) -> Iterable[str]:
        """The key of every object that the pinned version needs. Raises `ObjectMissing` where it cannot be opened."""
        ...

    def problems(self, content: bytes) -> Iterable[tuple[str, str]]:
        """What is wrong with the pinned version: (address, what)."""
        ...


class NotFollowed:
    """Where no engine for tables is there. A repository without tables never asks."""

    def files(self, content: bytes) -> Iterable[str]:
        raise _no_engine()

    def problems(self, content: bytes) -> Iterable[tuple[str, str]]:
        raise _no_engine()


def _no_engine() -> ConfigError:
    return ConfigError(
        "this repository has graph tables, and what they need cannot be told without their engine",
        hint="pip install 'fenceline[graph]'",
    )


def table_of(content: bytes) -> str | None:
    """The table that a pin names; None for a file that only looks like one."""
    try:
        value = json.loads(content)
    except ValueError:
        return None
    if not isinstance(value, dict) or not isinstance(value.get(MARKER), int):
        return None
    table = value.get("table")
    return table if isinstance(table, str) else None


def table_prefix(table: str) -> str:
    """Where everything of a table lies."""
    return f"{AREA}{table}.lance/"


def owner_table(key: str) -> str:
    """The table that an object below `tables/` belongs to."""
    return key.removeprefix(AREA).partition("/")[0].removesuffix(".lance")

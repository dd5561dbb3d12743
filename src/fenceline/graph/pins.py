"""Pins: the small files of a commit that each name one version of one table."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import asdict, dataclass, replace
from typing import Any, Literal

from fenceline.errors import ObjectDamaged
from fenceline.repo.model import canonical
from fenceline.repo.native.pinned import MARKER, table_of

IndexKind = Literal["btree", "inverted", "label_list", "vector"]
FORMAT = 1


@dataclass(frozen=True, slots=True)
class IndexState:
    """One index of a table version."""

    name: str
    column: str
    kind: IndexKind
    fragments: int
    """How many of the version's fragments it covers; queries scan the others."""


@dataclass(frozen=True, slots=True)
class Pin:
    """One version of a table. Nothing but a pin ever names it."""

    table: str
    version: int
    """Lance's number: random, 64 bits, and only equality means anything."""
    rows: int = 0
    published: int = 0
    """How often the table was published on this branch: what `expected` and `actual` of a conflict count."""
    fragments: int = 0
    indices: tuple[IndexState, ...] = ()

    def index(self, name: str) -> IndexState | None:
        return next((index for index in self.indices if index.name == name), None)

    def published_after(self, base: Pin | None) -> Pin:
        """The same version as the next publication after `base`, however many steps it was staged in."""
        return replace(self, published=base.published + 1 if base else 1)

    def to_bytes(self) -> bytes:
        # the version as text: many readers of JSON keep 53 bits of a number
        return canonical({MARKER: FORMAT, **asdict(self), "version": str(self.version)}) + b"\n"

    @classmethod
    def from_bytes(cls, data: bytes, path: str = "a pin") -> Pin:
        if table_of(data) is None:
            raise ObjectDamaged(f"{path} is no pin of a table", hint="fenceline fsck shows what that breaks")
        try:
            value: dict[str, Any] = json.loads(data)
            number = value.pop(MARKER)
            if number > FORMAT:
                raise ObjectDamaged(
                    f"{path} has format {number}; this version reads up to {FORMAT}",
                    hint="pip install --upgrade fenceline",
                )
            indices = tuple(_index(each) for each in value.pop("indices"))
            return cls(**{**value, "version": int(value["version"]), "indices": indices})
        except (ValueError, TypeError, KeyError) as error:
            raise ObjectDamaged(
                f"{path} cannot be read: {error}", hint="fenceline fsck shows what that breaks"
            ) from error


def _index(value: Mapping[str, Any]) -> IndexState:
    return IndexState(value["name"], value["column"], value["kind"], int(value["fragments"]))

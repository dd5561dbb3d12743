"""A graph as one commit has it: its schema, and the pin of every table. Pins are read when they are touched."""

from __future__ import annotations

import functools
from collections.abc import Callable
from functools import cached_property

from fenceline.errors import NotFound, ObjectDamaged
from fenceline.graph.manifest import Manifest, Place
from fenceline.graph.pins import Pin
from fenceline.graph.schema import Catalogue, parse, schema_id

Read = Callable[[str], bytes | None]
"""The bytes of a file, or None. A transaction's own counts the path as read, also where nothing is there."""


class Snapshot:
    def __init__(self, read: Read, place: Place) -> None:
        self._read, self._place = read, place
        self._pins: dict[str, Pin] = {}

    @cached_property
    def manifest(self) -> Manifest:
        data = self._read(self._place.manifest)
        if data is None:
            raise NotFound(
                f"there is no graph: {self._place.manifest} is missing", hint="create one: graph.init(schema_text)"
            )
        return Manifest.from_bytes(data, self._place.manifest)

    @cached_property
    def catalogue(self) -> Catalogue:
        wanted = self.manifest.schema
        data = self._read(self._place.schema) or b""
        try:
            catalogue, found = _parsed(data.decode())
        except UnicodeDecodeError as error:
            raise ObjectDamaged(
                f"{self._place.schema} is no text", hint="fenceline log shows who changed it"
            ) from error
        if found != wanted:
            raise ObjectDamaged(
                f"{self._place.schema} is not the schema that {self._place.manifest} names",
                hint="change schemas with the graph's own calls; fenceline log shows who changed it",
            )
        return catalogue

    def pin(self, table_key: str) -> Pin:
        if table_key not in self._pins:
            self.catalogue.table(table_key)
            path = self._place.pin(table_key)
            data = self._read(path)
            if data is None:
                raise ObjectDamaged(f"{path} is missing, so {table_key} has no rows to read", hint="fenceline log")
            self._pins[table_key] = Pin.from_bytes(data, path)
        return self._pins[table_key]


@functools.lru_cache(maxsize=64)
def _parsed(text: str) -> tuple[Catalogue, str]:
    catalogue = parse(text)
    return catalogue, schema_id(catalogue)

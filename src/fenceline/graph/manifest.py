"""Where a graph lies in a commit, and its manifest: which schema it has, and which table each type has.

Tables are never named by their type, so that renaming a type costs nothing.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass

from fenceline.errors import ObjectDamaged
from fenceline.repo.model import canonical
from fenceline.repo.names import check_prefix
from fenceline.repo.native.pinned import SUFFIX

FORMAT = 1
MANIFEST = "graph.json"
SCHEMA = "schema.pg"
TABLES = "tables"
SCHEMA_KEY = "schema"
"""Stands for the schema where errors name a table."""


@dataclass(frozen=True, slots=True)
class Place:
    """The directory of a graph; '' is the root."""

    root: str = ""

    @classmethod
    def at(cls, path: str) -> Place:
        return cls(check_prefix(path))

    @property
    def manifest(self) -> str:
        return self._below(MANIFEST)

    @property
    def schema(self) -> str:
        return self._below(SCHEMA)

    def pin(self, table_key: str) -> str:
        """`node:Person` is pinned by `tables/node.Person.pin`."""
        return self._below(f"{TABLES}/{table_key.replace(':', '.', 1)}{SUFFIX}")

    def table_key(self, path: str) -> str | None:
        """What a file of the graph stands for: the table that it pins, or the schema; None for any other file."""
        if path in (self.manifest, self.schema):
            return SCHEMA_KEY
        start = self._below(f"{TABLES}/")
        name = path.removeprefix(start).removesuffix(SUFFIX)
        if not path.startswith(start) or not path.endswith(SUFFIX) or "/" in name:
            return None
        return name.replace(".", ":", 1)

    def _below(self, name: str) -> str:
        return f"{self.root}/{name}" if self.root else name


@dataclass(frozen=True, slots=True)
class Manifest:
    """`graph.json`. It changes with the schema only."""

    schema: str
    """The schema id."""
    tables: Mapping[str, str]
    """From table key to table id."""
    published: int = 1
    """How often the schema was published on this branch."""

    def to_bytes(self) -> bytes:
        value = {"format": FORMAT, "schema": self.schema, "tables": dict(self.tables), "published": self.published}
        return canonical(value) + b"\n"

    @classmethod
    def from_bytes(cls, data: bytes, path: str) -> Manifest:
        try:
            value = json.loads(data)
            number = int(value["format"])
            if number <= FORMAT:
                return cls(str(value["schema"]), dict(value["tables"]), int(value["published"]))
        except (ValueError, TypeError, KeyError) as error:
            raise ObjectDamaged(
                f"{path} is no manifest of a graph: {error}", hint="fenceline log shows who changed it"
            ) from error
        raise ObjectDamaged(
            f"{path} has format {number}; this version reads up to {FORMAT}", hint="pip install --upgrade fenceline"
        )

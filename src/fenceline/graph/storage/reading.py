"""Reading a version: its rows, how many there are, its files and whether they are sound."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

import pyarrow as pa  # type: ignore[import-untyped]
from lance.fragment import FragmentMetadata

from fenceline.graph import files
from fenceline.graph.lance_errors import translated
from fenceline.graph.pins import Pin
from fenceline.graph.storage.places import TablePlace
from fenceline.graph.storage.versions import Versions


class Reading(Versions):
    def schema(self, pin: Pin) -> pa.Schema:
        return self.open(pin).schema

    def scan(
        self, pin: Pin, columns: Sequence[str] | None = None, where: str | None = None, limit: int | None = None
    ) -> pa.RecordBatchReader:
        """The rows as a stream. `where` is SQL with every name in back-quotes; see `filters.py`."""
        doing = f"scanning table {pin.table}"
        with translated(doing):
            named = None if columns is None else list(columns)
            reader = self.open(pin).scanner(columns=named, filter=where, limit=limit).to_reader()

        def batches() -> Iterable[pa.RecordBatch]:
            with translated(doing):
                yield from reader

        return pa.RecordBatchReader.from_batches(reader.schema, batches())

    def count(self, pin: Pin, where: str | None = None) -> int:
        if where is None:
            return pin.rows
        with translated(f"counting rows of table {pin.table}"):
            return int(self.open(pin).count_rows(filter=where))

    def place(self, pin: Pin) -> TablePlace:
        return TablePlace(self._uri(pin.table), pin.version, self._options)

    def fragment_files(self, table: str, fragments: Iterable[str]) -> list[str]:
        """The files of fragments that executors wrote."""
        return [
            file.key
            for fragment in fragments
            for file in files.fragment_files(table, FragmentMetadata.from_json(fragment))
        ]

    def persist(self, pin: Pin, base: Pin | None = None) -> None:
        """Make the version durable (INV-2): all of it, or what it added to one that is durable already."""
        self._objects.persist(self.own_files(base, pin))

    def problems(self, pin: Pin) -> Iterable[tuple[str, str]]:
        """What of the version is missing or cut off: (address, what)."""
        return files.problems(self.files_of(pin), self._objects, set())

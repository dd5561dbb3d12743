"""Staging columns; `table_columns.py` makes schema changes of these."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import pyarrow as pa  # type: ignore[import-untyped]
from lance.dataset import LanceOperation
from lance.fragment import FragmentMetadata
from lance.schema import LanceSchema

from fenceline.graph import table_fields
from fenceline.graph.effects import WRITE
from fenceline.graph.lance_errors import translated
from fenceline.graph.pins import Pin
from fenceline.graph.storage.versions import Versions


class ColumnStaging(Versions):
    def field_messages(self, pin: Pin) -> list[bytes]:
        """The version's fields, as `table_fields.py` reads them."""
        return _messages(self.open(pin).lance_schema)

    def fresh_field_messages(self, pin: Pin, field: pa.Field) -> table_fields.FieldTree:
        """A new field, numbered behind all that the table has ever had."""
        fresh = table_fields.trees(_messages(LanceSchema.from_pyarrow(pa.schema([field]))))[0]
        return fresh.numbered(self.open(pin).max_field_id + 1)

    def stage_fields(self, pin: Pin, fields: Sequence[table_fields.FieldTree]) -> Pin:
        """The same data under other fields: dropped, renamed, reordered, or new ones that are null."""
        dataset = self.open(pin)
        metadata = dataset.lance_schema.__reduce__()[1][0]
        schema = LanceSchema._from_protos(metadata, *table_fields.flat(fields))
        if dataset.max_field_id >= table_fields.greatest_id(fields):
            return self._commit(pin, dataset, LanceOperation.Project(schema))
        kept = [fragment.metadata for fragment in dataset.get_fragments()]
        return self._commit(pin, dataset, LanceOperation.Merge(kept, schema))

    def stage_computed(self, pin: Pin, source: str, name: str, value: Callable[[pa.Array], pa.Array]) -> Pin:
        """One more column, computed from another one, in files beside those that are there."""
        dataset = self.open(pin)
        made: list[FragmentMetadata] = []
        schema = dataset.lance_schema
        with translated(f"computing {name!r} of table {pin.table}"), WRITE:
            for fragment in dataset.get_fragments():
                metadata, schema = fragment.merge_columns(
                    lambda batch: pa.record_batch([value(batch.column(source))], names=[name]), columns=[source]
                )
                made.append(metadata)
        return self._commit(pin, dataset, LanceOperation.Merge(made, schema))


def _messages(schema: LanceSchema) -> list[bytes]:
    return list(schema.__reduce__()[1][1:])

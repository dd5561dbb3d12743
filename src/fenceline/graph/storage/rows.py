"""Staging rows: a new table, and versions with more, other or fewer rows."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from typing import Any

import lance
import pyarrow as pa  # type: ignore[import-untyped]
from lance.dataset import LanceOperation
from lance.fragment import FragmentMetadata

from fenceline.errors import AlreadyExists, ContractError
from fenceline.graph.effects import CREATE, WRITE
from fenceline.graph.filters import Value
from fenceline.graph.lance_errors import translated
from fenceline.graph.pins import Pin
from fenceline.graph.row_addresses import rows_where, rows_with
from fenceline.graph.storage.places import Rows, reader, written
from fenceline.graph.storage.reading import Reading
from fenceline.graph.storage.versions import BASE, Change
from fenceline.repo.native.pinned import table_prefix


class RowStaging(Reading):
    def create(self, table: str, schema: pa.Schema) -> Pin:
        """A new table without rows."""
        with translated(f"creating table {table}"):
            if next(iter(self._objects.list(table_prefix(table))), None) is not None:
                raise AlreadyExists(f"table {table} exists", hint="every table has an id of its own")
            with CREATE:
                made = lance.write_dataset(
                    schema.empty_table(),
                    self._uri(table),
                    mode="create",
                    storage_options=self._options or None,
                    session=self._session,
                )
        self._remember(table, made)
        pin = self._pin(Pin(table, BASE), made)
        self._note(file.key for file in self.files_of(pin))
        return pin

    def write(self, pin: Pin, data: Rows) -> list[str]:
        """Rows as fragments that no version names yet: for `stage_append`, on this version or on a later one."""
        fragments = written(self.open(pin), reader(data), "append")
        keys = self.fragment_files(pin.table, fragments)
        self._note(keys)
        self._unnamed.update(keys)
        return fragments

    def stage_append(self, pin: Pin, data: Rows | None = None, *, fragments: Iterable[str] = ()) -> Pin:
        """Add rows, or fragments that were written before. Nothing checks for equal ids here."""
        given = [*fragments, *(self.write(pin, data) if data is not None else ())]
        self._note_fragments(pin, given)
        if not given:
            return pin
        dataset = self.open(pin)
        new = tuple(FragmentMetadata.from_json(fragment) for fragment in given)
        _refuse_other_columns(pin, dataset, new)
        return self._commit(pin, dataset, LanceOperation.Append(list(new)), Change(_rows(new), new))

    def rebase_append(self, onto: Pin, fragments: Iterable[str]) -> Pin:
        """The same fragments on the version that another writer published meanwhile; no data is rewritten."""
        return self.stage_append(onto, fragments=fragments)

    def stage_merge(self, pin: Pin, data: Rows, on: str = "id", *, insert: bool = True) -> Pin:
        """Update the rows that match, in the columns that `data` has, and insert the others. `data` has no id twice."""
        dataset = self.open(pin)
        with translated(f"merging into table {pin.table}"), WRITE:
            builder = dataset.merge_insert(on).when_matched_update_all()
            if insert:
                builder = builder.when_not_matched_insert_all()
            # an index on the key makes this slower, and fails on large tables
            transaction, counted = builder.use_index(False).execute_uncommitted(data)
        if not any(counted.values()):
            return pin
        return self._commit(pin, dataset, transaction.operation, _of_update(transaction.operation, counted))

    def stage_delete(
        self,
        pin: Pin,
        *,
        ids: Iterable[Value] | None = None,
        where: str | None = None,
        rows: Mapping[int, list[int]] | None = None,
        column: str = "id",
    ) -> Pin:
        """Delete rows by id, by a filter, or by where they lie: fragment → offsets in it."""
        if sum(each is not None for each in (ids, where, rows)) != 1:
            raise ContractError("a delete takes ids, a filter or rows", hint="give one of them")
        dataset = self.open(pin)
        with translated(f"deleting from table {pin.table}"):
            doomed = rows
            if doomed is None:
                doomed = rows_with(dataset, column, list(ids)) if ids is not None else rows_where(dataset, where)
            if not doomed:
                return pin
            changed: list[FragmentMetadata] = []
            gone: list[int] = []
            before = 0
            with WRITE:
                for number, offsets in sorted(doomed.items()):
                    fragment = dataset.get_fragment(number)
                    if fragment is None:
                        continue
                    before += fragment.metadata.num_rows
                    left = fragment.delete_rows(offsets)
                    if left is None:
                        gone.append(number)
                    else:
                        changed.append(left)
        said = where or f"{sum(map(len, doomed.values()))} rows by {column}"
        change = Change(_rows(changed) - before, (), tuple(each.id for each in changed), tuple(gone))
        return self._commit(pin, dataset, LanceOperation.Delete(changed, gone, said), change)

    def stage_overwrite(
        self, pin: Pin, schema: pa.Schema, data: Rows | None = None, *, fragments: Iterable[str] = ()
    ) -> Pin:
        """Replace all rows, and the columns where `schema` says so. Indices are gone after it."""
        dataset = self.open(pin)
        given = [*fragments, *(written(dataset, reader(data), "overwrite") if data is not None else ())]
        self._note_fragments(pin, given)
        new = [FragmentMetadata.from_json(fragment) for fragment in given]
        return self._commit(pin, dataset, LanceOperation.Overwrite(schema, new))

    def _note_fragments(self, pin: Pin, fragments: Iterable[str]) -> None:
        """Lance would take the same fragments twice, and every row of them would be there twice.

        Refused before they are noted: what the table has already is not this transaction's to take back.
        """
        keys = self.fragment_files(pin.table, fragments)
        if self._unnamed.issuperset(keys):
            self._unnamed.difference_update(keys)
            return
        there = {file.key for file in self.files_of(pin)}
        for key in keys:
            if key in there:
                raise AlreadyExists(f"the rows in {key} are in table {pin.table} already", hint="adopt them")
            there.add(key)
        self._note(keys)


def _rows(fragments: Iterable[FragmentMetadata]) -> int:
    return sum(fragment.num_rows for fragment in fragments)


def _of_update(operation: Any, counted: Mapping[str, int]) -> Change | None:
    """None where columns were rewritten instead of rows: then there are new files in old fragments."""
    if not isinstance(operation, LanceOperation.Update) or operation.update_mode != "rewrite_rows":
        return None
    return Change(
        counted["num_inserted_rows"] - counted["num_deleted_rows"],
        tuple(operation.new_fragments),
        tuple(each.id for each in operation.updated_fragments),
        tuple(operation.removed_fragment_ids),
    )


def _refuse_other_columns(pin: Pin, dataset: lance.LanceDataset, new: Iterable[FragmentMetadata]) -> None:
    """Rows written for a column that was dropped or cast since would lose it; one that must be there is not null."""
    fields = dataset.lance_schema.fields()
    known = {each.id() for field in fields for each in _with_children(field)}
    needed = {f.id() for f in fields if not f.children() and not dataset.schema.field(f.name()).nullable}
    for fragment in new:
        named = {each for file in fragment.files for each in file.fields}
        if not needed <= named <= known:
            raise ContractError(
                f"rows were written for other columns than table {pin.table} has now", hint="write them again"
            )


def _with_children(field: Any) -> Iterator[Any]:
    yield field
    for child in field.children():
        yield from _with_children(child)

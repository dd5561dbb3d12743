"""Tables on Lance, in detached versions that only a pin names. The one module that calls Lance.

Every `stage_…` takes a pin and returns the pin of a new version built on it; the table's own head never moves. So
nothing is visible before a commit holds the pin, a crash leaves garbage and never drift, and any number of processes
may stage on one table at once. Lance fsyncs nothing: what was written is told to `note`, and the transaction that
noted it makes it durable before its seal (INV-2), or takes it back.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, TypeAlias
from urllib.parse import unquote, urlsplit

import lance
import pyarrow as pa  # type: ignore[import-untyped]
from lance.dataset import Index, LanceOperation
from lance.fragment import FragmentMetadata
from lance.fragment import write_fragments as _write_fragments
from lance.lance import _Session as Session
from lance.optimize import Compaction
from lance.schema import LanceSchema

from fenceline.errors import AlreadyExists, ContractError, ObjectMissing
from fenceline.graph import files, index_plan, table_fields
from fenceline.graph.effects import CREATE, STAGE, WRITE
from fenceline.graph.filters import Value
from fenceline.graph.lance_errors import translated
from fenceline.graph.pins import IndexKind, IndexState, Pin
from fenceline.graph.row_addresses import rows_where, rows_with
from fenceline.repo.native.objects import ObjectStore
from fenceline.repo.native.pinned import table_prefix

Rows: TypeAlias = pa.Table | pa.RecordBatchReader
Note = Callable[[Iterable[str]], None]

_BASE = 1  # Lance cannot create a table detached: its first version is an ordinary one, and empty
_OPEN_VERSIONS = 64
_KNOWN_FILES = 4


@dataclass(frozen=True, slots=True)
class TablePlace:
    """Where executors write fragments for a version: small, and it pickles."""

    uri: str
    version: int
    options: Mapping[str, str]


def open_place(place: TablePlace) -> lance.LanceDataset:
    """The version, in a process that has no store: an executor that reads or writes a part of a table."""
    with translated(f"opening {place.uri}"):
        return lance.dataset(place.uri, version=place.version, storage_options=dict(place.options) or None)


def write_fragments(place: TablePlace, data: Rows | Iterable[pa.RecordBatch], schema: pa.Schema) -> list[str]:
    """Write rows as fragments that no version names yet; their records, as JSON, go to `stage_append`."""
    return _written(open_place(place), _reader(data, schema), "append")


def write_fresh_fragments(place: TablePlace, data: Rows | Iterable[pa.RecordBatch], schema: pa.Schema) -> list[str]:
    """The same for `stage_overwrite`, with a schema that may be another one."""
    return _written(open_place(place), _reader(data, schema), "overwrite")


def _written(dataset: lance.LanceDataset, reader: pa.RecordBatchReader, mode: str) -> list[str]:
    with translated(f"writing rows to {dataset.uri}"), WRITE:
        fragments = _write_fragments(reader, dataset, mode=mode)
    return [json.dumps(fragment.to_json()) for fragment in fragments if fragment.physical_rows]


def _reader(data: Rows | Iterable[pa.RecordBatch], schema: pa.Schema | None = None) -> pa.RecordBatchReader:
    if isinstance(data, pa.RecordBatchReader):
        return data
    if isinstance(data, pa.Table):
        return data.to_reader()
    return pa.RecordBatchReader.from_batches(schema, data)


class TableStore:
    """The tables of a repository, below `tables/`."""

    def __init__(
        self, objects: ObjectStore, options: Mapping[str, str] | None = None, note: Note = lambda keys: None
    ) -> None:
        self._objects = objects
        self._options = dict(options or {})
        self._note = note
        self._session = Session()
        self._opened: dict[tuple[str, int], lance.LanceDataset] = {}
        self._base_files: dict[str, tuple[files.TableFile, ...]] = {}
        self._files: dict[tuple[str, int], tuple[files.TableFile, ...]] = {}
        where = urlsplit(objects.url)
        self._root = unquote(where.path) if where.scheme == "file" else objects.url.rstrip("/")

    def noting(self, note: Note) -> TableStore:
        """The same tables for one transaction, which is told the key of everything that is written through this."""
        other = TableStore(self._objects, self._options, note)
        other._session, other._opened, other._base_files = self._session, self._opened, self._base_files
        return other

    # --- reading ------------------------------------------------------------------------------------------------

    def open(self, pin: Pin) -> lance.LanceDataset:
        """The pinned version, to read. Raises `ObjectMissing` where it is gone."""
        return self._at(pin.table, pin.version)

    def schema(self, pin: Pin) -> pa.Schema:
        return self.open(pin).schema

    def scan(
        self, pin: Pin, columns: Sequence[str] | None = None, where: str | None = None, limit: int | None = None
    ) -> pa.RecordBatchReader:
        """The rows as a stream. `where` is SQL with every name in back-quotes; see `filters.py`."""
        doing = f"scanning table {pin.table}"
        with translated(doing):
            scanner = self.open(pin).scanner(columns=_listed(columns), filter=where, limit=limit)
            reader = scanner.to_reader()

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

    # --- files --------------------------------------------------------------------------------------------------

    def files_of(self, pin: Pin) -> tuple[files.TableFile, ...]:
        """Everything that reading the version may need; its table's empty first version counts to it."""
        known = self._files.get((pin.table, pin.version))
        if known is not None:
            return known
        with translated(f"looking for the files of table {pin.table}"):
            base = self._base_files.get(pin.table)
            if base is None:
                base = tuple(files.first_files(pin.table, self._at(pin.table, _BASE), self._objects))
                self._base_files[pin.table] = base
            own = files.version_files(pin.table, self.open(pin), self._objects) if pin.version != _BASE else ()
            found = (*base, *own)
        if len(self._files) >= _KNOWN_FILES:
            self._files.clear()
        self._files[pin.table, pin.version] = found
        return found

    def own_files(self, base: Pin | None, pin: Pin) -> list[str]:
        """What staging `pin` on `base` added: what is taken back if it is never published."""
        before = {file.key for file in self.files_of(base)} if base else set()
        return [file.key for file in self.files_of(pin) if file.key not in before]

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

    # --- staging: rows ------------------------------------------------------------------------------------------

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
        pin = self._keep(Pin(table, _BASE), made)
        self._note(file.key for file in self.files_of(pin))
        return pin

    def stage_append(self, pin: Pin, data: Rows | None = None, *, fragments: Iterable[str] = ()) -> Pin:
        """Add rows, or fragments that executors wrote. Nothing checks for equal ids here."""
        dataset = self.open(pin)
        given = [*fragments, *(_written(dataset, _reader(data), "append") if data is not None else ())]
        self._note_fragments(pin, given)
        if not given:
            return pin
        new = [FragmentMetadata.from_json(fragment) for fragment in given]
        _refuse_other_columns(pin, dataset, new)
        return self._commit(pin, dataset, LanceOperation.Append(new))

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
        return self._commit(pin, dataset, transaction.operation)

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
            with WRITE:
                for fragment in dataset.get_fragments():
                    offsets = doomed.get(fragment.fragment_id)
                    if offsets is None:
                        continue
                    left = fragment.delete_rows(offsets)
                    if left is None:
                        gone.append(fragment.fragment_id)
                    else:
                        changed.append(left)
        said = where or f"{sum(map(len, doomed.values()))} rows by {column}"
        return self._commit(pin, dataset, LanceOperation.Delete(changed, gone, said))

    def stage_overwrite(
        self, pin: Pin, schema: pa.Schema, data: Rows | None = None, *, fragments: Iterable[str] = ()
    ) -> Pin:
        """Replace all rows, and the columns where `schema` says so. Indices are gone after it."""
        dataset = self.open(pin)
        given = [*fragments, *(_written(dataset, _reader(data), "overwrite") if data is not None else ())]
        self._note_fragments(pin, given)
        new = [FragmentMetadata.from_json(fragment) for fragment in given]
        return self._commit(pin, dataset, LanceOperation.Overwrite(schema, new))

    # --- staging: indices and upkeep ----------------------------------------------------------------------------

    def stage_index(
        self, pin: Pin, column: str, kind: IndexKind, *, name: str | None = None, rebuild: bool = False
    ) -> Pin:
        """Index the fragments that the index does not cover yet, or all of them; the same pin if nothing is to do."""
        dataset = self.open(pin)
        name = name or f"{column}_{kind}"
        found = next((each for each in dataset.describe_indices() if each.name == name), None)
        rows = {fragment.fragment_id: fragment.metadata.num_rows for fragment in dataset.get_fragments()}
        live = [s for s in found.segments if not rows.keys().isdisjoint(s.fragment_ids)] if found else []
        if rebuild or len(live) >= index_plan.MOST_SEGMENTS:
            live = []
        covered = {each for segment in live for each in segment.fragment_ids}
        missing = {each: count for each, count in rows.items() if each not in covered}
        built = self._segment(pin, dataset, column, kind, name, missing, found.index_type if found and live else None)
        kept = {segment.uuid for segment in live}
        stale = [record for record in _records(dataset, name) if record.uuid not in kept]
        if built is None and not stale:
            return pin
        return self._commit(pin, dataset, LanceOperation.CreateIndex([built] if built else [], stale))

    def stage_drop_index(self, pin: Pin, name: str) -> Pin:
        dataset = self.open(pin)
        stale = _records(dataset, name)
        return self._commit(pin, dataset, LanceOperation.CreateIndex([], stale)) if stale else pin

    def stage_compaction(self, pin: Pin, target_rows: int = 1024 * 1024, *, deletions: bool = True) -> Pin:
        """Fewer, larger fragments; the indices are built again over all of them.

        With `deletions`, also large fragments are rewritten if many of their rows are deleted.
        """
        dataset = self.open(pin)
        with translated(f"compacting table {pin.table}"):
            options: Any = {"target_rows_per_fragment": target_rows, "materialize_deletions": deletions}
            plan = Compaction.plan(dataset, options)
            if not plan.num_tasks():
                return pin
            with WRITE:
                done: list[Any] = [task.execute(dataset) for task in plan.tasks]
        groups = [LanceOperation.RewriteGroup(each.original_fragments, each.new_fragments) for each in done]
        compacted = self._commit(pin, dataset, LanceOperation.Rewrite(groups, []))
        for index in pin.indices:  # rewritten rows have new addresses, which the old segments do not know
            compacted = self.stage_index(compacted, index.column, index.kind, name=index.name, rebuild=True)
        return compacted

    # --- staging: columns; `table_columns.py` makes schema changes of these -------------------------------------

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

    # --- within -------------------------------------------------------------------------------------------------

    def _segment(
        self,
        pin: Pin,
        dataset: lance.LanceDataset,
        column: str,
        kind: IndexKind,
        name: str,
        fragments: Mapping[int, int],
        like: str | None,
    ) -> Index | None:
        with translated(f"indexing {column!r} of table {pin.table}"):
            type_ = dataset.schema.field(column).type
            dimension = type_.list_size if pa.types.is_fixed_size_list(type_) else None
            plan = index_plan.segment(kind, fragments, dimension, like)
            if plan is None:
                return None
            with WRITE:
                built = dataset.create_index_uncommitted(
                    column, plan.type, name=name, replace=True, fragment_ids=list(plan.fragments), **plan.options
                )
                # a text index comes in parts, which only merging makes readable
                return dataset.merge_existing_index_segments([built]) if kind == "inverted" else built

    def _commit(self, pin: Pin, dataset: lance.LanceDataset, operation: LanceOperation.BaseOperation) -> Pin:
        with translated(f"staging a version of table {pin.table}"), STAGE:
            staged = lance.LanceDataset.commit(dataset, lance.Transaction(dataset.version, operation), detached=True)
        new = self._keep(pin, staged)
        self._note(self.own_files(pin, new))
        return new

    def _keep(self, pin: Pin, dataset: lance.LanceDataset) -> Pin:
        """The pin of an opened version."""
        self._remember(pin.table, dataset)
        with translated(f"looking at table {pin.table}"):
            ids = {fragment.fragment_id for fragment in dataset.get_fragments()}
            indices = tuple(
                IndexState(
                    each.name,
                    each.field_names[0],
                    index_plan.kind_of(each.index_type),
                    len(ids.intersection(*[{i for s in each.segments for i in s.fragment_ids}])),
                )
                for each in dataset.describe_indices()
            )
            rows = int(dataset.count_rows())
        return replace(pin, version=dataset.version, rows=rows, fragments=len(ids), indices=indices)

    def _at(self, table: str, version: int) -> lance.LanceDataset:
        found = self._opened.get((table, version))
        if found is None:
            key = files.manifest_key(table, version)
            if self._objects.stat(key) is None:  # Lance names the path of another, ordinary version
                raise ObjectMissing(
                    f"{key}, a version of table {table}, is missing",
                    hint="fenceline fsck shows what that breaks",
                    address=key,
                )
            with translated(f"opening table {table}"):
                found = lance.dataset(
                    self._uri(table),
                    version=version,
                    storage_options=self._options or None,
                    session=self._session,
                )
            self._remember(table, found)
        return found

    def _remember(self, table: str, dataset: lance.LanceDataset) -> None:
        if len(self._opened) >= _OPEN_VERSIONS:
            self._opened.clear()
        self._opened[table, dataset.version] = dataset

    def _uri(self, table: str) -> str:
        return f"{self._root}/{table_prefix(table)}".rstrip("/")

    def _note_fragments(self, pin: Pin, fragments: Iterable[str]) -> None:
        """Lance would take the same fragments twice, and every row of them would be there twice.

        Refused before they are noted: what the table has already is not this transaction's to take back.
        """
        keys = self.fragment_files(pin.table, fragments)
        there = {file.key for file in self.files_of(pin)}
        for key in keys:
            if key in there:
                raise AlreadyExists(f"the rows in {key} are in table {pin.table} already", hint="adopt them")
            there.add(key)
        self._note(keys)


def _refuse_other_columns(pin: Pin, dataset: lance.LanceDataset, new: Iterable[FragmentMetadata]) -> None:
    """Rows written for a column that was dropped or cast since would lose it; one that must be there is not null."""
    fields = dataset.lance_schema.fields()
    known = {each.id() for field in fields for each in _with_children(field)}
    needed = {f.id() for f in fields if not f.children() and not dataset.schema.field(f.name()).nullable}
    for fragment in new:
        written = {each for file in fragment.files for each in file.fields}
        if not needed <= written <= known:
            raise ContractError(
                f"rows were written for other columns than table {pin.table} has now", hint="write them again"
            )


def _with_children(field: Any) -> Iterator[Any]:
    yield field
    for child in field.children():
        yield from _with_children(child)


def _records(dataset: lance.LanceDataset, name: str) -> list[Index]:
    """The segments of an index, in the form in which Lance takes them back to remove them."""
    return [
        Index(segment.uuid, each.name, each.fields, segment.dataset_version_at_last_update, segment.fragment_ids, 0)
        for each in dataset.describe_indices()
        if each.name == name
        for segment in each.segments
    ]


def _messages(schema: LanceSchema) -> list[bytes]:
    return list(schema.__reduce__()[1][1:])


def _listed(columns: Sequence[str] | None) -> list[str] | None:
    return None if columns is None else list(columns)

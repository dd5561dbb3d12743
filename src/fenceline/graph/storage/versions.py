"""Opening versions of tables, and committing new ones detached. What a pin says of a version is found out here."""

from __future__ import annotations

import copy
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, replace
from typing import Self
from urllib.parse import unquote, urlsplit

import lance
from lance.dataset import LanceOperation
from lance.fragment import FragmentMetadata
from lance.lance import _Session as Session

from fenceline.errors import ObjectMissing
from fenceline.graph import files, index_plan
from fenceline.graph.effects import STAGE
from fenceline.graph.lance_errors import translated
from fenceline.graph.pins import IndexState, Pin
from fenceline.repo.native.objects import ObjectStore
from fenceline.repo.native.pinned import table_prefix
from fenceline.repo.native.remote.objects import RemoteObjects

Note = Callable[[Iterable[str]], None]

BASE = 1  # Lance cannot create a table detached: its first version is an ordinary one, and empty
_OPEN_VERSIONS = 64
_KNOWN_FILES = 4


@dataclass(frozen=True, slots=True)
class Change:
    """What an operation does to a version, where it is known: then no more than that has to be looked at."""

    rows: int = 0
    """More, or fewer if negative."""
    new: tuple[FragmentMetadata, ...] = ()
    with_deletions: tuple[int, ...] = ()
    """Fragments whose deleted rows are other ones from now on."""
    gone: tuple[int, ...] = ()


class Versions:
    """The versions of all tables of a repository."""

    def __init__(
        self, objects: ObjectStore, options: Mapping[str, str] | None = None, note: Note = lambda keys: None
    ) -> None:
        self._objects = objects
        if options is None and isinstance(objects, RemoteObjects):
            options = objects.location.storage_options()
        self._options = dict(options or {})
        self._note = note
        self._session = Session()
        self._opened: dict[tuple[str, int], lance.LanceDataset] = {}
        self._base_files: dict[str, tuple[files.TableFile, ...]] = {}
        self._files: dict[tuple[str, int], tuple[files.TableFile, ...]] = {}
        self._unnamed: set[str] = set()  # files of rows that were written here, and of which there is no version yet
        where = urlsplit(objects.url)
        self._root = unquote(where.path) if where.scheme == "file" else objects.url.rstrip("/")

    def noting(self, note: Note) -> Self:
        """The same tables for one transaction, which is told the key of everything that is written through this."""
        other = copy.copy(self)
        other._note, other._unnamed = note, set()
        return other

    def open(self, pin: Pin) -> lance.LanceDataset:
        """The pinned version, to read. Raises `ObjectMissing` where it is gone."""
        return self._at(pin.table, pin.version)

    # --- files --------------------------------------------------------------------------------------------------

    def files_of(self, pin: Pin) -> tuple[files.TableFile, ...]:
        """Everything that reading the version may need; its table's empty first version counts to it."""
        known = self._files.get((pin.table, pin.version))
        if known is not None:
            return known
        with translated(f"looking for the files of table {pin.table}"):
            base = self._base_files.get(pin.table)
            if base is None:
                base = tuple(files.first_files(pin.table, self._at(pin.table, BASE), self._objects))
                self._base_files[pin.table] = base
            own = files.version_files(pin.table, self.open(pin), self._objects) if pin.version != BASE else ()
            found = (*base, *own)
        if len(self._files) >= _KNOWN_FILES:
            self._files.clear()
        self._files[pin.table, pin.version] = found
        return found

    def own_files(self, base: Pin | None, pin: Pin) -> list[str]:
        """What staging `pin` on `base` added: what is taken back if it is never published."""
        before = {file.key for file in self.files_of(base)} if base else set()
        return [file.key for file in self.files_of(pin) if file.key not in before]

    # --- committing ---------------------------------------------------------------------------------------------

    def _commit(
        self,
        pin: Pin,
        dataset: lance.LanceDataset,
        operation: LanceOperation.BaseOperation,
        change: Change | None = None,
    ) -> Pin:
        """A version after the operation. The cost follows `change`; without it all fragments are looked at."""
        transaction = lance.Transaction(dataset.version, operation)
        with translated(f"staging a version of table {pin.table}"), STAGE:
            staged = lance.LanceDataset.commit(dataset, transaction, detached=True)
        self._remember(pin.table, staged)
        if change is None or (pin.indices and (change.with_deletions or change.gone)):
            new = self._pin(pin, staged)
            self._note(self.own_files(pin, new))
            return new
        with translated(f"looking at table {pin.table}"):
            self._note([*self._added(pin.table, staged, transaction, change)])
        fragments = pin.fragments + len(change.new) - len(change.gone)
        return replace(pin, version=staged.version, rows=pin.rows + change.rows, fragments=fragments)

    def _added(
        self, table: str, staged: lance.LanceDataset, transaction: lance.Transaction, change: Change
    ) -> Iterable[str]:
        prefix = table_prefix(table)
        yield files.manifest_key(table, staged.version)
        yield f"{prefix}_transactions/{transaction.read_version}-{transaction.uuid}.txn"
        for fragment in change.new:
            yield from (file.key for file in files.fragment_files(table, fragment))
        for each in change.with_deletions:
            kept = staged.get_fragment(each)
            deleted = kept.deletion_file() if kept is not None else None
            if deleted is not None:
                yield prefix + deleted

    def _pin(self, pin: Pin, dataset: lance.LanceDataset) -> Pin:
        """The pin of an opened version, by looking at all of it."""
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

    # --- opening ------------------------------------------------------------------------------------------------

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

"""Which objects a table version consists of, and which of them are sound."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import Any

from fenceline.repo.native.objects import ObjectStore
from fenceline.repo.native.pinned import table_prefix

_DETACHED = 1 << 63
_GREATEST = (1 << 64) - 1


@dataclass(frozen=True, slots=True)
class TableFile:
    """One object of a table version."""

    key: str
    size: int | None = None
    """As the version records it; None where it does not."""


def manifest_key(table: str, version: int) -> str:
    """The one object that makes a version what it is."""
    name = f"d{version}" if version & _DETACHED else f"{_GREATEST - version:020}"
    return f"{table_prefix(table)}_versions/{name}.manifest"


def version_files(table: str, dataset: Any, objects: ObjectStore) -> Iterator[TableFile]:
    """Every object that reading this version may need, its transaction included."""
    prefix = table_prefix(table)
    yield TableFile(manifest_key(table, dataset.version))
    yield TableFile(f"{prefix}{transaction_path(dataset)}")
    for fragment in dataset.get_fragments():
        yield from fragment_files(table, fragment.metadata)
        deleted = fragment.deletion_file()
        if deleted is not None:
            yield TableFile(prefix + deleted)
    for description in dataset.describe_indices():
        for segment in description.segments:
            yield from _segment_files(f"{prefix}_indices/{segment.uuid}/", segment.size_bytes, objects)


def first_files(table: str, dataset: Any, objects: ObjectStore) -> Iterator[TableFile]:
    """What the empty first version consists of, with the note by which other tools find a table's head."""
    yield from version_files(table, dataset, objects)
    note = f"{table_prefix(table)}_versions/latest_version_hint.json"
    if objects.stat(note) is not None:
        yield TableFile(note)


def fragment_files(table: str, metadata: Any) -> Iterator[TableFile]:
    """The data files of a fragment, committed or not."""
    for file in (*metadata.files, *(overlay.data_file for overlay in metadata.overlays)):
        yield TableFile(f"{table_prefix(table)}data/{file.path}", file.file_size_bytes)


def transaction_path(dataset: Any) -> str:
    transaction = dataset.read_transaction(dataset.version)
    return f"_transactions/{transaction.read_version}-{transaction.uuid}.txn"


def _segment_files(prefix: str, size: int | None, objects: ObjectStore) -> Iterator[TableFile]:
    """A segment records the sum of its files only: where what lies there does not add up, the directory is broken."""
    found = list(objects.list(prefix))
    if not found or (size is not None and sum(info.size for info in found) < size):
        yield TableFile(prefix, size)
    for info in found:
        yield TableFile(info.key, info.size)


def problems(files: Iterable[TableFile], objects: ObjectStore, sound: set[str]) -> Iterator[tuple[str, str]]:
    """What of these is missing or cut off: (address, what). `sound` holds what was found to be there before."""
    for file in files:
        if file.key in sound:
            continue
        if file.key.endswith("/"):
            yield file.key, f"has less than the {file.size} bytes of the index that lies there"
            continue
        info = objects.stat(file.key)
        if info is None:
            yield file.key, "is missing"
        elif info.size == 0 or (file.size is not None and info.size != file.size):
            yield file.key, f"has {info.size} bytes instead of {'some' if file.size is None else file.size}"
        else:
            sound.add(file.key)

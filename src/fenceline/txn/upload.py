"""Bringing local files in: streamed, in parallel, with progress."""

from __future__ import annotations

import os
import stat
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Protocol, runtime_checkable
from urllib.parse import quote

from fenceline.errors import ContractError, NotFound, store_error
from fenceline.repo.model import Entry, Kind
from fenceline.repo.names import check_prefix
from fenceline.repo.native.repository import CHUNK, external_etag, external_path
from fenceline.repo.native.staging import Staging
from fenceline.seams import Seams

WORKERS = min(4, os.cpu_count() or 1)
BATCH_FILES = 64
FAR_WORKERS = 32  # where every file is a round trip, they wait together
FAR_BATCH_FILES = 4
BATCH_BYTES = 8 << 20


@dataclass(frozen=True, slots=True)
class ProgressEvent:
    """How far a long operation is. Totals are 0 where they are not known beforehand."""

    what: str
    done: int
    total: int
    done_bytes: int
    total_bytes: int


Progress = Callable[[ProgressEvent], None]


@dataclass(frozen=True, slots=True)
class Source:
    """A local file to bring in."""

    path: str
    size: int
    mode: int


@runtime_checkable
class Readable(Protocol):
    """An open binary file."""

    def read(self, size: int = -1, /) -> bytes: ...


def pieces(stream: Readable) -> Iterator[bytes]:
    while piece := stream.read(CHUNK):
        yield piece


def content(data: bytes | str | Readable | Iterable[bytes]) -> bytes | Iterable[bytes]:
    """What a caller gave as a file's content, as bytes or as pieces of them."""
    if isinstance(data, str):
        return data.encode()
    if isinstance(data, bytearray | memoryview):
        return bytes(data)
    return pieces(data) if isinstance(data, Readable) else data


def walk(local: str) -> Iterator[tuple[str, Source]]:
    """Every regular file below a directory, in tree order, by its path relative to it; the file itself as ''.

    Anything else (symbolic links, sockets, devices) is refused: a repository cannot hold it.
    """
    try:
        found = os.stat(local)
    except FileNotFoundError as error:
        raise NotFound(f"there is no file or directory {local}", hint="check the path") from error
    except OSError as error:
        raise store_error(error, f"reading {local}") from error
    if stat.S_ISDIR(found.st_mode):
        yield from _walk(local, "")
    else:
        yield "", _source(local, found)


def _walk(directory: str, prefix: str) -> Iterator[tuple[str, Source]]:
    try:
        with os.scandir(directory) as entries:
            ordered = sorted(entries, key=lambda e: e.name + "/" if e.is_dir(follow_symlinks=False) else e.name)
    except OSError as error:
        raise store_error(error, f"listing {directory}") from error
    for entry in ordered:
        if entry.is_dir(follow_symlinks=False):
            yield from _walk(entry.path, f"{prefix}{entry.name}/")
        else:
            yield prefix + entry.name, _source(entry.path, entry.stat(follow_symlinks=False))


def _source(path: str, found: os.stat_result) -> Source:
    if not stat.S_ISREG(found.st_mode):
        raise ContractError(
            f"{path} is not a regular file",
            hint="a repository holds files only: remove the link or special file, or copy it",
        )
    return Source(path, found.st_size, stat.S_IMODE(found.st_mode))


def collect(local: str | os.PathLike[str], path: str) -> dict[Source, str]:
    """The files of a local file or directory, and where each goes."""
    target = check_prefix(path)
    found = {}
    for relative, source in walk(os.fspath(local)):
        found[source] = f"{target}/{relative}" if target and relative else (relative or target)
    return found


def files(staging: Staging, seams: Seams, places: Mapping[Source, str], progress: Progress | None) -> Iterator[Entry]:
    """Stage files in parallel; entries come as they are done."""

    def stage(source: Source) -> Entry:
        return read_source(source, lambda data: staging.file(places[source], data, source.mode))

    return in_batches(seams, places, stage, "upload", progress, staging.far)


def read_source(source: Source, stage: Callable[[bytes | Iterable[bytes]], Entry]) -> Entry:
    """Hand a local file's bytes on: small ones whole, large ones in pieces."""
    try:
        with open(source.path, "rb") as file:
            return stage(file.read() if source.size <= CHUNK else pieces(file))
    except OSError as error:  # the store's own errors are typed already
        raise store_error(error, f"reading {source.path}") from error


def in_batches(
    seams: Seams,
    sources: Iterable[Source],
    stage: Callable[[Source], Entry],
    what: str,
    progress: Progress | None,
    far: bool,
) -> Iterator[Entry]:
    """Small files go in batches: handing each to a thread by itself costs more than copying it."""
    sources = list(sources)
    total_bytes = sum(source.size for source in sources)
    done = done_bytes = 0
    batches = list(_batches(sources, FAR_BATCH_FILES if far else BATCH_FILES))
    workers = FAR_WORKERS if far else WORKERS
    for batch in seams.threads.map(lambda group: [stage(s) for s in group], batches, workers):
        yield from batch
        done += len(batch)
        done_bytes += sum(entry.size for entry in batch)
        if progress:
            progress(ProgressEvent(what, done, len(sources), done_bytes, total_bytes))


def _batches(sources: Iterable[Source], most: int) -> Iterator[list[Source]]:
    batch: list[Source] = []
    size = 0
    for source in sources:
        batch.append(source)
        size += source.size
        if len(batch) >= most or size >= BATCH_BYTES:
            yield batch
            batch, size = [], 0
    if batch:
        yield batch


def in_place(url: str, path: str, progress: Progress | None) -> Iterator[Entry]:
    """Entries for data that stays where it is; its size and modification time are its checksum."""
    target = check_prefix(path)
    root = external_path(url) if "://" in url else os.path.abspath(url)
    done_bytes = 0
    for done, (relative, source) in enumerate(walk(root), 1):
        place = f"{target}/{relative}" if target and relative else (relative or target)
        address = "file://" + quote(os.path.abspath(source.path))
        yield Entry(place, Kind.FILE, source.size, address, external_etag(source.path), source.mode)
        done_bytes += source.size
        if progress and done % 1000 == 0:
            progress(ProgressEvent("import", done, 0, done_bytes, 0))

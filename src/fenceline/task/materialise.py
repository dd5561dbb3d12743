"""Bringing a commit into a directory: in parallel, by reflink or in the kernel where the disk can.

Bytes that the kernel copies from file to file are trusted to the disk: only their number is checked. Checksums are
verified where the bytes pass through this process anyway: stores that are not a local disk, and disks that can do
neither.
"""

from __future__ import annotations

import errno
import fcntl
import os
import stat
import sys
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import NamedTuple

from fenceline.errors import ContractError, ObjectDamaged, store_error
from fenceline.repo.lakefs.repository import LakeRepository
from fenceline.repo.merge import PART_PREFIX
from fenceline.repo.model import Commit, Entry, Kind, digest
from fenceline.repo.names import check_prefix
from fenceline.repo.native.repository import NativeRepository, external_etag
from fenceline.repo.pathset import PathSet, ancestors
from fenceline.seams import Seams
from fenceline.task.orphans import MARKER, WORKSPACE, create_attempt, remove_attempt
from fenceline.task.sources import Source, source_of
from fenceline.task.workspaces import Known, PathWorkspace, Stamp
from fenceline.txn.upload import BATCH_BYTES

DEFAULT_MODE = 0o644

_FICLONE = 0x40049409
_NEW = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC
_DIRECTORY = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC
_CANNOT = (errno.EOPNOTSUPP, errno.ENOTTY, errno.ENOSYS, errno.EXDEV, errno.EINVAL, errno.EPERM, errno.ETXTBSY)
_NAME_BYTES = 250  # file systems stop at 255; the rest is room for a number
_SETTLE_TRIES = 20
_SETTLE_SLEEP = 0.001


def materialise(
    repo: NativeRepository | LakeRepository,
    commit: Commit,
    prefix: str,
    root: Path,
    execution: str,
    identity: Mapping[str, str | int],
    seams: Seams,
    workers: int | None = None,
    only: Sequence[str] | None = None,
) -> PathWorkspace:
    """The prefix of a commit, or `only` these paths of it, in a new directory below `root`.

    A failure leaves nothing behind.

    Files keep their modes. A dataset appears as a directory of part files in their partition directories; where two
    jobs used one name, the later file has its job's id in front.
    """
    source = source_of(repo)
    prefix = _directory_of(source, commit, prefix)
    directory, marker = create_attempt(root, execution, identity, seams)
    try:
        entries = _entries(source, commit, prefix, only)
        return _fill(source, commit, prefix, entries, directory, marker, seams, workers or source.workers)
    except OSError as error:
        remove_attempt(directory)
        raise store_error(error, f"materialising {prefix or '/'} in {directory}") from error
    except BaseException:
        remove_attempt(directory)
        raise


def _directory_of(source: Source, commit: Commit, prefix: str) -> str:
    """The prefix, if it can be a directory: neither a file, nor below one, nor inside a dataset."""
    prefix = check_prefix(prefix)
    for above in (prefix, *ancestors(prefix)):
        if above and source.file_at(commit, above) is not None:
            raise ContractError(f"the prefix {prefix} is not a directory: {above} is a file", hint="name its directory")
        if above and above != prefix and source.dataset_at(commit, above) is not None:
            raise ContractError(
                f"the prefix {prefix} is inside the dataset {above}", hint="a dataset is a unit: name its own directory"
            )
    return prefix


def _entries(source: Source, commit: Commit, prefix: str, only: Sequence[str] | None) -> Iterator[Entry]:
    if only is None:
        yield from source.below(commit, prefix)
        return
    wanted = PathSet(only)
    for path in wanted:
        if any(above in wanted for above in ancestors(path)):
            continue  # it comes with that one
        file = source.file_at(commit, path)
        if file is not None:
            yield file
        else:
            yield from source.below(commit, _directory_of(source, commit, path))


def _fill(
    source: Source,
    commit: Commit,
    prefix: str,
    entries: Iterable[Entry],
    directory: Path,
    marker: bytes,
    seams: Seams,
    workers: int,
) -> PathWorkspace:
    target = directory / WORKSPACE
    target.mkdir()
    root = os.open(target, _DIRECTORY)
    known: dict[str, Known] = {}
    try:
        layout = _Layout(prefix, root)
        copier = _Copier(source, root)
        batches = _batches(layout.places(entries), source.batch)
        for done in seams.threads.map(copier.copy, batches, workers):
            known.update(done)
    finally:
        os.close(root)
    settled = _settle(directory, max((k.stamp.ctime_ns for k in known.values()), default=0), seams)
    return PathWorkspace(
        directory, marker, commit.id, prefix, known, layout.datasets, settled, source.chunks, seams, workers
    )


def _settle(directory: Path, latest_ns: int, seams: Seams) -> int:
    """Wait until the file system's clock is past every file that was written; returns its time.

    A change made from now on then has another ctime than the file it changes. It takes a tick (milliseconds, or nothing
    where timestamps are fine-grained); where clocks are coarser than we wait, the diff hashes the files in doubt.
    """
    fd = os.open(directory / MARKER, os.O_RDONLY | os.O_NOFOLLOW | os.O_CLOEXEC)
    try:
        for _ in range(_SETTLE_TRIES):
            os.utime(fd)
            now = os.fstat(fd).st_ctime_ns
            if now > latest_ns:
                break
            seams.clock.sleep(_SETTLE_SLEEP)
    finally:
        os.close(fd)
    return now


# --- where things go --------------------------------------------------------------------------------------------


class _Place(NamedTuple):
    directory: str
    """Relative to the workspace; '' for the workspace itself."""
    name: str
    entry: Entry
    dataset: str | None

    @property
    def path(self) -> str:
        return f"{self.directory}/{self.name}" if self.directory else self.name


class _Layout:
    """Gives every entry its place, and makes the directories on the way."""

    def __init__(self, prefix: str, root: int) -> None:
        self.datasets: dict[str, Entry] = {}
        self._skip = len(prefix) + 1 if prefix else 0
        self._root = root
        self._made = {""}

    def places(self, entries: Iterable[Entry]) -> Iterator[_Place]:
        """A dataset's entry comes right before its part files: the tree is sorted."""
        inside, dataset, taken = "", None, set[str]()
        for entry in entries:
            if inside and not entry.path.startswith(inside):
                inside, dataset = "", None
            if entry.kind is Kind.DATASET:
                inside, dataset, taken = entry.path, entry.path[self._skip :].removesuffix("/"), set()
                self.datasets[dataset] = entry
                self._make(dataset)
            elif dataset is None:
                directory, slash, name = entry.path[self._skip :].rpartition("/")
                _check_component(name if directory or not slash else "", entry.path)
                self._make(directory)
                yield _Place(directory, name, entry, None)
            else:
                directory, name = _part_place(dataset, entry.path[len(inside) :], taken)
                _check_component(name, entry.path)
                self._make(directory)
                yield _Place(directory, name, entry, dataset)

    def _make(self, directory: str) -> None:
        if directory in self._made:
            return
        parent, _, name = directory.rpartition("/")
        _check_component(name, directory)
        self._make(parent)
        try:
            os.mkdir(directory, dir_fd=self._root)
        except FileExistsError as error:
            raise _meets(directory) from error
        self._made.add(directory)


def _check_component(name: str, path: str) -> None:
    """The repository refuses such names; a tree that holds one all the same must not lead us out."""
    if name in ("", ".", "..") or "\0" in name:
        raise ObjectDamaged(f"the tree holds the path {path!r}", hint="fenceline fsck shows what is wrong")


def _part_place(dataset: str, below: str, taken: set[str]) -> tuple[str, str]:
    """Where a part file goes: without its job's directory, and under a name that no other job's file has."""
    job, slash, inner = below.partition("/")
    if not slash or not job.startswith(PART_PREFIX):
        job, inner = "", below
    job = job.removeprefix(PART_PREFIX)
    partitions, _, name = inner.rpartition("/")
    directory = "/".join(filter(None, (dataset, partitions)))
    tail = name  # of the name to take instead
    if len(f"{job}-{name}".encode()) > _NAME_BYTES:
        tail = digest(name.encode())[:16] + os.path.splitext(name)[1][-20:]
    free, number = name, 1
    while f"{directory}/{free}".casefold() in taken:
        free = f"{job}-{tail}" if number == 1 else f"{job}-{number}-{tail}"
        number += 1
    taken.add(f"{directory}/{free}".casefold())
    return directory, free


def _batches(places: Iterable[_Place], most: int) -> Iterator[list[_Place]]:
    """Small files together: handing each to a thread by itself costs more than copying it."""
    batch: list[_Place] = []
    size = 0
    for place in places:
        batch.append(place)
        size += place.entry.size
        if len(batch) >= most or size >= BATCH_BYTES:
            yield batch
            batch, size = [], 0
    if batch:
        yield batch


def _meets(path: str) -> ContractError:
    return ContractError(
        f"{path} meets another name of the tree on this disk",
        hint="two of its names differ in a way that this file system does not see: put the workspace root on another",
    )


# --- copying ----------------------------------------------------------------------------------------------------


class _Copier:
    """Copies files into the workspace, every one relative to an open directory, never through a link."""

    def __init__(self, source: Source, root: int) -> None:
        self._source = source
        self._root = root
        self._reflink = {
            False: True,
            True: True,
        }  # by whether the source is data in place, which may be on another disk

    def copy(self, batch: list[_Place]) -> list[tuple[str, Known]]:
        done = []
        at: str | None = None
        directory = -1
        try:
            for place in batch:
                if place.directory != at:
                    if at is not None:
                        os.close(directory)
                        at = None
                    directory = os.open(place.directory or ".", _DIRECTORY, dir_fd=self._root)
                    at = place.directory
                done.append((place.path, self._copy(place, directory)))
        finally:
            if at is not None:
                os.close(directory)
        return done

    def _copy(self, place: _Place, directory: int) -> Known:
        entry = place.entry
        wanted = DEFAULT_MODE if entry.mode is None else stat.S_IMODE(entry.mode)
        try:
            target = os.open(place.name, _NEW, wanted, dir_fd=directory)
        except FileExistsError as error:
            raise _meets(place.path) from error
        try:
            self._fill(entry, target)
            found = os.fstat(target)
            if stat.S_IMODE(found.st_mode) != wanted:  # the umask took something away
                os.fchmod(target, wanted)
                found = os.fstat(target)
        finally:
            os.close(target)
        return Known(Stamp.of(found), wanted, entry, place.dataset)

    def _fill(self, entry: Entry, target: int) -> None:
        path = self._source.local_path(entry)
        if path is not None and self._in_kernel(entry, path, target):
            return
        # Through this process, which also finds the words for what is wrong with the source, if anything is.
        os.ftruncate(target, 0)
        os.lseek(target, 0, os.SEEK_SET)
        for piece in self._source.chunks(entry):
            view = memoryview(piece)
            while view:
                view = view[os.write(target, view) :]

    def _in_kernel(self, entry: Entry, path: str, target: int) -> bool:
        """Whether the kernel copied exactly what the entry says, as far as the size (and in place: its time) tells."""
        in_place = "://" in entry.address
        try:
            source = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
        except OSError:
            return False
        try:
            if in_place and external_etag(path) != entry.checksum:
                return False
            copied = self._clone(source, target, in_place) or _copy_range(source, target, entry.size)
            return (
                copied
                and os.fstat(target).st_size == entry.size
                and not (in_place and external_etag(path) != entry.checksum)
            )
        finally:
            os.close(source)

    def _clone(self, source: int, target: int, in_place: bool) -> bool:
        if not self._reflink[in_place]:
            return False
        try:
            fcntl.ioctl(target, _FICLONE, source)
        except OSError as error:
            if error.errno not in _CANNOT:
                raise
            self._reflink[in_place] = False
            return False
        return True


def _copy_range(source: int, target: int, size: int) -> bool:
    """Copy inside the kernel, one byte more than there should be, so that a longer source shows."""
    for call in (_copy_file_range, _sendfile):
        left = size + 1
        try:
            while left > 0 and (copied := call(source, target, left)):
                left -= copied
        except OSError as error:
            if error.errno not in _CANNOT or left <= size:
                raise
            continue
        return True
    return False


def _copy_file_range(source: int, target: int, count: int) -> int:
    if not hasattr(os, "copy_file_range"):
        raise OSError(errno.ENOSYS, "copy_file_range is not available")
    return os.copy_file_range(source, target, count)


def _sendfile(source: int, target: int, count: int) -> int:
    if sys.platform != "linux":
        raise OSError(errno.ENOSYS, "sendfile to a file is not available")
    return os.sendfile(target, source, None, count)

"""Objects on a local disk: temporary file, fsync, link, fsync of the directory.

`link` fails when the name is taken, which makes it the conditional write; nothing is ever renamed over (INV-1)
except what `put` replaces. Where the file system has no hard links, `renameat2(RENAME_NOREPLACE)` does the same;
where it has neither, the store refuses to be used rather than pretend.
"""

from __future__ import annotations

import contextlib
import ctypes
import errno
import fcntl
import itertools
import os
import stat
import sys
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import TypeVar
from urllib.parse import quote

from fenceline import failpoints
from fenceline.errors import (
    ObjectExists,
    ObjectMissing,
    OutcomeUnknown,
    StoreError,
    UnsupportedStore,
    store_error,
)
from fenceline.repo.native.objects import ObjectInfo
from fenceline.seams import OsThreads

TEMP = failpoints.effect(
    "disk.temp",
    "an object's bytes, fsynced under a temporary name nobody reads",
    before="the object does not exist",
    after="a temporary file nobody reads; gc removes it after an hour",
)
LINK = failpoints.effect(
    "disk.link",
    "the link that gives a new object its name, if the name is free",
    before="a temporary file nobody reads; gc removes it after an hour",
    after="the object exists; after a power failure it may not",
)
SYNC = failpoints.effect(
    "disk.sync",
    "the fsync of the directory that holds the new name",
    before="the object exists; after a power failure it may not, and its writer was not told that it does",
    after="the object exists for good",
)
PERSIST = failpoints.effect(
    "disk.persist",
    "the fsync of staged files and their directories",
    before="an open intent: the sweep aborts it (after a seal, in a rebase: the sweep decides the sealed commit)",
    after="staged and durable, not yet visible",
)

R = TypeVar("R")

_NO_HARD_LINKS = (errno.EPERM, errno.EOPNOTSUPP, errno.ENOSYS, errno.EMLINK)
_SYNC_WHOLE_DISK_FROM = 64  # files: below this, one fsync each is cheaper than one for the file system
_SYNC_AT_ONCE = 8
_AT_FDCWD = -100
_RENAME_NOREPLACE = 1

_libc = ctypes.CDLL(None, use_errno=True)


def _fsync(fd: int) -> None:
    if sys.platform == "darwin":
        fcntl.fcntl(fd, fcntl.F_FULLFSYNC)  # plain fsync leaves the bytes in the drive's cache there
    else:
        os.fsync(fd)


def _fsync_path(path: str) -> None:
    fd = os.open(path, os.O_RDONLY)
    try:
        _fsync(fd)
    finally:
        os.close(fd)


def _rename_if_absent(source: str, target: str) -> None:
    """Rename that fails with EEXIST when the target exists; EINVAL or ENOSYS where the system has no such call."""
    call = getattr(_libc, "renameat2", None)
    if call is None:
        raise OSError(errno.ENOSYS, "renameat2 is not available")
    if call(_AT_FDCWD, os.fsencode(source), _AT_FDCWD, os.fsencode(target), _RENAME_NOREPLACE) != 0:
        code = ctypes.get_errno()
        raise OSError(code, os.strerror(code), target)


def _chunks(data: bytes | Iterable[bytes]) -> Iterable[bytes]:
    return (data,) if isinstance(data, bytes) else data


def _write_all(fd: int, chunk: bytes) -> None:
    written = os.write(fd, chunk)
    while written < len(chunk):
        written += os.write(fd, memoryview(chunk)[written:])


@contextlib.contextmanager
def _typed(doing: str) -> Iterator[None]:
    try:
        yield
    except OSError as error:
        raise store_error(error, doing) from error


def _missing(key: str) -> ObjectMissing:
    return ObjectMissing(f"{key} is missing", hint="fenceline fsck shows what that breaks", address=key)


class LocalObjects:
    """An object store in a directory."""

    def __init__(self, root: str | os.PathLike[str]) -> None:
        self._root = os.path.abspath(os.fspath(root))
        self._temp_dir = self.path("tmp")
        self._existing: set[str] = set()
        self._durable: set[str] = set()  # directories that this process has seen made durable
        self._temp_prefix = os.urandom(8).hex()
        self._temp_numbers = itertools.count()

    @property
    def url(self) -> str:
        return "file://" + quote(self._root)

    def path(self, key: str) -> str:
        """Where a key's bytes lie, for engines that read files themselves."""
        return f"{self._root}/{key}"

    def create(self, key: str, data: bytes) -> None:
        path = self.path(key)
        with _typed(f"creating {key}"), TEMP:
            self._make_directory(os.path.dirname(path), durable=True)
            temp = self._temp_name()
            self._write_new(temp, (data,), durable=True)
        try:
            with _typed(f"creating {key}"), LINK:
                self._claim(temp, path, key)
        finally:
            with contextlib.suppress(OSError):  # a leftover temporary file is invisible, and collected by gc
                os.unlink(temp)
        try:
            with SYNC:
                _fsync_path(os.path.dirname(path))
        except (OSError, StoreError) as error:
            raise OutcomeUnknown(
                f"{key} was created, but it may not survive a power failure: {error}", key=key
            ) from error

    def put(self, key: str, data: bytes | Iterable[bytes]) -> None:
        path = self.path(key)
        with _typed(f"writing {key}"):
            self._make_directory(os.path.dirname(path), durable=False)
            try:
                self._write_new(path, _chunks(data), durable=False)
            except FileExistsError:
                temp = self._temp_name()
                self._write_new(temp, _chunks(data), durable=False)
                os.replace(temp, path)

    def persist(self, keys: Iterable[str]) -> None:
        paths = [self.path(key) for key in keys]
        directories = self._undurable_directories(paths)
        with _typed(f"making {len(paths)} objects durable"), PERSIST:
            try:
                if len(paths) >= _SYNC_WHOLE_DISK_FROM and hasattr(_libc, "syncfs"):
                    self._sync_file_system(paths)
                else:
                    # at once, because they then share the disk's flushes: ten times quicker than one after the other
                    todo = [*dict.fromkeys(itertools.chain(paths, directories))]
                    for _ in OsThreads().map(_fsync_path, todo, min(len(todo), _SYNC_AT_ONCE)):
                        pass
            except FileNotFoundError as error:  # of the file, or of a directory that went with it
                gone = next((path for path in paths if not os.path.exists(path)), error.filename)
                raise _missing(gone.removeprefix(self._root + "/")) from error
        self._durable.update(directories)

    def get(self, key: str, start: int = 0, length: int | None = None) -> bytes:
        with _typed(f"reading {key}"):
            try:
                fd = os.open(self.path(key), os.O_RDONLY)
            except (FileNotFoundError, NotADirectoryError) as error:
                raise _missing(key) from error
            try:
                found = os.fstat(fd)
                if stat.S_ISDIR(found.st_mode):
                    raise _missing(key)
                wanted = found.st_size - start if length is None else length
                pieces = []
                while wanted > 0 and (piece := os.pread(fd, min(wanted, 1 << 30), start)):
                    pieces.append(piece)
                    start += len(piece)
                    wanted -= len(piece)
                return b"".join(pieces)
            finally:
                os.close(fd)

    def stat(self, key: str) -> ObjectInfo | None:
        with _typed(f"looking at {key}"):
            try:
                found = os.stat(self.path(key))
            except (FileNotFoundError, NotADirectoryError):
                return None
            return ObjectInfo(key, found.st_size, found.st_mtime) if stat.S_ISREG(found.st_mode) else None

    def list(self, prefix: str) -> Iterator[ObjectInfo]:
        if "//" in prefix or prefix.startswith("/"):
            return  # no key has an empty component
        directory, _, start = prefix.rpartition("/")
        yield from self._walk(f"{directory}/" if directory else "", start)

    def children(self, prefix: str) -> Iterator[str]:
        for entry in sorted(self._scan(prefix), key=lambda e: e.name):
            # a directory whose first object never came is no child: a crash can leave one
            if not entry.is_dir(follow_symlinks=False) or next(self._walk(f"{prefix}{entry.name}/", ""), None):
                yield entry.name

    def delete(self, keys: Iterable[str]) -> None:
        emptied, tables = set(), set()
        for key in keys:
            path = self.path(key)
            with _typed(f"deleting {key}"), contextlib.suppress(FileNotFoundError, NotADirectoryError):
                os.unlink(path)
            if key.startswith(
                ("files/", "trees/", "datasets/")
            ):  # the staging areas: named by an execution, never shared
                emptied.add(os.path.dirname(path))
            elif key.startswith("tables/"):
                tables.add("/".join(key.split("/")[:2]))
        for directory in sorted(emptied, key=len, reverse=True):
            self._prune(directory)
        for table in tables:
            self._prune_table(self.path(table))

    def _temp_name(self) -> str:
        self._make_directory(self._temp_dir, durable=False)
        return f"{self._temp_dir}/{self._temp_prefix}-{os.getpid()}-{next(self._temp_numbers)}"

    def _write_new(self, path: str, chunks: Iterable[bytes], durable: bool) -> None:
        """Write a file under a name that must be free; a failure leaves nothing under it."""
        fd = self._in_directory(path, lambda: os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o644))
        try:
            for chunk in chunks:
                _write_all(fd, chunk)
            if durable:
                _fsync(fd)
        except BaseException:
            with contextlib.suppress(OSError):  # the write error is the one to report
                os.unlink(path)
            raise
        finally:
            os.close(fd)

    def _claim(self, temp: str, path: str, key: str) -> None:
        """Give the temporary file its name, only if the name is free."""
        try:
            try:
                self._in_directory(path, lambda: os.link(temp, path))
            except OSError as error:
                if error.errno not in _NO_HARD_LINKS:
                    raise
                self._in_directory(path, lambda: _rename_if_absent(temp, path))
        except FileExistsError as error:
            raise ObjectExists(f"{key} exists already", key=key) from error
        except OSError as error:
            if error.errno in (errno.EINVAL, errno.ENOSYS):
                raise UnsupportedStore(
                    f"the file system of {self._root} has neither hard links nor an atomic rename-if-absent, "
                    "so two writers could overwrite each other",
                    hint="put the repository on ext4, xfs, btrfs, APFS or tmpfs",
                ) from error
            raise

    def _in_directory(self, path: str, call: Callable[[], R]) -> R:
        """Do `call`, which puts something at `path`; once more if someone pruned the directory meanwhile."""
        try:
            return call()
        except FileNotFoundError:
            directory = os.path.dirname(path)
            durable = directory in self._durable
            pruned = directory
            while pruned != self._root:
                self._existing.discard(pruned)
                self._durable.discard(pruned)
                pruned = os.path.dirname(pruned)
            self._make_directory(directory, durable)
            return call()

    def _make_directory(self, directory: str, durable: bool) -> None:
        known = self._durable if durable else self._existing
        if directory in known:
            return
        parent = os.path.dirname(directory)
        if directory.startswith(self._root + "/") or not os.path.isdir(parent):
            self._make_directory(parent, durable)
        with contextlib.suppress(FileExistsError):
            os.mkdir(directory)
        if durable:
            _fsync_path(parent)
        known.add(directory)

    def _undurable_directories(self, paths: Iterable[str]) -> Sequence[str]:
        """The directories to fsync so that these files keep their names: their own, and new ones above them."""
        found: dict[str, None] = {}
        for path in paths:
            directory = os.path.dirname(path)
            found[directory] = None
            while directory != self._root and directory not in self._durable:
                directory = os.path.dirname(directory)
                if directory in found:
                    break
                found[directory] = None
        return list(found)

    def _sync_file_system(self, paths: Iterable[str]) -> None:
        for path in paths:
            os.stat(path)
        fd = os.open(self._root, os.O_RDONLY)
        try:
            if _libc.syncfs(fd) != 0:
                code = ctypes.get_errno()
                raise OSError(code, os.strerror(code), self._root)
        finally:
            os.close(fd)

    def _walk(self, prefix: str, start: str) -> Iterator[ObjectInfo]:
        for entry in self._scan(prefix):
            if not entry.name.startswith(start):
                continue
            key = prefix + entry.name
            if entry.is_dir(follow_symlinks=False):
                yield from self._walk(key + "/", "")
            elif (info := self.stat(key)) is not None:
                yield info

    def _scan(self, prefix: str) -> Sequence[os.DirEntry[str]]:
        with _typed(f"listing {prefix}"):
            try:
                with os.scandir(self.path(prefix)) as entries:
                    # a directory sorts as its name with '/', so that whole keys come out sorted
                    return sorted(entries, key=lambda e: e.name + "/" if e.is_dir(follow_symlinks=False) else e.name)
            except (FileNotFoundError, NotADirectoryError):
                return []

    def _prune_table(self, table: str) -> None:
        """Remove what deleting left empty: directories of one index, and all of a table without a first version.

        Others may be written into at this moment, by an engine that does not expect them to vanish.
        """
        alive = next(self._walk(table.removeprefix(self._root + "/") + "/_versions/", ""), None) is not None
        for directory, _, _ in os.walk(f"{table}/_indices" if alive else table, topdown=False):
            if not alive or os.path.dirname(directory) == f"{table}/_indices":
                with contextlib.suppress(OSError):  # not empty, or already gone
                    os.rmdir(directory)
                self._existing.discard(directory)
                self._durable.discard(directory)

    def _prune(self, directory: str) -> None:
        """Remove directories that deleting left empty, up to the area's own."""
        while os.path.dirname(directory) != self._root:
            try:
                os.rmdir(directory)
            except OSError:  # not empty, or already gone: either way nothing is left to prune
                return
            self._existing.discard(directory)
            self._durable.discard(directory)
            directory = os.path.dirname(directory)

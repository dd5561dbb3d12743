"""The objects of a lakeFS repository: listed, read and written as streams, many at a time.

`Client` is this and the rest; see there for what every call promises.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import AbstractContextManager
from itertools import islice
from typing import Any

from fenceline.errors import NotFound
from fenceline.repo.lakefs.errors import refusal
from fenceline.repo.lakefs.sdk import Access, Connection
from fenceline.repo.lakefs.values import ObjectInfo
from fenceline.seams import Threads

PAGE = 1000
DELETE_BATCH = 1000
WORKERS = 32
"""Objects are moved this many at a time: on loopback seven to nine times faster than one by one."""
META_HEADER = "x-lakefs-meta-"


class Objects:
    """One repository of one server, as one user. Threads may share it."""

    def __init__(self, repository: str, access: Access | None = None) -> None:
        self.repository = repository
        self._to = Connection(access or Access())

    @property
    def endpoint(self) -> str:
        return self._to.endpoint

    def keys(self) -> Access:
        """Endpoint and keys as they were found, for what reaches the same server by its S3 gateway."""
        return self._to.keys()

    def close(self) -> None:
        """Give the connections back; a later call makes new ones."""
        self._to.close()

    def objects(self, ref: str, prefix: str = "") -> Iterator[ObjectInfo]:
        """Every object below a prefix, by path."""
        doing = self._doing(f"listing {prefix or 'everything'} at {ref} of")
        call = self._to.api.objects_api.list_objects
        for found in self._pages(doing, call, self.repository, ref, prefix=prefix, user_metadata=True):
            yield _object(found)

    def children(self, ref: str, prefix: str = "") -> Iterator[str]:
        """The paths right below a prefix; those that go on end with a slash."""
        doing = self._doing(f"listing {prefix or 'everything'} at {ref} of")
        call = self._to.api.objects_api.list_objects
        for found in self._pages(doing, call, self.repository, ref, prefix=prefix, delimiter="/"):
            yield found.path

    def stat(self, ref: str, path: str) -> ObjectInfo | None:
        doing = self._doing(f"looking at {path} at {ref} of")
        call = self._to.api.objects_api.stat_object
        try:
            return _object(self._to.ask(doing, call, self.repository, ref, path, user_metadata=True))
        except NotFound:
            return None

    def open(
        self, ref: str, path: str, start: int = 0, length: int | None = None
    ) -> AbstractContextManager[Iterator[bytes]]:
        """An object's bytes, or a range of them, in pieces of about a megabyte."""
        at = f"/repositories/{self.repository}/refs/{ref}/objects"
        return self._to.receive(self._doing(f"reading {path} at {ref} of"), at, {"path": path}, start, length)

    def read(self, ref: str, path: str, start: int = 0, length: int | None = None) -> bytes:
        with self.open(ref, path, start, length) as pieces:
            return b"".join(pieces)

    def download(self, ref: str, path: str, target: str | os.PathLike[str]) -> int:
        """Into a new file; how many bytes."""
        size = 0
        with self.open(ref, path) as pieces, open(target, "xb") as file:
            for piece in pieces:
                size += file.write(piece)
        return size

    def download_all(
        self, ref: str, files: Iterable[tuple[str, str]], threads: Threads, workers: int = WORKERS
    ) -> Iterator[tuple[str, int]]:
        """Each (path, target file) in parallel; (path, bytes) as they arrive."""

        def one(pair: tuple[str, str]) -> tuple[str, int]:
            return pair[0], self.download(ref, *pair)

        return threads.map(one, files, workers)

    def put(self, branch: str, path: str, data: bytes, metadata: Mapping[str, str] | None = None) -> ObjectInfo:
        """A small object, uncommitted."""
        return self._send(branch, path, data, len(data), metadata)

    def upload(
        self, branch: str, path: str, source: str | os.PathLike[str], metadata: Mapping[str, str] | None = None
    ) -> ObjectInfo:
        """A file as a stream, uncommitted. The same upload may be repeated: only the last one counts."""
        with open(source, "rb") as file:
            return self._send(branch, path, file, os.fstat(file.fileno()).st_size, metadata)

    def upload_all(
        self, branch: str, files: Iterable[tuple[str, str]], threads: Threads, workers: int = WORKERS
    ) -> Iterator[ObjectInfo]:
        """Each (path, source file) in parallel; what the server says of each, as they arrive."""

        def one(pair: tuple[str, str]) -> ObjectInfo:
            return self.upload(branch, *pair)

        return threads.map(one, files, workers)

    def _send(self, branch: str, path: str, body: Any, size: int, metadata: Mapping[str, str] | None) -> ObjectInfo:
        at = f"/repositories/{self.repository}/branches/{branch}/objects"
        headers = {META_HEADER + name: value for name, value in (metadata or {}).items()}
        doing = self._doing(f"uploading {path} to {branch} of")
        answer = self._to.send(doing, at, {"path": path}, body, size, headers)
        return _object(self._to.models.ObjectStats.from_dict(answer))

    def delete(self, branch: str, paths: Iterable[str]) -> None:
        """Uncommitted; a path that is not there is no error."""
        waiting = iter(paths)
        while batch := list(islice(waiting, DELETE_BATCH)):
            wanted = self._to.models.PathList(paths=batch)
            doing = self._doing(f"deleting {len(batch)} objects on {branch} of")
            answer = self._to.tell(doing, self._to.api.objects_api.delete_objects, self.repository, branch, wanted)
            for failed in answer.errors:
                raise refusal(failed.status_code, f"{failed.path}: {failed.message}", doing, wrote=True)

    # --- inside -------------------------------------------------------------------------------------------------

    def _doing(self, what: str) -> str:
        return f"{what} {self.repository}"

    def _pages(self, doing: str, call: Callable[..., Any], *args: str, **options: object) -> Iterator[Any]:
        after: str | None = None
        while True:
            page = self._to.ask(doing, call, *args, after=after, amount=PAGE, **options)
            yield from page.results
            if not page.pagination.has_more:
                return
            after = page.pagination.next_offset


def _object(found: Any) -> ObjectInfo:
    return ObjectInfo(
        path=found.path,
        size=found.size_bytes or 0,
        checksum=found.checksum,
        modified=found.mtime,
        address=found.physical_address,
        metadata=dict(found.metadata or {}),
    )

"""A repository as it is at one commit: for notebooks, tests and other engines."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, TypeAlias
from urllib.parse import quote

from fenceline.errors import ConfigError, NotFound
from fenceline.repo.lakefs.repository import LakeRepository
from fenceline.repo.model import DEFAULT_BRANCH, Commit, Entry
from fenceline.repo.names import is_commit_id
from fenceline.repo.native.local import LocalObjects
from fenceline.repo.native.remote.objects import RemoteObjects
from fenceline.repo.native.repository import NativeRepository, external_file

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from fenceline.spark.reader import Reader

Uris: TypeAlias = list[str]

_LEGAL = "/!$&'()*+,;=:@~"
"""What a path may hold in a URI as it is. Engines that do not decode still find `day=2026-01-01/…`."""


class CommitView:
    """What `repo.at(ref)` gives: all reads see the one commit that the ref named then, wherever the branch goes."""

    def __init__(self, store: NativeRepository | LakeRepository, ref: str, writable: bool) -> None:
        self._store, self._ref, self._writable = store, ref, writable
        self._commit = store.resolve(ref)

    @property
    def commit(self) -> Commit:
        return self._commit

    @property
    def branch(self) -> str:
        """The branch that the ref started from; of a tag or a commit id, the default branch."""
        name = self._ref.partition("~")[0].partition("@")[0]
        plain = not is_commit_id(self._ref) and self._store.find_head(name) is not None
        return name if plain else DEFAULT_BRANCH

    @property
    def writable(self) -> bool:
        """Whether the repository was opened for writing, so that a rehearsal may stage in it."""
        return self._writable

    @property
    def store(self) -> NativeRepository | LakeRepository:
        """The repository below the transactions, whatever its kind: attempts run on it."""
        return self._store

    def list(self, prefix: str = "") -> Iterator[Entry]:
        """Files and datasets below a directory, with the part files of datasets."""
        return self._store.entries(self._commit, prefix)

    def stat(self, path: str) -> Entry:
        """The file or dataset at a path."""
        found = self._store.find(self._commit, path)
        if found is None:
            raise nothing_at(path, self._ref)
        return found

    def read(self, path: str) -> bytes:
        """A file's bytes, checked against their checksum."""
        return self._store.read(self.stat(path))

    def uris(self, path: str = "") -> Uris:
        """Where the data of a dataset, a directory or a file lies, as URIs for DuckDB, pandas and others.

        Of a dataset these are its live part files. They may be read, never changed; they stay as long as the commit.
        """
        entries = list(self.list(path))
        if not entries:
            raise nothing_at(path, self._ref)
        return [self._uri(entry) for entry in entries if entry.address]

    def spark(self, session: SparkSession | None = None) -> Reader:
        """Frames by path, `.parquet("plays")`, `.csv(…)`, `.dataset(…)`, on this session or on that of the process."""
        from fenceline.spark.reader import at_commit
        from fenceline.spark.session import get_session

        if isinstance(self._store, LakeRepository):
            raise ConfigError(
                "frames by path are not there on lakeFS yet",
                hint=f"read s3a://{self._store.client.repository}/{self._commit.id}/… through its S3 gateway",
            )
        return at_commit(session or get_session(), self._store, self._commit)

    def _uri(self, entry: Entry) -> str:
        if "://" in entry.address and not isinstance(self._store, LakeRepository):
            return _file_uri(external_file(entry))
        objects = None if isinstance(self._store, LakeRepository) else self._store.objects
        if isinstance(objects, RemoteObjects):
            return f"{objects.url}/{entry.address}"
        if not isinstance(objects, LocalObjects):
            raise ConfigError(
                f"{self._store.url} keeps its data where other programs cannot open it",
                hint="copy it to the local disk with repo.download(ref, path, local)",
            )
        return _file_uri(objects.path(entry.address))

    def __repr__(self) -> str:
        return f"CommitView({self._ref!r}, commit={self._commit.id[:12]!r})"


def nothing_at(path: str, ref: str) -> NotFound:
    return NotFound(f"there is no {path!r} in {ref}", hint=f"fenceline ls {ref} lists what is there", path=path)


def _file_uri(path: str) -> str:
    return "file://" + quote(path, safe=_LEGAL)

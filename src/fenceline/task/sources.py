"""Where a workspace's files come from: as much of a repository as bringing a commit into a directory needs."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Protocol

from fenceline.repo.lakefs.hook import ACTIONS
from fenceline.repo.lakefs.objects import WORKERS as LAKEFS_WORKERS
from fenceline.repo.lakefs.repository import LakeRepository
from fenceline.repo.model import Commit, Entry
from fenceline.repo.native.local import LocalObjects
from fenceline.repo.native.objects import is_far
from fenceline.repo.native.repository import NativeRepository, external_path
from fenceline.txn.upload import BATCH_FILES, FAR_BATCH_FILES, FAR_WORKERS, WORKERS


class Source(Protocol):
    """A repository's content by commit and path."""

    workers: int
    """How many copies at once are worth it."""
    batch: int
    """How many small files one worker takes at a time."""

    def file_at(self, commit: Commit, path: str) -> Entry | None: ...

    def dataset_at(self, commit: Commit, path: str) -> Entry | None: ...

    def below(self, commit: Commit, prefix: str) -> Iterator[Entry]: ...

    def chunks(self, entry: Entry) -> Iterator[bytes]: ...

    def local_path(self, entry: Entry) -> str | None:
        """Where the bytes lie on a local disk, if they do: the kernel copies those."""
        ...


class NativeSource:
    """The embedded repository, on a local disk or on an object store."""

    def __init__(self, repo: NativeRepository) -> None:
        self._repo = repo
        far = is_far(repo.objects)
        self.workers, self.batch = (FAR_WORKERS, FAR_BATCH_FILES) if far else (WORKERS, BATCH_FILES)
        self._objects = repo.objects if isinstance(repo.objects, LocalObjects) else None

    def file_at(self, commit: Commit, path: str) -> Entry | None:
        return self._repo.trees.get(commit.tree, path)

    def dataset_at(self, commit: Commit, path: str) -> Entry | None:
        return self._repo.trees.get(commit.tree, f"{path}/")

    def below(self, commit: Commit, prefix: str) -> Iterator[Entry]:
        return self._repo.trees.below(commit.tree, prefix)

    def chunks(self, entry: Entry) -> Iterator[bytes]:
        return self._repo.chunks(entry)

    def local_path(self, entry: Entry) -> str | None:
        if "://" in entry.address:
            return external_path(entry.address)
        return self._objects.path(entry.address) if self._objects else None


class LakeSource:
    """A lakeFS repository: every file is a request, so many go at once. The server's hooks are not shown."""

    workers, batch = LAKEFS_WORKERS, 4

    def __init__(self, repo: LakeRepository) -> None:
        self._repo = repo

    def file_at(self, commit: Commit, path: str) -> Entry | None:
        return self._repo.find(commit, path)

    def dataset_at(self, commit: Commit, path: str) -> Entry | None:
        return None  # what other engines wrote is plain files here

    def below(self, commit: Commit, prefix: str) -> Iterator[Entry]:
        return (entry for entry in self._repo.below(commit, prefix) if not entry.path.startswith(ACTIONS))

    def chunks(self, entry: Entry) -> Iterator[bytes]:
        return self._repo.chunks(entry)

    def local_path(self, entry: Entry) -> str | None:
        return None


def source_of(repo: NativeRepository | LakeRepository) -> Source:
    return LakeSource(repo) if isinstance(repo, LakeRepository) else NativeSource(repo)

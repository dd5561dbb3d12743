"""A transaction's own view of its branch: the input commit with its pending changes, and what it read on the way."""

from __future__ import annotations

from collections.abc import Iterator

from fenceline.errors import AlreadyExists, ContractError, InvalidName, NotFound
from fenceline.repo.merge import PART_PREFIX
from fenceline.repo.model import Commit, Entry, Node
from fenceline.repo.names import check_path, check_prefix
from fenceline.repo.native.repository import NativeRepository
from fenceline.repo.native.staging import Staging
from fenceline.repo.pathset import PathSet, ancestors

FLUSH_AT = 20_000  # pending changes held in memory; more go into the staged tree, so imports of any size fit


class WorkingTree:
    """Read-your-writes over a commit. Pending changes are kept sorted out from the staged tree until they are many."""

    def __init__(self, repo: NativeRepository, start: Commit) -> None:
        self._repo = repo
        self._root: Node | None = start.tree
        self._pending: dict[str, Entry | None] = {}
        self._directories: set[str] = {""}  # known to hold nothing but directories above them
        self._empty: set[str] = set()  # directories known to hold nothing in the staged tree
        self._written_below: set[str] = set()
        self._removed = False
        self.reads = PathSet()

    # --- reading ------------------------------------------------------------------------------------------------

    def find(self, path: str) -> Entry | None:
        """The file or dataset at a path; counted as read, also where nothing is there."""
        path = check_path(path.removesuffix("/"))
        self.reads.add(path)
        return self._get(path) or self._get(path + "/")

    def below(self, prefix: str) -> Iterator[Entry]:
        """Everything below a directory, part files too; the whole directory counts as read."""
        prefix = check_prefix(prefix)
        self.reads.add(prefix)
        yield from self._below(prefix)

    def _get(self, key: str) -> Entry | None:
        if key in self._pending:
            return self._pending[key]
        return self._repo.trees.get(self._root, key)

    def _below(self, prefix: str) -> Iterator[Entry]:
        pending = sorted(k for k in self._pending if not prefix or k.startswith(prefix + "/"))
        at = 0
        for entry in self._repo.trees.below(self._root, prefix):
            while at < len(pending) and pending[at] < entry.path:
                if (new := self._pending.get(pending[at])) is not None:
                    yield new
                at += 1
            if entry.path not in self._pending:
                yield entry
        for key in pending[at:]:
            if (new := self._pending.get(key)) is not None:
                yield new

    # --- writing ------------------------------------------------------------------------------------------------

    def check_place(self, path: str) -> str:
        """Refuse a plain file where it could not be a file: below another file, inside a dataset, over a directory."""
        path = check_path(path)
        if any(part.startswith(PART_PREFIX) for part in path.split("/")):
            raise InvalidName(
                f"path {path!r} has a part that starts with {PART_PREFIX!r}, which marks datasets", hint="rename it"
            )
        if self._removed:
            self._look_again()
        parent = path.rpartition("/")[0]
        self._check_directory(parent)
        if path in self._written_below or (parent not in self._empty and self._is_directory(path)):
            raise AlreadyExists(
                f"{path} is a directory",
                hint="delete it first in the same transaction, or choose another name",
                path=path,
            )
        return path

    def _check_directory(self, directory: str) -> None:
        if directory in self._directories:
            return
        self._check_directory(directory.rpartition("/")[0])
        for key, what in ((directory, "a file"), (directory + "/", "a dataset")):
            if self._get(key) is not None:
                raise AlreadyExists(
                    f"{directory} is {what}, so nothing can be put below it",
                    hint="change datasets with put_dataset; or delete it first in the same transaction",
                    path=directory,
                )
        if not self._is_directory(directory):
            self._empty.add(directory)
        self._directories.add(directory)

    def _is_directory(self, path: str) -> bool:
        staged = self._repo.trees.below(self._root, path)
        return path in self._written_below or any(self._pending.get(e.path, e) is not None for e in staged)

    def _look_again(self) -> None:
        """After removals, what was known of directories may no longer hold."""
        self._directories, self._empty, self._written_below, self._removed = {""}, set(), set(), False
        for path, pending in self._pending.items():
            if pending is not None:
                self._written_below.update(ancestors(path))

    def set(self, staging: Staging, entry: Entry) -> None:
        """Put a staged entry in its place. The same content as before is no change, but comparing it was a read."""
        before = None if entry.path.rpartition("/")[0] in self._empty else self._get(entry.path)
        if before is not None and before.same_content(entry):
            self.reads.add(entry.path)
            return
        self._pending[entry.path] = entry
        if entry.dataset or entry.path in self._directories:
            self._removed = True  # what was a place for files is one no more
        self._written_below.update(ancestors(entry.path))
        self._flush_if_many(staging)

    def remove(self, staging: Staging, entries: Iterator[Entry]) -> int:
        count = 0
        for entry in list(entries):
            self._pending[entry.path] = None
            count += 1
            self._flush_if_many(staging)
        self._removed = True
        return count

    def forget(self, staging: Staging, path: str) -> None:
        """Remove one raw entry."""
        self._pending[path] = None
        self._removed = True
        self._flush_if_many(staging)

    def dataset(self, path: str) -> Entry | None:
        """The dataset at a path, not counted as read: appending to one reads nothing of it."""
        return self._get(path + "/")

    def parts(self, path: str) -> list[Entry]:
        """The live part files of a dataset, not counted as read."""
        return [entry for entry in self._below(path) if not entry.path.endswith("/")]

    def matching(self, path: str) -> Iterator[Entry]:
        """What `delete` of this path removes: a file, a dataset with its parts, or a directory with all below it."""
        clean = check_prefix(path)
        if not clean:
            raise ContractError("refusing to delete the whole tree", hint="name a directory")
        found = [e for e in (self._get(clean),) if e is not None and not path.endswith("/")]
        self.reads.add(clean)
        found += self._below(clean)
        if not found:
            raise NotFound(f"there is nothing at {path}", hint="fenceline ls lists what is there", path=path)
        inside = self.dataset_above(clean)
        if inside:
            raise ContractError(
                f"{path} is inside the dataset {inside}", hint=f"a dataset changes as a unit: delete {inside}"
            )
        return iter(found)

    def dataset_above(self, path: str) -> str | None:
        return next((d for d in ancestors(path) if d and self._get(d + "/") is not None), None)

    def tree(self, staging: Staging) -> Node | None:
        """The staged tree with every pending change in it."""
        if self._pending:
            self._root = staging.edit(self._root, self._pending)
            self._pending = {}
        return self._root

    def _flush_if_many(self, staging: Staging) -> None:
        if len(self._pending) >= FLUSH_AT:
            self.tree(staging)
            self._empty.clear()

"""A lakeFS repository in the words of `fenceline.repo.model`: refs, commits and content, for reading.

A branch has no numbered entries here: its log is its first-parent line, and what an entry would carry is in the
metadata of the commits (`notes.py`). Publishing is in `fenceline.txn.lakefs`.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Iterator
from itertools import islice
from urllib.parse import urlsplit

from fenceline.errors import ConfigError, ContractError, NotARepository, NotFound, ObjectDamaged
from fenceline.repo.lakefs.client import Client
from fenceline.repo.lakefs.notes import entry_of, is_own_branch, to_commit, to_entry
from fenceline.repo.lakefs.sdk import Access
from fenceline.repo.lakefs.values import BranchInfo, Change, ChangeKind
from fenceline.repo.merge import Unit, units
from fenceline.repo.model import Commit, Entry, Head, Side
from fenceline.repo.names import check_path, check_prefix
from fenceline.seams import Seams

SCHEME = "lakefs"
RUN_PREFIX = "run-"
"""What the branches of runs begin with: lakeFS knows no slash in names."""

_CACHED_COMMITS = 4096
_STAT_BATCH = 256
_STAT_WORKERS = 16


class LakeRepository:
    """Reads of one lakeFS repository; the methods that it shares with the native one promise the same."""

    def __init__(self, client: Client, seams: Seams | None = None) -> None:
        self.client = client
        self.seams = seams or Seams()
        self._commits: dict[str, Commit] = {}

    @classmethod
    def open(cls, url: str, seams: Seams | None = None, access: Access | None = None) -> LakeRepository:
        """`lakefs://<repository>`; endpoint and keys come from what `lakectl` uses, unless they are given."""
        client = Client(repository_name(url), access)
        if not client.exists():
            raise NotARepository(
                f"there is no repository {client.repository!r} on {client.endpoint}",
                hint="create it in lakeFS, then run fenceline lakefs setup",
            )
        return cls(client, seams)

    @property
    def id(self) -> str:
        """Its name: the endpoint may differ between machines that mean the same server."""
        return self.url

    @property
    def url(self) -> str:
        return f"{SCHEME}://{self.client.repository}"

    # --- refs ---------------------------------------------------------------------------------------------------

    def head(self, branch: str) -> Head:
        found = self.find_head(branch)
        if found is None:
            raise NotFound(f"there is no branch {branch!r}", hint="fenceline branch lists them", branch=branch)
        return found

    def find_head(self, branch: str) -> Head | None:
        return self._head_of(self.client.find_branch(branch))

    def find_tag(self, tag: str) -> Head | None:
        return self._head_of(self.client.find_tag(tag))

    def _head_of(self, ref: BranchInfo | None) -> Head | None:
        if ref is None:
            return None
        commit = self.commit(ref.commit)
        return Head(ref.name, commit.depth, commit, entry_of(commit))

    def branches(self) -> list[Head]:
        """Without the staging branches of attempts and what is kept beside them."""
        refs = (ref for ref in self.client.branches() if not is_own_branch(ref.name))
        return [head for ref in refs if (head := self._head_of(ref)) is not None]

    def tags(self) -> list[Head]:
        return [head for ref in self.client.tags() if (head := self._head_of(ref)) is not None]

    def resolve(self, ref: str) -> Commit:
        """A branch, a tag, a commit id or the start of one, any of them with `~3`."""
        if "@" in ref:
            raise ContractError(f"cannot read the ref {ref!r}", hint="lakeFS has no entry numbers: write branch~3")
        try:
            return self._keep(to_commit(self.client.commit_info(ref)))
        except NotFound as error:
            raise NotFound(
                f"there is no branch, tag or commit {ref!r}",
                hint="fenceline branch and fenceline log list them",
                ref=ref,
            ) from error

    # --- commits ------------------------------------------------------------------------------------------------

    def commit(self, commit_id: str) -> Commit:
        return self._commits.get(commit_id) or self._keep(to_commit(self.client.commit_info(commit_id)))

    def _keep(self, commit: Commit) -> Commit:
        if len(self._commits) >= _CACHED_COMMITS:
            self._commits.clear()
        self._commits[commit.id] = commit
        return commit

    def line(self, head: Commit) -> Iterator[Commit]:
        """The first-parent line, newest first."""
        for found in self.client.log(head.id):
            yield self._keep(to_commit(found))

    def line_since(self, head: Commit, start: Commit) -> list[Commit] | None:
        """The commits after `start` up to `head` on the first-parent line, oldest first; None if it is not on it."""
        after: list[Commit] = []
        if head.id == start.id:
            return after
        for commit in map(to_commit, self.client.log(head.id, stop_at=start.id)):
            if commit.id == start.id:
                return after[::-1]
            if commit.depth <= start.depth and start.depth:
                return None
            after.append(self._keep(commit))
        return None

    def stands(self, commit_id: str, head: Commit) -> bool:
        """Whether the commit is on the head's first-parent line."""
        return commit_id == head.id or self.line_since(head, self.commit(commit_id)) is not None

    def history(self, heads: Iterable[Commit]) -> Iterator[Commit]:
        """Every commit reachable through any parent."""
        seen: set[str] = set()
        for head in heads:
            for found in self.client.log(head.id, first_parent=False):
                if found.id not in seen:
                    seen.add(found.id)
                    yield to_commit(found)

    # --- content ------------------------------------------------------------------------------------------------

    def find(self, commit: Commit, path: str) -> Entry | None:
        found = self.client.stat(commit.id, check_path(path.removesuffix("/")))
        return None if found is None else to_entry(self.url, commit.id, found)

    def entries(self, commit: Commit, prefix: str = "") -> Iterator[Entry]:
        """Files below a directory; a file's own path lists just it. Directory markers of S3 tools are left out."""
        prefix = check_prefix(prefix)
        if prefix and (own := self.find(commit, prefix)) is not None:
            yield own
        yield from self.below(commit, prefix)

    def below(self, commit: Commit, prefix: str) -> Iterator[Entry]:
        for found in self.client.objects(commit.id, f"{prefix}/" if prefix else ""):
            if not found.path.endswith("/"):
                yield to_entry(self.url, commit.id, found)

    def diff(self, left: Commit | None, right: Commit | None) -> Iterator[Side]:
        """What differs, file by file; the server skips what is equal."""
        if left is None or right is None:
            yield from self._all_of(left, right)
            return
        changes = self.client.diff(left.id, right.id)
        while batch := list(islice(changes, _STAT_BATCH)):
            found = dict(
                self.seams.threads.map(lambda change: (change, self._side(left, right, change)), batch, _STAT_WORKERS)
            )
            yield from (found[change] for change in batch)

    def _all_of(self, left: Commit | None, right: Commit | None) -> Iterator[Side]:
        if left is not None:
            yield from (Side(entry.path, entry, None) for entry in self.below(left, ""))
        if right is not None:
            yield from (Side(entry.path, None, entry) for entry in self.below(right, ""))

    def _side(self, left: Commit, right: Commit, change: Change) -> Side:
        before = None if change.kind is ChangeKind.ADDED else self._entry(left, change.path)
        return Side(change.path, before, None if change.kind is ChangeKind.REMOVED else self._entry(right, change.path))

    def _entry(self, commit: Commit, path: str) -> Entry | None:
        found = self.client.stat(commit.id, path)
        return None if found is None else to_entry(self.url, commit.id, found)

    def changes(self, left: Commit | None, right: Commit | None) -> Iterator[Unit]:
        return units(self.diff(left, right))

    def changed_paths(self, left: Commit, right: Commit) -> Iterator[str]:
        """The paths alone, in as few calls as the server has pages."""
        return (change.path for change in self.client.diff(left.id, right.id))

    def chunks(self, entry: Entry) -> Iterator[bytes]:
        """A file's bytes in pieces; raises `ObjectDamaged` at the end where they are not those that were written."""
        commit, path = self._place(entry)
        hashed = hashlib.sha256() if entry.checksum.startswith("sha256:") else None
        size = 0
        with self.client.open(commit, path) as pieces:
            for piece in pieces:
                size += len(piece)
                if hashed is not None:
                    hashed.update(piece)
                yield piece
        if size != entry.size or (hashed is not None and entry.checksum != f"sha256:{hashed.hexdigest()}"):
            raise ObjectDamaged(
                f"{entry.path}: the bytes at {entry.address} are not those that were written",
                hint="ask the keeper of the lakeFS server; the object can be written again",
                address=entry.address,
            )

    def read(self, entry: Entry) -> bytes:
        return b"".join(self.chunks(entry))

    def _place(self, entry: Entry) -> tuple[str, str]:
        inside = entry.address.removeprefix(f"{self.url}/")
        commit, _, path = inside.partition("/")
        if inside == entry.address or not path:
            raise ContractError(f"{entry.address} is not in {self.url}", hint="read it where it was listed")
        return commit, path


def repository_name(url: str) -> str:
    parts = urlsplit(url)
    if parts.scheme != SCHEME or not parts.netloc or parts.path.strip("/"):
        raise ConfigError(f"cannot open {url}", hint="write lakefs://<repository>; the endpoint is set beside the keys")
    return parts.netloc

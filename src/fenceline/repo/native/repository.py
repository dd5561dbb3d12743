"""The embedded repository: reads, ref entries and staging areas on an object store."""

from __future__ import annotations

import contextlib
import hashlib
import heapq
import json
import logging
import os
from collections.abc import Callable, Iterable, Iterator
from urllib.parse import unquote, urlsplit

from fenceline import failpoints
from fenceline.errors import (
    ContractError,
    FormatTooNew,
    NotARepository,
    NotFound,
    ObjectDamaged,
    ObjectExists,
    ObjectMissing,
    store_error,
)
from fenceline.repo.merge import Unit, units
from fenceline.repo.model import DEFAULT_BRANCH, Commit, Entry, Head, Kind, Op, RefEntry, Side, canonical
from fenceline.repo.names import check_path, check_prefix, check_ref, is_commit_id
from fenceline.repo.native.condemned import expired, refuse_condemned
from fenceline.repo.native.objects import ObjectStore, is_far
from fenceline.repo.native.pinned import SUFFIX, NotFollowed, Pinned, table_of
from fenceline.repo.native.refs import RefLog
from fenceline.repo.native.staging import Staging, discard
from fenceline.repo.native.tree import TreeReader
from fenceline.seams import Seams

logger = logging.getLogger(__name__)

FORMAT = 1
CHUNK = 1 << 20
FAR_CHUNK = 8 << 20  # bytes read at once where each read is a round trip

FORMAT_FILE = failpoints.effect(
    "format.create",
    "the format record, after which the repository exists",
    before="no repository yet; creating it again goes on from there",
    after="the repository exists",
)

_CACHED_COMMITS = 4096


class NativeRepository:
    """See `fenceline.repo.port.Repository` for what each method promises."""

    def __init__(self, objects: ObjectStore, seams: Seams, repository_id: str) -> None:
        self.objects = objects
        self.seams = seams
        self.id = repository_id
        self.trees = TreeReader(objects)
        self.branch_log = RefLog(objects, seams, "refs")
        self.tag_log = RefLog(objects, seams, "tags")
        self._commits: dict[str, Commit] = {}
        self.follow: Callable[[], Pinned] = NotFollowed
        """Who knows what the pins of tables need. Asked anew each time: what was there before may be gone."""

    @property
    def url(self) -> str:
        return self.objects.url

    # --- opening ------------------------------------------------------------------------------------------------

    @classmethod
    def open(cls, objects: ObjectStore, seams: Seams) -> NativeRepository:
        try:
            text = objects.get("format.json")
        except ObjectMissing as error:
            raise NotARepository(
                f"there is no repository at {objects.url}",
                hint="create one: fenceline init, or open_repository(…, create=True)",
            ) from error
        try:
            record = json.loads(text)
            number, repository_id = int(record["format"]), str(record["repository"])
        except (ValueError, KeyError, TypeError) as error:
            raise ObjectDamaged(f"format.json of {objects.url} cannot be read", address="format.json") from error
        if number > FORMAT:
            raise FormatTooNew(
                f"{objects.url} has format {number}; this version reads up to {FORMAT}",
                hint=f"pip install --upgrade 'fenceline>={record.get('needs', 'the version that wrote it')}'",
            )
        return cls(objects, seams, repository_id)

    @classmethod
    def create(cls, objects: ObjectStore, seams: Seams, actor: str) -> NativeRepository:
        """Create the repository, or open the one that is there. Safe to run twice at once, or again after a crash."""
        fresh = cls(objects, seams, seams.ids.execution())
        if objects.stat("format.json") is None:
            if fresh.branch_log.last(DEFAULT_BRANCH) is None:
                staging = fresh.staging(seams.ids.execution())
                now = seams.clock.now()
                root = staging.commit(
                    parents=(),
                    tree=None,
                    depth=0,
                    actor=actor,
                    time=now,
                    message="Repository created",
                    kind="init",
                )
                staging.persist()
                entry = RefEntry(
                    1,
                    Op.CREATE,
                    root.id,
                    by=staging.execution,
                    actor=actor,
                    time=now,
                    execution=staging.execution,
                )
                fresh.branch_log.append(DEFAULT_BRANCH, entry)  # lost: another process creates it at this moment
            try:
                with FORMAT_FILE:
                    objects.create(
                        "format.json", canonical({"format": FORMAT, "repository": fresh.id, "needs": "0.1.0"})
                    )
            except ObjectExists:
                pass
        return cls.open(objects, seams)

    # --- refs ---------------------------------------------------------------------------------------------------

    def head(self, branch: str) -> Head:
        found = self.find_head(branch)
        if found is None:
            raise NotFound(f"there is no branch {branch!r}", hint="fenceline branch lists them", branch=branch)
        return found

    def find_head(self, branch: str) -> Head | None:
        return self._head_of(self.branch_log, check_ref(branch))

    def find_tag(self, tag: str) -> Head | None:
        return self._head_of(self.tag_log, check_ref(tag, "tag"))

    def _head_of(self, log: RefLog, name: str) -> Head | None:
        return self.head_at(name, log.last(name))

    def head_at(self, name: str, entry: RefEntry | None) -> Head | None:
        """The head that an entry says; None where there is no entry, or it says that the branch was deleted."""
        if entry is None or entry.commit is None:
            return None
        return Head(name, entry.seq, self.commit(entry.commit), entry)

    def branches(self) -> list[Head]:
        return self._all(self.branch_log)

    def tags(self) -> list[Head]:
        return self._all(self.tag_log)

    def _all(self, log: RefLog) -> list[Head]:
        found = []
        for name in log.names():
            try:
                head = self._head_of(log, name)
            except (ObjectMissing, ObjectDamaged) as error:  # one broken ref must not hide the others
                logger.warning("%s cannot be read and is left out of the list: %s", name, error)
                continue
            if head is not None:
                found.append(head)
        return found

    def resolve(self, ref: str) -> Commit:
        """A branch, a tag, a commit id (or the first 8 or more letters of one), `branch@12`, any of them with `~3`."""
        name, tilde, back = ref.partition("~")
        if tilde and not back.isdigit():
            raise ContractError(f"cannot read the ref {ref!r}", hint="write branch~3 for three commits before the head")
        commit = self._resolve_name(name, ref)
        for _ in range(int(back or 0)):
            if not commit.parents:
                raise NotFound(f"{ref!r} goes back further than the first commit", hint=f"fenceline log {name}")
            commit = self.commit(commit.parents[0])
        return commit

    def _resolve_name(self, name: str, ref: str) -> Commit:
        name, at, seq = name.partition("@")
        if at:
            return self._at_entry(name, seq, ref)
        if is_commit_id(name):
            if self.objects.stat(f"commits/{name}") is None:
                raise NotFound(f"there is no commit {name}", hint="fenceline log lists them", ref=ref)
            return self.commit(name)
        found = self.find_head(name) or self.find_tag(name)
        if found:
            return found.commit
        if len(name) >= 8 and all(c in "0123456789abcdef" for c in name):
            matches = [info.key.removeprefix("commits/") for info in self.objects.list(f"commits/{name}")]
            if len(matches) == 1:
                return self.commit(matches[0])
            if matches:
                raise ContractError(f"{name} is the start of {len(matches)} commit ids", hint="give more letters of it")
        raise NotFound(
            f"there is no branch, tag or commit {ref!r}",
            hint="fenceline branch and fenceline log list them",
            ref=ref,
        )

    def _at_entry(self, name: str, seq: str, ref: str) -> Commit:
        last = self.branch_log.last(check_ref(name))
        if not seq.isdigit() or last is None or not 1 <= int(seq) <= last.seq:
            raise NotFound(f"there is no entry {ref!r}", hint=f"fenceline log {name} --entries lists them")
        entry = self.branch_log.entry(name, int(seq))
        if entry.commit is None:
            raise NotFound(f"entry {ref!r} deleted the branch", hint="take the entry before it")
        return self.commit(entry.commit)

    # --- commits ------------------------------------------------------------------------------------------------

    def commit(self, commit_id: str) -> Commit:
        found = self._commits.get(commit_id)
        if found is None:
            found = Commit.from_bytes(commit_id, self.objects.get(f"commits/{commit_id}"))
            self._remember(found)
        return found

    def _remember(self, commit: Commit) -> None:
        if len(self._commits) >= _CACHED_COMMITS:
            self._commits.clear()
        self._commits[commit.id] = commit

    def line(self, head: Commit) -> Iterator[Commit]:
        """The first-parent line, newest first."""
        commit = head
        yield commit
        while commit.parents:
            commit = self.commit(commit.parents[0])
            yield commit

    def line_since(self, head: Commit, start: Commit) -> list[Commit] | None:
        """The commits after `start` up to `head` on the first-parent line, oldest first; None if it is not on it."""
        after: list[Commit] = []
        for commit in self.line(head):
            if commit.id == start.id:
                return after[::-1]
            if commit.depth <= start.depth:
                return None
            after.append(commit)
        return None

    def stands(self, commit_id: str, head: Commit) -> bool:
        """Whether the commit is on the head's first-parent line."""
        return commit_id == head.id or self.line_since(head, self.commit(commit_id)) is not None

    def history(self, heads: Iterable[Commit]) -> Iterator[Commit]:
        """Every commit reachable through any parent, children before parents where times tell."""
        seen, waiting = set(), {commit.id: commit for commit in heads}
        while waiting:
            newest = max(waiting.values(), key=lambda c: (c.time, c.depth))
            del waiting[newest.id]
            seen.add(newest.id)
            yield newest
            for parent in newest.parents:
                if parent not in seen and parent not in waiting:
                    waiting[parent] = self.commit(parent)

    def merge_base(self, one: Commit, other: Commit) -> Commit | None:
        """A common ancestor that is in no other one's history; the cost follows the divergence."""
        ours, theirs, covered = 1, 2, 4
        marks: dict[str, int] = {}
        waiting: list[tuple[int, str]] = []  # deepest first, so that all children of a commit come before it

        def mark(commit: Commit, new: int) -> None:
            if commit.id not in marks:
                heapq.heappush(waiting, (-commit.depth, commit.id))
            marks[commit.id] = marks.get(commit.id, 0) | new

        mark(one, ours)
        mark(other, theirs)
        best: list[Commit] = []
        while any(not marks[commit_id] & covered for _, commit_id in waiting):
            commit = self.commit(heapq.heappop(waiting)[1])
            found = marks[commit.id]
            if found == ours | theirs:
                best.append(commit)
                found |= covered
            for parent in commit.parents:
                mark(self.commit(parent), found)
        return max(best, key=lambda c: (c.time, c.id)) if best else None

    # --- content ------------------------------------------------------------------------------------------------

    def find(self, commit: Commit, path: str) -> Entry | None:
        """The file or dataset at a path."""
        path = check_path(path.removesuffix("/"))
        return self.trees.get(commit.tree, path) or self.trees.get(commit.tree, path + "/")

    def entries(self, commit: Commit, prefix: str = "") -> Iterator[Entry]:
        """Files and datasets below a directory, with the part files of datasets; a file's own path lists just it."""
        prefix = check_prefix(prefix)
        if prefix and (own := self.trees.get(commit.tree, prefix)) is not None:
            yield own
        yield from self.trees.below(commit.tree, prefix)

    def diff(self, left: Commit | None, right: Commit | None) -> Iterator[Side]:
        """Raw differences, entry by entry, in order; the cost follows the difference."""
        return self.trees.diff(left.tree if left else None, right.tree if right else None)

    def changes(self, left: Commit | None, right: Commit | None) -> Iterator[Unit]:
        """The same with every dataset as one."""
        return units(self.diff(left, right))

    def chunks(self, entry: Entry) -> Iterator[bytes]:
        """A file's bytes in pieces; raises `ObjectDamaged` at the end where they are not those that were written."""
        if entry.kind is not Kind.FILE:
            raise ContractError(
                f"{entry.path} is a dataset", hint="read its part files, or use its addresses with an engine"
            )
        hashed = hashlib.sha256()
        size = 0
        for piece in self._pieces(entry):
            hashed.update(piece)
            size += len(piece)
            yield piece
        sound = size == entry.size and entry.checksum in (f"sha256:{hashed.hexdigest()}", "none")
        if not sound and not (entry.checksum.startswith("etag:") and size == entry.size):
            raise ObjectDamaged(
                f"{entry.path}: the bytes at {entry.address} are not those that were written",
                hint="fenceline fsck shows what that breaks",
                address=entry.address,
            )

    def read(self, entry: Entry) -> bytes:
        return b"".join(self.chunks(entry))

    def _pieces(self, entry: Entry) -> Iterator[bytes]:
        if "://" in entry.address:
            yield from _external_pieces(entry)
            return
        chunk = FAR_CHUNK if is_far(self.objects) else CHUNK
        for start in range(0, max(entry.size, 1), chunk):
            piece = self.objects.get(entry.address, start, chunk)
            yield piece
            if len(piece) < chunk:
                return
        yield self.objects.get(entry.address, entry.size, 1)  # longer than it should be? the checksum must see it

    # --- staging ------------------------------------------------------------------------------------------------

    def staging(self, execution: str) -> Staging:
        return Staging(self.objects, self.trees, execution, self.seams.ids.execution, self._remember)

    def check_staged(self, commit: Commit) -> None:
        own = f"trees/{commit.execution}/"
        pinned: Pinned | None = None
        for node in self.trees.nodes(commit.tree, skip=lambda node: not node.address.startswith(own)):
            for entry in self.trees.entries_of(node) if not node.height else ():
                if commit.execution not in entry.address or "://" in entry.address:
                    continue
                info = self.objects.stat(entry.address)
                if info is None or info.size != entry.size:
                    raise ObjectMissing(
                        f"{entry.path}: staged bytes at {entry.address} are missing or cut off", address=entry.address
                    )
                if entry.path.endswith(SUFFIX):
                    pinned = pinned or self.follow()
                    self._check_pinned(entry, pinned)

    def _check_pinned(self, entry: Entry, pinned: Pinned) -> None:
        content = self.read(entry)
        for address, what in pinned.problems(content) if table_of(content) else ():
            raise ObjectMissing(f"{entry.path} pins a table version, and {address} of it {what}", address=address)

    def expired(self, commits: Iterable[str]) -> bool:
        return not expired(self.objects).isdisjoint(commits)

    def refuse_condemned(self, commits: Iterable[str]) -> None:
        refuse_condemned(self.objects, commits, self.seams.threads)

    def discard(self, execution: str, datasets: Iterable[str], keys: Iterable[str] = ()) -> None:
        discard(self.objects, execution, datasets, keys)


def external_path(address: str) -> str:
    """The local path of data registered in place."""
    parts = urlsplit(address)
    if parts.scheme != "file":
        raise ContractError(f"cannot read {address}: this build reads data in place from file:// only")
    return unquote(parts.path)


def external_etag(path: str) -> str:
    found = os.stat(path)
    return f"etag:{found.st_mtime_ns:x}-{found.st_size:x}"


def external_file(entry: Entry) -> str:
    """Where data registered in place lies. It is looked at first: it is not ours, and may be gone or changed."""
    path = external_path(entry.address)
    with _reading(entry):
        if external_etag(path) != entry.checksum:
            raise ObjectDamaged(
                f"{entry.path}: {entry.address} was changed since it was registered in place",
                hint="register it again with tx.import_in_place",
                address=entry.address,
            )
    return path


def _external_pieces(entry: Entry) -> Iterator[bytes]:
    path = external_file(entry)
    with _reading(entry), open(path, "rb") as file:
        while piece := file.read(CHUNK):
            yield piece


@contextlib.contextmanager
def _reading(entry: Entry) -> Iterator[None]:
    try:
        yield
    except (FileNotFoundError, NotADirectoryError) as error:
        raise ObjectMissing(
            f"{entry.path}: {entry.address} is gone; it was registered in place and is not ours to keep",
            hint="put it back, or register it again with tx.import_in_place",
            address=entry.address,
        ) from error
    except OSError as error:
        raise store_error(error, f"reading {entry.address}") from error

"""Verify every reachable object and checksum; say exactly what is broken, and what that breaks."""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Iterator
from dataclasses import dataclass

from fenceline.errors import ConfigError, FencelineError, ObjectDamaged, ObjectMissing
from fenceline.repo.model import Commit, Entry, Kind, Node
from fenceline.repo.native.condemned import expired
from fenceline.repo.native.pinned import SUFFIX, NotFollowed, Pinned, table_of
from fenceline.repo.native.refs import RefLog
from fenceline.repo.native.repository import CHUNK, NativeRepository, external_path
from fenceline.repo.native.tree import pack_of

MOST_BREAKS = 20


@dataclass(frozen=True, slots=True)
class Problem:
    """One broken object."""

    address: str
    what: str
    breaks: tuple[str, ...]
    """What can no longer be read because of it: refs, and paths in commits."""

    def __str__(self) -> str:
        return f"{self.address}: {self.what}; breaks {', '.join(self.breaks) or 'nothing reachable'}"


@dataclass(frozen=True, slots=True)
class Report:
    problems: tuple[Problem, ...]
    commits: int
    ranges: int
    files: int
    bytes: int
    notes: tuple[str, ...] = ()

    @property
    def clean(self) -> bool:
        return not self.problems


Step = Callable[[str, int], None]
"""Called with what is being verified, and how many objects were so far."""


class Checker:
    """One verification run."""

    def __init__(
        self,
        repo: NativeRepository,
        step: Step | None = None,
        content: bool = True,
        pinned: Pinned | None = None,
    ) -> None:
        self._repo = repo
        self._pinned = pinned or NotFollowed()
        self._step = step
        self._content = content
        self._problems: dict[str, Problem] = {}
        self._sound: set[str] = set()
        self._seen: dict[str, str] = {}  # commit → the ref it was first reached from
        self._counts = {"commits": 0, "ranges": 0, "files": 0, "bytes": 0}
        self._notes: list[str] = []
        self._expired = expired(repo.objects)

    def run(self) -> Report:
        for area, log in (("branch", self._repo.branch_log), ("tag", self._repo.tag_log)):
            for name in log.names():
                self._check_ref(area, log, name)
        return Report(tuple(self._problems.values()), notes=tuple(self._notes), **self._counts)

    def _check_ref(self, area: str, log: RefLog, name: str) -> None:
        label = f"{area} {name}"
        last = None
        for seq in range(1, log.greatest(name) + 1):  # by listing: a hole must not hide what is above it
            try:
                last = log.entry(name, seq)
                if last.seq != seq:
                    self._broken(log.key(name, seq), f"says it is number {last.seq}", f"{label} entry {seq}")
            except (ObjectMissing, ObjectDamaged) as error:
                last = None
                self._broken(log.key(name, seq), error.message, f"{label} entry {seq}")
        if last is not None and last.commit is not None:
            if last.commit in self._expired:
                self._broken(f"commits/{last.commit}", "is the head, but gc gave up its content", label)
            self._check_history(last.commit, label)

    def _check_history(self, head: str, label: str) -> None:
        waiting = [head]
        while waiting:
            commit_id = waiting.pop()
            if commit_id in self._seen:
                continue
            self._seen[commit_id] = label
            commit = self._check_commit(commit_id, label)
            if commit is None:
                continue
            waiting += commit.parents
            if commit_id in self._expired:
                self._notes.append(f"the content of commit {commit_id[:12]} was given up by gc, as retention asked")
            else:
                self._check_tree(commit, f"{label} at {commit_id[:12]}")

    def _check_commit(self, commit_id: str, label: str) -> Commit | None:
        key = f"commits/{commit_id}"
        self._count("commits", "commits")
        try:
            return Commit.from_bytes(commit_id, self._repo.objects.get(key))
        except FencelineError as error:
            self._broken(key, error.message, label)
            return None

    def _check_tree(self, commit: Commit, label: str) -> None:
        waiting: list[Node] = [commit.tree] if commit.tree else []
        while waiting:
            node = waiting.pop()
            if node.address in self._sound:
                continue
            try:
                items = self._repo.trees.load_uncached(node).items
            except FencelineError as error:
                self._broken(pack_of(node.address), error.message, f"{label}: paths up to {node.last}")
                continue
            self._count("ranges", "tree ranges")
            whole = True
            for item in items:
                if isinstance(item, Node):
                    waiting.append(item)
                else:
                    whole = self._check_entry(Entry.from_row(item), label) and whole
            if whole:
                self._sound.add(node.address)

    def _check_entry(self, entry: Entry, label: str) -> bool:
        if entry.kind is Kind.DATASET or entry.address in self._sound:
            return True
        self._count("files", "files")
        try:
            for problem in self._content_problems(entry):
                self._broken(entry.address, problem, f"{label}: {entry.path}")
                return False
        except FencelineError as error:
            self._broken(entry.address, error.message, f"{label}: {entry.path}")
            return False
        self._counts["bytes"] += entry.size
        if entry.path.endswith(SUFFIX) and not self._check_pin(entry, label):
            return False
        self._sound.add(entry.address)
        return True

    def _check_pin(self, entry: Entry, label: str) -> bool:
        """Whether every file of the table version is there that a pin names."""
        sound = True
        try:
            content = self._repo.read(entry)
            for address, what in self._pinned.problems(content) if table_of(content) else ():
                self._broken(address, what, f"{label}: the table of {entry.path}")
                sound = False
        except ConfigError as error:
            note = f"tables were not verified: {error}"
            if note not in self._notes:
                self._notes.append(note)
        except FencelineError as error:
            address = str(error.context.get("address", entry.address))
            self._broken(address, error.message, f"{label}: the table of {entry.path}")
            sound = False
        return sound

    def _content_problems(self, entry: Entry) -> Iterator[str]:
        if "://" in entry.address:
            for _ in self._repo.chunks(entry) if external_path(entry.address) else ():
                pass
            return
        info = self._repo.objects.stat(entry.address)
        if info is None:
            yield "is missing"
        elif info.size != entry.size:
            yield f"has {info.size} bytes instead of {entry.size}"
        elif self._content and entry.checksum.startswith("sha256:"):
            hashed = hashlib.sha256()
            for start in range(0, entry.size, CHUNK):
                hashed.update(self._repo.objects.get(entry.address, start, CHUNK))
            if f"sha256:{hashed.hexdigest()}" != entry.checksum:
                yield "does not match its checksum"

    def _broken(self, address: str, what: str, breaks: str) -> None:
        known = self._problems.get(address)
        reach = (*known.breaks, breaks) if known else (breaks,)
        self._problems[address] = Problem(address, what, reach[:MOST_BREAKS])

    def _count(self, name: str, what: str) -> None:
        self._counts[name] += 1
        if self._step and sum(self._counts.values()) % 100 == 0:
            self._step(what, self._counts["commits"] + self._counts["ranges"] + self._counts["files"])

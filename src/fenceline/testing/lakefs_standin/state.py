"""What a lakeFS server keeps, and how it answers: only the calls that Fenceline makes, with the real server's refusals.

`tests/lakefs/test_behaviours.py` asserts each of them here and, where there is one, on a real server.
"""

from __future__ import annotations

import hashlib
import re
import threading
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from fnmatch import fnmatchcase

from fenceline.repo.lakefs import hook
from fenceline.testing.lakefs_standin.trees import Stored, Tree, changes, merged, overlay, tree_id

_BRANCH = re.compile(r"\w[-\w]*", re.ASCII)
_REPOSITORY = re.compile(r"[a-z0-9][a-z0-9-]{2,62}")
MERGE_TRIES = 10
_STEPS = re.compile(r"(.+?)((?:~\d*|\^\d*)*)")


class Refusal(Exception):
    """An answer that is no success."""

    def __init__(self, status: int, message: str) -> None:
        super().__init__(f"{status}: {message}")
        self.status = status
        self.message = message


@dataclass(frozen=True, slots=True)
class StoredCommit:
    id: str
    parents: tuple[str, ...]
    message: str
    time: int
    metadata: Mapping[str, str]
    generation: int
    tree: Tree
    tree_id: str


@dataclass(slots=True)
class Branch:
    commit: str
    hidden: bool = False
    staged: dict[str, Stored | None] = field(default_factory=dict)
    """Uncommitted: None where a path was deleted."""
    stamp: int = 0
    """Counts how often the record was written: whoever decided on an older one must decide again."""


class RepositoryState:
    """One repository; every change holds its lock."""

    def __init__(
        self, name: str, namespace: str, default: str, now: Callable[[], float], slow: float, hooks: bool
    ) -> None:
        self.name, self.namespace, self.default = name, namespace, default
        self.created = int(now())
        self.lock = threading.RLock()
        self._now = now
        self._slow = slow
        self._hooks = hooks
        self._count = 0
        self._commits: dict[str, StoredCommit] = {}
        self.branches: dict[str, Branch] = {}
        self.tags: dict[str, str] = {}
        self.protection: tuple[str, ...] = ()
        self._effective: tuple[tuple[str, ...], float] = ((), 0.0)
        self.branches[default] = Branch(self._add((), "Repository created", {}, {}).id)

    # --- refs -------------------------------------------------------------------------------------------------

    def branch(self, name: str) -> Branch:
        if name not in self.branches:
            raise Refusal(404, "branch not found")
        return self.branches[name]

    def commit(self, ref: str) -> StoredCommit:
        """Of a branch, a tag, a commit id or the start of one; `~2` and `^1` go back from there."""
        found = _STEPS.fullmatch(ref.removesuffix("@"))
        if found is None:
            raise Refusal(400, "ref: invalid value: validation error")
        commit = self._named(found[1])
        for step, count in re.findall(r"([~^])(\d*)", found[2]):
            for _ in range(int(count or 1) if step == "~" else 1):
                if not commit.parents:
                    raise Refusal(404, "commit not found")
                commit = self._commits[commit.parents[int(count or 1) - 1 if step == "^" else 0]]
        return commit

    def _named(self, name: str) -> StoredCommit:
        if name in self._commits:
            return self._commits[name]
        if name in self.branches:
            return self._commits[self.branches[name].commit]
        if name in self.tags:
            return self._commits[self.tags[name]]
        started = [id_ for id_ in self._commits if len(name) >= 6 and id_.startswith(name)]
        if len(started) != 1:
            raise Refusal(404, "not found")
        return self._commits[started[0]]

    def tree(self, ref: str) -> Tree:
        """What a reader of the ref sees: of a branch, its uncommitted changes too."""
        if ref in self.branches:
            branch = self.branches[ref]
            return overlay(self._commits[branch.commit].tree, branch.staged)
        return self.commit(ref).tree

    def create_branch(self, name: str, source: str, hidden: bool) -> str:
        if not _BRANCH.fullmatch(name):
            raise Refusal(400, "argument branch: branch id: invalid value: validation error")
        with self.lock:
            commit = self.commit(source).id
            if name in self.branches:
                raise Refusal(409, "branch already exists: not unique")
            self.branches[name] = Branch(commit, hidden)
            return commit

    def delete_branch(self, name: str) -> None:
        with self.lock:
            if name == self.default:
                raise Refusal(403, "cannot delete repository default branch")
            self.branch(name)
            del self.branches[name]

    def create_tag(self, name: str, ref: str) -> str:
        with self.lock:
            commit = self.commit(ref).id
            if name in self.tags:
                raise Refusal(409, "tag already exists: not unique")
            self.tags[name] = commit
            return commit

    def delete_tag(self, name: str) -> None:
        with self.lock:
            if self.tags.pop(name, None) is None:
                raise Refusal(404, "tag not found")

    # --- protection -------------------------------------------------------------------------------------------

    def protect(self, patterns: tuple[str, ...]) -> None:
        """Shown at once, kept only after a while: the real server caches its rules."""
        with self.lock:
            self._effective = (self._kept(), self._now() + self._slow)
            self.protection = patterns

    def _kept(self) -> tuple[str, ...]:
        before, until = self._effective
        return before if self._now() < until else self.protection

    def protected(self, branch: str) -> bool:
        return any(fnmatchcase(branch, pattern) for pattern in self._kept())

    # --- objects ----------------------------------------------------------------------------------------------

    def stage(self, branch: str, path: str, stored: Stored | None) -> None:
        with self.lock:
            found = self.branch(branch)
            if self.protected(branch):
                raise Refusal(403, "cannot write to protected branch")
            found.staged[path] = stored

    def uncommitted(self, branch: str) -> dict[str, tuple[Stored | None, Stored | None]]:
        found = self.branch(branch)
        committed = self._commits[found.commit].tree
        return changes(committed, overlay(committed, found.staged))

    # --- commit, reset, merge -----------------------------------------------------------------------------------

    def commit_branch(self, name: str, message: str, metadata: Mapping[str, str], allow_empty: bool) -> StoredCommit:
        with self.lock:
            branch = self.branch(name)
            if self.protected(name):
                raise Refusal(403, "cannot commit to protected branch")
            head = self._commits[branch.commit]
            if not self.uncommitted(name) and not allow_empty:
                raise Refusal(400, "commit: no changes")
            commit = self._add((head.id,), message, metadata, overlay(head.tree, branch.staged))
            self.branches[name] = replace(branch, commit=commit.id, staged={}, stamp=branch.stamp + 1)
            return commit

    def hard_reset(self, name: str, ref: str) -> None:
        """Neither hook nor head is looked at, and what is uncommitted stays."""
        with self.lock:
            branch = self.branch(name)
            if self.protected(name):
                raise Refusal(403, "protected branch")
            branch.commit = self.commit(ref).id
            branch.stamp += 1

    def _refuse_dirty(self, name: str) -> None:
        if self.uncommitted(name):
            raise Refusal(400, f"{name}: uncommitted changes (dirty branch)")

    def merge(
        self,
        source: str,
        target: str,
        message: str,
        metadata: Mapping[str, str],
        squash: bool,
        allow_empty: bool,
        pause: Callable[[], None],
    ) -> StoredCommit:
        """Decides without the lock, and moves the branch only if its record is still the one it decided on."""
        with self.lock:
            self._refuse_dirty(target)
            self.branch(target).stamp += 1
        for _ in range(MERGE_TRIES):
            with self.lock:
                seen = self.branch(target).stamp
                commit = self._merged(source, target, message, metadata, squash, allow_empty)
            pause()
            with self.lock:
                branch = self.branch(target)
                if branch.stamp == seen:
                    branch.stamp += 1
                    branch.commit = commit.id
                    return commit
        raise Refusal(429, "Too many attempts, try again later")

    def _merged(
        self, source: str, target: str, message: str, metadata: Mapping[str, str], squash: bool, allow_empty: bool
    ) -> StoredCommit:
        self._refuse_dirty(target)
        theirs, ours = self.commit(source), self._commits[self.branch(target).commit]
        base = self._merge_base(theirs, ours)
        if theirs.tree_id == base.tree_id and not allow_empty:
            raise Refusal(400, f"update branch {target}: no changes")
        tree = merged(base.tree, ours.tree, theirs.tree)
        if tree is None:
            raise Refusal(409, f"update branch {target}: conflict found")
        parents = (ours.id,) if squash else (ours.id, theirs.id)
        commit = self._add(parents, message, {**metadata, ".lakefs.merge.strategy": "default"}, tree)
        self._run_hook(source, theirs, commit)
        return commit

    def _run_hook(self, source: str, theirs: StoredCommit, commit: StoredCommit) -> None:
        """Our own hook's meaning, where the source has its file; other hooks are not known here."""
        file = theirs.tree.get(hook.HOOK_PATH)
        if not self._hooks or file is None or file.data != hook.ACTION.encode():
            return
        why = refused_by_hook(source, theirs.id, commit)
        if why:
            raise Refusal(412, f"update branch: pre-merge hook aborted, run id 'stand-in': 1 error occurred: {why}")

    def _merge_base(self, one: StoredCommit, other: StoredCommit) -> StoredCommit:
        common = {commit.id for commit in self._ancestors(one)} & {commit.id for commit in self._ancestors(other)}
        return max((self._commits[id_] for id_ in common), key=lambda commit: commit.generation)

    def _ancestors(self, start: StoredCommit) -> Iterator[StoredCommit]:
        waiting, seen = [start.id], set()
        while waiting:
            id_ = waiting.pop()
            if id_ not in seen:
                seen.add(id_)
                yield self._commits[id_]
                waiting += self._commits[id_].parents

    def log(self, ref: str, first_parent: bool, stop_at: str | None) -> Iterator[StoredCommit]:
        """Newest first; `stop_at` is the last one."""
        start = self.commit(ref)
        last = self.commit(stop_at).id if stop_at else None
        if first_parent:
            line: Iterator[StoredCommit] = self._line(start)
        else:
            line = iter(sorted(self._ancestors(start), key=lambda commit: (-commit.generation, commit.id)))
        for commit in line:
            yield commit
            if commit.id == last:
                return

    def _line(self, commit: StoredCommit) -> Iterator[StoredCommit]:
        yield commit
        while commit.parents:
            commit = self._commits[commit.parents[0]]
            yield commit

    def _add(self, parents: tuple[str, ...], message: str, metadata: Mapping[str, str], tree: Tree) -> StoredCommit:
        self._count += 1
        generation = 1 + max((self._commits[parent].generation for parent in parents), default=0)
        text = f"{self.name} {self._count} {parents} {message} {tree_id(tree)}"
        id_ = hashlib.sha256(text.encode()).hexdigest()
        commit = StoredCommit(
            id_, parents, message, int(self._now()), dict(metadata), generation, dict(tree), tree_id(tree)
        )
        self._commits[id_] = commit
        return commit


def refused_by_hook(source: str, source_commit: str, commit: StoredCommit) -> str | None:
    """The Lua script of `repo/lakefs/hook.py`, in Python."""
    expected, staged = commit.metadata.get(hook.EXPECTED_HEAD), commit.metadata.get(hook.STAGED)
    if expected is None:
        unpublished = source.startswith(hook.STAGING_PREFIX)
        return f"fenceline: {source} is not published; only the runtime may merge it" if unpublished else None
    if commit.parents[0] != expected:
        return f"fenceline: expected head {expected}, found {commit.parents[0]}"
    if staged is not None and source_commit != staged:
        return f"fenceline: expected staged commit {staged}, found {source_commit}"
    return None


def check_repository_name(name: str) -> None:
    if not _REPOSITORY.fullmatch(name):
        raise Refusal(400, "argument repository: repository id: invalid value: validation error")

"""A lakeFS repository as typed calls: what the adapter, `fenceline lakefs setup` and the tests stand on.

Reads are repeated when the network fails. A write goes out once: what the server refused did not happen, and a lost
answer raises `OutcomeUnknown` (INV-3). `merge` alone returns every ending as a value: it is the publication.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from itertools import islice
from typing import Any

from fenceline.errors import AlreadyExists, NotFound, OutcomeUnknown, StoreError
from fenceline.repo.lakefs.errors import DirtyBranch, NothingToCommit, RefusedByHook
from fenceline.repo.lakefs.objects import Objects
from fenceline.repo.lakefs.values import (
    BranchInfo,
    Change,
    ChangeKind,
    CommitInfo,
    MergeEnd,
    MergeOutcome,
    ServerInfo,
)

SETTLE_TRIES = 5


class Client(Objects):
    """One repository of one server, as one user. Threads may share it."""

    # --- the server and the repository ----------------------------------------------------------------------

    def server(self) -> ServerInfo:
        config = self._to.ask("asking for its version", self._to.api.config_api.get_config)
        user = self._to.ask("asking who I am", self._to.api.auth_api.get_current_user).user.id
        version = config.version_config.version if config.version_config else None
        return ServerInfo(self.endpoint, version or "unknown", user, self._policies(user))

    def _policies(self, user: str) -> tuple[str, ...] | None:
        """Open-source lakeFS has one user and no policies, and a user may be forbidden to read its own."""
        try:
            found = self._to.ask(
                "listing the user's policies", self._to.api.auth_api.list_user_policies, user, effective=True
            )
        except StoreError:
            return None
        except NotFound:
            return None
        return tuple(policy.id for policy in found.results)

    def exists(self) -> bool:
        try:
            self._to.ask(self._doing("looking for"), self._to.api.repositories_api.get_repository, self.repository)
        except NotFound:
            return False
        return True

    def create(self, storage_namespace: str, default_branch: str = "main") -> None:
        """`AlreadyExists` if there is one of that name, or its storage is taken."""
        wanted = self._to.models.RepositoryCreation(
            name=self.repository, storage_namespace=storage_namespace, default_branch=default_branch
        )
        self._to.tell(self._doing("creating"), self._to.api.repositories_api.create_repository, wanted)

    def default_branch(self) -> str:
        doing = self._doing("reading")
        return str(self._to.ask(doing, self._to.api.repositories_api.get_repository, self.repository).default_branch)

    def protection(self) -> tuple[str, ...]:
        """The branch name patterns that only merges may change."""
        rules = self._to.ask(
            self._doing("reading the branch protection of"),
            self._to.api.repositories_api.get_branch_protection_rules,
            self.repository,
        )
        return tuple(rule.pattern for rule in rules)

    def set_protection(self, patterns: Iterable[str]) -> None:
        """Replace the patterns. The server takes seconds to act on it."""
        self._to.tell(
            self._doing("setting the branch protection of"),
            self._to.api.repositories_api.set_branch_protection_rules,
            self.repository,
            [self._to.models.BranchProtectionRule(pattern=pattern) for pattern in patterns],
        )

    # --- branches and tags ------------------------------------------------------------------------------------

    def branch(self, name: str) -> BranchInfo:
        doing = self._doing(f"reading branch {name} of")
        found = self._to.ask(doing, self._to.api.branches_api.get_branch, self.repository, name)
        return BranchInfo(found.id, found.commit_id)

    def find_branch(self, name: str) -> BranchInfo | None:
        try:
            return self.branch(name)
        except NotFound:
            return None

    def head(self, branch: str) -> str:
        return self.branch(branch).commit

    def branches(self, prefix: str = "") -> Iterator[BranchInfo]:
        """By name; hidden ones too."""
        doing = self._doing("listing the branches of")
        call = self._to.api.branches_api.list_branches
        for ref in self._pages(doing, call, self.repository, prefix=prefix, show_hidden=True):
            yield BranchInfo(ref.id, ref.commit_id)

    def create_branch(self, name: str, source: str, *, hidden: bool = False) -> None:
        """From a commit id or a branch's head; `AlreadyExists` if the name is taken."""
        wanted = self._to.models.BranchCreation(name=name, source=source, hidden=hidden)
        doing = self._doing(f"creating branch {name} in")
        self._to.tell(doing, self._to.api.branches_api.create_branch, self.repository, wanted)

    def delete_branch(self, name: str) -> bool:
        """False if there was none."""
        doing = self._doing(f"deleting branch {name} of")
        try:
            self._to.tell(doing, self._to.api.branches_api.delete_branch, self.repository, name)
        except NotFound:
            return False
        return True

    def hard_reset(self, branch: str, commit: str) -> None:
        """Point the branch at a commit. No hook runs, no head is compared: `fence="serial"` only."""
        doing = self._doing(f"resetting branch {branch} of")
        self._to.tell(doing, self._to.api.experimental_api.hard_reset_branch, self.repository, branch, commit)

    def find_tag(self, name: str) -> BranchInfo | None:
        doing = self._doing(f"reading tag {name} of")
        try:
            found = self._to.ask(doing, self._to.api.tags_api.get_tag, self.repository, name)
        except NotFound:
            return None
        return BranchInfo(found.id, found.commit_id)

    def tags(self, prefix: str = "") -> Iterator[BranchInfo]:
        doing = self._doing("listing the tags of")
        for ref in self._pages(doing, self._to.api.tags_api.list_tags, self.repository, prefix=prefix):
            yield BranchInfo(ref.id, ref.commit_id)

    def create_tag(self, name: str, commit: str) -> None:
        """`AlreadyExists` if the name is taken: a second name for a write-once fact."""
        wanted = self._to.models.TagCreation(id=name, ref=commit)
        self._to.tell(self._doing(f"creating tag {name} in"), self._to.api.tags_api.create_tag, self.repository, wanted)

    def delete_tag(self, name: str) -> bool:
        doing = self._doing(f"deleting tag {name} of")
        try:
            self._to.tell(doing, self._to.api.tags_api.delete_tag, self.repository, name)
        except NotFound:
            return False
        return True

    # --- history ----------------------------------------------------------------------------------------------

    def commit_info(self, ref: str) -> CommitInfo:
        """Of a commit id, a branch, a tag or `main~3`."""
        doing = self._doing(f"reading commit {ref} of")
        return _commit(self._to.ask(doing, self._to.api.commits_api.get_commit, self.repository, ref))

    def log(
        self, ref: str, *, stop_at: str | None = None, first_parent: bool = True, limit: int | None = None
    ) -> Iterator[CommitInfo]:
        """Newest first; ends behind `stop_at`, which is the last one given."""
        doing = self._doing(f"reading the log of {ref} of")
        call = self._to.api.refs_api.log_commits
        found = self._pages(doing, call, self.repository, ref, first_parent=first_parent, stop_at=stop_at)
        for commit in islice(found, limit):
            yield _commit(commit)

    def diff(self, left: str, right: str, prefix: str = "") -> Iterator[Change]:
        """What one must change in `left` to get `right`, by path."""
        doing = self._doing(f"comparing {left} and {right} of")
        call = self._to.api.refs_api.diff_refs
        for change in self._pages(doing, call, self.repository, left, right, type="two_dot", prefix=prefix):
            yield Change(change.path, ChangeKind(change.type), change.size_bytes)

    def uncommitted(self, branch: str, prefix: str = "") -> Iterator[Change]:
        """What is uploaded to or deleted on a branch and not committed."""
        doing = self._doing(f"reading the uncommitted changes of {branch} of")
        for change in self._pages(doing, self._to.api.branches_api.diff_branch, self.repository, branch, prefix=prefix):
            yield Change(change.path, ChangeKind(change.type), change.size_bytes)

    # --- commit and merge ---------------------------------------------------------------------------------------

    def commit(self, branch: str, message: str, metadata: Mapping[str, str] | None = None) -> CommitInfo:
        """What is uncommitted on the branch becomes its head; `NothingToCommit` if nothing is."""
        wanted = self._to.models.CommitCreation(message=message, metadata=dict(metadata or {}))
        doing = self._doing(f"committing {branch} of")
        return _commit(self._to.tell(doing, self._to.api.commits_api.commit, self.repository, branch, wanted))

    def merge(
        self,
        source: str,
        target: str,
        message: str,
        metadata: Mapping[str, str],
        *,
        squash: bool = True,
        allow_empty: bool = False,
        timeout: float | None = None,
    ) -> MergeOutcome:
        """Merge a branch into another: squashed, the new commit's only parent is the target's old head.

        Every ending is a value. Errors are raised only for what cannot be asked at all: the source or the target is
        gone (`NotFound`), the user may not (`AccessDenied`), the server was never reached (`StoreError`).
        """
        wanted = self._to.models.Merge(
            message=message, metadata=dict(metadata), squash_merge=squash, allow_empty=allow_empty
        )
        doing = self._doing(f"merging {source} into {target} of")
        call = self._to.api.refs_api.merge_into_branch
        try:
            answer = self._to.tell(doing, call, self.repository, source, target, wanted, timeout=timeout)
        except RefusedByHook as error:
            return MergeOutcome(MergeEnd.REFUSED, why=error.message)
        except AlreadyExists as error:
            return MergeOutcome(MergeEnd.CONFLICT, why=error.message)
        except NothingToCommit as error:
            return MergeOutcome(MergeEnd.UNCHANGED, why=error.message)
        except DirtyBranch as error:
            return MergeOutcome(MergeEnd.DIRTY, why=error.message)
        except OutcomeUnknown as error:
            return MergeOutcome(MergeEnd.UNKNOWN, why=error.message)
        except StoreError as error:
            if error.context.get("status") == 429:
                return MergeOutcome(MergeEnd.BUSY, why=error.message)
            raise
        return MergeOutcome(MergeEnd.MERGED, commit=str(answer.reference))

    def settle_merges(self, target: str) -> None:
        """After this, no merge whose source branch was deleted before can still land on the target.

        The server may have looked up a merge's source already, and only be about to move the target. It does that only
        if the target's record is still the one it read, and every merge begins by writing that record anew: so does
        this one, which has nothing to merge. A merge that was under way is decided again, and finds no source.
        """
        for _ in range(SETTLE_TRIES):
            outcome = self.merge(self.head(target), target, "Settle", {})
            if outcome.end is MergeEnd.UNCHANGED:
                return
            if outcome.end not in (MergeEnd.BUSY, MergeEnd.UNKNOWN):
                break
        raise StoreError(f"merges into {target} of {self.repository} cannot be settled: {outcome.why}")


def _commit(found: Any) -> CommitInfo:
    return CommitInfo(
        id=found.id,
        parents=tuple(found.parents),
        message=found.message,
        committer=found.committer,
        time=found.creation_date,
        tree=found.meta_range_id,
        metadata=dict(found.metadata or {}),
        generation=found.generation or 0,
    )

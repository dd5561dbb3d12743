"""Merge and revert: transactions whose content comes from commits that exist already."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass

from fenceline.errors import ContractError, MergeConflict, NotFound, PublishConflict
from fenceline.repo.merge import Strategy, merge
from fenceline.repo.model import Commit, Entry, Side
from fenceline.repo.native.repository import NativeRepository
from fenceline.txn.branches import RefAdmin
from fenceline.txn.intent import DEFAULT_LEASE, IntentStore
from fenceline.txn.transaction import Transaction, TransactionResult

TRIES = 5


@dataclass(frozen=True, slots=True)
class Resolved:
    """What was decided by someone who knows more of some files than their paths."""

    paths: frozenset[str] = frozenset()
    conflicts: tuple[object, ...] = ()
    apply: Callable[[Transaction], None] = lambda tx: None
    """Writes the result of those paths."""


Resolve = Callable[[Commit | None, Commit, Commit, Strategy | None], Resolved]
"""Looks at a merge first: base, ours, theirs. Nothing is written before it is known that there is no conflict."""


def by_paths(*_: object) -> Resolved:
    """Nobody knows more."""
    return Resolved()


@dataclass(frozen=True, slots=True)
class Combiner:
    """Merges and reverts on a repository."""

    repo: NativeRepository
    intents: IntentStore
    refs: RefAdmin
    lease: float = DEFAULT_LEASE
    resolve: Resolve = by_paths

    def merge(
        self, source: str, into: str, actor: str, message: str, strategy: Strategy | None, key: str | None = None
    ) -> TransactionResult:
        """Bring a ref's changes since the common ancestor into a branch, as one commit with two parents."""
        if strategy not in (None, "ours", "theirs"):
            raise ContractError(
                f"strategy is {strategy!r}", hint="use 'ours' or 'theirs', or none to see the conflicts"
            )
        theirs = self.refs.published(self.repo.resolve(source))
        for attempt in range(TRIES):
            tx = self._begin(into, "merge", actor, message or f"Merge {source} into {into}", theirs, key)
            try:
                with tx:
                    if not tx.already_applied:
                        self._bring_in(tx, theirs, source, into, strategy)
            except PublishConflict:  # the branch moved in between: merge again with its new head
                if attempt == TRIES - 1:
                    raise
            else:
                return tx.result
        raise AssertionError("unreachable")

    def _bring_in(self, tx: Transaction, theirs: Commit, source: str, into: str, strategy: Strategy | None) -> None:
        base = self.repo.merge_base(tx.input, theirs)
        if base is not None and base.id == theirs.id:
            return  # nothing to bring in
        edits, resolved, conflicts = self._combined(base, tx.input, theirs, f"{tx.execution}-merge", strategy)
        if conflicts:
            what = "path(s)" if not resolved.conflicts else "path(s) and row(s)"
            raise MergeConflict(
                f"{source} and {into} both changed {len(conflicts)} {what}: "
                + "; ".join(str(c) for c in conflicts[:10]),
                conflicts=conflicts,
                hint="merge with strategy 'ours' or 'theirs', or make the change on one side and merge again",
            )
        tx.apply(edits.items())
        resolved.apply(tx)

    def _combined(
        self, base: Commit | None, ours: Commit, theirs: Commit, job: str, strategy: Strategy | None
    ) -> tuple[dict[str, Entry | None], Resolved, list[object]]:
        resolved = self.resolve(base, ours, theirs, strategy)

        def others(side: Commit) -> Iterator[Side]:
            return (each for each in self.repo.diff(base, side) if each.path not in resolved.paths)

        edits, conflicts = merge(others(ours), others(theirs), job, strategy)
        return edits, resolved, [*resolved.conflicts, *conflicts]

    def revert(self, ref: str, branch: str, actor: str, message: str) -> TransactionResult:
        """Undo what one commit changed, as a new commit on top of the branch."""
        commit = self.refs.published(self.repo.resolve(ref))
        if not commit.parents:
            raise ContractError(f"{ref} is the first commit", hint="it changed nothing that could be undone")
        if not any(c.id == commit.id for c in self.repo.history([self.repo.head(branch).commit])):
            raise NotFound(f"commit {commit.id[:12]} is not in the history of {branch}", hint=f"fenceline log {branch}")
        parent = self.repo.commit(commit.parents[0])
        tx = self._begin(branch, "revert", actor, message or f"Revert {commit.id[:12]}: {commit.message}", parent)
        edits, resolved, conflicts = self._combined(commit, tx.input, parent, f"{tx.execution}-revert", None)
        if conflicts:
            what = "the same paths" if not resolved.conflicts else "the same paths or rows, or depend on them"
            raise MergeConflict(
                f"{commit.id[:12]} cannot be undone: later commits changed {what}: "
                + "; ".join(str(c) for c in conflicts[:10]),
                conflicts=conflicts,
                hint="revert the later commits first, or write the content you want",
            )
        with tx:
            if edits:
                tx.apply(edits.items())
            resolved.apply(tx)
        return tx.result

    def _begin(
        self, branch: str, kind: str, actor: str, message: str, source: Commit, key: str | None = None
    ) -> Transaction:
        return Transaction(
            self.repo,
            self.intents,
            branch,
            actor=actor,
            key=key,
            message=message,
            kind=kind,
            pins=[source],
            merging=source if kind == "merge" else None,
            lease=self.lease,
        )

"""Merging one line of work into another on lakeFS: fenced by the head, and applied once for a key."""

from __future__ import annotations

from fenceline import failpoints
from fenceline.errors import ConflictError, MergeConflict, Outcome
from fenceline.repo.lakefs import hook
from fenceline.repo.lakefs.notes import KEY
from fenceline.repo.lakefs.repository import LakeRepository
from fenceline.repo.lakefs.values import MergeEnd
from fenceline.repo.model import Commit
from fenceline.txn.lakefs.explain import never_settled, not_merged
from fenceline.txn.lakefs.staging import TRIES
from fenceline.txn.transaction import TransactionResult

APPLIED = "key"
"""Of a commit's metadata: the key that a merge was applied with."""

COMBINE = failpoints.effect(
    "lakefs.combine",
    "the merge of a run's branch, or of one that a person names",
    before="nothing happened: the same merge can be asked for again",
    after="merged: asked for again with its key, it is adopted",
)


def merge(repo: LakeRepository, source: str, into: str, actor: str, message: str, key: str | None) -> TransactionResult:
    """One commit with two parents. The same key never applies twice on a branch."""
    made = repo.resolve(source)
    hook.require(repo.client, repo.client.repository, made.id)
    execution = repo.seams.ids.execution()
    told = {KEY + "actor": actor, KEY + "by": execution} | ({KEY + APPLIED: key} if key else {})
    for attempt in range(1, TRIES * TRIES):
        head = repo.head(into).commit
        done = _applied(repo, head, made, key, execution)
        if done is not None:
            ours = done.metadata.get(KEY + "by") == execution
            return TransactionResult(Outcome.APPLIED, "merge" if ours else "adopt", done.id, done.depth, execution)
        fenced = told | {hook.EXPECTED_HEAD: head.id, hook.STAGED: made.id}
        with COMBINE:
            ended = repo.client.merge(made.id, into, message or f"Merge {source} into {into}", fenced, squash=False)
        if ended.end is MergeEnd.MERGED:
            commit = repo.commit(ended.commit or "")
            return TransactionResult(Outcome.APPLIED, "merge", commit.id, commit.depth, execution)
        if ended.end not in (MergeEnd.UNKNOWN, MergeEnd.BUSY) and repo.client.head(into) == head.id:
            if ended.end is MergeEnd.UNCHANGED:
                return TransactionResult(Outcome.APPLIED, "noop", head.id, head.depth, execution)
            if ended.end is MergeEnd.CONFLICT:
                raise MergeConflict(
                    f"{source} and {into} both changed the same files",
                    conflicts=[ended.why],
                    hint=f"lakectl diff {repo.url}/{into} {repo.url}/{source} lists them",
                )
            raise not_merged(into, source, ended)
        repo.seams.clock.sleep(min(0.01 * 2**attempt, 1.0) * repo.seams.random.random())
    raise never_settled(into, execution)


def _applied(repo: LakeRepository, head: Commit, made: Commit, key: str | None, execution: str) -> Commit | None:
    """The commit on the branch that carries this key, or that this very call made: it has `made` behind it."""
    for commit in repo.line(head):
        if commit.depth <= made.depth:
            return None
        told = commit.metadata
        if (key is not None and told.get(KEY + APPLIED) == key) or told.get(KEY + "by") == execution:
            return commit
    return None


def reset(repo: LakeRepository, branch: str, target: str, expected: str | None) -> None:
    """Point a branch that only its run writes at a commit. No hook fences it: nobody else may be at work there."""
    head = repo.head(branch).commit
    if expected is not None and head.id != expected:
        raise ConflictError(f"{branch} is at {head.id[:12]}, not at {expected[:12]}", hint="look again: it moved")
    repo.client.hard_reset(branch, target)

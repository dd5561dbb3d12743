"""Confirm on lakeFS: read the line, decide, fence, one squash merge that the server refuses on any other head.

The table is the native store's (`txn/decide.py`). What differs is where its facts come from: the log of a branch is its
first-parent line, and an entry is a commit's metadata.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any, Literal

from fenceline import failpoints
from fenceline.errors import FencelineError, NotFound, OutcomeUnknown, StoreError
from fenceline.repo.lakefs.hook import ACTIONS
from fenceline.repo.lakefs.notes import entry_of, note_of, parse_staging, step_prefix, txn_mark
from fenceline.repo.lakefs.repository import LakeRepository
from fenceline.repo.lakefs.values import MergeEnd
from fenceline.repo.model import Commit
from fenceline.repo.pathset import PathSet
from fenceline.txn.decide import Decision, Line, LineCommit, Me, decide
from fenceline.txn.intent import Record
from fenceline.txn.lakefs.explain import conflict, never_settled, not_merged, refusal_of_step, replace_refused
from fenceline.txn.lakefs.records import keep
from fenceline.txn.lakefs.staging import TRIES, UNSTAGE, Staged, fenced

MERGE = failpoints.effect(
    "lakefs.merge",
    "the squash merge of the staging branch: the publication",
    before="sealed: the next attempt of the step publishes it without running the body",
    after="published: the next attempt adopts it, and the sweep deletes the staging branch",
)
RESET = failpoints.effect(
    "lakefs.reset",
    "the hard reset of a branch with fence='serial'",
    before="sealed: the next attempt of the step decides again",
    after="published: the next attempt adopts it, and the sweep deletes the staging branch",
)

Op = Literal["publish", "relocate", "adopt", "noop", "report"]


@dataclass(frozen=True, slots=True)
class Turn:
    """Whose turn it is, and on what."""

    execution: str
    actor: str
    branch: str
    input: Commit
    step: str
    """Empty for a direct transaction, as is the attempt; its txn is empty too where it has no key."""
    txn: str
    attempt: str
    rebase: bool
    serial: bool
    fence: Callable[[], None]
    """The attempt fence (R2)."""
    earlier: Commit | None = None
    """With a key: the commit at or before the input that carries it."""


@dataclass(frozen=True, slots=True)
class Outcome:
    """What the step reports."""

    op: Op
    output: str
    result: Any
    execution: str | None
    """The execution whose commit the output is; None for a no-op."""


def look_back(repo: LakeRepository, turn: Turn) -> Decision:
    """Decide before the body runs, with nothing staged: `report`, `adopt` and `fail` are final already."""
    decision, head = _judge(repo, turn, None, None)
    if decision.answer == "fail":
        raise refusal(repo, turn, decision, head, ())
    if decision.answer == "relocate" and not turn.serial:
        raise replace_refused(turn.branch, turn.input.id, head)
    return decision


def resumable(repo: LakeRepository, turn: Turn) -> Staged | None:
    """A sealed staging branch of this txn: its body need not run again, whether its owner is dead or only slow."""
    for ref in repo.client.branches(step_prefix(turn.branch, turn.step) + txn_mark(turn.txn)):
        name = parse_staging(ref.name)
        found = repo.client.commit_info(ref.commit)
        note = note_of(found)
        if name and note and note.execution == name.execution and note.txn == turn.txn:
            return Staged(ref.name, found.id, note, found.message)
    return None


def confirm(
    repo: LakeRepository,
    turn: Turn,
    staged: Staged | None,
    result: Any,
    reads: PathSet,
    *,
    only_adopt: bool = False,
) -> Outcome:
    """Section 4 of the protocol. Raises where it fails closed; what was sealed then stays for the next attempt."""
    overlap = _Overlap(repo, turn.input, staged, PathSet(staged.note.reads) if staged else reads)
    unsettled = 0
    while True:
        decision, head = _judge(repo, turn, staged, overlap)
        if decision.answer == "fail" and staged is not None and not turn.step and head is not None:
            done = published(repo, turn, staged.note.execution, head)
            if done is not None:  # a lost answer, or a sweep was faster
                return Outcome("report", done.id, done.result, done.execution)
        if decision.answer == "fail" or head is None:
            raise refusal(repo, turn, decision, head, overlap.all_paths)
        if only_adopt and decision.answer not in ("adopt", "report"):
            moved = replace(decision, answer="fail", why="the outcome to adopt was moved away meanwhile", in_the_way=())
            raise refusal(repo, turn, moved, head, ())
        if decision.answer == "relocate" and not turn.serial:
            raise replace_refused(turn.branch, turn.input.id, head)
        if decision.answer == "report" or (decision.answer == "adopt" and not turn.step):
            return _told(repo, decision, "report" if decision.answer == "report" else "adopt")
        turn.fence()  # R2: after the decision, before every write
        if decision.answer in ("adopt", "noop"):
            _fence_others(repo, turn)
            if repo.client.head(turn.branch) != head.id:  # someone was faster than the fence
                continue
            return (
                _told(repo, decision, "adopt")
                if decision.answer == "adopt"
                else Outcome("noop", decision.output or turn.input.id, result, None)
            )
        if decision.answer == "relocate":
            outcome = _reset(repo, turn, staged, decision, result)
        else:
            assert staged is not None
            outcome = _merge(repo, turn, staged, head)
        if outcome is not None:
            return outcome
        unsettled += 1
        if unsettled > TRIES * TRIES:
            raise never_settled(turn.branch, turn.execution)
        repo.seams.clock.sleep(min(0.01 * 2**unsettled, 1.0) * repo.seams.random.random())


def refusal(
    repo: LakeRepository, turn: Turn, decision: Decision, head: Commit | None, paths: Sequence[str]
) -> FencelineError:
    """A step's is a fence; a direct transaction's carries both heads, and may be begun again."""
    if not turn.step and head is not None and decision.in_the_way:
        return conflict(turn.branch, turn.input, head, turn.rebase, paths)
    return refusal_of_step(repo, turn.branch, turn.input, decision, head, turn.rebase, paths)


def _told(repo: LakeRepository, decision: Decision, op: Op) -> Outcome:
    commit = repo.commit(decision.output or "")
    return Outcome(op, commit.id, commit.result, commit.execution or None)


def _judge(
    repo: LakeRepository, turn: Turn, staged: Staged | None, overlap: _Overlap | None
) -> tuple[Decision, Commit | None]:
    me = Me(
        input=turn.input.id,
        base=0,
        step=turn.step or None,
        txn=turn.txn or None,
        attempt=turn.attempt or None,
        staged=staged.note.execution if staged else None,
        rebase=turn.rebase,
        serial=turn.serial,
    )
    found = repo.find_head(turn.branch)
    if found is None:
        return decide([], Line(False, None, frozenset()), me), None
    after = repo.line_since(found.commit, turn.input)

    def disjoint(commit: Commit) -> bool:
        return overlap is None or (turn.rebase and not overlap.paths(commit))

    commits = tuple(LineCommit(c.id, c.parents, c.step, c.txn, disjoint(c)) for c in after or ())
    known = [*filter(None, [turn.earlier]), *(c for c in after or () if c.step or c.txn)]
    standing = frozenset({turn.input.id, *(c.id for c in after or ()), *(c.id for c in known)})
    line = Line(True, None if after is None else commits, standing)
    return decide([entry_of(c) for c in known], line, me), found.commit


def published(repo: LakeRepository, turn: Turn, execution: str, head: Commit) -> Commit | None:
    """The commit behind the input that publishes an execution."""
    after = repo.line_since(head, turn.input)
    return next((commit for commit in after or () if commit.execution == execution), None)


def _merge(repo: LakeRepository, turn: Turn, staged: Staged, head: Commit) -> Outcome | None:
    """None where the log must decide: the head moved, the answer was lost, or the branch is gone."""
    note = replace(staged.note, attempt=turn.attempt, by=turn.execution, actor=turn.actor)
    try:
        with MERGE:
            ended = repo.client.merge(
                staged.branch, turn.branch, staged.message, note.to_metadata(head.id, staged.commit)
            )
    except NotFound:
        _check_branches(repo, turn, staged)
        return None
    if ended.end is MergeEnd.MERGED:
        return Outcome("publish", ended.commit or "", note.result, note.execution)
    if ended.end in (MergeEnd.UNKNOWN, MergeEnd.BUSY):
        return None  # settled by reading the line for this execution (INV-3); absent: the same merge again
    if repo.client.head(turn.branch) != head.id:
        return None  # lost: decide again on the new head
    raise not_merged(turn.branch, staged.branch, ended)


def _check_branches(repo: LakeRepository, turn: Turn, staged: Staged) -> None:
    """Raise if the staging branch was deleted without being published: that is the fence."""
    if repo.client.find_branch(staged.branch) is not None:
        return
    head = repo.find_head(turn.branch)
    if head is None or published(repo, turn, staged.note.execution, head.commit) is None:
        raise fenced(staged.note.execution)


def _reset(repo: LakeRepository, turn: Turn, staged: Staged | None, decision: Decision, result: Any) -> Outcome | None:
    """`fence="serial"` only: no hook runs and no head is compared."""
    target = staged.commit if staged else decision.parent or ""
    try:
        with RESET:
            repo.client.hard_reset(turn.branch, target)
    except OutcomeUnknown:
        return None
    if staged is None:
        return Outcome("relocate", decision.output or target, result, None)
    return Outcome("relocate", target, staged.note.result, staged.note.execution)


def _fence_others(repo: LakeRepository, turn: Turn) -> None:
    """What moves nothing cannot be refused by a head: every staging branch of the step goes first (R3)."""
    any_deleted = False
    for ref in repo.client.branches(step_prefix(turn.branch, turn.step)):
        name = parse_staging(ref.name)
        if name is None or name.execution == turn.execution:
            continue
        try:
            with UNSTAGE:
                deleted = repo.client.delete_branch(ref.name)
        except OutcomeUnknown as error:
            if repo.client.find_branch(ref.name) is not None:
                raise StoreError(
                    f"{ref.name} could not be fenced: {error.message}", hint="the next attempt does it"
                ) from error
            deleted = True
        any_deleted = True
        if deleted:
            keep(repo.client, fence_record(repo, turn.branch, name.execution, turn, "its step has another outcome"))
    if any_deleted:
        repo.client.settle_merges(turn.branch)  # one that the server had begun must not land after the head is read


def fence_record(repo: LakeRepository, branch: str, execution: str, turn: Turn, why: str) -> Record:
    now = repo.seams.clock.now()
    return Record(execution, "rolled_back", branch, turn.actor, turn.execution, now, why=why)


class _Overlap:
    """What the attempt read and wrote, and which of it a commit behind its input changed."""

    def __init__(self, repo: LakeRepository, start: Commit, staged: Staged | None, reads: PathSet) -> None:
        self._repo, self._start, self._staged, self._reads = repo, start, staged, reads
        self._known: dict[str, list[str]] = {}

    @cached_property
    def _written(self) -> PathSet:
        if self._staged is None:
            return PathSet()
        return PathSet(self._repo.changed_paths(self._start, self._repo.commit(self._staged.commit)))

    def paths(self, commit: Commit) -> list[str]:
        """The paths that the commit changed and the attempt touched."""
        if commit.id not in self._known:
            if not commit.parents:
                raise FencelineError(f"commit {commit.id} behind the input has no parent")
            changed = self._repo.changed_paths(self._repo.commit(commit.parents[0]), commit)
            self._known[commit.id] = [path for path in changed if self._touches(path)]
        return self._known[commit.id]

    def _touches(self, path: str) -> bool:
        if path.startswith(ACTIONS):  # no workspace shows the hooks
            return False
        return self._reads.overlaps(path) or self._written.overlaps(path)

    @property
    def all_paths(self) -> tuple[str, ...]:
        return tuple(sorted({path for paths in self._known.values() for path in paths}))

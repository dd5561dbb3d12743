"""Confirm: read the log, decide, write one conditional entry; again if the write was lost."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any

from fenceline.errors import FencelineError, ObjectDamaged, ObjectMissing
from fenceline.repo.merge import Unit, merge, merge_datasets
from fenceline.repo.model import MOVES, Commit, Head, Op, RefEntry
from fenceline.repo.pathset import PathSet
from fenceline.repo.port import Repository
from fenceline.txn.decide import Decision, Line, LineCommit, Me, decide
from fenceline.txn.intent import Intent, IntentStore, Verdict


@dataclass(frozen=True, slots=True)
class Candidate:
    """Something to publish, and everything Confirm needs for it: by its owner, by a retry, or by a sweep."""

    intent: Intent
    """Whose turn it is: branch, input, base, and for a task's attempt also step, txn and attempt."""
    verdict: Verdict | None
    """What was sealed; None for an attempt that changed nothing."""
    by: str
    actor: str
    owner: bool
    """By its own execution, which may merge appends to one dataset. Nobody else can validate them."""
    staged: str | None = None
    """The execution that was sealed, where it is not the intent's own: a retry resumes it."""
    reads: tuple[str, ...] = ()
    """What an attempt that changed nothing has read."""
    result: Any = None
    """What a step reports; goes into the entry."""
    serial: bool = False
    attempt_fence: Callable[[], None] = lambda: None
    """Raises when the orchestrator has given the attempt up (R2)."""
    only_adopt: bool = False
    """Nothing was run: an earlier outcome is to be adopted or reported, and anything else is a refusal."""

    @property
    def execution(self) -> str | None:
        return None if self.verdict is None else self.staged or self.intent.execution


@dataclass(frozen=True, slots=True)
class Refused:
    """Confirm failed closed."""

    decision: Decision
    head: Head | None


@dataclass(frozen=True, slots=True)
class Confirmed:
    """The entry that carries the outcome, and what the transaction reports."""

    entry: RefEntry
    output: str
    adopted: bool
    result: Any = None


def look_back(repo: Repository, intents: IntentStore, intent: Intent) -> Confirmed | Refused | None:
    """What the log says of a key before anything is staged; None if it was never applied."""
    known = _known(repo, intents, intent)
    if not known.earlier:
        return None
    return _early(repo, intent, *_judge(repo, intent, known, None))


def look_back_step(
    repo: Repository, intents: IntentStore, intent: Intent, serial: bool
) -> tuple[Decision, Head | None]:
    """Decide for a step before its body runs, with nothing staged: `report`, `adopt` and `fail` are final already."""
    return _judge(repo, intent, _known(repo, intents, intent), None, serial)


def _early(repo: Repository, intent: Intent, decision: Decision, head: Head | None) -> Confirmed | Refused | None:
    if decision.answer == "adopt":
        return _adopted(repo, intent, decision)
    return Refused(decision, head) if decision.answer == "fail" else None


def foresee(repo: Repository, intents: IntentStore, candidate: Candidate) -> Confirmed | Refused | None:
    """Decide once before sealing: what is refused or adopted already now can still be aborted without a fence entry."""
    known = _known(repo, intents, candidate.intent)
    return _early(repo, candidate.intent, *_judge(repo, candidate.intent, known, Overlap(repo, candidate)))


def confirm(repo: Repository, intents: IntentStore, candidate: Candidate) -> Confirmed | Refused:
    """Section 4 of the protocol: read the log, decide, fence, write one entry; again if the write was lost.

    The caller has sealed what it wants to publish; nothing of it is visible before the entry stands.
    """
    intent = candidate.intent
    known = _known(repo, intents, intent)
    overlap = Overlap(repo, candidate)
    contention = 0
    while True:
        decision, head = _judge(repo, intent, known, overlap, candidate.serial)
        if decision.answer == "fail" or head is None:
            return Refused(decision, head)
        if candidate.only_adopt and decision.answer not in ("adopt", "report"):
            return Refused(replace(decision, answer="fail", why="the outcome to adopt was moved away meanwhile"), head)
        if decision.answer == "report" or (decision.answer == "adopt" and intent.step is None):
            return _adopted(repo, intent, decision)
        candidate.attempt_fence()  # R2: after the decision, before every write
        entry = _entry(repo, candidate, decision, head)
        if decision.answer == "relocate":  # its parent may be an old commit (D3)
            repo.refuse_condemned([decision.parent or ""])
        if repo.branch_log.append(intent.branch, entry):
            return Confirmed(entry, entry.output or "", decision.answer == "adopt", entry.result)
        contention += 1
        repo.seams.clock.sleep(min(0.001 * 2**contention, 0.1) * repo.seams.random.random())


def _entry(repo: Repository, candidate: Candidate, decision: Decision, head: Head) -> RefEntry:
    """The entry that a decision calls for."""
    intent = candidate.intent
    commit, output, result = head.commit.id, decision.output, candidate.result
    if decision.answer == "adopt":
        result = decision.entry.result if decision.entry else repo.commit(output or "").result
    elif decision.answer == "relocate" and output is not None:
        commit = decision.parent or ""  # a no-op over its own abandoned publication: back to what was below it
    elif decision.answer in ("publish", "relocate"):
        commit = output = _on_parent(repo, candidate, repo.commit(decision.parent or "")).id
    verdict = candidate.verdict
    op = Op(verdict.op) if decision.answer == "publish" and verdict else Op(decision.answer)
    return RefEntry(
        seq=head.seq + 1,
        op=op,
        commit=commit,
        output=output,
        execution=candidate.execution if op in MOVES else None,
        step=intent.step,
        txn=intent.txn,
        attempt=intent.attempt,
        by=candidate.by,
        actor=candidate.actor,
        time=repo.seams.clock.now(),
        result=result,
    )


def settle(repo: Repository, intent: Intent) -> RefEntry | None:
    """The entry that decided an execution: the move that published it, or the fence; None while it is open."""
    return _decided_upto(repo, intent, repo.branch_log.last(intent.branch))


def _decided_upto(repo: Repository, intent: Intent, last: RefEntry | None) -> RefEntry | None:
    entries = repo.branch_log.entries(intent.branch, intent.base, last.seq if last else 0)
    return next((e for e in entries if e.execution == intent.execution and e.op in MOVES | {Op.FENCE}), None)


def fence(repo: Repository, intent: Intent, by: str, actor: str, why: str) -> RefEntry:
    """Append the entry after which the execution can never be published, unless it is decided already (D2)."""
    while True:
        last = repo.branch_log.last(intent.branch)  # read once: the fence must follow the very entry we looked up to
        decided = _decided_upto(repo, intent, last)
        if decided is not None:
            repo.branch_log.make_durable(intent.branch, decided.seq)
            return decided
        if last is None:
            raise ObjectDamaged(f"branch {intent.branch} has no entries, yet an intent names it", address=intent.branch)
        entry = RefEntry(
            last.seq + 1,
            Op.FENCE,
            last.commit,
            by=by,
            actor=actor,
            time=repo.seams.clock.now(),
            execution=intent.execution,
            note=why,
        )
        if repo.branch_log.append(intent.branch, entry):
            return entry


def earlier_moves(repo: Repository, intents: IntentStore, intent: Intent) -> list[RefEntry]:
    """The moves that carried this transaction's key before its base.

    Every execution leaves its verdict under the key's txn before it can publish, and verdicts are never removed (D4).
    So this list, read after our own verdict, misses only those whose entry comes after our base, and those are in the
    log that Confirm reads anyway. The cost follows the number of executions that used the key, not the log.
    """
    found = []
    for execution, verdict in intents.verdicts_of(intent.txn, intent.execution) if intent.txn else ():
        if verdict.verdict == "aborted":
            continue
        other = intents.find(execution)
        record = intents.record(execution)
        if record is not None:
            if record.kind in ("published", "rolled_forward") and record.entry is not None:
                found.append(repo.branch_log.entry(intent.branch, record.entry))
        elif other is not None:
            decided = settle(repo, other)
            if decided is not None and decided.op in MOVES:
                found.append(decided)
    return sorted((e for e in found if e.seq <= intent.base), key=lambda e: e.seq)


def _adopted(repo: Repository, intent: Intent, decision: Decision) -> Confirmed:
    assert decision.entry is not None
    assert decision.output is not None
    repo.branch_log.make_durable(intent.branch, decision.entry.seq)  # before it is reported (INV-6)
    return Confirmed(decision.entry, decision.output, decision.answer == "adopt", decision.entry.result)


@dataclass(frozen=True, slots=True)
class _Known:
    """What of the log must be read besides what comes after the base."""

    earlier: Sequence[RefEntry]
    """With a key: the moves that carried it before."""
    since: int
    """The number behind which the log is read."""


def _known(repo: Repository, intents: IntentStore, intent: Intent) -> _Known:
    if intent.step is None:
        return _Known(earlier_moves(repo, intents, intent), intent.base)
    return _Known((), _became_head(repo, intents, intent) - 1)


def _became_head(repo: Repository, intents: IntentStore, intent: Intent) -> int:
    """The number of the entry with which a step's input first became head: its outcomes cannot be older."""
    record = intents.record(repo.commit(intent.input).execution)
    if record is not None and record.branch == intent.branch and record.commit == intent.input and record.entry:
        return record.entry
    entries = repo.branch_log.entries(intent.branch, 0, intent.base)
    return next((e.seq for e in entries if e.commit == intent.input), 1)


def _judge(
    repo: Repository, intent: Intent, known: _Known, overlap: Overlap | None, serial: bool = False
) -> tuple[Decision, Head | None]:
    """Read what the decision needs, and decide. Without an overlap: look-back, where nothing is staged yet."""
    last = repo.branch_log.last(intent.branch)
    earlier, since = known.earlier, repo.branch_log.entries(intent.branch, known.since, last.seq if last else 0)
    head = repo.head_at(intent.branch, last)
    me = Me(
        input=intent.input,
        base=intent.base,
        step=intent.step,
        txn=intent.txn,
        attempt=intent.attempt,
        staged=overlap.execution if overlap else None,
        rebase=intent.rebase,
        serial=serial,
    )
    if head is None:
        return decide([*earlier, *since], Line(False, None, frozenset()), me), None
    outputs = {e.output for e in (*earlier, *since) if e.output and _mine(e, intent)}
    standing = frozenset(output for output in outputs if repo.stands(output, head.commit))
    lost = [e.seq for e in earlier if e.output not in standing]
    if lost:  # what moved it away lies between it and our base: read that too, so that the answer can name it
        earlier = repo.branch_log.entries(intent.branch, min(lost) - 1, intent.base)
    after = repo.line_since(head.commit, repo.commit(intent.input))
    commits = (LineCommit(c.id, c.parents, c.step, c.txn, _disjoint(intent, overlap, c)) for c in after or ())
    line = Line(True, None if after is None else tuple(commits), standing)
    return decide([*earlier, *since], line, me), head


def _mine(entry: RefEntry, intent: Intent) -> bool:
    return (intent.txn is not None and entry.txn == intent.txn) or (
        intent.step is not None and entry.step == intent.step
    )


def _disjoint(intent: Intent, overlap: Overlap | None, commit: Commit) -> bool:
    return overlap is None or (intent.rebase and not overlap.paths(commit))


class Overlap:
    """What a candidate read and wrote, and which of it a commit behind its input changed."""

    def __init__(self, repo: Repository, candidate: Candidate) -> None:
        self._repo = repo
        self._candidate = candidate
        self._known: dict[str, list[str]] = {}

    @property
    def execution(self) -> str | None:
        return self._candidate.execution

    @cached_property
    def _writes(self) -> dict[str, Unit]:
        if self._candidate.verdict is None:
            return {}
        start = self._repo.commit(self._candidate.intent.input)
        staged = self._repo.commit(self._candidate.verdict.commit or "")
        return {unit.path: unit for unit in self._repo.changes(start, staged)}

    @cached_property
    def _written(self) -> PathSet:
        return PathSet(self._writes)

    @cached_property
    def _reads(self) -> PathSet:
        verdict = self._candidate.verdict
        return PathSet(self._candidate.reads if verdict is None else verdict.reads)

    def paths(self, commit: Commit) -> list[str]:
        """The paths that the commit changed and the candidate touched."""
        if commit.id not in self._known:
            self._known[commit.id] = self._touched_by(commit)
        return self._known[commit.id]

    def _touched_by(self, commit: Commit) -> list[str]:
        parent = self._repo.commit(commit.parents[0]) if commit.parents else None
        try:
            return [unit.path for unit in self._repo.changes(parent, commit) if self._touches(unit)]
        except ObjectMissing:
            if self._repo.expired([commit.id, *commit.parents[:1]]):
                return ["(unknown: its content was given up by gc)"]  # fail closed
            raise

    def _touches(self, theirs: Unit) -> bool:
        if self._reads.overlaps(theirs.path):
            return True
        ours = self._writes.get(theirs.path)
        if self._candidate.owner and ours is not None and ours.is_dataset and theirs.is_dataset:
            # two appends, or overwrites of different partitions, go together; only the owner may say so
            return merge_datasets(theirs, ours, "")[1] is not None
        return self._written.overlaps(theirs.path)


def _on_parent(repo: Repository, candidate: Candidate, parent: Commit) -> Commit:
    """The staged commit, or the same content on a new head.

    What a rebase writes goes under the staged execution's id and fresh names, so that an owner and several sweeps
    doing it at once never share an object; the log lets one of them through (R5).
    """
    assert candidate.verdict is not None
    staged = repo.commit(candidate.verdict.commit or "")
    start = repo.commit(candidate.intent.input)
    if parent.id == start.id:
        return staged
    staging = repo.staging(staged.execution)
    edits, conflicts = merge(repo.diff(start, parent), repo.diff(start, staged), job=f"{staged.execution}-rebase")
    if conflicts:
        raise FencelineError(f"rebase of {staged.id} conflicts although the decision allowed it: {conflicts}")
    values = {name: getattr(staged, name) for name in Commit.__slots__ if name not in ("id", "execution")}
    values.update(
        parents=(parent.id, *staged.parents[1:]),
        depth=1 + max(parent.depth, *(repo.commit(other).depth for other in staged.parents)),
        tree=staging.edit(parent.tree, edits),
    )
    rebased = staging.commit(**values)
    staging.persist()
    return rebased

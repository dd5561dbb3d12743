"""The terminal record that durable facts call for: the same whoever writes it, so it does not matter who is first."""

from __future__ import annotations

from fenceline.errors import NotFound, ObjectDamaged, ObjectMissing
from fenceline.repo.model import Op, RefEntry
from fenceline.repo.native.pinned import SUFFIX
from fenceline.repo.port import Repository
from fenceline.txn.intent import EndKind, Intent, Record, Verdict


def end_record(repo: Repository, intent: Intent, decided: RefEntry, by: str, verdict: Verdict) -> Record:
    """For an execution that an entry decided. Fenced data is deleted first (D1)."""
    kind: EndKind = "published" if decided.by == intent.execution else "rolled_forward"
    commit = decided.commit
    if decided.op is Op.FENCE:
        kind, commit = "rolled_back", None
    tables = {} if kind == "published" else dict.fromkeys(_tables(repo, verdict), kind)
    if decided.op is Op.FENCE:
        repo.discard(intent.execution, verdict.datasets)
    now = repo.seams.clock.now()
    return Record(
        intent.execution,
        kind,
        intent.branch,
        intent.actor,
        by,
        now,
        decided.seq,
        commit,
        why=decided.note,
        tables=tables,
    )


def _tables(repo: Repository, verdict: Verdict) -> list[str]:
    """The pins of the tables that it changed; none where that cannot be read any more."""
    try:
        staged = repo.commit(verdict.commit or "")
        before = repo.commit(staged.parents[0]) if staged.parents else None
        return [side.path for side in repo.diff(before, staged) if side.path.endswith(SUFFIX)]
    except (NotFound, ObjectMissing, ObjectDamaged):
        return []


def aborted_record(repo: Repository, intent: Intent, by: str, why: str) -> Record:
    """For an execution that never sealed."""
    return Record(intent.execution, "aborted", intent.branch, intent.actor, by, repo.seams.clock.now(), why=why)

"""Why a transaction was refused, in words that name the thing and the next step."""

from __future__ import annotations

from fenceline.errors import (
    ExecutionFenced,
    FencelineError,
    OutcomeUnknown,
    PublishConflict,
    PublishFenceError,
    StoreError,
)
from fenceline.repo.model import Op
from fenceline.repo.port import Repository
from fenceline.txn.intent import Intent
from fenceline.txn.publish import Overlap, Refused


def refusal(repo: Repository, intent: Intent, refused: Refused, overlap: Overlap | None) -> FencelineError:
    """The error for a decision that failed closed. `overlap` names the paths in the way, once something is staged."""
    decision, head = refused.decision, refused.head
    entry = decision.entry
    if entry is not None and entry.op is Op.FENCE and entry.execution == intent.execution:
        return ExecutionFenced(
            f"a sweep took transaction {intent.execution} for dead and fenced it with entry {entry.seq}",
            hint="run it again",
        )
    if not decision.in_the_way or head is None:
        where = f" by entry {entry.seq} ({entry.op})" if entry else ""
        return PublishFenceError(
            f"{intent.branch}: {decision.why}{where}",
            hint=f"fenceline log {intent.branch} --entries shows it; begin again on the new head, with a new key",
            branch=intent.branch,
        )
    commits = [repo.commit(c) for c in decision.in_the_way]
    who = ", ".join(f"{c.id[:12]} by {c.actor}" for c in commits[:3]) + (" …" if len(commits) > 3 else "")
    paths = sorted({path for c in commits for path in overlap.paths(c)}) if overlap else []
    touched = f"; both touched {', '.join(paths[:5])}{' …' if len(paths) > 5 else ''}" if paths else ""
    hint = "begin it again on the new head"
    if not paths and not intent.rebase:
        hint += ", or use on_conflict='rebase': nothing that was read or written here has changed"
    return PublishConflict(
        f"{intent.branch} moved from {intent.input[:12]} to {head.commit.id[:12]} ({who}) since this began{touched}",
        hint=hint,
        branch=intent.branch,
        expected=intent.input,
        actual=head.commit.id,
        paths=paths,
    )


def aborted_by_sweep(intent: Intent) -> ExecutionFenced:
    return ExecutionFenced(
        f"a sweep took transaction {intent.execution} for dead and aborted it before it was sealed",
        hint="run it again; raise lease= if its process was paused for long",
    )


def unknown(intent: Intent, error: StoreError) -> OutcomeUnknown:
    return OutcomeUnknown(
        f"transaction {intent.execution} on {intent.branch} is sealed, "
        f"and whether it was published is not known: {error.message}",
        hint="nothing is lost: the next `fenceline recover` decides it, and `fenceline recoveries` then shows how",
        execution=intent.execution,
    )

"""Why a publication to lakeFS was refused, in words that name the thing and the next step."""

from __future__ import annotations

from collections.abc import Sequence

from fenceline.errors import ContractError, FencelineError, OutcomeUnknown, PublishConflict, PublishFenceError
from fenceline.repo.lakefs.errors import DirtyBranch, RefusedByHook
from fenceline.repo.lakefs.repository import LakeRepository
from fenceline.repo.lakefs.values import MergeEnd, MergeOutcome
from fenceline.repo.model import Commit
from fenceline.txn.decide import Decision


class ReplaceRefused(PublishFenceError):
    """The head is an earlier publication of this step by other code or params, and lakeFS cannot fence its removal."""

    code = "fence.replace"


def replace_refused(branch: str, input_id: str, head: Commit | None) -> ReplaceRefused:
    at = head.id[:12] if head else "its head"
    return ReplaceRefused(
        f"{branch}: {at} is an earlier publication of this step with other code, params or epoch, "
        "and lakeFS cannot take it away behind a fence",
        hint="restart the run from this step on the new head (fenceline runs restart-from); or, with nobody else "
        f"writing, reset {branch} to {input_id[:12]} in lakeFS and retry, which fence='serial' does by itself",
        branch=branch,
        input=input_id,
        head=head.id if head else None,
    )


def refusal_of_step(
    repo: LakeRepository,
    branch: str,
    start: Commit,
    decision: Decision,
    head: Commit | None,
    rebase: bool,
    paths: Sequence[str],
) -> PublishFenceError:
    """The error for a decision that failed closed."""
    if head is None or not decision.in_the_way:
        why = decision.why if head is not None else "there is no such branch"
        return PublishFenceError(
            f"{branch}: {why}", hint=f"fenceline log {branch} shows it; begin again on the new head", branch=branch
        )
    commits = [repo.commit(each) for each in decision.in_the_way]
    who = ", ".join(f"{c.id[:12]} by {c.actor}" for c in commits[:3]) + (" …" if len(commits) > 3 else "")
    touched = f"; both touched {', '.join(paths[:5])}{' …' if len(paths) > 5 else ''}" if paths else ""
    hint = "restart the run from this step on the new head (fenceline runs restart-from)"
    return PublishFenceError(
        f"{branch} moved from {start.id[:12]} to {head.id[:12]} ({who}) since this began{touched}",
        hint=hint if rebase else f"{hint}, or let it rebase",
        branch=branch,
        expected=start.id,
        actual=head.id,
        paths=list(paths),
    )


def conflict(branch: str, start: Commit, head: Commit, rebase: bool, paths: Sequence[str]) -> PublishConflict:
    """A direct transaction whose branch moved."""
    touched = f"; both touched {', '.join(paths[:5])}{' …' if len(paths) > 5 else ''}" if paths else ""
    return PublishConflict(
        f"{branch} moved from {start.id[:12]} to {head.id[:12]} since this began{touched}",
        hint="begin it again on the new head" + ("" if rebase else ", or use on_conflict='rebase'"),
        branch=branch,
        expected=start.id,
        actual=head.id,
        paths=paths,
    )


class NotOnLakeFS(ContractError):
    """Something that the native repository does and lakeFS does otherwise, or not yet."""

    code = "lakefs.not_here"


def not_here(what: str, instead: str) -> NotOnLakeFS:
    return NotOnLakeFS(f"{what} is not there on lakeFS", hint=instead)


def not_merged(branch: str, source: str, ended: MergeOutcome) -> FencelineError:
    """A merge that was refused although the head is the one that was expected."""
    if ended.end is MergeEnd.DIRTY:
        return DirtyBranch(
            f"{branch} has uncommitted changes, and lakeFS merges nothing into it: {ended.why}",
            hint="commit or reset them in lakeFS; what was staged is published by the next attempt",
        )
    if ended.end is MergeEnd.REFUSED:
        return RefusedByHook(
            f"a hook of the repository refused the merge into {branch}: {ended.why}",
            hint="the message names the hook; what was staged is published by the next attempt",
        )
    return PublishFenceError(
        f"{source} could not be merged into {branch} ({ended.end}): {ended.why}",
        hint="restart the run from this step on the new head (fenceline runs restart-from)",
        branch=branch,
    )


def never_settled(branch: str, execution: str) -> OutcomeUnknown:
    return OutcomeUnknown(
        f"whether execution {execution} was published on {branch} is not known: lakeFS does not answer for good",
        hint="nothing is lost: the next attempt adopts or publishes it",
        execution=execution,
    )

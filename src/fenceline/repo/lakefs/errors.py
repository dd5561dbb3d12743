"""A lakeFS answer as an error of ours, and the errors that only lakeFS has.

The rule that matters: a write whose answer was lost, or that ended in a server error, is `OutcomeUnknown` (INV-3);
everything the server refused is certain not to have happened.
"""

from __future__ import annotations

from fenceline.errors import (
    AccessDenied,
    AlreadyExists,
    ConfigError,
    ContractError,
    FencelineError,
    NotFound,
    OutcomeUnknown,
    StoreError,
)


class BranchProtected(AccessDenied):
    """Branch protection forbids direct changes; only a merge passes."""

    code = "lakefs.protected"


class NothingToCommit(ContractError):
    """A commit of a branch on which nothing changed."""

    code = "lakefs.nothing_to_commit"


class DirtyBranch(ContractError):
    """Uncommitted changes stand in the way."""

    code = "lakefs.dirty_branch"


class RefusedByHook(StoreError):
    """A hook of the lakeFS repository refused the change; nothing happened."""

    code = "lakefs.refused_by_hook"
    retryable = False


class HookMissing(ConfigError):
    """The branch lacks the fence hook, or has a changed one: nothing may be published to it."""

    code = "lakefs.hook_missing"


NO_CHANGES = "no changes"
DIRTY = "dirty branch"
PROTECTED = "protected branch"


def refusal(status: int, message: str, doing: str, *, wrote: bool) -> FencelineError:
    """The typed form of an answer that is no success, met while `doing` something."""
    what = f"lakeFS answered {status} while {doing}: {message}"
    if status == 401:
        return AccessDenied(what, hint="check the access key and secret", status=status)
    if status == 403 and PROTECTED in message:
        return BranchProtected(what, hint="publish by merging, or take the branch out of its protection", status=status)
    if status == 403:
        return AccessDenied(what, hint="docs/howto/lakefs.md lists the permissions needed", status=status)
    if status == 404:
        return NotFound(what, status=status)
    if status == 409:
        return AlreadyExists(what, status=status)
    if status == 412:
        return RefusedByHook(what, hint="the message names the hook that refused", status=status)
    if status == 400 and NO_CHANGES in message:
        return NothingToCommit(what, status=status)
    if status == 400 and DIRTY in message:
        return DirtyBranch(what, hint="commit or reset the branch's uncommitted changes in lakeFS", status=status)
    if status == 429:
        return StoreError(what, hint="the server is busy; try again", status=status)
    if status >= 500:
        return lost(what, status=status) if wrote else StoreError(what, hint="see the server's log", status=status)
    return ContractError(what, status=status)


def lost(what: str, **context: object) -> OutcomeUnknown:
    return OutcomeUnknown(what, hint="read back what is there before trying again", **context)


def unreachable(endpoint: str, doing: str, reason: str) -> StoreError:
    return StoreError(
        f"{endpoint} cannot be reached while {doing}: {reason}",
        hint="check the endpoint, and that the server runs",
        endpoint=endpoint,
    )


def no_sdk() -> ConfigError:
    return ConfigError("lakeFS needs its client library", hint="pip install 'fenceline[lakefs]'")

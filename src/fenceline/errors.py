"""One error tree: every error has a stable code, says whether a retry can help, and what became of the write.

`outcome` is a promise (INV-3, D2): ``not_applied`` and ``applied`` are certain, ``unknown`` is all that may be
said when they are not.
"""

from __future__ import annotations

import errno
from collections.abc import Sequence
from enum import StrEnum
from typing import ClassVar


class Outcome(StrEnum):
    """What became of a write."""

    NOT_APPLIED = "not_applied"
    APPLIED = "applied"
    UNKNOWN = "unknown"


def _plain(value: object) -> object:
    """A value as JSON can hold it."""
    if isinstance(value, list | tuple):
        return [_plain(each) for each in value]
    return value if isinstance(value, str | int | float | bool | None) else str(value)


class FencelineError(Exception):
    """Root of every error this package raises on purpose."""

    code: ClassVar[str] = "fenceline"
    retryable: ClassVar[bool] = False
    outcome: Outcome = Outcome.NOT_APPLIED

    def __init__(self, message: str, *, hint: str | None = None, **context: object) -> None:
        super().__init__(message)
        self.message = message
        self.hint = hint
        self.context = context

    def __str__(self) -> str:
        return f"{self.message} ({self.hint})" if self.hint else self.message

    def as_dict(self) -> dict[str, object]:
        """The machine-readable form that `--json` prints."""
        return {
            "code": self.code,
            "message": self.message,
            "hint": self.hint,
            "retryable": self.retryable,
            "outcome": str(self.outcome),
            "context": {name: _plain(value) for name, value in self.context.items()},
        }


# --- Contract: the caller asked for something that cannot be ---------------------------------------------------


class ContractError(FencelineError):
    """The call itself is wrong; repeating it cannot help."""

    code = "contract"


class InvalidName(ContractError):
    """A branch, tag or path name that would escape, collide or be unreadable elsewhere."""

    code = "name.invalid"


class NotFound(ContractError):
    """A ref, path or execution that does not exist."""

    code = "not_found"


class AlreadyExists(ContractError):
    """A branch, tag, path or dataset that exists where a new one was asked for."""

    code = "already_exists"


class TransactionClosed(ContractError):
    """A transaction used outside its `with` block, or a write through a repository opened read-only."""

    code = "transaction.closed"


# --- Guard: rules over the content itself ----------------------------------------------------------------------


class GuardError(FencelineError):
    """Content that breaks a declared rule; nothing was published."""

    code = "guard"


# --- Config: the surroundings are wrong ------------------------------------------------------------------------


class ConfigError(FencelineError):
    """The repository, machine or settings cannot be used as they are."""

    code = "config"


class NotARepository(ConfigError):
    code = "config.not_a_repository"


class FormatTooNew(ConfigError):
    code = "config.format_too_new"


class UnsupportedStore(ConfigError):
    """The file system or store lacks what the protocol rests on (an atomic create-if-absent)."""

    code = "config.unsupported_store"


# --- Conflict and Fence: someone else was there ----------------------------------------------------------------


class ConflictError(FencelineError):
    """Someone else changed what this change was built on."""

    code = "conflict"
    retryable = True


class PublishConflict(ConflictError):
    """The branch moved between a transaction's begin and its publish; carries both heads."""

    code = "conflict.publish"

    def __init__(
        self,
        message: str,
        *,
        branch: str,
        expected: str,
        actual: str | None,
        paths: Sequence[str] = (),
        hint: str | None = None,
    ) -> None:
        super().__init__(message, hint=hint, branch=branch, expected=expected, actual=actual, paths=list(paths))
        self.branch = branch
        self.expected = expected
        self.actual = actual
        self.paths = tuple(paths)


class MergeConflict(ConflictError):
    """A three-way merge that cannot be decided; carries every conflict, not only the first."""

    code = "conflict.merge"
    retryable = False

    def __init__(self, message: str, *, conflicts: Sequence[object], hint: str | None = None) -> None:
        super().__init__(message, hint=hint, conflicts=[str(c) for c in conflicts])
        self.conflicts = tuple(conflicts)


class FenceError(FencelineError):
    """This execution may not publish any more."""

    code = "fence"


class PublishFenceError(FenceError):
    """Confirm failed closed: the branch is in a state that this publication may not touch."""

    code = "fence.publish"


class StaleAttemptError(FenceError):
    """The orchestrator has given this attempt up, or cannot be asked."""

    code = "fence.stale_attempt"


class ExecutionFenced(FenceError):
    """A sweep took the transaction for dead and fenced it before it could publish."""

    code = "fence.execution"
    retryable = True


# --- Recovery ---------------------------------------------------------------------------------------------------


class RecoveryError(FencelineError):
    code = "recovery"


class UnpublishedCommit(RecoveryError):
    """A staged commit that was never published (INV-12): it may be looked at, never built on."""

    code = "recovery.unpublished"


class CondemnedCommit(RecoveryError):
    """Garbage collection has announced that it will delete this commit (D3)."""

    code = "recovery.condemned"


# --- Store ------------------------------------------------------------------------------------------------------


class StoreError(FencelineError):
    """The disk or object store did not do what it was asked; the write did not happen."""

    code = "store"
    retryable = True


class ObjectExists(StoreError):
    """Create-if-absent found the key taken."""

    code = "store.exists"


class ObjectMissing(StoreError):
    """An object that must exist does not."""

    code = "store.missing"
    retryable = False


class ObjectDamaged(StoreError):
    """An object whose bytes are not those that were written."""

    code = "store.damaged"
    retryable = False


class StoreFull(StoreError):
    code = "store.full"


class StoreReadOnly(StoreError):
    code = "store.read_only"
    retryable = False


class AccessDenied(StoreError):
    code = "store.access_denied"
    retryable = False


class OutcomeUnknown(StoreError):
    """The write may or may not have happened; settle by reading back, never by a blind retry (INV-3)."""

    code = "store.outcome_unknown"
    outcome = Outcome.UNKNOWN


def store_error(error: OSError, doing: str) -> StoreError:
    """The typed form of an operating-system error met while `doing` something whose effect did not happen."""
    reason = error.strerror or str(error)
    if error.errno in (errno.ENOSPC, errno.EDQUOT):
        return StoreFull(
            f"no room left while {doing}: {reason}",
            hint="free space on that disk, then run the command again",
        )
    if error.errno == errno.EROFS:
        return StoreReadOnly(
            f"read-only file system while {doing}",
            hint="mount it read-write, or open the repository with mode='r'",
        )
    if error.errno in (errno.EACCES, errno.EPERM):
        return AccessDenied(
            f"permission denied while {doing}: {reason}",
            hint="check the owner and mode of the repository's directory",
        )
    return StoreError(
        f"the disk failed while {doing}: {reason}",
        hint="see the system log for the device, then run the command again",
    )

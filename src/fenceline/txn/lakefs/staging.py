"""Try on lakeFS: a staging branch named by its execution, only what changed uploaded to it, one commit as the seal.

The branch is the intent, and deleting it the fence: before the seal its owner's next write finds no branch, after it
the merge finds none (D1 in one step of the server).
"""

from __future__ import annotations

import hashlib
import logging
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import TypeVar

from fenceline import failpoints
from fenceline.errors import (
    AlreadyExists,
    ContractError,
    ExecutionFenced,
    NotFound,
    OutcomeUnknown,
    StoreError,
    store_error,
)
from fenceline.repo.lakefs import hook
from fenceline.repo.lakefs.errors import NothingToCommit
from fenceline.repo.lakefs.notes import MODE, SHA256, Note, note_of
from fenceline.repo.lakefs.objects import WORKERS
from fenceline.repo.lakefs.repository import LakeRepository
from fenceline.repo.model import Commit
from fenceline.txn.intent import Record
from fenceline.txn.lakefs.records import keep

log = logging.getLogger(__name__)

TRIES = 4
_PAUSE = 0.2

BRANCH = failpoints.effect(
    "lakefs.stage",
    "the staging branch, before the first byte of an attempt",
    before="nothing was written; nothing to do",
    after="an empty staging branch: the sweep deletes it",
)
UPLOAD = failpoints.effect(
    "lakefs.upload",
    "one object on the staging branch",
    before="a staging branch without a commit: the sweep deletes it",
    after="the same",
)
SEAL = failpoints.effect(
    "lakefs.seal",
    "the commit of the staging branch, with the result: the seal",
    before="staged but not sealed: the sweep deletes the branch, and the next attempt runs the body again",
    after="sealed: the next attempt of the step publishes it without running the body",
)
UNSTAGE = failpoints.effect(
    "lakefs.unstage",
    "the deletion of a staging branch: of one that was published the clean-up, of any other the fence",
    before="the branch is left: the next attempt resumes it, or the sweep deletes it",
    after="nothing is left on the server but lakeFS's own unreferenced objects, which its garbage collection takes",
)

R = TypeVar("R")


@dataclass(frozen=True, slots=True)
class Upload:
    """A local file to stage."""

    path: str
    local: str
    size: int
    mode: int | None


@dataclass(frozen=True, slots=True)
class Staged:
    """A sealed staging branch: all that confirm and cleanup need."""

    branch: str
    commit: str
    note: Note
    message: str


class StagingBranch:
    """One execution's staging area. It exists from the first byte, not before."""

    def __init__(
        self,
        repo: LakeRepository,
        start: Commit,
        execution: str,
        name: Callable[[], str],
        before_first_byte: Callable[[], None],
    ) -> None:
        self._repo, self._start, self._execution = repo, start, execution
        self._make_name, self._before_first_byte = name, before_first_byte
        self.name: str | None = None
        self.bytes = 0
        self.seal_tried = False

    def open(self, hooked: bool) -> str:
        """The branch, from the input commit. Refuses a commit whose merge the server would not fence."""
        if self.name is None:
            self._before_first_byte()
            if hooked:
                hook.require(self._repo.client, self._repo.client.repository, self._start.id)
            name = self._make_name()
            try:
                with BRANCH:
                    self._repo.client.create_branch(name, self._start.id, hidden=True)
            except AlreadyExists as error:
                raise ContractError(
                    f"the staging branch {name} exists already",
                    hint="an execution has one: start a new execution, and leave this one to the sweep",
                ) from error
            self.name = name
        return self.name

    def upload(self, files: Iterable[Upload]) -> None:
        """In parallel, as streams. With its hash and mode, so that the next attempt need not read what it has."""

        def one(file: Upload) -> int:
            found = {SHA256: sha256_of(file)}
            if file.mode is not None:
                found[MODE] = f"{file.mode:o}"
            with UPLOAD:
                stored = self._again(lambda: self._repo.client.upload(self._own, file.path, file.local, found))
            if stored.size != file.size:
                raise ContractError(
                    f"{file.path} changed while it was staged",
                    hint="something the task started still runs: wait for it in the body",
                )
            return stored.size

        for size in self._repo.seams.threads.map(one, files, WORKERS):
            self.bytes += size

    def wrote(self, size: int) -> None:
        """Count bytes that came here by another way than `upload`."""
        self.bytes += size

    def remove(self, paths: Iterable[str]) -> None:
        gone = list(paths)
        if gone:
            self._again(lambda: self._repo.client.delete(self._own, gone))

    def seal(self, message: str, note: Note) -> Staged | None:
        """Commit. None where the server finds that nothing differs from the input."""
        metadata = note.to_metadata()
        self.seal_tried = True
        for _ in range(TRIES):
            try:
                with SEAL:
                    sealed = self._fenced(lambda: self._repo.client.commit(self._own, message, metadata))
                return Staged(self._own, sealed.id, note, message)
            except NothingToCommit:
                found = self._sealed(message)
                if found is None:
                    self.seal_tried = False
                return found
            except OutcomeUnknown as error:  # settled by reading the branch (INV-3): our commit is there, or it is not
                log.warning("sealing %s: %s", self._own, error)
                if (found := self._sealed(message)) is not None:
                    return found
        raise OutcomeUnknown(
            f"it is not known whether {self._own} was sealed", hint="the next attempt finds out", branch=self._own
        )

    def _sealed(self, message: str) -> Staged | None:
        found = self._fenced(lambda: self._repo.client.commit_info(self._own))
        note = note_of(found)
        own = note is not None and note.execution == self._execution
        return Staged(self._own, found.id, note, message) if own and note is not None else None

    def cancel(self, error: BaseException, record: Callable[[str], Record]) -> None:
        """Before the seal: delete the branch. What that cannot do now, a sweep does later."""
        if self.name is None or self.seal_tried:
            return
        why = f"{type(error).__name__}: {error}"[:500]
        if not discard(self._repo, self.name, record(why)):
            error.add_note(f"nothing was published; branch {self.name} is left for the next `fenceline recover`")

    @property
    def _own(self) -> str:
        assert self.name is not None, "the staging branch was not opened"
        return self.name

    def _again(self, work: Callable[[], R]) -> R:
        """Nobody else writes here, so an upload or a delete whose answer was lost may be sent again."""
        for attempt in range(1, TRIES):
            try:
                return self._fenced(work)
            except StoreError as error:
                if not error.retryable:
                    raise
                log.warning("staging on %s, try %d: %s", self.name, attempt, error)
                self._repo.seams.clock.sleep(_PAUSE * attempt)
        return self._fenced(work)

    def _fenced(self, work: Callable[[], R]) -> R:
        try:
            return work()
        except NotFound as error:
            raise fenced(self._execution) from error


def discard(repo: LakeRepository, branch: str, record: Record | None) -> bool:
    """Delete a staging branch and keep the record of that, if there is one. Never raises: a sweep comes back to it."""
    try:
        with UNSTAGE:
            deleted = repo.client.delete_branch(branch)
    except StoreError as error:
        log.warning("staging branch %s is left for recovery: %s", branch, error)
        return False
    if deleted and record is not None:
        keep(repo.client, record)
    return True


def fenced(execution: str) -> ExecutionFenced:
    return ExecutionFenced(
        f"the staging branch of execution {execution} was deleted: a sweep took it for dead, "
        "or its step has another outcome",
        hint="nothing of it was published; the next attempt runs it again",
    )


def sha256_of(file: Upload) -> str:
    try:
        with open(file.local, "rb") as opened:
            return hashlib.file_digest(opened, "sha256").hexdigest()
    except OSError as error:
        raise store_error(error, f"reading {file.local}") from error

"""The sweep on lakeFS: what becomes of staging branches whose owner is gone, or only seems so.

It goes through the same gates as the owner (a branch's deletion, the fenced merge), so it may be wrong about a paused
one, run in many processes at once, and die at any point (INV-9). What a step's attempt sealed is published by the
step's next attempt; what a direct writer sealed is published here.
"""

from __future__ import annotations

import logging
from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import Literal

from fenceline.errors import ConflictError, FenceError, NotFound, StoreError
from fenceline.repo.lakefs.notes import STAGING, Note, StagingName, host_mark, note_of, parse_staging
from fenceline.repo.lakefs.repository import LakeRepository
from fenceline.repo.lakefs.values import BranchInfo
from fenceline.repo.model import SYSTEM_RECOVERY, Commit
from fenceline.repo.pathset import PathSet
from fenceline.seams import Owner
from fenceline.txn.intent import EndKind, Record
from fenceline.txn.lakefs.confirm import Turn, confirm
from fenceline.txn.lakefs.staging import Staged, discard
from fenceline.txn.recover import ATTEMPT_RETENTION, Class, Swept

log = logging.getLogger(__name__)

State = Literal["open", "sealed", "published", "fenced"]


@dataclass(frozen=True, slots=True)
class Left:
    """A staging branch, and what the branch it is meant for says of it."""

    name: StagingName
    note: Note | None
    """None while nothing was sealed."""
    sealed_at: float
    expired: bool
    published: Commit | None
    over: str
    """Why it can never be published; empty while it can."""

    @property
    def state(self) -> State:
        if self.note is None:
            return "open"
        return "published" if self.published else "fenced" if self.over else "sealed"


def sweep(repo: LakeRepository) -> list[Swept]:
    """Go over every staging branch once. One that cannot be decided never stops the others (INV-11)."""
    by = repo.seams.ids.execution()
    done = []
    for ref in list(repo.client.branches(STAGING)):
        name = parse_staging(ref.name)
        if name is None:
            continue  # not one of ours, whatever it begins with
        try:
            left = _look(repo, ref, name)
            done.append(_end(repo, left, by) if left else Swept(name.execution, None, "left", why="ended meanwhile"))
        except StoreError as error:
            log.warning("staging branch %s is left for the next sweep: %s", ref.name, error)
            done.append(Swept(name.execution, None, "left", why=str(error)))
    return done


def unfinished(repo: LakeRepository) -> Iterator[Left]:
    """Every staging branch, for people."""
    for ref in repo.client.branches(STAGING):
        name = parse_staging(ref.name)
        left = _look(repo, ref, name) if name else None
        if left is not None:
            yield left


def _end(repo: LakeRepository, left: Left, by: str) -> Swept:
    """The recovery table, from the top."""
    execution, note = left.name.execution, left.note
    if note is None:
        if not left.expired:
            return Swept(execution, None, "live")
        why = "swept: its owner died, or its lease ran out, before it was sealed"
        return _ended(repo, left, Class.NO_MOVEMENT, "aborted", by, why)
    if left.published is not None:
        own = left.published.metadata.get("by") == execution
        return _ended(repo, left, Class.ALREADY_PUBLISHED, "published" if own else "rolled_forward", by, "")
    if left.over:
        return _ended(repo, left, Class.UNEXPECTED_AT_P1, "rolled_back", by, left.over)
    if not note.step:
        return _finish_direct(repo, left, note, by) if left.expired else Swept(execution, None, "live", note.branch)
    if repo.seams.clock.now() - left.sealed_at > ATTEMPT_RETENTION:
        return _ended(repo, left, Class.UNEXPECTED_AT_P1, "rolled_back", by, "no attempt came back for it")
    return Swept(execution, Class.ROLLED_PAST_EXPECTED, "left", note.branch, "for the step's next attempt")


def _finish_direct(repo: LakeRepository, left: Left, note: Note, by: str) -> Swept:
    """Run Confirm for a writer that is gone: what may still be published is rolled forward, the rest is fenced."""
    turn = Turn(
        execution=by,
        actor=SYSTEM_RECOVERY,
        branch=note.branch,
        input=repo.commit(note.input),
        step="",
        txn=note.txn,
        attempt="",
        rebase=note.rebase,
        serial=False,
        fence=lambda: None,
    )
    sealed = repo.client.commit_info(left.name.name)
    try:
        outcome = confirm(repo, turn, Staged(left.name.name, sealed.id, note, sealed.message), None, PathSet())
    except (FenceError, ConflictError) as error:
        found = Class.UNEXPECTED_MULTISTEP if isinstance(error, ConflictError) else Class.UNEXPECTED_AT_P1
        return _ended(repo, left, found, "rolled_back", by, error.message)
    if outcome.execution != left.name.execution:
        why = "its key was applied by another execution"
        return _ended(repo, left, Class.UNEXPECTED_AT_P1, "rolled_back", by, why)
    done = replace(left, published=repo.commit(outcome.output))
    return _ended(repo, done, Class.ROLLED_PAST_EXPECTED, "rolled_forward", by, "")


def _ended(repo: LakeRepository, left: Left, found: Class, kind: EndKind, by: str, why: str) -> Swept:
    branch = left.note.branch if left.note else ""
    actor = left.note.actor if left.note else ""
    commit = left.published.id if left.published else None
    execution = left.name.execution
    record = Record(execution, kind, branch, actor, by, repo.seams.clock.now(), commit=commit, why=why)
    if not discard(repo, left.name.name, record):
        return Swept(execution, found, "left", branch or None, "its branch could not be deleted now")
    return Swept(execution, found, kind, branch or None, why)


def _look(repo: LakeRepository, ref: BranchInfo, name: StagingName) -> Left | None:
    """None where the branch went away meanwhile."""
    try:
        found = repo.client.commit_info(ref.commit)
    except NotFound:
        return None
    note = note_of(found)
    if note is None or note.execution != name.execution:
        return Left(name, None, 0.0, _expired(repo, name), None, "")
    published, over = _outcome(repo, note)
    return Left(name, note, float(found.time), _expired(repo, name), published, over)


def _outcome(repo: LakeRepository, note: Note) -> tuple[Commit | None, str]:
    head = repo.find_head(note.branch)
    if head is None:
        return None, f"there is no branch {note.branch} any more"
    after = repo.line_since(head.commit, repo.commit(note.input))
    if after is None:
        return None, "the commit it was built on is no longer on the branch"
    for commit in after:
        if commit.execution == note.execution:
            return commit, ""
    over = any(commit.step == note.step for commit in after)
    return None, "its step has another outcome" if over else ""


def _expired(repo: LakeRepository, name: StagingName) -> bool:
    """Whether its owner ended, or its lease ran out. May be wrong about a paused owner; that is harmless."""
    me = repo.seams.owner()
    if name.host == host_mark(me) and name.started:
        owner = Owner(me.host, me.boot, me.pid_space, name.pid, name.started)
        if repo.seams.proven_dead(owner):
            return True
    return repo.seams.clock.now() > name.until

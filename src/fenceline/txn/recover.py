"""The sweep: what becomes of intents whose owner is gone, or only seems so.

It goes through the same gates as the owner (the verdict, the ref entry), so it may be wrong about a paused owner, run
in many processes at once beside live writers, and die at any point itself (INV-9).
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from enum import StrEnum
from typing import Literal

from fenceline.errors import ConfigError, FencelineError, NotFound, ObjectDamaged, ObjectMissing, StoreError
from fenceline.repo.model import OUTCOMES, SYSTEM_RECOVERY, Op, RefEntry
from fenceline.repo.port import Repository
from fenceline.seams import Running, Seams, Signal
from fenceline.txn.intent import Intent, IntentStore, Record, Verdict
from fenceline.txn.publish import Candidate, Confirmed, Refused, confirm, fence, settle
from fenceline.txn.records import aborted_record, end_record

log = logging.getLogger(__name__)

ATTEMPT_RETENTION = 7 * 24 * 3600.0
"""How long a sealed attempt waits for its step to come back, in seconds."""


class Class(StrEnum):
    """What a sweep finds, by the names operators know."""

    ALREADY_PUBLISHED = "AlreadyPublished"
    NO_MOVEMENT = "NoMovement"
    ROLLED_PAST_EXPECTED = "RolledPastExpected"
    UNEXPECTED_AT_P1 = "UnexpectedAtP1"
    UNEXPECTED_MULTISTEP = "UnexpectedMultistep"
    INVARIANT_VIOLATION = "InvariantViolation"


Ending = Literal["published", "rolled_forward", "rolled_back", "aborted", "quarantined", "live", "left"]


@dataclass(frozen=True, slots=True)
class Swept:
    """What the sweep did with one intent."""

    execution: str
    found: Class | None
    """None where the intent was left alone: its owner lives, or another sweep ended it first."""
    ending: Ending
    branch: str | None = None
    why: str = ""


def sweep(repo: Repository, intents: IntentStore) -> list[Swept]:
    """Go over every unfinished intent once. One that cannot be decided never stops the others (INV-11)."""
    by = repo.seams.ids.execution()
    done = []
    for execution in list(intents.executions()):
        try:
            done.append(_sweep_one(repo, intents, execution, by))
        except (StoreError, ConfigError) as error:  # or its tables' engine is not installed here
            log.warning("intent %s is left for the next sweep: %s", execution, error)
            done.append(Swept(execution, None, "left", why=str(error)))
    return done


def _sweep_one(repo: Repository, intents: IntentStore, execution: str, by: str) -> Swept:
    reason = intents.quarantined(execution)
    if reason is not None:
        return Swept(execution, Class.INVARIANT_VIOLATION, "quarantined", why=reason)
    try:
        intent = intents.find(execution)
        if intent is None:
            return Swept(execution, None, "left", why="ended by another sweep")
        if not intents.expired(intent):
            return Swept(execution, None, "live", intent.branch)
        return _decide_intent(repo, intents, intent, by)
    except (ObjectDamaged, ObjectMissing) as error:  # what must exist cannot be read, or contradicts itself
        if _ended_meanwhile(repo, intents, execution):
            return Swept(execution, None, "left", why="ended by another sweep")
        intents.quarantine(execution, str(error))
        return Swept(execution, Class.INVARIANT_VIOLATION, "quarantined", why=str(error))


def _ended_meanwhile(repo: Repository, intents: IntentStore, execution: str) -> bool:
    """Whether another sweep decided the intent while we looked: then what we missed was deleted by right."""
    try:
        intent = intents.find(execution)
        return intent is None or intents.record(execution) is not None or settle(repo, intent) is not None
    except (ObjectDamaged, ObjectMissing):
        return False


def _decide_intent(repo: Repository, intents: IntentStore, intent: Intent, by: str) -> Swept:
    """The recovery table, from the top. Order everywhere: entry → delete → record → intent and beats removed."""
    if intents.record(intent.execution) is not None:
        intents.remove(intent.execution)
        return Swept(
            intent.execution, Class.ALREADY_PUBLISHED, "left", intent.branch, "was recorded; its intent is removed"
        )
    verdict = intents.verdict(intent)
    if verdict is None:
        verdict = intents.abort(intent, by, "swept: its owner died, or its lease ran out, before it was sealed")
    if verdict.verdict == "aborted":
        repo.discard(intent.execution, intents.datasets(intent.execution))
        record = intents.finish(aborted_record(repo, intent, by, verdict.why))
        return Swept(intent.execution, Class.NO_MOVEMENT, record.kind, intent.branch, record.why)
    decided = settle(repo, intent)
    if decided is not None:
        return _end(repo, intents, intent, verdict, decided, by, Class.ALREADY_PUBLISHED)
    if intent.step is not None:
        return _sweep_attempt(repo, intents, intent, verdict, by)
    repo.check_staged(repo.commit(verdict.commit or ""))
    outcome = confirm(repo, intents, Candidate(intent, verdict, by, SYSTEM_RECOVERY, owner=False))
    if isinstance(outcome, Confirmed) and not outcome.adopted:
        return _end(repo, intents, intent, verdict, outcome.entry, by, Class.ROLLED_PAST_EXPECTED)
    decided = fence(repo, intent, by, SYSTEM_RECOVERY, _why(outcome))
    return _end(repo, intents, intent, verdict, decided, by, _unexpected(outcome))


def _sweep_attempt(repo: Repository, intents: IntentStore, intent: Intent, verdict: Verdict, by: str) -> Swept:
    """A sealed attempt is left for the step's next one, until the step has an outcome without it, or long after."""
    last = repo.branch_log.last(intent.branch)
    entries = repo.branch_log.entries(intent.branch, intent.base, last.seq if last else 0)
    over = any(e.step == intent.step and e.op in OUTCOMES for e in entries)
    if not over and repo.seams.clock.now() - intent.created < ATTEMPT_RETENTION:
        return Swept(intent.execution, Class.ROLLED_PAST_EXPECTED, "left", intent.branch, "for the step's next attempt")
    why = "its step has another outcome" if over else "no attempt came back for it"
    decided = fence(repo, intent, by, SYSTEM_RECOVERY, why)
    return _end(repo, intents, intent, verdict, decided, by, Class.UNEXPECTED_AT_P1)


def _end(
    repo: Repository,
    intents: IntentStore,
    intent: Intent,
    verdict: Verdict,
    decided: RefEntry,
    by: str,
    found: Class,
) -> Swept:
    record = intents.finish(end_record(repo, intent, decided, by, verdict))
    return Swept(intent.execution, found, record.kind, intent.branch, record.why)


def _why(outcome: Confirmed | Refused) -> str:
    return outcome.decision.why if isinstance(outcome, Refused) else "its key was applied by another execution"


def _unexpected(outcome: Confirmed | Refused) -> Class:
    several = isinstance(outcome, Refused) and len(outcome.decision.in_the_way) > 1
    return Class.UNEXPECTED_MULTISTEP if several else Class.UNEXPECTED_AT_P1


def resolve(
    repo: Repository, intents: IntentStore, execution: str, how: Literal["roll_back", "retry"], actor: str
) -> Swept:
    """An operator's way out of quarantine: give the intent up for good, or look at it once more."""
    if intents.quarantined(execution) is None:
        raise NotFound(f"intent {execution} is not in quarantine", hint="fenceline intents lists those that are")
    if how == "retry":
        intents.unquarantine(execution)
        return _sweep_one(repo, intents, execution, repo.seams.ids.execution())
    by = repo.seams.ids.execution()
    try:
        intent = intents.find(execution)
    except ObjectDamaged as error:
        return _give_up_unreadable(repo, intents, execution, by, actor, str(error))
    if intent is None:
        intents.unquarantine(execution)
        return Swept(execution, None, "left", why="ended by another sweep")
    return _give_up(repo, intents, intent, by, actor)


def _give_up(repo: Repository, intents: IntentStore, intent: Intent, by: str, actor: str) -> Swept:
    try:
        verdict = intents.verdict(intent) or intents.abort(intent, by, f"given up by {actor}")
    except ObjectDamaged:  # an unreadable verdict may have been `sealed`: only a fence makes sure
        verdict = Verdict("sealed", by, datasets=tuple(intents.datasets(intent.execution)))
    if verdict.verdict == "aborted":
        repo.discard(intent.execution, intents.datasets(intent.execution))
        record = intents.finish(aborted_record(repo, intent, by, verdict.why))
        return Swept(intent.execution, Class.INVARIANT_VIOLATION, record.kind, intent.branch, record.why)
    decided = fence(repo, intent, by, actor, f"given up by {actor}")
    return _end(repo, intents, intent, verdict, decided, by, Class.INVARIANT_VIOLATION)


def _give_up_unreadable(repo: Repository, intents: IntentStore, execution: str, by: str, actor: str, why: str) -> Swept:
    """Nobody knows any more which branch it was for, or whether it was sealed: it is fenced on every branch."""
    now = repo.seams.clock.now()
    record = Record(execution, "rolled_back", "", "", by, now, why=f"given up by {actor}: {why}")
    for branch in repo.branch_log.names():
        owner = repo.seams.owner()
        stand_in = Intent(execution, "unreadable", actor, branch, 0, "", None, False, now, 1.0, owner)
        decided = fence(repo, stand_in, by, actor, f"given up by {actor}")
        if decided.op is not Op.FENCE:
            record = replace(record, kind="published", branch=branch, entry=decided.seq, commit=decided.commit)
    ended = intents.finish(record)
    return Swept(execution, Class.INVARIANT_VIOLATION, ended.kind, ended.branch or None, ended.why)


class Sweeper:
    """The sweep as a background thread, for any process that lives long."""

    def __init__(self, seams: Seams, work: Callable[[], Sequence[Swept]], interval: float) -> None:
        self._work, self._interval = work, interval
        self._stopped: Signal = seams.threads.signal()
        self._running: Running = seams.threads.start("fenceline-sweeper", self._run)

    def _run(self) -> None:
        while not self._stopped.wait(self._interval):
            try:
                for swept in self._work():
                    if swept.ending not in ("live", "left"):
                        log.info("swept %s on %s: %s, %s", swept.execution, swept.branch, swept.found, swept.ending)
            except FencelineError:
                log.exception("the sweep failed; it goes on in %s s", self._interval)

    def stop(self, timeout: float | None = 10) -> None:
        self._stopped.set()
        self._running.join(timeout)


def unfinished(repo: Repository, intents: IntentStore) -> Iterator[tuple[str, Intent | None, str, str]]:
    """Every unfinished intent with its state, for people: (execution, intent, state, why)."""
    for execution in list(intents.executions()):
        reason = intents.quarantined(execution)
        try:
            intent = intents.find(execution)
            if intent is None:
                continue
            verdict = intents.verdict(intent)
            decided = settle(repo, intent) if verdict and verdict.verdict == "sealed" else None
        except (ObjectDamaged, ObjectMissing) as error:
            yield execution, None, "quarantined" if reason else "unreadable", reason or str(error)
            continue
        if reason is not None:
            state, why = "quarantined", reason
        elif decided is not None:
            state, why = ("fenced" if decided.op is Op.FENCE else "published"), f"entry {decided.seq}; not finished yet"
        else:
            state, why = (verdict.verdict if verdict else "open"), (verdict.why if verdict else "")
        yield execution, intent, state, why

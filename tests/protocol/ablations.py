"""The protocol with one rule taken out, so that a test can show the damage the rule prevents.

Each is the mistake a well-meaning change would make. They patch this process only; nothing in `src/` knows of them.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import replace
from typing import Any

import fenceline.api
from fenceline.repo.model import Op, RefEntry
from fenceline.repo.native import gc, repository
from fenceline.repo.native.objects import ObjectStore
from fenceline.repo.native.repository import NativeRepository
from fenceline.repo.port import RefLog
from fenceline.seams import Threads
from fenceline.task import native_step
from fenceline.txn import branches, decide, publish, recover, trying
from fenceline.txn.intent import Intent, IntentStore, Verdict
from fenceline.txn.records import aborted_record

SetAttribute = Callable[[object, str, Any], None]


def _r1(put: SetAttribute) -> None:
    """A deleted branch takes its entries with it and starts again at 1."""

    def forget(self: branches.RefAdmin, log: RefLog, name: str, what: str, actor: str) -> None:
        repo = self._repo
        assert isinstance(repo, NativeRepository)
        objects = repo.objects
        objects.delete([i.key for prefix in ("refs/", "hints/refs/") for i in objects.list(f"{prefix}{name}")])
        repo.branch_log._cache.clear()

    put(branches.RefAdmin, "_delete", forget)


def _row0(put: SetAttribute) -> None:
    """A branch that was deleted and created again looks as if nothing happened."""
    original = decide.decide

    def blind(log: Iterable[RefEntry], line: decide.Line, me: decide.Me) -> decide.Decision:
        return original([e for e in log if e.op is not Op.DELETE], line, me)

    put(publish, "decide", blind)


def _row2(put: SetAttribute) -> None:
    """Keys are not looked for."""
    put(decide, "_adopt_by_key", lambda log, line, me: None)


def _row2b(put: SetAttribute) -> None:
    """An execution that was published or fenced may be published again."""
    original = decide.decide

    def forgetful(log: Iterable[RefEntry], line: decide.Line, me: decide.Me) -> decide.Decision:
        return original([e for e in log if e.execution != me.staged], line, me)

    put(publish, "decide", forgetful)


def _d1_abort(put: SetAttribute) -> None:
    """A sweep deletes what is not sealed without winning the verdict first."""
    put(IntentStore, "abort", lambda self, intent, by, why: Verdict("aborted", by, why=why))


def _d1_sealed(put: SetAttribute) -> None:
    """A sweep deletes what is sealed without a fence entry."""

    def careless(repo: NativeRepository, intents: IntentStore, intent: Intent, by: str) -> recover.Swept:
        repo.discard(intent.execution, ())
        intents.finish(aborted_record(repo, intent, by, "careless"))
        return recover.Swept(intent.execution, None, "aborted")

    put(recover, "_decide_intent", careless)


def _d2(put: SetAttribute) -> None:
    """A writer says `not_applied` after sealing without its own fence entry."""

    def skip(self: trying.Try, verdict: Verdict, why: str, cause: Any = None) -> RefEntry:
        return RefEntry(0, Op.FENCE, None, self.execution, "", 0.0)

    put(trying.Try, "fence", skip)


def _d3_refuse(put: SetAttribute) -> None:
    """A ref may point at a condemned commit."""

    def agree(objects: ObjectStore, commits: Iterable[str], threads: Threads) -> None:
        return None

    put(repository, "refuse_condemned", agree)


def _d3_intents(put: SetAttribute) -> None:
    """Garbage collection looks at refs only."""
    put(fenceline.api, "protected", lambda intents: gc.Protected(frozenset(), frozenset()))


def _d3_number(put: SetAttribute) -> None:
    """Garbage collection announces, but takes no numbers."""
    put(gc.Collector, "_take_numbers", lambda self, run: None)


def _d3_rebased(put: SetAttribute) -> None:
    """Garbage collection keeps the sealed commit of an intent, but not all that its execution wrote.

    And it takes no numbers: with them, whoever rebased loses its write and rebases anew, so that either would do.
    """
    _d3_number(put)
    original = fenceline.api.protected

    def narrow(intents: IntentStore) -> gc.Protected:
        return gc.Protected(frozenset(), original(intents).commits)

    put(fenceline.api, "protected", narrow)


def _d4(put: SetAttribute) -> None:
    """A finished intent takes its verdict with it."""
    original = IntentStore.remove

    def remove(self: IntentStore, execution: str, declared: int | None = None) -> None:
        original(self, execution, declared)
        self._objects.delete([i.key for i in self._objects.list("verdicts/") if i.key.endswith(execution)])

    put(IntentStore, "remove", remove)


def _r2(put: SetAttribute) -> None:
    """The attempt fence is asked before staging only, not before the write."""
    original = publish.confirm

    def unfenced(repo: Any, intents: IntentStore, candidate: publish.Candidate) -> Any:
        return original(repo, intents, replace(candidate, attempt_fence=lambda: None))

    put(native_step, "confirm", unfenced)


def _r3(put: SetAttribute) -> None:
    """A no-op reports its input without taking a number."""
    original = publish.confirm

    def silent(repo: Any, intents: IntentStore, candidate: publish.Candidate) -> Any:
        if candidate.verdict is not None:
            return original(repo, intents, candidate)
        entry = RefEntry(0, Op.NOOP, candidate.intent.input, candidate.by, candidate.actor, 0.0)
        return publish.Confirmed(entry, candidate.intent.input, adopted=False, result=candidate.result)

    put(native_step, "confirm", silent)


RULES: dict[str, Callable[[SetAttribute], None]] = {
    "R1": _r1,
    "row 0": _row0,
    "row 2": _row2,
    "row 2b": _row2b,
    "D1 abort": _d1_abort,
    "D1 sealed": _d1_sealed,
    "D2": _d2,
    "D3 refuse": _d3_refuse,
    "D3 intents": _d3_intents,
    "D3 number": _d3_number,
    "D3 rebased": _d3_rebased,
    "D4": _d4,
    "R2": _r2,
    "R3": _r3,
}


def take_out(rule: str, put: SetAttribute = setattr) -> None:
    RULES[rule](put)

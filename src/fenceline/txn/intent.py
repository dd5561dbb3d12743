"""Recovery sidecars: the durable record of a transaction in flight, from its first byte to its one terminal record.

intents/<execution>              what it is about to do; removed when finished
intents/<execution>+<n>          a dataset or tables it is about to write into, named before the first byte goes there
verdicts/<txn or direct>/<execution>   `sealed` or `aborted`, whichever is created first; never removed (D4)
beats/<execution>                refreshed while its owner lives
quarantine/<execution>           why a sweep could not decide it
recoveries/<execution>           how it ended; created once, never removed (INV-10)
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import asdict, dataclass, field, fields
from typing import Any, Literal, TypeVar

from fenceline import failpoints
from fenceline.errors import NotFound, ObjectDamaged, ObjectExists, ObjectMissing, OutcomeUnknown
from fenceline.repo.model import canonical
from fenceline.repo.native.objects import ObjectStore
from fenceline.seams import Owner, Seams

INTENT = failpoints.effect(
    "intent.create",
    "the intent, before the first byte of a transaction",
    before="nothing was written; nothing to do",
    after="an open intent: the sweep aborts it",
)
DECLARE = failpoints.effect(
    "intent.declare",
    "the name of a dataset or table, before the first byte written into it",
    before="an open intent: the sweep aborts it",
    after="the same; the sweep also looks into that dataset for what to delete, gc into that table",
)
SEAL = failpoints.effect(
    "verdict.seal",
    "the verdict `sealed`: staging is complete and nobody may delete it",
    before="staged but not sealed: the sweep aborts it and deletes what was staged",
    after="sealed: the sweep publishes it for its owner if nothing it read or wrote "
    "has changed since, else fences it and deletes it",
)
ABORT = failpoints.effect(
    "verdict.abort",
    "the verdict `aborted`: this execution can never be sealed",
    before="still open: the next sweep aborts it",
    after="aborted: the next sweep deletes what was staged and records it",
)
BEAT = failpoints.effect(
    "beat.put",
    "a heartbeat of a transaction's owner",
    before="the lease runs out earlier; nothing else",
    after="nothing",
)
RECORD = failpoints.effect(
    "record.create",
    "the terminal record of an intent",
    before="decided, but not recorded: the next sweep writes the same record",
    after="recorded: the next sweep removes the intent",
)
REMOVE = failpoints.effect(
    "intent.remove",
    "the removal of a finished intent and its beats",
    before="recorded: the next sweep removes the intent",
    after="nothing is left to do",
)
QUARANTINE = failpoints.effect(
    "quarantine.create",
    "the note that a sweep could not decide an intent",
    before="the next sweep finds the same and quarantines it",
    after="quarantined until an operator resolves it",
)

DEFAULT_LEASE = 30.0
_TABLE = "table:"  # what tells the name of a table from that of a dataset
_SETTLE_TRIES = 5

EndKind = Literal["published", "rolled_forward", "rolled_back", "aborted"]
R = TypeVar("R")


@dataclass(frozen=True, slots=True)
class Intent:
    """Phase A: written before anything else."""

    execution: str
    kind: str
    actor: str
    branch: str
    base: int
    input: str
    txn: str | None
    rebase: bool
    created: float
    lease: float
    owner: Owner
    pins: tuple[str, ...] = ()
    """Other commits whose content it uses: garbage collection keeps them until the intent is finished."""
    step: str | None = None
    attempt: str | None = None


@dataclass(frozen=True, slots=True)
class Verdict:
    """Phase B: created once; the first one stands."""

    verdict: Literal["sealed", "aborted"]
    by: str
    commit: str | None = None
    op: str = "publish"
    reads: tuple[str, ...] = ()
    datasets: tuple[str, ...] = ()
    why: str = ""
    result: Any = None
    """What the step reports: an attempt that resumes this one does not run the body again."""
    guards: tuple[Any, ...] = ()
    """The guard verdicts on the staged content."""


@dataclass(frozen=True, slots=True)
class Record:
    """Phase D: how an intent ended."""

    execution: str
    kind: EndKind
    branch: str
    recovered_for: str
    by: str
    time: float
    entry: int | None = None
    commit: str | None = None
    why: str = ""
    tables: Mapping[str, str] = field(default_factory=dict)


def key_txn(repository: str, branch: str, key: str) -> str:
    """The identity of a direct transaction with a key."""
    return hashlib.sha256(canonical(["key", repository, branch, key])).hexdigest()


class IntentStore:
    """Reads and writes the sidecars of a repository."""

    def __init__(self, objects: ObjectStore, seams: Seams) -> None:
        self._objects = objects
        self._seams = seams

    # --- writing, in the order of a transaction's life ----------------------------------------------------------

    def open(self, intent: Intent) -> None:
        """Phase A. An unknown outcome is an error: nothing was staged yet, and a sweep aborts what did land."""
        with INTENT:
            self._objects.create(f"intents/{intent.execution}", _encode(intent))

    def declare(self, intent: Intent, number: int, dataset: str) -> None:
        with DECLARE:
            self._objects.create(f"intents/{intent.execution}+{number}", dataset.encode())

    def declare_tables(self, intent: Intent, number: int, tables: Iterable[str]) -> None:
        self.declare(intent, number, "\n".join(_TABLE + table for table in tables))

    def beat(self, execution: str) -> None:
        with BEAT:
            self._objects.put(f"beats/{execution}", b"")

    def seal(self, intent: Intent, verdict: Verdict) -> Verdict:
        """Win `sealed`, or learn which verdict stands. `OutcomeUnknown` is the caller's to settle."""
        try:
            with SEAL:
                self._objects.create(_verdict_key(intent), _encode(verdict))
            return verdict
        except ObjectExists:
            return _decode(Verdict, _verdict_key(intent), self._standing(_verdict_key(intent)))

    def abort(self, intent: Intent, by: str, why: str) -> Verdict:
        """Win `aborted`, or learn which verdict stands."""
        key = _verdict_key(intent)
        return _decode(Verdict, key, self._create_once(ABORT, key, _encode(Verdict("aborted", by, why=why))))

    def _create_once(self, effect: failpoints.Effect, key: str, data: bytes) -> bytes:
        """Create a record, or learn which one stands: a lost answer is settled by reading back (INV-3)."""
        for _ in range(_SETTLE_TRIES):
            try:
                with effect:
                    self._objects.create(key, data)
                return data
            except (ObjectExists, OutcomeUnknown):
                try:
                    return self._standing(key)
                except ObjectMissing:
                    continue  # it did not land: the same write again
        raise OutcomeUnknown(f"it is not known whether {key} was written", key=key)

    def _standing(self, key: str) -> bytes:
        found = self._objects.get(key)
        self._objects.persist([key])
        return found

    def quarantine(self, execution: str, reason: str) -> None:
        try:
            with QUARANTINE:
                self._objects.create(f"quarantine/{execution}", reason.encode())
        except ObjectExists:
            pass  # another sweep found the same

    def unquarantine(self, execution: str) -> None:
        self._objects.delete([f"quarantine/{execution}"])

    def finish(self, record: Record, declared: int | None = None) -> Record:
        """Phase D: the terminal record, then the intent and its beats go. Returns the record that stands.

        Its owner says up to which number it `declared` something, and spares the look for it.
        """
        key = f"recoveries/{record.execution}"
        record = _decode(Record, key, self._create_once(RECORD, key, _encode(record)))
        self.remove(record.execution, declared)
        return record

    def remove(self, execution: str, declared: int | None = None) -> None:
        """The intent itself goes last: while it stands, a sweep comes back to what is left."""
        if declared is None:
            beside = [info.key for info in self._objects.list(f"intents/{execution}+")]
        else:
            beside = [f"intents/{execution}+{number}" for number in range(1, declared + 1)]
        with REMOVE:
            self._objects.delete([f"beats/{execution}", f"quarantine/{execution}", *beside])
            self._objects.delete([f"intents/{execution}"])

    # --- reading ------------------------------------------------------------------------------------------------

    def executions(self) -> Iterator[str]:
        """The executions of all unfinished intents."""
        for name in self._objects.children("intents/"):
            if "+" not in name:
                yield name

    def find(self, execution: str) -> Intent | None:
        """The intent; None once it is finished. Raises `ObjectDamaged` when it cannot be read."""
        return self._read(Intent, f"intents/{execution}")

    def get(self, execution: str) -> Intent:
        found = self.find(execution)
        if found is None:
            raise NotFound(f"there is no unfinished intent {execution}", hint="fenceline intents lists them")
        return found

    def verdict(self, intent: Intent) -> Verdict | None:
        return self._read(Verdict, _verdict_key(intent))

    def verdicts_of(self, txn: str, besides: str = "") -> Iterator[tuple[str, Verdict]]:
        """Every execution that ever reached a verdict under this txn: what tells whether a key was applied before."""
        for execution in self._objects.children(f"verdicts/{txn}/"):
            found = self._read(Verdict, f"verdicts/{txn}/{execution}") if execution != besides else None
            if found is not None:
                yield execution, found

    def record(self, execution: str) -> Record | None:
        return self._read(Record, f"recoveries/{execution}")

    def records(self) -> Iterator[Record]:
        for name in self._objects.children("recoveries/"):
            found = self.record(name)
            if found is not None:
                yield found

    def datasets(self, execution: str) -> list[str]:
        """The datasets an execution declared."""
        return [name for name in self._declared(execution) if not name.startswith(_TABLE)]

    def tables(self, execution: str) -> list[str]:
        """The tables an execution declared."""
        return [name.removeprefix(_TABLE) for name in self._declared(execution) if name.startswith(_TABLE)]

    def _declared(self, execution: str) -> Iterator[str]:
        for info in self._objects.list(f"intents/{execution}+"):
            try:
                yield from _text(info.key, self._objects.get(info.key)).splitlines()
            except ObjectMissing:
                continue  # another process finishes the intent at this moment

    def quarantined(self, execution: str) -> str | None:
        try:
            return self._objects.get(f"quarantine/{execution}").decode(errors="replace")
        except ObjectMissing:
            return None

    def expired(self, intent: Intent) -> bool:
        """Whether its owner ended, or its lease ran out. May be wrong about a paused owner; that is harmless."""
        if self._seams.proven_dead(intent.owner):
            return True
        beat = self._objects.stat(f"beats/{intent.execution}")
        seen = max(intent.created, beat.modified if beat else 0.0)
        return self._seams.clock.now() - seen > intent.lease

    def _read(self, kind: type[R], key: str) -> R | None:
        try:
            return _decode(kind, key, self._objects.get(key))
        except ObjectMissing:
            return None


def _text(key: str, data: bytes) -> str:
    try:
        return data.decode()
    except UnicodeDecodeError as error:
        raise _damaged(key, error) from error


def _verdict_key(intent: Intent) -> str:
    return f"verdicts/{intent.txn or 'direct'}/{intent.execution}"


def _encode(value: Intent | Verdict | Record) -> bytes:
    return canonical(asdict(value))


def _decode(kind: type[R], key: str, data: bytes) -> R:
    try:
        value: dict[str, Any] = json.loads(data)
        if not isinstance(value, dict):
            raise TypeError("it is not a record")
        if "owner" in value:
            value["owner"] = Owner(**value["owner"])
        for each in fields(kind):  # type: ignore[arg-type]
            if each.name != "result" and isinstance(value.get(each.name), list):
                value[each.name] = tuple(value[each.name])
        return kind(**value)
    except (ValueError, TypeError) as error:
        raise _damaged(key, error) from error


def _damaged(key: str, error: Exception) -> ObjectDamaged:
    return ObjectDamaged(
        f"{key} cannot be read: {error}",
        hint="fenceline recover --resolve ends an intent that cannot be decided",
        address=key,
    )

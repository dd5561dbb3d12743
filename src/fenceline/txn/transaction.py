"""Direct transactions: Try → Confirm | Cancel around a `with` block.

intent → stage → seal → ref entry → terminal record. Publishes on a clean exit, cancels on an exception.
"""

from __future__ import annotations

import logging
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from types import TracebackType
from typing import Literal, Self

from fenceline.errors import (
    ContractError,
    FencelineError,
    NotFound,
    Outcome,
    OutcomeUnknown,
    StoreError,
    TransactionClosed,
)
from fenceline.repo.model import Commit, Entry, Op, RefEntry
from fenceline.repo.native.repository import NativeRepository
from fenceline.repo.native.staging import Staging
from fenceline.txn import datasets, upload
from fenceline.txn.explain import aborted_by_sweep, refusal, unknown
from fenceline.txn.intent import DEFAULT_LEASE, Intent, IntentStore, Verdict, key_txn
from fenceline.txn.publish import Candidate, Confirmed, Overlap, Refused, confirm, fence, foresee, look_back
from fenceline.txn.records import aborted_record, end_record
from fenceline.txn.upload import Progress
from fenceline.txn.working import WorkingTree

log = logging.getLogger(__name__)

OnConflict = Literal["fail", "rebase"]
ADOPTED = "its key was applied by another execution"
MOST_READS = 10_000  # read paths kept with the verdict; beyond that directories stand in for their files


@dataclass(frozen=True, slots=True)
class TransactionResult:
    """What became of a transaction."""

    outcome: Outcome
    op: str
    """`publish` or `merge`; `adopt` when its key had been applied before; `noop` when nothing changed."""
    commit: str
    seq: int
    """The number of the branch entry that carries the outcome."""
    execution: str | None


class Transaction:
    """Changes to one branch that become visible together, or not at all."""

    def __init__(
        self,
        repo: NativeRepository,
        intents: IntentStore,
        branch: str,
        *,
        actor: str,
        key: str | None = None,
        message: str = "",
        on_conflict: OnConflict = "fail",
        metadata: Mapping[str, str] | None = None,
        progress: Progress | None = None,
        lease: float = DEFAULT_LEASE,
        kind: str = "write",
        pins: Iterable[Commit] = (),
        merging: Commit | None = None,
    ) -> None:
        if key == "":
            raise ContractError(
                "key is empty", hint="leave it out, or name the change: the same key never applies twice"
            )
        if lease <= 0:
            raise ContractError(f"lease is {lease}", hint="give the seconds after which a silent owner counts as dead")
        if on_conflict not in ("fail", "rebase"):
            raise ContractError(f"on_conflict is {on_conflict!r}", hint="use 'fail' or 'rebase'")
        self._repo, self._intents = repo, intents
        self._progress = progress
        self._message = message
        self._metadata = dict(metadata or {})
        self._merging = merging
        head = repo.head(branch)
        self._input = head.commit
        self._intent = Intent(
            execution=repo.seams.ids.execution(),
            kind=kind,
            actor=actor,
            branch=branch,
            base=head.seq,
            input=head.commit.id,
            txn=None if key is None else key_txn(repo.id, branch, key),
            rebase=on_conflict == "rebase",
            created=repo.seams.clock.now(),
            lease=lease,
            owner=repo.seams.owner(),
            pins=tuple(pin.id for pin in pins),
        )
        self._tree = WorkingTree(repo, head.commit)
        self._staging: Staging | None = None
        self._datasets: list[str] = []
        self._jobs = 0
        self._stop_beating = repo.seams.threads.signal()
        self._entered = self._closed = False
        self._found: Confirmed | None = None
        self._result: TransactionResult | None = None

    # --- what a caller may ask ----------------------------------------------------------------------------------

    @property
    def execution(self) -> str:
        return self._intent.execution

    @property
    def input(self) -> Commit:
        """The commit this transaction is built on."""
        return self._input

    @property
    def already_applied(self) -> bool:
        """Whether this key was applied before.

        Then writes are dropped and change nothing, reads show the branch as it is, and the earlier result is reported.
        """
        return self._found is not None

    @property
    def result(self) -> TransactionResult:
        if self._result is None:
            raise TransactionClosed("the transaction has no result", hint="read it after the with block ended cleanly")
        return self._result

    # --- reading ------------------------------------------------------------------------------------------------

    def read(self, path: str) -> bytes:
        """A file's bytes, own writes included. The path counts as read: a rebase goes on only if nobody changed it."""
        entry = self.stat(path)
        if entry is None:
            raise NotFound(
                f"there is no file {path!r} at {self._input.id[:12]}", hint="fenceline ls lists them", path=path
            )
        return self._repo.read(entry)

    def stat(self, path: str) -> Entry | None:
        self._check_open()
        return self._tree.find(path)

    def list(self, prefix: str = "") -> Iterator[Entry]:
        """Files and datasets below a directory, own writes included. The whole directory counts as read."""
        self._check_open()
        return self._tree.below(prefix)

    # --- writing ------------------------------------------------------------------------------------------------

    def write(self, path: str, data: bytes | str | upload.Readable | Iterable[bytes], mode: int | None = None) -> None:
        """Write a file; large ones as an open binary file or an iterable of pieces, never whole in memory."""
        if self._dropping():
            return
        place = self._tree.check_place(path)
        if isinstance(data, str):
            data = data.encode()
        elif isinstance(data, bytearray | memoryview):
            data = bytes(data)
        elif isinstance(data, upload.Readable):
            data = upload.pieces(data)
        staging = self._stage()
        self._tree.set(staging, staging.file(place, data, mode))

    def upload(self, local: str, path: str, progress: Progress | None = None) -> int:
        """Upload a file, or a directory with all below it, in parallel; returns the number of files."""
        if self._dropping():
            return 0
        sources = upload.collect(local, path)
        places = {source: self._tree.check_place(place) for source, place in sources.items()}
        if not places:
            return 0
        staging = self._stage()
        report = progress or self._progress
        for entry in upload.files(staging, self._repo.seams, places, report):
            self._tree.set(staging, entry)
        return len(places)

    def put_dataset(
        self,
        local: str,
        path: str,
        *,
        mode: datasets.WriteMode = "error",
        format: str = "parquet",  # noqa: A002
        partition_by: Iterable[str] = (),
        schema: str | None = None,
        options: Mapping[str, str] | None = None,
        rows: int | None = None,
        progress: Progress | None = None,
    ) -> int:
        """Publish a directory of part files as one dataset: it changes, merges and conflicts as a unit."""
        if self._dropping():
            return 0
        plan = datasets.plan(
            self._tree, local, path, mode, format, tuple(partition_by), schema, dict(options or {}), rows, self._new_id
        )
        staging = self._stage()
        self._declare(plan.dataset_id)
        self._jobs += 1
        datasets.write(self._tree, staging, self._repo.seams, plan, self._jobs, progress or self._progress)
        return len(plan.parts)

    def delete(self, path: str) -> int:
        """Delete a file, a dataset or a directory with all below it; returns the number of entries."""
        if self._dropping():
            return 0
        found = self._tree.matching(path)  # fails before anything is staged
        return self._tree.remove(self._stage(), found)

    def import_in_place(self, url: str, path: str, progress: Progress | None = None) -> int:
        """Register existing data without copying it. It stays its owner's: never deleted by garbage collection."""
        if self._dropping():
            return 0
        staging: Staging | None = None
        count = 0
        for entry in upload.in_place(url, path, progress or self._progress):
            self._tree.check_place(entry.path)
            staging = staging or self._stage()
            self._tree.set(staging, entry)
            count += 1
        return count

    def apply(self, edits: Iterable[tuple[str, Entry | None]]) -> None:
        """Set or remove raw entries whose bytes exist already: merge, revert and bulk registration are made of it."""
        if self._dropping():
            return
        staging = self._stage()
        for path, entry in edits:
            if entry is None:
                self._tree.forget(staging, path)
            else:
                self._tree.set(staging, entry)

    # --- the block ----------------------------------------------------------------------------------------------

    def __enter__(self) -> Self:
        if self._entered:
            raise TransactionClosed("a transaction runs once", hint="call repo.transaction(…) again")
        self._entered = True
        found = look_back(self._repo, self._intents, self._intent)
        if isinstance(found, Refused):
            raise self._refusal(found)
        self._found = found
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._closed = True
        try:
            if error is None:
                self._result = self._publish()
            else:
                self._cancel(error)
        finally:
            self._stop_beating.set()

    def _publish(self) -> TransactionResult:
        if self._found:
            return self._reported(self._found)
        if self._staging is None:
            return self._nothing_changed()
        try:
            verdict = self._complete_staging(self._staging)
            foreseen = foresee(self._repo, self._intents, self._candidate(verdict)) if verdict else None
            if isinstance(foreseen, Refused):
                raise self._refusal(foreseen, verdict)
        except StoreError as error:
            if self._swept():  # what could not be read or made durable was deleted by right
                raise aborted_by_sweep(self._intent) from error
            self._cancel(error)
            raise
        except BaseException as error:
            self._cancel(error)
            raise
        if verdict is None or foreseen is not None:
            self._abort("nothing changed" if foreseen is None else ADOPTED)
            return self._nothing_changed() if foreseen is None else self._reported(foreseen)
        self._seal(verdict)
        return self._confirm(verdict)

    def _swept(self) -> bool:
        try:
            standing = self._intents.verdict(self._intent)
        except StoreError:  # it cannot be known now, and the error at hand says enough
            return False
        return standing is not None and standing.by != self.execution

    def _seal(self, verdict: Verdict) -> None:
        """Win the verdict `sealed`, or fail with nothing published."""
        try:
            standing = self._intents.seal(self._intent, verdict)
        except OutcomeUnknown as error:
            standing = self._verdict_after(error)
            if standing.verdict == "aborted" and standing.by == self.execution:
                self._tidy(standing.why)
                raise StoreError(
                    f"nothing was published: sealing failed: {error.message}", hint="run it again"
                ) from error
        except StoreError as error:
            self._cancel(error)
            raise
        if standing.verdict == "aborted":
            self._tidy(standing.why)
            raise aborted_by_sweep(self._intent)

    def _verdict_after(self, error: OutcomeUnknown) -> Verdict:
        """The answer about the seal was lost: asking for `aborted` tells which of the two stands (INV-3)."""
        try:
            return self._intents.abort(self._intent, self.execution, error.message)
        except StoreError as failure:
            raise unknown(self._intent, failure) from error

    def _complete_staging(self, staging: Staging) -> Verdict | None:
        """Phase B up to the seal: tree, commit, everything durable (INV-2). None where the result equals the input."""
        tree = self._tree.tree(staging)
        changed = next(self._repo.trees.diff(self._input.tree, tree), None) is not None
        if not changed and self._merging is None:
            return None
        commit = staging.commit(
            parents=(self._input.id, *((self._merging.id,) if self._merging else ())),
            tree=tree,
            depth=1 + max(self._input.depth, self._merging.depth if self._merging else 0),
            actor=self._intent.actor,
            time=self._repo.seams.clock.now(),
            message=self._message,
            kind=self._intent.kind,
            txn=self._intent.txn,
            metadata=self._metadata,
        )
        staging.persist()
        return Verdict(
            "sealed",
            by=self.execution,
            commit=commit.id,
            op=str(Op.MERGE if self._merging else Op.PUBLISH),
            reads=tuple(self._tree.reads.coarsened(MOST_READS)),
            datasets=tuple(self._datasets),
        )

    def _confirm(self, verdict: Verdict) -> TransactionResult:
        """Sealed: from here only an entry decides, and only an entry lets us say `not_applied` (D2)."""
        try:
            outcome = confirm(self._repo, self._intents, self._candidate(verdict))
        except OutcomeUnknown as error:
            raise unknown(self._intent, error) from error
        except FencelineError as error:
            decided = self._fence_or_unknown(verdict, str(error), error)
            if decided.op is Op.FENCE:
                raise
            return self._reported(Confirmed(decided, decided.output or "", adopted=False))
        if isinstance(outcome, Confirmed) and not outcome.adopted:
            self._finish(outcome.entry, verdict)
            return self._reported(outcome)
        why = outcome.decision.why if isinstance(outcome, Refused) else ADOPTED
        decided = self._fence_or_unknown(verdict, why)
        if decided.op is not Op.FENCE:  # a sweep rolled it forward: it is applied, and that is what we report
            return self._reported(Confirmed(decided, decided.output or "", adopted=False))
        if isinstance(outcome, Confirmed):
            return self._reported(outcome)
        raise self._refusal(outcome, verdict)

    def _fence_or_unknown(self, verdict: Verdict, why: str, cause: FencelineError | None = None) -> RefEntry:
        """Make sure that this can never be published, or learn that it was. Then clean up behind it."""
        try:
            decided = fence(self._repo, self._intent, self.execution, self._intent.actor, why)
        except StoreError as error:
            raise unknown(self._intent, error) from (cause or error)
        self._finish(decided, verdict)
        return decided

    def _refusal(self, refused: Refused, verdict: Verdict | None = None) -> FencelineError:
        overlap = Overlap(self._repo, self._candidate(verdict)) if verdict else None
        return refusal(self._repo, self._intent, refused, overlap)

    # --- ends ---------------------------------------------------------------------------------------------------

    def _cancel(self, error: BaseException) -> None:
        """Before the seal: win `aborted`, delete, record. What that cannot do now, a sweep does later."""
        if self._staging is not None and not self._abort(f"{type(error).__name__}: {error}"[:500]):
            error.add_note(
                f"nothing was published; intent {self.execution} is left, and the next `fenceline recover` removes it"
            )

    def _abort(self, why: str) -> bool:
        """Called only before the seal is tried, so the verdict that stands is `aborted`: ours, or a sweep's."""
        try:
            self._intents.abort(self._intent, self.execution, why)
        except StoreError as error:
            self._left_behind(error)
            return False
        return self._tidy(why)

    def _tidy(self, why: str) -> bool:
        """Delete what was staged, and record it. Never replaces the result: what fails here is left to a sweep."""
        try:
            self._repo.discard(self.execution, self._datasets)
            self._intents.finish(aborted_record(self._repo, self._intent, self.execution, why))
        except StoreError as error:
            self._left_behind(error)
            return False
        return True

    def _left_behind(self, error: StoreError) -> None:
        log.warning("transaction %s has ended; its intent is left for recovery: %s", self.execution, error)

    def _finish(self, decided: RefEntry, verdict: Verdict) -> None:
        """Phase D. The outcome stands already; what cannot be tidied now is left to a sweep."""
        try:
            self._intents.finish(end_record(self._repo, self._intent, decided, self.execution, verdict))
        except StoreError as error:
            self._left_behind(error)

    def _nothing_changed(self) -> TransactionResult:
        return TransactionResult(Outcome.APPLIED, "noop", self._input.id, self._intent.base, None)

    def _reported(self, confirmed: Confirmed) -> TransactionResult:
        op = "adopt" if confirmed.adopted else str(confirmed.entry.op)
        return TransactionResult(Outcome.APPLIED, op, confirmed.output, confirmed.entry.seq, confirmed.entry.execution)

    # --- Try ----------------------------------------------------------------------------------------------------

    def _stage(self) -> Staging:
        """The staging area; its intent is durable before the first byte (phase A)."""
        if self._staging is None:
            self._intent = replace(self._intent, created=self._repo.seams.clock.now())  # its lease starts here
            self._intents.open(self._intent)
            self._staging = self._repo.staging(self.execution)
            self._repo.seams.threads.start(f"beat-{self.execution}", self._beat)
            # Intent first, then the check (D3): a collector that missed the intent has condemned the commit by now.
            self._repo.refuse_condemned([self._input.id, *self._intent.pins])
        return self._staging

    def _declare(self, dataset: str) -> None:
        if dataset not in self._datasets:
            self._datasets.append(dataset)
            self._intents.declare(self._intent, len(self._datasets), dataset)

    def _new_id(self) -> str:
        return self._repo.seams.ids.execution()

    def _beat(self) -> None:
        while not self._stop_beating.wait(self._intent.lease / 3):
            try:
                self._intents.beat(self.execution)
            except StoreError as error:
                log.warning("transaction %s could not renew its lease: %s", self.execution, error)

    def _candidate(self, verdict: Verdict) -> Candidate:
        return Candidate(self._intent, verdict, self.execution, self._intent.actor, owner=True)

    def _dropping(self) -> bool:
        """Whether writes are dropped, because the key was applied before. Also the check that the block is open."""
        self._check_open()
        return self._found is not None

    def _check_open(self) -> None:
        if not self._entered or self._closed:
            raise TransactionClosed("the transaction is not open", hint="use it inside its with block")

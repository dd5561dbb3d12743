"""Direct transactions: Try → Confirm | Cancel around a `with` block.

intent → stage → seal → ref entry → terminal record. Publishes on a clean exit, cancels on an exception.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
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
from fenceline.repo.model import Commit, Entry, Op
from fenceline.repo.native.repository import NativeRepository
from fenceline.repo.native.staging import Staging
from fenceline.txn import datasets, upload
from fenceline.txn.explain import aborted_by_sweep, refusal, unknown
from fenceline.txn.intent import DEFAULT_LEASE, Intent, IntentStore, Verdict, key_txn
from fenceline.txn.publish import Candidate, Confirmed, Overlap, Refused, confirm, foresee, look_back
from fenceline.txn.trying import Try
from fenceline.txn.upload import Progress

OnConflict = Literal["fail", "rebase"]
ADOPTED = "its key was applied by another execution"


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


def check_asked(key: str | None, on_conflict: str) -> None:
    """What every transaction refuses, wherever it publishes."""
    if key == "":
        raise ContractError("key is empty", hint="leave it out, or name the change: the same key never applies twice")
    if on_conflict not in ("fail", "rebase"):
        raise ContractError(f"on_conflict is {on_conflict!r}", hint="use 'fail' or 'rebase'")


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
        check_asked(key, on_conflict)
        if lease <= 0:
            raise ContractError(f"lease is {lease}", hint="give the seconds after which a silent owner counts as dead")
        self._repo, self._intents = repo, intents
        self._progress = progress
        self._message = message
        self._metadata = dict(metadata or {})
        self._merging = (merging,) if merging else ()
        head = repo.head(branch)
        intent = Intent(
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
        self._try = Try(repo, intents, intent, head.commit)
        self._tree = self._try.tree
        self._entered = self._closed = False
        self.takes_over: Callable[[], Iterable[str]] = tuple
        """Called once this is refused for good, before it is cleaned up: what another transaction has taken over.

        It names objects that this one `wrote`, after the other has declared their tables and said that it wrote them.
        """
        self._found: Confirmed | None = None
        self._result: TransactionResult | None = None

    # --- what a caller may ask ----------------------------------------------------------------------------------

    @property
    def execution(self) -> str:
        return self._try.execution

    @property
    def input(self) -> Commit:
        """The commit this transaction is built on."""
        return self._try.input

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
                f"there is no file {path!r} at {self.input.id[:12]}", hint="fenceline ls lists them", path=path
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
        staging = self._try.staging()
        self._tree.set(staging, staging.file(place, upload.content(data), mode))

    def upload(self, local: str, path: str, progress: Progress | None = None) -> int:
        """Upload a file, or a directory with all below it, in parallel; returns the number of files."""
        if self._dropping():
            return 0
        sources = upload.collect(local, path)
        places = {source: self._tree.check_place(place) for source, place in sources.items()}
        if not places:
            return 0
        staging = self._try.staging()
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
            self._tree,
            local,
            path,
            mode,
            format,
            tuple(partition_by),
            schema,
            dict(options or {}),
            rows,
            self._try.new_id,
        )
        self._try.declare(plan.dataset_id)
        job, report = self._try.next_job(), progress or self._progress
        datasets.write(self._tree, self._try.staging(), self._repo.seams, plan, job, report)
        return len(plan.parts)

    def delete(self, path: str) -> int:
        """Delete a file, a dataset or a directory with all below it; returns the number of entries."""
        if self._dropping():
            return 0
        found = self._tree.matching(path)  # fails before anything is staged
        return self._tree.remove(self._try.staging(), found)

    def import_in_place(self, url: str, path: str, progress: Progress | None = None) -> int:
        """Register existing data without copying it. It stays its owner's: never deleted by garbage collection."""
        if self._dropping():
            return 0
        staging: Staging | None = None
        count = 0
        for entry in upload.in_place(url, path, progress or self._progress):
            self._tree.check_place(entry.path)
            staging = staging or self._try.staging()
            self._tree.set(staging, entry)
            count += 1
        return count

    def apply(self, edits: Iterable[tuple[str, Entry | None]]) -> None:
        """Set or remove raw entries whose bytes exist already: merge, revert and bulk registration are made of it."""
        if self._dropping():
            return
        staging = self._try.staging()
        for path, entry in edits:
            if entry is None:
                self._tree.forget(staging, path)
            else:
                self._tree.set(staging, entry)

    def declare_table(self, *tables: str) -> None:
        """Name tables before anything is written into them: garbage collection then leaves them alone."""
        self._check_open()
        self._try.declare_table(*tables)

    def wrote(self, keys: Iterable[str]) -> None:
        """Count objects that an engine wrote under names of its own as staged: made durable, or deleted, with it."""
        self._check_open()
        self._try.wrote(keys)

    # --- others -------------------------------------------------------------------------------------------------

    def overtaken(self) -> bool:
        """Whether someone has published a change of what was read here: then this can only be refused."""
        head = self._repo.find_head(self._try.intent.branch)
        if head is None or head.commit.id == self.input.id:
            return False
        changed = self._repo.trees.diff(self.input.tree, head.commit.tree)
        return any(self._tree.reads.overlaps(each.path) for each in changed)

    def withdraw(self, why: BaseException) -> None:
        """Cancel inside the block, and leave to another transaction what it takes over."""
        self._closed = True
        try:
            if self._try.started:
                self._hand_over()
            self._try.cancel(why)
        finally:
            self._try.close()

    # --- the block ----------------------------------------------------------------------------------------------

    def __enter__(self) -> Self:
        if self._entered:
            raise TransactionClosed("a transaction runs once", hint="call repo.transaction(…) again")
        self._entered = True
        found = look_back(self._repo, self._intents, self._try.intent)
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
                self._try.cancel(error)
        finally:
            self._try.close()

    def _publish(self) -> TransactionResult:
        if self._found:
            return self._reported(self._found)
        if not self._try.started:
            return self._nothing_changed()
        try:
            verdict = self._try.complete(self._message, self._metadata, self._merging)
            foreseen = foresee(self._repo, self._intents, self._candidate(verdict)) if verdict else None
            if isinstance(foreseen, Refused):
                refused = self._refusal(foreseen, verdict)
                self._hand_over()
                raise refused
        except StoreError as error:
            if self._try.swept():
                raise aborted_by_sweep(self._try.intent) from error
            self._try.cancel(error)
            raise
        except BaseException as error:
            self._try.cancel(error)
            raise
        if verdict is None or foreseen is not None:
            self._try.abort("nothing changed" if foreseen is None else ADOPTED)
            return self._nothing_changed() if foreseen is None else self._reported(foreseen)
        self._try.seal(verdict)
        return self._confirm(verdict)

    def _confirm(self, verdict: Verdict) -> TransactionResult:
        """Sealed: from here only an entry decides, and only an entry lets us say `not_applied` (D2)."""
        try:
            outcome = confirm(self._repo, self._intents, self._candidate(verdict))
        except OutcomeUnknown as error:
            raise unknown(self._try.intent, error) from error
        except FencelineError as error:
            decided = self._try.fence(verdict, str(error), error)
            if decided.op is Op.FENCE:
                raise
            return self._reported(Confirmed(decided, decided.output or "", adopted=False))
        if isinstance(outcome, Confirmed) and not outcome.adopted:
            self._try.finish(outcome.entry, verdict)
            return self._reported(outcome)
        if isinstance(outcome, Refused):
            decided = self._try.fence(verdict, outcome.decision.why, fenced=self._hand_over)
        else:
            decided = self._try.fence(verdict, ADOPTED)
        if decided.op is not Op.FENCE:  # a sweep rolled it forward: it is applied, and that is what we report
            return self._reported(Confirmed(decided, decided.output or "", adopted=False))
        if isinstance(outcome, Confirmed):
            return self._reported(outcome)
        raise self._refusal(outcome, verdict)

    def _hand_over(self) -> None:
        self._try.hand_over(self.takes_over())

    def _refusal(self, refused: Refused, verdict: Verdict | None = None) -> FencelineError:
        overlap = Overlap(self._repo, self._candidate(verdict)) if verdict else None
        return refusal(self._repo, self._try.intent, refused, overlap)

    def _candidate(self, verdict: Verdict) -> Candidate:
        return Candidate(self._try.intent, verdict, self.execution, self._try.intent.actor, owner=True)

    def _nothing_changed(self) -> TransactionResult:
        return TransactionResult(Outcome.APPLIED, "noop", self.input.id, self._try.intent.base, None)

    def _reported(self, confirmed: Confirmed) -> TransactionResult:
        op = "adopt" if confirmed.adopted else str(confirmed.entry.op)
        return TransactionResult(Outcome.APPLIED, op, confirmed.output, confirmed.entry.seq, confirmed.entry.execution)

    def _dropping(self) -> bool:
        """Whether writes are dropped, because the key was applied before. Also the check that the block is open."""
        self._check_open()
        return self._found is not None

    def _check_open(self) -> None:
        if not self._entered or self._closed:
            raise TransactionClosed("the transaction is not open", hint="use it inside its with block")

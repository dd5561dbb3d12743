"""Try and Cancel: from the intent, through staging, to the seal; and the ways back out of it.

Phases A, B and D of the protocol, the same for a direct transaction and for a task's attempt. Phase C is `publish.py`.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable, Mapping
from dataclasses import replace
from typing import Any

from fenceline.errors import FencelineError, OutcomeUnknown, StoreError
from fenceline.repo.model import Commit, Op, RefEntry
from fenceline.repo.native.repository import NativeRepository
from fenceline.repo.native.staging import Staging
from fenceline.txn.explain import aborted_by_sweep, unknown
from fenceline.txn.intent import Intent, IntentStore, Verdict
from fenceline.txn.publish import fence
from fenceline.txn.records import aborted_record, end_record
from fenceline.txn.working import WorkingTree

log = logging.getLogger(__name__)

MOST_READS = 10_000  # read paths kept with the verdict; beyond that directories stand in for their files


class Try:
    """One execution's way from nothing to a sealed commit. Its intent is opened with the first byte, not before."""

    def __init__(
        self,
        repo: NativeRepository,
        intents: IntentStore,
        intent: Intent,
        start: Commit,
        before_first_byte: Callable[[], None] = lambda: None,
    ) -> None:
        self.intent = intent
        self.input = start
        self.tree = WorkingTree(repo, start)
        self._repo, self._intents = repo, intents
        self._before_first_byte = before_first_byte
        self._staging: Staging | None = None
        self._datasets: list[str] = []
        self._tables: list[str] = []
        self._elsewhere: dict[str, None] = {}  # keys that an engine wrote outside the prefixes of this execution
        self._jobs = 0
        self.seal_tried = False
        """From then on only the verdict that stands says whether this may still be cancelled."""
        self._stop_beating = repo.seams.threads.signal()

    @property
    def execution(self) -> str:
        return self.intent.execution

    @property
    def started(self) -> bool:
        """Whether anything was staged, so that there is something to publish or to clean up."""
        return self._staging is not None

    @property
    def staged_bytes(self) -> int:
        """How many bytes of files were staged here; what an engine wrote itself is counted where it is registered."""
        return self._staging.bytes if self._staging else 0

    # --- Try ----------------------------------------------------------------------------------------------------

    def staging(self) -> Staging:
        """The staging area; its intent is durable before the first byte (phase A)."""
        if self._staging is None:
            self._before_first_byte()
            self.intent = replace(self.intent, created=self._repo.seams.clock.now())  # its lease starts here
            self._intents.open(self.intent)
            self._staging = self._repo.staging(self.execution)
            self._repo.seams.threads.start(f"beat-{self.execution}", self._beat)
            # Intent first, then the check (D3): a collector that missed the intent has condemned the commit by now.
            self._repo.refuse_condemned([self.intent.input, *self.intent.pins])
        return self._staging

    def declare(self, dataset: str) -> None:
        """Name a dataset in the intent before the first byte is written into it."""
        self.staging()
        if dataset not in self._datasets:
            self._datasets.append(dataset)
            self._intents.declare(self.intent, self._declarations(), dataset)

    def declare_table(self, *tables: str) -> None:
        """Name tables in the intent before anything is written into them: garbage collection then leaves them alone."""
        self.staging()
        new = [table for table in dict.fromkeys(tables) if table not in self._tables]
        if new:
            self._tables += new
            self._intents.declare_tables(self.intent, self._declarations(), new)

    def _declarations(self) -> int:
        return len(self._datasets) + len(self._tables)

    def wrote(self, keys: Iterable[str]) -> None:
        """Count objects that an engine wrote under names of its own as staged: made durable, or deleted, with the rest.

        Only this process knows them. What a dead one wrote into a table is left to garbage collection.
        """
        new = dict.fromkeys(keys)
        self._elsewhere.update(new)
        self.staging().adopt(new)

    def hand_over(self, keys: Iterable[str]) -> None:
        """Leave such objects to another execution, which has declared their tables and said that it `wrote` them.

        Only when this one can no longer publish: else the other, when it is cancelled, would delete what is visible.
        """
        for key in keys:
            self._elsewhere.pop(key, None)

    def next_job(self) -> int:
        """A number for one more write into a dataset: each has a directory of its own."""
        self._jobs += 1
        return self._jobs

    def new_id(self) -> str:
        return self._repo.seams.ids.execution()

    def complete(
        self,
        message: str = "",
        metadata: Mapping[str, str] | None = None,
        merging: Iterable[Commit] = (),
        result: Any = None,
        guards: Iterable[Any] = (),
    ) -> Verdict | None:
        """Phase B up to the seal: tree, commit, everything durable (INV-2). None where the result equals the input."""
        if self._staging is None:
            return None
        others = tuple(merging)
        tree = self.tree.tree(self._staging)
        changed = next(self._repo.trees.diff(self.input.tree, tree), None) is not None
        if not changed and not others:
            return None
        commit = self._staging.commit(
            parents=(self.input.id, *(other.id for other in others)),
            tree=tree,
            depth=1 + max(commit.depth for commit in (self.input, *others)),
            actor=self.intent.actor,
            time=self._repo.seams.clock.now(),
            message=message,
            kind=self.intent.kind,
            step=self.intent.step,
            txn=self.intent.txn,
            attempt=self.intent.attempt,
            result=result,
            metadata=dict(metadata or {}),
        )
        self._staging.persist()
        return Verdict(
            "sealed",
            by=self.execution,
            commit=commit.id,
            op=str(Op.MERGE if others else Op.PUBLISH),
            reads=tuple(self.tree.reads.coarsened(MOST_READS)),
            datasets=tuple(self._datasets),
            result=result,
            guards=tuple(guards),
        )

    def seal(self, verdict: Verdict) -> None:
        """Win the verdict `sealed`, or fail with nothing published."""
        self.seal_tried = True
        try:
            standing = self._intents.seal(self.intent, verdict)
        except OutcomeUnknown as error:
            standing = self._verdict_after(error)
            if standing.verdict == "aborted" and standing.by == self.execution:
                self._tidy(standing.why)
                raise StoreError(
                    f"nothing was published: sealing failed: {error.message}", hint="run it again"
                ) from error
        except StoreError as error:
            self.cancel(error)
            raise
        if standing.verdict == "aborted":
            self._tidy(standing.why)
            raise aborted_by_sweep(self.intent)

    def _verdict_after(self, error: OutcomeUnknown) -> Verdict:
        """The answer about the seal was lost: asking for `aborted` tells which of the two stands (INV-3)."""
        try:
            return self._intents.abort(self.intent, self.execution, error.message)
        except StoreError as failure:
            raise unknown(self.intent, failure) from error

    # --- ends ---------------------------------------------------------------------------------------------------

    def swept(self) -> bool:
        """Whether a sweep has taken this execution for dead: then what cannot be read was deleted by right."""
        try:
            standing = self._intents.verdict(self.intent)
        except StoreError:  # it cannot be known now, and the error at hand says enough
            return False
        return standing is not None and standing.by != self.execution

    def cancel(self, error: BaseException) -> None:
        """Before the seal: win `aborted`, delete, record. What that cannot do now, a sweep does later."""
        if self.started and not self.abort(f"{type(error).__name__}: {error}"[:500]):
            error.add_note(
                f"nothing was published; intent {self.execution} is left, and the next `fenceline recover` removes it"
            )

    def abort(self, why: str) -> bool:
        """Called only before the seal is tried, so the verdict that stands is `aborted`: ours, or a sweep's."""
        try:
            self._intents.abort(self.intent, self.execution, why)
        except StoreError as error:
            self._left_behind(error)
            return False
        return self._tidy(why)

    def fence(
        self,
        verdict: Verdict,
        why: str,
        cause: FencelineError | None = None,
        fenced: Callable[[], None] = lambda: None,
    ) -> RefEntry:
        """After the seal: make sure that this can never be published, or learn that it was (D2). Then clean up.

        `fenced` is called when that is sure, before anything is deleted.
        """
        try:
            decided = fence(self._repo, self.intent, self.execution, self.intent.actor, why)
        except StoreError as error:
            raise unknown(self.intent, error) from (cause or error)
        if decided.op is Op.FENCE:
            fenced()
        self.finish(decided, verdict)
        return decided

    def finish(self, decided: RefEntry, verdict: Verdict) -> None:
        """Phase D. The outcome stands already; what cannot be tidied now is left to a sweep."""
        try:
            if decided.op is Op.FENCE and self._elsewhere:
                self._repo.discard(self.execution, (), self._elsewhere)
            record = end_record(self._repo, self.intent, decided, self.execution, verdict)
            self._intents.finish(record, self._declarations())
        except StoreError as error:
            self._left_behind(error)

    def close(self) -> None:
        """Stop renewing the lease."""
        self._stop_beating.set()

    def _tidy(self, why: str) -> bool:
        """Delete what was staged, and record it. Never replaces the result: what fails here is left to a sweep."""
        try:
            self._repo.discard(self.execution, self._datasets, self._elsewhere)
            record = aborted_record(self._repo, self.intent, self.execution, why)
            self._intents.finish(record, self._declarations())
        except StoreError as error:
            self._left_behind(error)
            return False
        return True

    def _left_behind(self, error: StoreError) -> None:
        log.warning("execution %s has ended; its intent is left for recovery: %s", self.execution, error)

    def _beat(self) -> None:
        while not self._stop_beating.wait(self.intent.lease / 3):
            try:
                self._intents.beat(self.execution)
            except StoreError as error:
                log.warning("execution %s could not renew its lease: %s", self.execution, error)

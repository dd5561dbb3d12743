"""One attempt on the native repository: through the same Try and Confirm as a direct transaction."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from pydantic import BaseModel

from fenceline.errors import OutcomeUnknown, StoreError
from fenceline.repo.merge import Unit
from fenceline.repo.model import Commit
from fenceline.repo.native.repository import NativeRepository
from fenceline.task.contract import TaskDefinition
from fenceline.task.course import Course
from fenceline.task.given import WorkspaceInput, chosen
from fenceline.task.lease import Lease
from fenceline.task.observe import OUTCOME_OF_ENTRY, Observation
from fenceline.task.orchestrator import HandedOut
from fenceline.task.result import Phase, TaskResult
from fenceline.task.spaces import Space, open_space
from fenceline.task.step import Attempting, as_fence
from fenceline.txn.explain import aborted_by_sweep, refusal, unknown
from fenceline.txn.intent import Intent, IntentStore, Verdict
from fenceline.txn.publish import Candidate, Confirmed, Overlap, Refused, confirm, look_back_step
from fenceline.txn.step import Resumable, finish_resumed, resumable, step_txn
from fenceline.txn.trying import Try

if TYPE_CHECKING:
    from fenceline.task.attempt import AttemptRunner


class NativeStep(Attempting[Verdict]):
    """See `fenceline.task.step.Step` for what each method promises."""

    def __init__(
        self,
        runner: AttemptRunner,
        definition: TaskDefinition[Any, Any],
        attempt: HandedOut,
        place: WorkspaceInput,
        params: BaseModel,
        lease: Lease,
        repo: NativeRepository,
    ) -> None:
        super().__init__(runner, definition, attempt, place, lease)
        self._repo = repo
        self._intents = IntentStore(self._repo.objects, self._repo.seams)
        self._input: Commit = chosen(self._repo, place.refs)
        last = self._repo.branch_log.last(place.branch)
        identity = attempt.identity
        self._intent = Intent(
            execution=self._repo.seams.ids.execution(),
            kind="step",
            actor=runner.actor or self._repo.seams.actor(),
            branch=place.branch,
            base=last.seq if last else 0,
            input=self._input.id,
            txn=step_txn(
                identity,
                definition.name,
                definition.version,
                self._repo.id,
                place.branch,
                self._input.id,
                params.model_dump(mode="json"),
            ),
            rebase=self._rebase,
            created=self._repo.seams.clock.now(),
            lease=runner.lease,
            owner=self._repo.seams.owner(),
            step=identity.step,
            attempt=identity.attempt,
        )
        self._try = Try(self._repo, self._intents, self._intent, self._input, before_first_byte=self.fence)

    @property
    def txn(self) -> str:
        return self._intent.txn or ""

    @property
    def execution(self) -> str:
        return self._intent.execution

    @property
    def input(self) -> str:
        return self._input.id

    def look_back(self, course: Course) -> TaskResult | None:
        """What earlier attempts of this step left: an outcome to report or adopt, or a sealed commit to resume."""
        decision, head = look_back_step(self._repo, self._intents, self._intent, self._serial)
        if decision.answer in ("report", "adopt"):
            course.enter(Phase.PUBLISH)
            outcome = self._confirm(replace(self._candidate(None, None), only_adopt=True))
            course.watching.outcome = "adopted" if decision.answer == "adopt" else "reported"
            return TaskResult.completed(self._place.output(outcome.output), outcome.result)
        if decision.answer == "fail":
            raise as_fence(refusal(self._repo, self._intent, Refused(decision, head), None))
        left = resumable(self._repo, self._intents, self._intent.txn or "")
        if left is None:
            return None
        course.enter(Phase.PUBLISH)
        course.watching.outcome = "resumed"
        return self._resume(left)

    @contextmanager
    def opened(self, course: Course) -> Iterator[Space]:
        """The workspace, for as long as the attempt works in it. What was not sealed is cancelled on the way out."""
        course.enter(Phase.MATERIALISE)
        runner = self._runner
        space = open_space(
            self._definition,
            self._repo,
            self._try,
            runner.workspace_root,
            self._attempt.identity,
            runner.seams,
            runner.spark,
            runner.on_progress,
        )
        try:
            yield space
        except BaseException as error:
            if not self._try.seal_tried:  # what was sealed stays for the next attempt
                self._try.cancel(error)
            raise
        finally:
            self._try.close()
            space.close()

    def preview(self, space: Space) -> Iterator[Unit]:
        """What staging would change; taken back again."""
        space.stage()
        verdict = self._try.complete("rehearsal")
        changes = list(self._repo.changes(self._input, self._repo.commit(verdict.commit or ""))) if verdict else []
        if self._try.started:
            self._try.abort("a rehearsal publishes nothing")
        yield from changes

    def stage(self, space: Space, value: Any, verdicts: list[dict[str, Any]]) -> Verdict | None:
        """Only what changed is staged; then sealed. None for a no-op, which stages nothing and opens no intent."""
        self._budget.begin("stage")
        space.stage()
        try:
            verdict = self._try.complete(self._message(), result=value, guards=verdicts)
        except StoreError as error:
            if self._try.swept():
                raise aborted_by_sweep(self._intent) from error
            raise
        if verdict is None:
            if self._try.started:
                self._try.abort("nothing changed")
            return None
        self._budget.check()
        self._try.seal(verdict)
        return verdict

    def confirm(self, verdict: Verdict | None, value: Any, watching: Observation) -> TaskResult:
        """Section 4. What was sealed stays for the next attempt if this one may not publish it."""
        outcome = self._confirm(self._candidate(verdict, value))
        watching.outcome = OUTCOME_OF_ENTRY.get(outcome.entry.op, "reported")
        watching.bytes = self._try.staged_bytes
        if verdict is not None:
            if outcome.entry.execution == self._intent.execution:
                self._try.finish(outcome.entry, verdict)
            else:  # another execution of this step was first; ours can never be needed
                self._try.fence(verdict, "its step has another outcome")
        return TaskResult.completed(self._place.output(outcome.output), outcome.result)

    def _resume(self, left: Resumable) -> TaskResult:
        candidate = Candidate(
            self._intent,
            left.verdict,
            by=self._intent.execution,
            actor=self._intent.actor,
            owner=False,
            staged=left.intent.execution,
            result=left.verdict.result,
            serial=self._serial,
            attempt_fence=self.fence,
        )
        outcome = self._confirm(candidate)
        if outcome.entry.execution == left.intent.execution:
            finish_resumed(self._repo, self._intents, left, outcome.entry, self._intent.execution)
        return TaskResult.completed(self._place.output(outcome.output), outcome.result)

    def _confirm(self, candidate: Candidate) -> Confirmed:
        self._budget.begin("confirm")
        try:
            outcome = confirm(self._repo, self._intents, candidate)
        except OutcomeUnknown as error:
            raise unknown(self._intent, error) from error
        if isinstance(outcome, Refused):
            overlap = Overlap(self._repo, candidate) if candidate.verdict else None
            raise as_fence(refusal(self._repo, self._intent, outcome, overlap))
        return outcome

    def _candidate(self, verdict: Verdict | None, value: Any) -> Candidate:
        return Candidate(
            self._intent,
            verdict,
            by=self._intent.execution,
            actor=self._intent.actor,
            owner=True,
            reads=tuple(self._try.tree.reads),
            result=value,
            serial=self._serial,
            attempt_fence=self.fence,
        )

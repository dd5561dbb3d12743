"""The life of one attempt, top to bottom: the protocol's section 3, readable as code.

validate → look back → workspace → pre guards → body → result model → post guards → diff → attempt fence → Try →
Confirm (with the second attempt fence) → COMPLETED → cleanup.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, nullcontext
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from pydantic import BaseModel

from fenceline.errors import FencelineError, OutcomeUnknown, PublishFenceError, StoreError
from fenceline.repo.merge import Unit
from fenceline.repo.model import Commit
from fenceline.repo.native.repository import NativeRepository
from fenceline.seams import Seams
from fenceline.task.contract import TaskDefinition
from fenceline.task.given import WorkspaceInput, chosen, validate
from fenceline.task.guard import GuardViolations
from fenceline.task.lease import Lease
from fenceline.task.observe import OUTCOME_OF_ENTRY, Observation, observed, outcome_of_error
from fenceline.task.orchestrator import HandedOut, Orchestrator, attempt_fence
from fenceline.task.rehearsal import Rehearsal
from fenceline.task.result import Phase, TaskResult, secrets_of, status_of
from fenceline.task.spaces import Space, open_space
from fenceline.task.spending import Spending
from fenceline.txn.explain import aborted_by_sweep, refusal, unknown
from fenceline.txn.intent import DEFAULT_LEASE, Intent, IntentStore, Verdict
from fenceline.txn.publish import Candidate, Confirmed, Overlap, Refused, confirm, look_back_step
from fenceline.txn.step import Resumable, finish_resumed, resumable, step_txn
from fenceline.txn.trying import Try

if TYPE_CHECKING:
    from fenceline.spark.progress import OnProgress
    from fenceline.spark.settings import SparkSettings

log = logging.getLogger(__name__)

OnPhase = Callable[[Phase], None]
OnFact = Callable[[str, Mapping[str, Any]], None]


@dataclass(slots=True)
class _Course:
    """Where an attempt is: the failure table needs the phase in which it failed."""

    on_phase: OnPhase
    watching: Observation
    phase: Phase = Phase.VALIDATE
    secrets: frozenset[str] = frozenset()

    def enter(self, phase: Phase) -> None:
        self.phase = phase
        self.watching.enter(phase)
        self.on_phase(phase)


@dataclass(frozen=True, slots=True)
class AttemptRunner:
    """Runs attempts of tasks against repositories and an orchestrator."""

    repositories: Callable[[str], NativeRepository]
    """The repository that an input's `repository` names."""
    orchestrator: Orchestrator
    workspace_root: Path
    actor: str | None = None
    seams: Seams = field(default_factory=Seams)
    lease: float = DEFAULT_LEASE
    on_phase: OnPhase = lambda phase: None
    on_fact: OnFact = lambda kind, data: None
    """Told of guard verdicts, of what the body measured, and of the outcome with its ids and bytes; failures too."""
    spark: SparkSettings | None = None
    on_progress: OnProgress | None = None
    """Told how far Spark's stages are, from a thread of its own."""

    def run(self, definition: TaskDefinition[Any, Any], attempt: HandedOut, held: Lease | None = None) -> TaskResult:
        """One attempt. Never raises: whatever happens becomes a result, by the failure table.

        `held` is the lease of a caller that keeps it until the result is accepted.
        """
        ids = {"step": attempt.identity.step, "attempt": attempt.identity.attempt}
        with observed(definition.name, ids, self.seams.clock) as watching:
            course = _Course(self.on_phase, watching)
            lease = Lease(self.orchestrator, attempt, self.seams, definition.heartbeat_interval)
            try:
                with nullcontext(held) if held else lease as holding:
                    return self._run(definition, attempt, course, holding)
            except Exception as error:  # noqa: BLE001 - a body may raise anything, and every error becomes a result
                watching.outcome = outcome_of_error(error)
                return self._failed(attempt, course, error)
            finally:
                self.on_fact("outcome", {**watching.ids, "outcome": watching.outcome, "bytes": watching.bytes})

    def _failed(self, attempt: HandedOut, course: _Course, error: Exception) -> TaskResult:
        """By the failure table. Secrets are blotted out of the reason and of the log."""
        result = TaskResult.failed(status_of(course.phase, error), error, phase=course.phase, secrets=course.secrets)
        if isinstance(error, GuardViolations):
            told = [verdict.as_dict(course.secrets) for verdict in error.verdicts]
            self.on_fact("guards", {"verdicts": told})
        log.warning("attempt %s of %s: %s", attempt.identity.attempt, attempt.identity.step, result.reason)
        return result

    def _run(
        self, definition: TaskDefinition[Any, Any], attempt: HandedOut, course: _Course, lease: Lease
    ) -> TaskResult:
        place, params = validate(definition, attempt.input)
        course.secrets = secrets_of(params)
        if place is None:
            course.enter(Phase.BODY)
            result = definition.function(params)
            course.enter(Phase.RESULT_MODEL)
            course.watching.outcome = "completed"
            return TaskResult.completed(None, definition.result_from(result))
        step = _Step(self, definition, attempt, place, params, lease)
        course.watching.identify(txn=step.txn, execution=step.execution)

        course.enter(Phase.LOOK_BACK)
        if step.writable:
            done = step.look_back(course)
            if done is not None:
                return done
        with step.opened(course) as space:
            value, verdicts = self._body(definition, params, space, course, lease)
            if not step.writable:
                course.watching.outcome = "read_only"
                return TaskResult.completed(place.output(step.input), value)
            course.enter(Phase.FENCE)
            step.fence()
            course.enter(Phase.STAGE)
            sealed = step.stage(space, value, verdicts)
            course.enter(Phase.PUBLISH if sealed else Phase.NOOP_CHECK)
            return step.confirm(sealed, value, course.watching)

    def _body(
        self,
        definition: TaskDefinition[Any, Any],
        params: BaseModel,
        space: Space,
        course: _Course,
        lease: Lease,
    ) -> tuple[dict[str, Any], list[dict[str, Any]]]:
        """Pre guards, body, result model, post guards: the result, and the guards' verdicts on what was done."""
        course.enter(Phase.PRE_GUARDS)
        before = space.guard("pre")
        course.enter(Phase.BODY)
        try:
            with space.working():
                result = lease.watch(lambda: definition.function(space.handle, params), space.cancel)
        finally:
            if numbers := space.metrics.collected():
                course.watching.measured(numbers)
                self.on_fact("metrics", {"metrics": numbers})
        course.enter(Phase.RESULT_MODEL)
        value: BaseModel = definition.result_from(result)
        course.enter(Phase.POST_GUARDS)
        after = space.guard("post")
        verdicts = [verdict.as_dict() for verdict in (*before, *after)]
        if verdicts:
            self.on_fact("guards", {"verdicts": verdicts})
        return value.model_dump(mode="json"), verdicts

    def rehearse(self, definition: TaskDefinition[Any, Any], attempt: HandedOut) -> Rehearsal:
        """Everything but the publication: what the attempt would change. Leaves nothing behind; raises what it met."""
        watching = Observation(definition.name, {}, self.seams.clock, None)
        course = _Course(self.on_phase, watching)
        place, params = validate(definition, attempt.input)
        with Lease(self.orchestrator, attempt, self.seams, definition.heartbeat_interval) as lease:
            if place is None:
                course.enter(Phase.BODY)
                return Rehearsal(definition.result_from(definition.function(params)).model_dump(mode="json"), (), ())
            step = _Step(self, definition, attempt, place, params, lease)
            with step.opened(course) as space:
                value, verdicts = self._body(definition, params, space, course, lease)
                course.enter(Phase.STAGE)
                changes = step.preview(space) if step.writable else ()
                return Rehearsal(value, tuple(changes), tuple(verdicts), space.metrics.collected())


class _Step:
    """One attempt's dealings with its repository."""

    def __init__(
        self,
        runner: AttemptRunner,
        definition: TaskDefinition[Any, Any],
        attempt: HandedOut,
        place: WorkspaceInput,
        params: BaseModel,
        lease: Lease,
    ) -> None:
        assert definition.spec is not None
        self._runner, self._definition, self._attempt, self._lease = runner, definition, attempt, lease
        self._place = place
        self._spec = definition.spec
        self._repo = runner.repositories(place.repository)
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
            rebase="rebase" in (self._spec.on_conflict, place.on_conflict),
            created=self._repo.seams.clock.now(),
            lease=runner.lease,
            owner=self._repo.seams.owner(),
            step=identity.step,
            attempt=identity.attempt,
        )
        self._budget = Spending(definition.budget, runner.seams.clock)
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

    @property
    def writable(self) -> bool:
        return not self._spec.read_only

    def fence(self) -> None:
        """The attempt fence: a lost lease, a spent budget or an orchestrator that moved on stops everything."""
        self._lease.check()
        self._budget.check()
        attempt_fence(self._runner.orchestrator, self._attempt)

    def look_back(self, course: _Course) -> TaskResult | None:
        """What earlier attempts of this step left: an outcome to report or adopt, or a sealed commit to resume."""
        decision, head = look_back_step(self._repo, self._intents, self._intent, self._serial)
        if decision.answer in ("report", "adopt"):
            course.enter(Phase.PUBLISH)
            outcome = self._confirm(replace(self._candidate(None, None), only_adopt=True))
            course.watching.outcome = "adopted" if decision.answer == "adopt" else "reported"
            return TaskResult.completed(self._place.output(outcome.output), outcome.result)
        if decision.answer == "fail":
            raise _as_fence(refusal(self._repo, self._intent, Refused(decision, head), None))
        left = resumable(self._repo, self._intents, self._intent.txn or "")
        if left is None:
            return None
        course.enter(Phase.PUBLISH)
        course.watching.outcome = "resumed"
        return self._resume(left)

    @contextmanager
    def opened(self, course: _Course) -> Iterator[Space]:
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
            raise _as_fence(refusal(self._repo, self._intent, outcome, overlap))
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

    @property
    def _serial(self) -> bool:
        return self._spec.fence == "serial"

    def _message(self) -> str:
        identity = self._attempt.identity
        return f"{self._definition.name} ({identity.reference}, run {identity.workflow})"


def _as_fence(error: FencelineError) -> FencelineError:
    """A step never rebases by hand: whatever stood in its way is a publish fence that names it."""
    if isinstance(error, PublishFenceError):
        return error
    return PublishFenceError(
        error.message,
        hint="restart the run from this step on the new head (fenceline runs restart-from), or let it rebase",
        **error.context,
    )

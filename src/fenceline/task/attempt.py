"""The life of one attempt, top to bottom: the protocol's section 3, readable as code.

validate → look back → workspace → pre guards → body → result model → post guards → diff → attempt fence → Try →
Confirm (with the second attempt fence) → COMPLETED → cleanup.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping
from contextlib import nullcontext
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

from pydantic import BaseModel

from fenceline.seams import Seams
from fenceline.task.contract import TaskDefinition
from fenceline.task.course import Course, OnPhase
from fenceline.task.given import validate
from fenceline.task.guard import GuardViolations
from fenceline.task.lease import Lease
from fenceline.task.observe import Observation, observed, outcome_of_error
from fenceline.task.orchestrator import HandedOut, Orchestrator
from fenceline.task.rehearsal import Rehearsal
from fenceline.task.result import Phase, TaskResult, secrets_of, status_of
from fenceline.task.spaces import Space
from fenceline.task.step import AnyRepository, open_step
from fenceline.txn.intent import DEFAULT_LEASE

if TYPE_CHECKING:
    from fenceline.spark.progress import OnProgress
    from fenceline.spark.settings import SparkSettings

log = logging.getLogger(__name__)

OnFact = Callable[[str, Mapping[str, Any]], None]


@dataclass(frozen=True, slots=True)
class AttemptRunner:
    """Runs attempts of tasks against repositories and an orchestrator."""

    repositories: Callable[[str], AnyRepository]
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
            course = Course(self.on_phase, watching)
            lease = Lease(self.orchestrator, attempt, self.seams, definition.heartbeat_interval)
            try:
                with nullcontext(held) if held else lease as holding:
                    return self._run(definition, attempt, course, holding)
            except Exception as error:  # noqa: BLE001 - a body may raise anything, and every error becomes a result
                watching.outcome = outcome_of_error(error)
                return self._failed(attempt, course, error)
            finally:
                self.on_fact("outcome", {**watching.ids, "outcome": watching.outcome, "bytes": watching.bytes})

    def _failed(self, attempt: HandedOut, course: Course, error: Exception) -> TaskResult:
        """By the failure table. Secrets are blotted out of the reason and of the log."""
        result = TaskResult.failed(status_of(course.phase, error), error, phase=course.phase, secrets=course.secrets)
        if isinstance(error, GuardViolations):
            told = [verdict.as_dict(course.secrets) for verdict in error.verdicts]
            self.on_fact("guards", {"verdicts": told})
        log.warning("attempt %s of %s: %s", attempt.identity.attempt, attempt.identity.step, result.reason)
        return result

    def _run(
        self, definition: TaskDefinition[Any, Any], attempt: HandedOut, course: Course, lease: Lease
    ) -> TaskResult:
        place, params = validate(definition, attempt.input)
        course.secrets = secrets_of(params)
        if place is None:
            course.enter(Phase.BODY)
            result = definition.function(params)
            course.enter(Phase.RESULT_MODEL)
            course.watching.outcome = "completed"
            return TaskResult.completed(None, definition.result_from(result))
        step = open_step(self, definition, attempt, place, params, lease)
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
        course: Course,
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
        course = Course(self.on_phase, watching)
        place, params = validate(definition, attempt.input)
        with Lease(self.orchestrator, attempt, self.seams, definition.heartbeat_interval) as lease:
            if place is None:
                course.enter(Phase.BODY)
                return Rehearsal(definition.result_from(definition.function(params)).model_dump(mode="json"), (), ())
            step = open_step(self, definition, attempt, place, params, lease)
            with step.opened(course) as space:
                value, verdicts = self._body(definition, params, space, course, lease)
                course.enter(Phase.STAGE)
                changes = step.preview(space) if step.writable else ()
                return Rehearsal(value, tuple(changes), tuple(verdicts), space.metrics.collected())

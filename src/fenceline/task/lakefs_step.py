"""One attempt on a lakeFS repository: the same life, on a staging branch and a fenced merge."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, cast

from pydantic import BaseModel

from fenceline.repo.lakefs.notes import Note, staging_name
from fenceline.repo.lakefs.repository import LakeRepository
from fenceline.repo.merge import Unit
from fenceline.repo.pathset import PathSet
from fenceline.task.contract import TaskDefinition
from fenceline.task.course import Course
from fenceline.task.given import WorkspaceInput, chosen
from fenceline.task.lakefs_space import LakeSpace
from fenceline.task.lease import Lease
from fenceline.task.observe import AttemptOutcome, Observation
from fenceline.task.orchestrator import HandedOut
from fenceline.task.result import Phase, TaskResult
from fenceline.task.spaces import Space
from fenceline.task.step import Attempting
from fenceline.txn.intent import Record
from fenceline.txn.lakefs.confirm import Outcome, Turn, confirm, look_back, resumable
from fenceline.txn.lakefs.staging import Staged, StagingBranch, discard
from fenceline.txn.step import step_txn

if TYPE_CHECKING:
    from fenceline.task.attempt import AttemptRunner
    from fenceline.task.lakefs_spark_space import LakeSparkSpace

STAGING_LEASE = 3600.0
"""How long an unsealed staging branch is left alone where the task has no publish budget, in seconds."""
SPARK_LEASE = 7 * 86400.0
"""The same for a Spark task, which stages while its body runs; on its own machine a dead one is noticed at once."""
MOST_READS = 1000
"""Read paths kept in the commit's metadata; beyond that directories stand in for their files."""

_OUTCOMES: dict[str, AttemptOutcome] = {
    "publish": "published",
    "relocate": "replaced",
    "adopt": "adopted",
    "noop": "noop",
    "report": "reported",
}


class LakeStep(Attempting[Staged]):
    """See `fenceline.task.step.Step` for what each method promises."""

    def __init__(
        self,
        runner: AttemptRunner,
        definition: TaskDefinition[Any, Any],
        attempt: HandedOut,
        place: WorkspaceInput,
        params: BaseModel,
        lease: Lease,
        repo: LakeRepository,
    ) -> None:
        super().__init__(runner, definition, attempt, place, lease)
        self._repo = repo
        start = chosen(repo, place.refs)
        identity = attempt.identity
        self._turn = Turn(
            execution=repo.seams.ids.execution(),
            actor=runner.actor or repo.seams.actor(),
            branch=place.branch,
            input=start,
            step=identity.step,
            txn=step_txn(
                identity,
                definition.name,
                definition.version,
                repo.id,
                place.branch,
                start.id,
                params.model_dump(mode="json"),
            ),
            attempt=identity.attempt,
            rebase=self._rebase,
            serial=self._serial,
            fence=self.fence,
        )
        self._staging = StagingBranch(repo, start, self._turn.execution, self._branch_name, self.fence)
        self._reads = PathSet()

    @property
    def txn(self) -> str:
        return self._turn.txn

    @property
    def execution(self) -> str:
        return self._turn.execution

    @property
    def input(self) -> str:
        return self._turn.input.id

    def look_back(self, course: Course) -> TaskResult | None:
        decision = look_back(self._repo, self._turn)
        if decision.answer in ("report", "adopt"):
            course.enter(Phase.PUBLISH)
            self._budget.begin("confirm")
            outcome = confirm(self._repo, self._turn, None, None, self._reads, only_adopt=True)
            course.watching.outcome = "adopted" if decision.answer == "adopt" else "reported"
            return self._completed(outcome)
        left = resumable(self._repo, self._turn)
        if left is None:
            return None
        course.enter(Phase.PUBLISH)
        course.watching.outcome = "resumed"
        return self._completed(self._confirm(left, None))

    @contextmanager
    def opened(self, course: Course) -> Iterator[Space]:
        course.enter(Phase.MATERIALISE)
        space = self._space()
        try:
            yield space
        except BaseException as error:
            self._staging.cancel(error, lambda why: self._record("aborted", why))
            raise
        finally:
            space.close()

    def _space(self) -> LakeSpace | LakeSparkSpace:
        runner = self._runner
        if self._definition.kind == "spark":
            from fenceline.task.lakefs_spark_space import LakeSparkSpace  # only where Spark is meant

            spark = LakeSparkSpace(
                self._spec,
                self._repo,
                self._turn.input,
                self._staging,
                self._turn.execution,
                runner.seams,
                runner.spark,
                self._definition.function.__module__,
            )
            self._reads = spark.reads
            return spark
        space = LakeSpace(
            self._definition.kind == "path",
            self._spec,
            self._repo,
            self._turn.input,
            self._staging,
            self._turn.execution,
            runner.workspace_root,
            self._attempt.identity,
            runner.seams,
        )
        self._reads = space.reads
        return space

    def preview(self, space: Space) -> list[Unit]:
        return cast("LakeSpace | LakeSparkSpace", space).changes()

    def stage(self, space: Space, value: Any, verdicts: list[dict[str, Any]]) -> Staged | None:
        self._budget.begin("stage")
        space.stage()
        if self._staging.name is None:
            return None
        self._budget.check()
        turn = self._turn
        note = Note(
            execution=turn.execution,
            by=turn.execution,
            actor=turn.actor,
            step=turn.step,
            txn=turn.txn,
            attempt=turn.attempt,
            branch=turn.branch,
            input=turn.input.id,
            result=value,
            reads=tuple(self._reads.coarsened(MOST_READS)),
            rebase=turn.rebase,
            guards=tuple(verdicts),
        )
        sealed = self._staging.seal(self._message(), note)
        if sealed is None:
            discard(self._repo, self._staging.name, self._record("aborted", "nothing changed"))
        return sealed

    def confirm(self, sealed: Staged | None, value: Any, watching: Observation) -> TaskResult:
        outcome = self._confirm(sealed, value)
        watching.outcome = _OUTCOMES[outcome.op]
        watching.bytes = self._staging.bytes
        return self._completed(outcome)

    def _confirm(self, staged: Staged | None, value: Any) -> Outcome:
        """Confirm, and delete the staging branch once it was published or can never be needed."""
        self._budget.begin("confirm")
        outcome = confirm(self._repo, self._turn, staged, value, self._reads)
        if staged is not None:
            published = outcome.execution == staged.note.execution
            why = None if published else self._record("rolled_back", "its step has another outcome")
            discard(self._repo, staged.branch, why)
        return outcome

    def _completed(self, outcome: Outcome) -> TaskResult:
        return TaskResult.completed(self._place.output(outcome.output), outcome.result)

    def _branch_name(self) -> str:
        budget, identity, turn = self._definition.budget, self._attempt.identity, self._turn
        lease = budget.stage_timeout_seconds + budget.confirm_timeout_seconds if budget else STAGING_LEASE
        if self._definition.kind == "spark":
            lease = SPARK_LEASE
        shown = "_".join(
            str(part)
            for part in (
                identity.workflow[:24],
                identity.reference[:24],
                identity.seq,
                identity.iteration,
                identity.task_id[:8],
                identity.retry_count,
            )
        )
        seams = self._repo.seams
        until = seams.clock.now() + lease
        return staging_name(turn.branch, turn.step, turn.txn, shown, seams.owner(), until, turn.execution).name

    def _record(self, kind: Any, why: str) -> Record:
        turn, now = self._turn, self._repo.seams.clock.now()
        return Record(turn.execution, kind, turn.branch, turn.actor, turn.execution, now, why=why)

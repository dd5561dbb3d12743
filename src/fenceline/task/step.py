"""One attempt's dealings with its repository: the seam between the life of an attempt and the store it works on."""

from __future__ import annotations

from collections.abc import Iterable
from contextlib import AbstractContextManager
from typing import TYPE_CHECKING, Any, Generic, Protocol, TypeVar

from pydantic import BaseModel

from fenceline.errors import FencelineError, PublishFenceError
from fenceline.repo.lakefs.repository import LakeRepository
from fenceline.repo.merge import Unit
from fenceline.repo.native.repository import NativeRepository
from fenceline.task.contract import TaskDefinition
from fenceline.task.course import Course
from fenceline.task.given import WorkspaceInput
from fenceline.task.lease import Lease
from fenceline.task.observe import Observation
from fenceline.task.orchestrator import HandedOut, attempt_fence
from fenceline.task.result import TaskResult
from fenceline.task.spaces import Space
from fenceline.task.spending import Spending

if TYPE_CHECKING:
    from fenceline.task.attempt import AttemptRunner

AnyRepository = NativeRepository | LakeRepository

Sealed = TypeVar("Sealed")


class Step(Protocol[Sealed]):
    """Look back, stage, seal, confirm: what sections 3 and 4 of the protocol ask of a store."""

    @property
    def txn(self) -> str: ...

    @property
    def execution(self) -> str: ...

    @property
    def input(self) -> str:
        """The id of the commit that the attempt works on."""
        ...

    @property
    def writable(self) -> bool: ...

    def fence(self) -> None:
        """The attempt fence: a lost lease, a spent budget or an orchestrator that moved on stops everything."""
        ...

    def look_back(self, course: Course) -> TaskResult | None:
        """What earlier attempts of this step left: an outcome to report or adopt, or a sealed commit to resume."""
        ...

    def opened(self, course: Course) -> AbstractContextManager[Space]:
        """The workspace, for as long as the attempt works in it. What was not sealed is cancelled on the way out."""
        ...

    def preview(self, space: Space) -> Iterable[Unit]:
        """What staging would change; taken back again."""
        ...

    def stage(self, space: Space, value: Any, verdicts: list[dict[str, Any]]) -> Sealed | None:
        """Only what changed is staged; then sealed. None for a no-op, which stages nothing and opens no intent."""
        ...

    def confirm(self, sealed: Sealed | None, value: Any, watching: Observation) -> TaskResult:
        """Section 4. What was sealed stays for the next attempt if this one may not publish it."""
        ...


class Attempting(Generic[Sealed]):
    """What every store's step has in common."""

    def __init__(
        self,
        runner: AttemptRunner,
        definition: TaskDefinition[Any, Any],
        attempt: HandedOut,
        place: WorkspaceInput,
        lease: Lease,
    ) -> None:
        assert definition.spec is not None
        self._runner, self._definition, self._attempt, self._lease = runner, definition, attempt, lease
        self._place = place
        self._spec = definition.spec
        self._budget = Spending(definition.budget, runner.seams.clock)

    @property
    def writable(self) -> bool:
        return not self._spec.read_only

    def fence(self) -> None:
        self._lease.check()
        self._budget.check()
        attempt_fence(self._runner.orchestrator, self._attempt)

    @property
    def _rebase(self) -> bool:
        return "rebase" in (self._spec.on_conflict, self._place.on_conflict)

    @property
    def _serial(self) -> bool:
        return self._spec.fence == "serial"

    def _message(self) -> str:
        identity = self._attempt.identity
        return f"{self._definition.name} ({identity.reference}, run {identity.workflow})"


def open_step(
    runner: AttemptRunner,
    definition: TaskDefinition[Any, Any],
    attempt: HandedOut,
    place: WorkspaceInput,
    params: BaseModel,
    lease: Lease,
) -> Step[Any]:
    """The step on the store that its input names."""
    repo = runner.repositories(place.repository)
    if isinstance(repo, LakeRepository):
        from fenceline.task.lakefs_step import LakeStep  # its client comes with an extra

        return LakeStep(runner, definition, attempt, place, params, lease, repo)
    from fenceline.task.native_step import NativeStep

    return NativeStep(runner, definition, attempt, place, params, lease, repo)


def as_fence(error: FencelineError) -> FencelineError:
    """A step never rebases by hand: whatever stood in its way is a publish fence that names it."""
    if isinstance(error, PublishFenceError):
        return error
    return PublishFenceError(
        error.message,
        hint="restart the run from this step on the new head (fenceline runs restart-from), or let it rebase",
        **error.context,
    )

"""The orchestrator port: who hands out attempts, and says whether one is still wanted."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Protocol

from fenceline.errors import StaleAttemptError
from fenceline.task.result import TaskResult
from fenceline.txn.step import StepIdentity

IN_PROGRESS = "IN_PROGRESS"


@dataclass(frozen=True, slots=True)
class HandedOut:
    """An attempt as it was polled."""

    identity: StepIdentity
    task: str
    input: Any
    """The task's input as JSON: `workspace` and `params`, or `params` alone."""


@dataclass(frozen=True, slots=True)
class Standing:
    """An attempt as the orchestrator sees it now."""

    status: str
    identity: StepIdentity


class Orchestrator(Protocol):
    """Conductor, the embedded runner, or `fenceline.testing.MemoryOrchestrator`."""

    def poll(self, task: str) -> HandedOut | None:
        """The next attempt of a task, leased to the caller."""
        ...

    def current(self, attempt: HandedOut) -> Standing:
        """How the attempt stands now. Any error means that it cannot be known: callers fail closed."""
        ...

    def heartbeat(self, attempt: HandedOut) -> None:
        """Hold the lease. Raises when the lease is lost."""
        ...

    def complete(self, attempt: HandedOut, result: TaskResult) -> bool:
        """Report the result; False if the orchestrator no longer wanted it."""
        ...


def attempt_fence(orchestrator: Orchestrator, attempt: HandedOut) -> None:
    """Raise unless the attempt is still the one that was handed out (R2). Not knowing is a no."""
    try:
        standing = orchestrator.current(attempt)
    except Exception as error:  # whatever the client of a remote service raises, the answer could not be had
        raise StaleAttemptError(
            f"if attempt {attempt.identity.attempt} of {attempt.identity.step} is still wanted, is unknown: {error}",
            hint="nothing was published; the orchestrator retries it",
        ) from error
    mine, theirs = attempt.identity, standing.identity
    differs = [
        name for name in ("workflow", "task_id", "retry_count", "epoch") if getattr(mine, name) != getattr(theirs, name)
    ]
    if standing.status != IN_PROGRESS:
        differs.append(f"status {standing.status}")
    if differs:
        raise StaleAttemptError(
            f"attempt {mine.attempt} of {mine.step} was given up by the orchestrator ({', '.join(differs)})",
            hint="nothing was published; a newer attempt has taken over",
        )

"""One attempt by hand: no orchestrator, so nobody gives it up."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from fenceline.seams import Seams
from fenceline.task.orchestrator import IN_PROGRESS, HandedOut, Standing
from fenceline.task.result import TaskResult
from fenceline.txn.step import StepIdentity


@dataclass(frozen=True, slots=True)
class ByHand:
    """The orchestrator port for a single attempt that a person runs."""

    def poll(self, task: str) -> HandedOut | None:
        return None

    def current(self, attempt: HandedOut) -> Standing:
        return Standing(IN_PROGRESS, attempt.identity)

    def heartbeat(self, attempt: HandedOut) -> None:
        return None

    def complete(self, attempt: HandedOut, result: TaskResult) -> bool:
        return True


def handed_out(task: str, given: Any, seams: Seams) -> HandedOut:
    """An attempt of a run of its own."""
    run = seams.ids.execution()
    return HandedOut(StepIdentity(f"try-{run}", task, run, 0), task, given)

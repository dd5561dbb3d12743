"""An orchestrator in memory: attempts handed out, retried, timed out and forced by hand."""

from __future__ import annotations

import itertools
import threading
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from typing import Any

from fenceline.errors import StaleAttemptError
from fenceline.task.orchestrator import IN_PROGRESS, HandedOut, Standing
from fenceline.task.result import TaskResult
from fenceline.txn.step import StepIdentity


@dataclass
class ScheduledStep:
    """One step of a run: its current attempt, and how every attempt ended."""

    handed_out: HandedOut
    status: str = "SCHEDULED"
    results: list[TaskResult] = field(default_factory=list)
    ignored: list[TaskResult] = field(default_factory=list)
    """Results that came from an attempt that was no longer wanted."""


class MemoryOrchestrator:
    """The orchestrator port on a dictionary; tests decide when an attempt times out, is retried or forced."""

    def __init__(self) -> None:
        self._steps: dict[str, ScheduledStep] = {}
        self._lock = threading.RLock()
        self._ids = itertools.count(1)
        self.beats: list[str] = []
        self.on_current: Callable[[HandedOut], None] = lambda attempt: None
        """Called whenever an attempt fence asks: a place to raise, or to change things in between."""
        self.on_heartbeat: Callable[[HandedOut], None] = lambda attempt: None

    def schedule(self, task: str, input: Any, *, workflow: str = "w1", reference: str = "") -> ScheduledStep:  # noqa: A002
        """Put a step up for polling."""
        identity = StepIdentity(workflow, reference or task, f"t{next(self._ids)}", 0)
        step = ScheduledStep(HandedOut(identity, task, input))
        with self._lock:
            self._steps[identity.step] = step
        return step

    def retry(self, step: ScheduledStep) -> ScheduledStep:
        """Give the current attempt up (time-out, failure) and schedule the next: new task id, retry count + 1."""
        with self._lock:
            old = step.handed_out.identity
            new = replace(old, task_id=f"t{next(self._ids)}", retry_count=old.retry_count + 1)
            step.handed_out = replace(step.handed_out, identity=new)
            step.status = "SCHEDULED"
        return step

    def force(self, step: ScheduledStep) -> ScheduledStep:
        """A forced rerun: task id and retry count stay, the epoch goes up."""
        with self._lock:
            old = step.handed_out.identity
            step.handed_out = replace(step.handed_out, identity=replace(old, epoch=old.epoch + 1))
            step.status = "SCHEDULED"
        return step

    def poll(self, task: str) -> HandedOut | None:
        with self._lock:
            for step in self._steps.values():
                if step.status == "SCHEDULED" and step.handed_out.task == task:
                    step.status = IN_PROGRESS
                    return step.handed_out
        return None

    def take(self, step: ScheduledStep) -> HandedOut:
        """Poll this very step."""
        with self._lock:
            step.status = IN_PROGRESS
            return step.handed_out

    def current(self, attempt: HandedOut) -> Standing:
        self.on_current(attempt)
        with self._lock:
            step = self._steps[attempt.identity.step]
            return Standing(step.status, step.handed_out.identity)

    def heartbeat(self, attempt: HandedOut) -> None:
        self.on_heartbeat(attempt)
        with self._lock:
            self.beats.append(attempt.identity.attempt)
            if self._steps[attempt.identity.step].handed_out.identity != attempt.identity:
                raise StaleAttemptError(f"attempt {attempt.identity.attempt} has lost its lease")

    def complete(self, attempt: HandedOut, result: TaskResult) -> bool:
        with self._lock:
            step = self._steps[attempt.identity.step]
            wanted = step.status == IN_PROGRESS and step.handed_out.identity == attempt.identity
            (step.results if wanted else step.ignored).append(result)
            if wanted:
                step.status = result.status
            return wanted

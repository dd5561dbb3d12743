"""The rows of the embedded runner's store: runs, and the attempts of their steps."""

from __future__ import annotations

import json
import sqlite3
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from fenceline.seams import Owner
from fenceline.task.orchestrator import IN_PROGRESS, HandedOut
from fenceline.txn.step import StepIdentity

RUNNING, COMPLETED, FAILED, TIMED_OUT, CANCELED = "RUNNING", "COMPLETED", "FAILED", "TIMED_OUT", "CANCELED"
SCHEDULED, TERMINAL, LOST = "SCHEDULED", "FAILED_WITH_TERMINAL_ERROR", "LOST"
"""LOST: its runner died with it. It costs the step no retry."""
OPEN = (SCHEDULED, IN_PROGRESS)


@dataclass(frozen=True, slots=True)
class RunRow:
    """A run of a pipeline."""

    id: str
    key: str
    name: str
    reference: str
    """`module:pipeline`, from which worker processes load its tasks; '' where it cannot be imported."""
    repository: str
    workflow: dict[str, Any]
    taskdefs: dict[str, dict[str, Any]]
    """The controls of its tasks as Conductor's TaskDefs, by task name."""
    input: dict[str, Any]
    status: str
    reason: str | None
    output: Any
    runner: str | None
    """Whose workers may poll it."""
    created: float
    deadline: float | None
    """When it is ended for taking too long; None for never."""
    ended: float | None

    @classmethod
    def of(cls, row: sqlite3.Row) -> RunRow:
        loaded = ("workflow", "taskdefs", "input", "output")
        return cls(**{name: _loaded(row[name]) if name in loaded else row[name] for name in cls.__slots__})

    def controls(self, task: str) -> Controls:
        return Controls.of(self.taskdefs.get(task, {}))


@dataclass(frozen=True, slots=True)
class TaskRow:
    """One attempt of a step, or its wait for one."""

    id: str
    run: str
    reference: str
    iteration: int
    retry_count: int
    """One higher with every attempt of the step."""
    failures: int
    """How many of the attempts before it count against the task's retries."""
    epoch: int
    status: str
    task: str
    input: Any
    output: Any
    reason: str | None
    code: str | None
    scheduled: float
    not_before: float
    poll_until: float | None
    lease_until: float | None
    deadline: float | None
    owner: Owner | None
    runner: str | None
    """The runner under whose workers the attempt ran."""
    started: float | None
    ended: float | None
    dropped: bool
    """A restart from an earlier step has made it history."""

    @classmethod
    def of(cls, row: sqlite3.Row) -> TaskRow:
        values = {name: row[name] for name in cls.__slots__}
        for name in ("input", "output"):
            values[name] = _loaded(values[name])
        values["owner"] = read_owner(values["owner"])
        values["dropped"] = bool(values["dropped"])
        return cls(**values)

    @property
    def identity(self) -> StepIdentity:
        return StepIdentity(self.run, self.reference, self.id, self.retry_count, self.iteration, epoch=self.epoch)

    @property
    def handed_out(self) -> HandedOut:
        return HandedOut(self.identity, self.task, self.input)


@dataclass(frozen=True, slots=True)
class Controls:
    """What a TaskDef says about retries, time-outs and limits. What it leaves out is Conductor's default."""

    retry_count: int = 3
    retry_logic: str = "FIXED"
    retry_delay: float = 60
    backoff: int = 1
    response_timeout: float = 3600
    timeout: float = 0
    timeout_policy: str = "TIME_OUT_WF"
    poll_timeout: float = 0
    concurrent: int = 0
    rate: int = 0
    rate_window: float = 1

    @classmethod
    def of(cls, taskdef: Mapping[str, Any]) -> Controls:
        names = {
            "retryCount": "retry_count",
            "retryLogic": "retry_logic",
            "retryDelaySeconds": "retry_delay",
            "backoffScaleFactor": "backoff",
            "responseTimeoutSeconds": "response_timeout",
            "timeoutSeconds": "timeout",
            "timeoutPolicy": "timeout_policy",
            "pollTimeoutSeconds": "poll_timeout",
            "concurrentExecLimit": "concurrent",
            "rateLimitPerFrequency": "rate",
            "rateLimitFrequencyInSeconds": "rate_window",
        }
        return cls(**{ours: taskdef[theirs] for theirs, ours in names.items() if taskdef.get(theirs) is not None})

    def delay(self, failures: int) -> float | None:
        """How long to wait before the next attempt, after so many failures; None when the budget is spent."""
        if failures > self.retry_count:
            return None
        if self.retry_logic == "LINEAR_BACKOFF":
            return self.retry_delay * self.backoff * failures
        if self.retry_logic == "EXPONENTIAL_BACKOFF":
            return float(self.retry_delay * 2 ** (failures - 1))
        return self.retry_delay


def _loaded(text: str | None) -> Any:
    return None if text is None else json.loads(text)


def read_owner(text: str | None) -> Owner | None:
    return None if text is None else Owner(**json.loads(text))

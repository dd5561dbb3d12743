"""The orchestrator port on a real Conductor server (decision 0014).

The server answers 200 to a stale worker and drops what it sent. So whatever is written here is read back.
"""

from __future__ import annotations

import json
import logging
import threading
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any

from fenceline.errors import FencelineError, StaleAttemptError
from fenceline.pipeline.conductor.api import ConductorApi, ConductorDenied, ConductorUnavailable, segment
from fenceline.pipeline.conductor.claims import Claims
from fenceline.seams import Seams
from fenceline.task.orchestrator import IN_PROGRESS, HandedOut, Standing
from fenceline.task.result import TaskResult, cut
from fenceline.txn.step import StepIdentity

log = logging.getLogger(__name__)

OUTPUT_LIMIT = 3_000_000
"""Bytes of JSON. A little more, and the server moves an output to external storage and hands on `{}` in its place."""
POLL_MILLISECONDS = 20
"""How long the server holds an empty poll. Short, because one loop asks for many tasks in turn."""
_AWAY_SECONDS = (0.5, 10.0)
"""How long a server that does not answer is left alone: the first time, and at most."""
_AWAY = (ConductorUnavailable, ConductorDenied)
"""Denied too: a token that ran out cannot be renewed while the server is away."""


class ResultTooLarge(FencelineError):
    """A result that the server would not hand on to the next step."""

    code = "task.result_too_large"


@dataclass(slots=True)
class Counters:
    """What became of reports, for logs and for whoever watches a worker."""

    accepted: int = 0
    superseded: int = 0
    lost_leases: int = 0


@dataclass(slots=True)
class _Away:
    """The times in which the server does not answer. Threads may overwrite one another's, and nothing depends on it."""

    until: float = 0.0
    pause: float = 0.0

    def noticed(self, now: float, error: FencelineError) -> None:
        first, longest = _AWAY_SECONDS
        if not self.pause:
            log.warning("%s; asking again until it answers", error)
        self.pause = min(self.pause * 2 or first, longest)
        self.until = now + self.pause

    def over(self) -> None:
        if self.pause:
            log.warning("the Conductor server answers again")
        self.pause = self.until = 0.0


@dataclass(frozen=True, slots=True)
class Conductor:
    """The port for the workers of one process."""

    api: ConductorApi
    worker: str
    """Who the server shows as working on an attempt."""
    domain: str | None = None
    claims: Claims | None = None
    """Where it is noted which attempts this process holds."""
    seams: Seams = field(default_factory=Seams)
    counters: Counters = field(default_factory=Counters)
    _leases: dict[str, tuple[float, float]] = field(default_factory=dict)
    """Of each attempt at work: its lease's length, and until when it is certainly ours."""
    _away: _Away = field(default_factory=_Away)
    _lock: threading.Lock = field(default_factory=threading.Lock)

    def poll(self, task: str) -> HandedOut | None:
        """The next attempt. A server that is away has none; it is asked less often, and complained about once."""
        asked = self.seams.clock.monotonic()
        if asked < self._away.until:
            return None
        query = {"count": 1, "workerid": self.worker, "timeout": POLL_MILLISECONDS}
        try:
            found = self.api.get(
                f"/tasks/poll/batch/{segment(task)}", query | ({"domain": self.domain} if self.domain else {})
            )
        except _AWAY as error:
            self._away.noticed(asked, error)
            return None
        self._away.over()
        if not found:
            return None
        attempt = handed_out(found[0])
        with self._lock:
            length = float(found[0].get("responseTimeoutSeconds") or 0) or float("inf")
            self._leases[attempt.identity.task_id] = (length, asked + length)
        self._claim(attempt)
        return attempt

    def current(self, attempt: HandedOut) -> Standing:
        found = self._read(attempt)
        return Standing(str(found["status"]), handed_out(found).identity)

    def heartbeat(self, attempt: HandedOut) -> None:
        """Hold the lease. A server that is away for less than the lease has lost us nothing: the next beat tells."""
        asked = self.seams.clock.monotonic()
        try:
            self._update(attempt, {"status": IN_PROGRESS, "extendLease": True})
            standing = self.current(attempt)
        except _AWAY as error:
            length, until = self._lease(attempt)
            if asked < until:
                log.warning("attempt %s: %s; its lease holds for %.0f s", _name(attempt), error, until - asked)
                return
            self.counters.lost_leases += 1
            raise StaleAttemptError(
                f"attempt {_name(attempt)} could not renew its lease of {length:g} s: {error.message}",
                hint="nothing was published; the server retries it",
            ) from error
        if standing != Standing(IN_PROGRESS, attempt.identity):
            self.counters.lost_leases += 1
            raise StaleAttemptError(
                f"attempt {_name(attempt)} is {standing.status} on the server",
                hint="nothing it does counts any more; a newer attempt takes over, or the run has ended",
            )
        self._renewed(attempt, asked)

    def complete(self, attempt: HandedOut, result: TaskResult) -> bool:
        """Report, and read back. May be repeated: the server drops it once the attempt has ended or was given up."""
        sent = within_limits(attempt, result)
        self._update(attempt, _report(sent))
        status = str(self._read(attempt)["status"])
        self._forget(attempt)
        if status == sent.status:
            self.counters.accepted += 1
            return True
        self.counters.superseded += 1
        log.warning("superseded: attempt %s is %s on the server, %s was dropped", _name(attempt), status, sent.status)
        return False

    def release(self, attempt: HandedOut, reason: str) -> None:
        """Back into the queue, with no failure counted. The same attempt is handed out again; what this process may
        still have under way is of that attempt and of its txn, so it is reported and not published twice."""
        log.info("attempt %s goes back to the queue: %s", _name(attempt), reason)
        self._update(attempt, {"status": IN_PROGRESS, "callbackAfterSeconds": 0})
        self._forget(attempt)

    def _claim(self, attempt: HandedOut) -> None:
        if self.claims is None:
            return
        try:
            self.claims.take(attempt)
        except OSError as error:  # then its death is noticed when its lease runs out
            log.warning("attempt %s is not noted: %s", _name(attempt), error)

    def _forget(self, attempt: HandedOut) -> None:
        with self._lock:
            self._leases.pop(attempt.identity.task_id, None)
        if self.claims is not None:
            self.claims.drop(attempt)

    def _read(self, attempt: HandedOut) -> Mapping[str, Any]:
        found: Mapping[str, Any] = self.api.get(f"/tasks/{segment(attempt.identity.task_id)}")
        return found

    def _update(self, attempt: HandedOut, report: Mapping[str, Any]) -> None:
        identity = attempt.identity
        ids = {"workflowInstanceId": identity.workflow, "taskId": identity.task_id, "workerId": self.worker}
        self.api.post("/tasks", {**ids, **report})

    def _lease(self, attempt: HandedOut) -> tuple[float, float]:
        """Length, and until when. Of an attempt that was not polled here nothing is known: it is over at once."""
        with self._lock:
            return self._leases.get(attempt.identity.task_id, (0.0, 0.0))

    def _renewed(self, attempt: HandedOut, asked: float) -> None:
        with self._lock:
            held = self._leases.get(attempt.identity.task_id)
            if held is not None:
                self._leases[attempt.identity.task_id] = (held[0], asked + held[0])


def handed_out(task: Mapping[str, Any]) -> HandedOut:
    """An attempt, from the server's JSON of a task."""
    given = task.get("inputData") or {}
    place = given.get("workspace")
    epoch = place.get("epoch") if isinstance(place, dict) else None
    identity = StepIdentity(
        workflow=task["workflowInstanceId"],
        reference=task["referenceTaskName"],
        task_id=task["taskId"],
        retry_count=int(task.get("retryCount") or 0),
        iteration=int(task.get("iteration") or 0),
        seq=int(task.get("seq") or 0),
        epoch=epoch if isinstance(epoch, int) else 0,
    )
    return HandedOut(identity, task.get("taskDefName") or task["taskType"], given)


def within_limits(attempt: HandedOut, result: TaskResult) -> TaskResult:
    """The result as the server can keep it; one that it could not hand on fails the step for good, and says so."""
    size = len(json.dumps(result.output).encode())
    if size <= OUTPUT_LIMIT:
        return result if result.reason is None else replace(result, reason=cut(result.reason))
    error = ResultTooLarge(
        f"the output of {attempt.identity.step} is {size} bytes of JSON, and Conductor hands on {OUTPUT_LIMIT}",
        hint="write it to the workspace and return its path; what was published stays",
    )
    log.error("%s", error)
    return TaskResult.failed("FAILED_WITH_TERMINAL_ERROR", error)


def _report(result: TaskResult) -> dict[str, Any]:
    if result.status == "COMPLETED":
        return {"status": result.status, "outputData": result.output}
    return {"status": result.status, "reasonForIncompletion": result.reason, "outputData": {"code": result.code}}


def _name(attempt: HandedOut) -> str:
    return f"{attempt.identity.attempt} of {attempt.identity.step}"

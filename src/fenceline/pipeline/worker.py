"""The worker loop, the same for every orchestrator: poll, run, report, and hold the lease until the report is accepted.

Attempts run in `slots` threads. A worker that is asked to drain polls no more and lets what runs finish; what has not
finished within the grace is cancelled and given back. Whatever it does when it is killed, nothing is half published.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Iterable
from dataclasses import asdict, dataclass, field, replace
from typing import Any, Protocol, runtime_checkable

from fenceline.pipeline.builtin import HEARTBEAT, Builtins
from fenceline.pipeline.events import Events, Silent
from fenceline.seams import Running
from fenceline.task.attempt import AttemptRunner
from fenceline.task.contract import TaskDefinition
from fenceline.task.lease import Lease
from fenceline.task.orchestrator import HandedOut, Orchestrator
from fenceline.task.result import TaskResult

log = logging.getLogger(__name__)

SHORTEST_IDLE, LONGEST_IDLE = 0.02, 0.5
REPORT_FOR = 3600.0
"""How long a result is tried to be reported where nothing says how long its lease is."""
CANCEL_SECONDS = 3.0
"""How long cancelled attempts have to end, after the grace is over."""


@runtime_checkable
class Releasing(Protocol):
    """An orchestrator that takes an attempt back without a failure being counted."""

    def release(self, attempt: HandedOut, reason: str) -> None: ...


@dataclass(slots=True)
class Counts:
    """What a worker did."""

    completed: int = 0
    failed: int = 0
    superseded: int = 0
    """Results that the orchestrator no longer wanted."""
    unreported: int = 0
    """Results that it could not be told; the attempt is retried, and adopts what was published."""
    released: int = 0


@dataclass(frozen=True, eq=False)
class _Job:
    attempt: HandedOut
    lease: Lease


@dataclass(eq=False)
class Worker:
    """Works for one orchestrator until it is drained."""

    definitions: Iterable[TaskDefinition[Any, Any]]
    orchestrator: Orchestrator
    runner: AttemptRunner
    builtins: Builtins | None = None
    slots: int = 1
    events: Events = field(default_factory=Silent)
    longest_idle: float = LONGEST_IDLE
    counts: Counts = field(default_factory=Counts)

    def __post_init__(self) -> None:
        self._known = {definition.name: definition for definition in self.definitions}
        self._names = [*self._known, *(self.builtins.NAMES if self.builtins else ())]
        self._seams = self.runner.seams
        self._draining, self._enough, self._cut = self._seams.threads.signal(), False, False
        self._jobs: set[_Job] = set()
        self._lock = threading.Lock()
        self._threads: list[Running] = []
        self._ended = 0

    # --- from outside -------------------------------------------------------------------------------------------

    def start(self) -> None:
        self._threads = [
            self._seams.threads.start(f"worker-slot-{number}", lambda number=number: self._slot(number))  # type: ignore[misc]
            for number in range(self.slots)
        ]

    def drain(self) -> None:
        """Poll no more; what runs goes on."""
        self._draining.set()

    def enough(self) -> None:
        """Poll no more, noticed a moment later. Takes no lock: for signal handlers."""
        self._enough = True

    @property
    def drained(self) -> bool:
        return self._ended == self.slots

    def stop(self, grace: float) -> bool:
        """Drain within the grace, then cancel and give back what is left; whether everything had finished."""
        self.drain()
        if self._wait(grace):
            return True
        self._cut = True
        for job in self._running():
            job.lease.give_up("its worker is shutting down")
        self._wait(CANCEL_SECONDS)
        for job in self._running():  # a Python body that cannot be stopped: what it does counts for nothing any more
            self._release(job.attempt)
        return False

    def _wait(self, seconds: float) -> bool:
        end = self._seams.clock.monotonic() + seconds
        for thread in self._threads:
            thread.join(max(0.0, end - self._seams.clock.monotonic()))
        return self.drained

    def _running(self) -> list[_Job]:
        with self._lock:
            return list(self._jobs)

    # --- a slot -------------------------------------------------------------------------------------------------

    def _slot(self, number: int) -> None:
        idle, turn = SHORTEST_IDLE, number
        try:
            while not self._asked_to_stop():
                attempt = self._poll(turn)
                turn += 1
                if attempt is None:
                    self._draining.wait(idle)
                    idle = min(idle * 1.5, self.longest_idle)
                else:
                    idle = SHORTEST_IDLE
                    self._work(attempt)
        finally:
            with self._lock:
                self._ended += 1

    def _asked_to_stop(self) -> bool:
        return self._enough or self._draining.wait(0)

    def _poll(self, turn: int) -> HandedOut | None:
        """Every task is asked for once; each time another one first, so that none waits for ever."""
        at = turn % len(self._names)
        for name in (*self._names[at:], *self._names[:at]):
            if self._asked_to_stop():
                return None
            try:
                attempt = self.orchestrator.poll(name)
            except Exception as error:  # noqa: BLE001 - whatever a remote client raises; the next poll may go better
                log.warning("%s could not be polled: %s", name, error)
                return None
            if attempt is not None:
                return attempt
        return None

    def _work(self, attempt: HandedOut) -> None:
        definition = self._known.get(attempt.task)
        interval = definition.heartbeat_interval if definition else HEARTBEAT
        with Lease(self.orchestrator, attempt, self._seams, interval) as lease:
            job = _Job(attempt, lease)
            with self._lock:
                self._jobs.add(job)
            try:
                result = self._run(definition, attempt, lease)
                if self._cut and result.status != "COMPLETED" and isinstance(self.orchestrator, Releasing):
                    self._release(attempt)
                else:
                    self._report(definition, attempt, result)
            finally:
                with self._lock:
                    self._jobs.discard(job)

    def _run(self, definition: TaskDefinition[Any, Any] | None, attempt: HandedOut, lease: Lease) -> TaskResult:
        try:
            return self._attempt(definition, attempt, lease)
        except BaseException as error:  # sys.exit in a body ends the attempt, not the worker
            log.exception("attempt %s of %s ended", attempt.identity.attempt, attempt.identity.step)
            return TaskResult.failed("FAILED", error)

    def _attempt(self, definition: TaskDefinition[Any, Any] | None, attempt: HandedOut, lease: Lease) -> TaskResult:
        if definition is None:
            assert self.builtins is not None
            return self.builtins.run(attempt, lease)
        runner = replace(
            self.runner,
            on_phase=lambda phase: self.events.tell(attempt, "phase", {"phase": str(phase)}),
            on_fact=lambda kind, data: self.events.tell(attempt, kind, data),
            on_progress=lambda stage: self.events.tell(attempt, "spark", asdict(stage)),
        )
        return runner.run(definition, attempt, lease)

    def _report(self, definition: TaskDefinition[Any, Any] | None, attempt: HandedOut, result: TaskResult) -> None:
        """Until the orchestrator has taken it, for as long as the lease could hold. Meanwhile the lease is renewed."""
        clock, pause = self._seams.clock, 0.1
        end = clock.monotonic() + (definition.controls.response_timeout_seconds if definition else REPORT_FOR)
        while True:
            try:
                accepted = self.orchestrator.complete(attempt, result)
                break
            except Exception as error:  # the orchestrator may be away; a result is not given up for that
                if self._cut or clock.monotonic() > end:
                    log.exception("the result of %s could not be reported", attempt.identity.step)
                    self._count("unreported")
                    return
                log.warning("the result of %s is reported again: %s", attempt.identity.step, error)
                clock.sleep(pause)
                pause = min(pause * 2, 5.0)
        if accepted:
            self._count("completed" if result.status == "COMPLETED" else "failed")
        else:
            self._count("superseded")
            log.warning(
                "attempt %s of %s was superseded; its result (%s) is dropped",
                attempt.identity.attempt,
                attempt.identity.step,
                result.status,
            )
        workspace = result.output.get("workspace") or {}
        told = {"status": result.status, "accepted": accepted, "code": result.code, "commit": workspace.get("ref")}
        self.events.tell(attempt, "reported", {name: value for name, value in told.items() if value is not None})

    def _release(self, attempt: HandedOut) -> None:
        if not isinstance(self.orchestrator, Releasing):
            return  # its lease runs out
        try:
            self.orchestrator.release(attempt, "its worker was asked to stop")
            self._count("released")
        except Exception as error:  # noqa: BLE001 - then its lease runs out
            log.warning("%s could not be given back: %s", attempt.identity.step, error)

    def _count(self, name: str) -> None:
        with self._lock:
            setattr(self.counts, name, getattr(self.counts, name) + 1)

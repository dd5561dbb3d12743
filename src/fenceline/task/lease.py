"""Holding the orchestrator's lease while an attempt works, and noticing when it is lost."""

from __future__ import annotations

import logging
from collections.abc import Callable
from types import TracebackType
from typing import Self, TypeVar

from fenceline.errors import StaleAttemptError
from fenceline.seams import Running, Seams
from fenceline.task.orchestrator import HandedOut, Orchestrator

log = logging.getLogger(__name__)

R = TypeVar("R")


class Lease:
    """Beats from poll to the end of its block; once a beat fails, nothing may be published any more.

    A worker keeps it until its report was accepted: an attempt that is done and not yet told is still at work.
    """

    def __init__(self, orchestrator: Orchestrator, attempt: HandedOut, seams: Seams, interval: float) -> None:
        self._orchestrator, self._attempt = orchestrator, attempt
        self._seams, self._interval = seams, interval
        self._stop = seams.threads.signal()
        self._running: Running | None = None
        self._lost: str | None = None
        self._on_lost: Callable[[], None] | None = None

    def __enter__(self) -> Self:
        self._running = self._seams.threads.start(f"lease-{self._attempt.identity.task_id}", self._beat)
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._stop.set()
        if self._running is not None:
            self._running.join(self._interval)

    def check(self) -> None:
        if self._lost is not None:
            raise StaleAttemptError(
                f"attempt {self._attempt.identity.attempt} of {self._attempt.identity.step} lost its lease: "
                f"{self._lost}",
                hint="nothing was published; the orchestrator retries it",
            )

    def give_up(self, why: str) -> None:
        """Lose it on purpose: the body is asked to stop, and nothing is published any more."""
        self._lost = self._lost or why
        cancel = self._on_lost
        if cancel is not None:
            cancel()

    def watch(self, body: Callable[[], R], cancel: Callable[[], None]) -> R:
        """Run the body; when the lease is lost meanwhile, ask it to stop. Then what it did counts for nothing."""
        self._on_lost = cancel
        try:
            return body()
        finally:
            self._on_lost = None
            self.check()

    def _beat(self) -> None:
        while not self._stop.wait(self._interval):
            try:
                self._orchestrator.heartbeat(self._attempt)
            except Exception as error:  # noqa: BLE001 - whatever a remote client raises, the lease is not held
                log.warning("attempt %s lost its lease: %s", self._attempt.identity.attempt, error)
                self.give_up(str(error))
                return

"""The process tree of `fenceline start`: one supervisor, N workers that poll a Conductor server."""

from __future__ import annotations

import logging
import os
import signal
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from types import FrameType
from typing import Any

from fenceline.errors import NotFound
from fenceline.pipeline.conductor.api import ConductorApi, ConductorDenied, ConductorUnavailable
from fenceline.pipeline.conductor.claims import Claims
from fenceline.pipeline.conductor.port import Conductor
from fenceline.pipeline.conductor.worker_process import WorkerSettings
from fenceline.pipeline.pool import Pool
from fenceline.seams import Seams
from fenceline.task.result import TaskFailed, TaskResult

log = logging.getLogger(__name__)

LOOK_SECONDS = 0.25
"""How soon a dead worker is noticed."""


@dataclass(eq=False, slots=True)
class Supervisor:
    """Keeps workers alive until it is asked to stop, and speaks for those that died."""

    settings: WorkerSettings
    workers: int
    seams: Seams = field(default_factory=Seams)
    _asked: int = 0
    """How often it was asked to stop. Not an Event: a handler that sets one can wait for the very code it stopped."""

    def run(self) -> bool:
        """Until SIGTERM or SIGINT, then drain within the grace; whether all workers went by themselves.

        A second signal kills the workers at once: nothing is half published, and their attempts are retried.
        """
        with ConductorApi.at(self.settings.server) as api:
            claims = Claims.below(Path(self.settings.workspace_root), api.url, self.seams)
            conductor = Conductor(api, f"{self.seams.owner().host}:supervisor", claims=claims, seams=self.seams)
            return self._look_after(Pool(self.settings.command(), self.workers, self.seams), conductor, claims)

    def _look_after(self, pool: Pool, conductor: Conductor, claims: Claims) -> bool:
        with self._signals(pool):
            pool.start()
            try:
                while not self._asked:
                    pool.look_after()
                    give_up_the_dead(conductor, claims)
                    self.seams.clock.sleep(LOOK_SECONDS)
            finally:
                pool.drain()
                log.info("stopping: the workers have %g s to finish", self.settings.grace)
                gently = pool.stop(self.settings.grace)
                give_up_the_dead(conductor, claims)
        return gently

    @contextmanager
    def _signals(self, pool: Pool) -> Iterator[None]:
        def asked(_number: int, _frame: FrameType | None) -> None:
            self._asked += 1
            if self._asked > 1:
                for pid in pool.pids:
                    os.kill(pid, signal.SIGKILL)

        before: dict[int, Any] = {number: signal.signal(number, asked) for number in (signal.SIGTERM, signal.SIGINT)}
        try:
            yield
        finally:
            for number, handler in before.items():
                signal.signal(number, handler)


def give_up_the_dead(conductor: Conductor, claims: Claims) -> int:
    """Report the attempts of dead processes as failed. The server alone would notice when their leases have run out."""
    ended = 0
    for attempt in claims.of_the_dead():
        error = TaskFailed("its worker process died", hint="what it had published is adopted by the next attempt")
        try:
            accepted = conductor.complete(attempt, TaskResult.failed("FAILED", error))
        except (ConductorUnavailable, ConductorDenied):  # the claim stays: tried again
            return ended
        except NotFound as gone:
            log.warning("a dead worker's attempt is unknown to the server: %s", gone)
            claims.drop(attempt)
            continue
        ended += accepted
        log.warning("the worker of %s died; the attempt is given up", attempt.identity.step)
    return ended


def search_path() -> tuple[str, ...]:
    """What this process can import, for its workers."""
    return tuple(each for each in sys.path if each)

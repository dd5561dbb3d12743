"""Worker processes under one parent: started, restarted with back-off, drained, and never left behind.

Each child holds the read end of a pipe whose write end only the parent has. When the parent dies, however it dies, the
child reads EOF and leaves.
"""

from __future__ import annotations

import contextlib
import logging
import os
import signal
import subprocess
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from fenceline.errors import ConfigError
from fenceline.seams import Seams

log = logging.getLogger(__name__)

FIRST_BACKOFF, LONGEST_BACKOFF = 0.1, 10.0
SETTLED = 30.0
"""A worker that lived this long starts again at once when it dies."""
KILL_AFTER = 5.0
"""How long a worker has to leave after its own grace is over."""


@dataclass(eq=False, slots=True)
class _Place:
    """One of the pool's processes, and its successors."""

    number: int
    child: subprocess.Popen[bytes] | None = None
    started: float = 0.0
    deaths: int = 0
    """In a row, each shortly after its start."""
    not_before: float = 0.0


@dataclass(eq=False, slots=True)
class Pool:
    """`look_after` it regularly; `stop` it in the end."""

    command: Sequence[str]
    workers: int
    seams: Seams
    greeting: bytes = b""
    """The first line each worker reads; what must not be seen on a command line goes here."""
    environment: Mapping[str, str] | None = None
    most_deaths: int | None = None
    """So many deaths in a row of one place make `look_after` raise; None restarts for ever."""
    _places: list[_Place] = field(default_factory=list)
    _stopping: bool = False

    def start(self) -> None:
        self._places = [_Place(number) for number in range(self.workers)]
        for place in self._places:
            self._spawn(place)

    @property
    def pids(self) -> list[int]:
        return [place.child.pid for place in self._places if place.child is not None and place.child.poll() is None]

    def look_after(self) -> None:
        """Start dead workers again: at once if they had worked for a while, else later and later."""
        if self._stopping:
            return
        now = self.seams.clock.monotonic()
        for place in self._places:
            if place.child is not None and (code := place.child.poll()) is not None:
                self._died(place, code, now)
            if place.child is None and now >= place.not_before:
                self._spawn(place)

    def _died(self, place: _Place, code: int, now: float) -> None:
        _close(place.child)
        place.child = None
        place.deaths = 1 if now - place.started > SETTLED else place.deaths + 1
        delay = min(FIRST_BACKOFF * 2 ** (place.deaths - 1), LONGEST_BACKOFF) if place.deaths > 1 else 0.0
        place.not_before = now + delay
        log.warning("worker %d ended with %d; starting it again in %.1f s", place.number, code, delay)
        if self.most_deaths is not None and place.deaths >= self.most_deaths:
            raise ConfigError(
                f"worker {place.number} ended {place.deaths} times in a row, last with {code}",
                hint="its log says why; the runs are kept, and the same command goes on with them",
            )

    def _spawn(self, place: _Place) -> None:
        place.child = subprocess.Popen(
            [*self.command],
            stdin=subprocess.PIPE,
            env={**os.environ, **(self.environment or {})},
        )
        place.started = self.seams.clock.monotonic()
        if self.greeting and place.child.stdin is not None:
            try:
                place.child.stdin.write(self.greeting)
                place.child.stdin.flush()
            except BrokenPipeError:  # it died already; `look_after` sees that
                log.debug("worker %d died before it was told anything", place.number)

    # --- the end ------------------------------------------------------------------------------------------------

    def drain(self) -> None:
        """Ask every worker to finish what it has and leave."""
        self._stopping = True
        for place in self._places:
            if place.child is not None and place.child.poll() is None:
                place.child.send_signal(signal.SIGTERM)

    def kill(self) -> None:
        """End every worker at once. Safe by protocol: the next attempts finish what these were doing."""
        self._stopping = True
        for place in self._places:
            if place.child is not None:
                place.child.kill()

    def stop(self, grace: float) -> bool:
        """Drain; what is not gone when the grace is over is killed. Whether all went by themselves."""
        self.drain()
        end = self.seams.clock.monotonic() + grace + KILL_AFTER
        gently = True
        for place in self._places:
            if place.child is None:
                continue
            try:
                place.child.wait(max(0.0, end - self.seams.clock.monotonic()))
            except subprocess.TimeoutExpired:
                log.warning("worker %d did not leave in time and is killed", place.number)
                place.child.kill()  # works on a stopped process too
                place.child.wait()
                gently = False
            _close(place.child)
            place.child = None
        return gently


def _close(child: subprocess.Popen[bytes] | None) -> None:
    if child is not None and child.stdin is not None:
        with contextlib.suppress(BrokenPipeError):  # what was still buffered for it has no reader
            child.stdin.close()

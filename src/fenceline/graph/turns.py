"""Taking turns: writers of one branch that were overtaken try again one after the other.

Only politeness. Without it all but one of many writers stage for nothing, again and again. Nothing depends on it: who
does not get its turn in time goes on without it, a process that ends gives its turn back, and only Confirm decides.
"""

from __future__ import annotations

import fcntl
import os
from urllib.parse import quote

from fenceline.repo.native.local import LocalObjects
from fenceline.repo.native.objects import ObjectStore
from fenceline.seams import Clock

LONGEST = 1.0
_LOOK_EVERY = 0.005


class Turn:
    """One writer's place in the queue of a branch, on a local disk; elsewhere there is none."""

    def __init__(self, objects: ObjectStore, branch: str, clock: Clock) -> None:
        self._path = objects.path(f"tmp/turn-{quote(branch, safe='')}") if isinstance(objects, LocalObjects) else None
        self._clock = clock
        self._file: int | None = None

    @property
    def taken(self) -> bool:
        return self._file is not None

    def take(self, longest: float = LONGEST) -> bool:
        """Wait for the turn, and no longer than this."""
        if self._path is None or self.taken:
            return self.taken
        try:
            file = os.open(self._path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o644)
        except OSError:  # then there is no queue: what is wrong with the disk, the transaction itself will tell
            return False
        end = self._clock.monotonic() + longest
        while not _locked(file):
            if self._clock.monotonic() >= end:
                os.close(file)
                return False
            self._clock.sleep(_LOOK_EVERY)
        self._file = file
        return True

    def give_back(self) -> None:
        file, self._file = self._file, None
        if file is not None:
            os.close(file)


def _locked(file: int) -> bool:
    try:
        fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError:
        return False
    return True

"""Where an attempt is: its phase, what watches it, and which secrets must not show."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from fenceline.task.observe import Observation
from fenceline.task.result import Phase

OnPhase = Callable[[Phase], None]


@dataclass(slots=True)
class Course:
    """The failure table needs the phase in which an attempt failed."""

    on_phase: OnPhase
    watching: Observation
    phase: Phase = Phase.VALIDATE
    secrets: frozenset[str] = frozenset()

    def enter(self, phase: Phase) -> None:
        self.phase = phase
        self.watching.enter(phase)
        self.on_phase(phase)

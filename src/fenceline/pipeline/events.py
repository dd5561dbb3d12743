"""What workers tell about attempts while they run: phases, Spark's progress, guard verdicts, outcomes."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Protocol

from fenceline.task.orchestrator import HandedOut


class Events(Protocol):
    """Whoever wants to know. It must not raise, and must not take long: the attempt waits for it."""

    def tell(self, attempt: HandedOut, kind: str, data: Mapping[str, Any]) -> None: ...


@dataclass(frozen=True, slots=True)
class Silent:
    """Nobody wants to know."""

    def tell(self, attempt: HandedOut, kind: str, data: Mapping[str, Any]) -> None:
        return None

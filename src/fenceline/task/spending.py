"""The publish budget while it is spent: what takes longer than declared fails instead of outliving its lease."""

from __future__ import annotations

from typing import Literal

from fenceline.errors import FencelineError
from fenceline.seams import Clock
from fenceline.task.spec import PublishBudget


class PublishTimeout(FencelineError):
    """Staging or confirming took longer than the task's PublishBudget allows."""

    code = "task.publish_timeout"
    retryable = True


class Spending:
    """Checked before the seal and before every write of Confirm. Without a budget there is no limit but the lease."""

    def __init__(self, budget: PublishBudget | None, clock: Clock) -> None:
        self._budget, self._clock = budget, clock
        self._doing: Literal["stage", "confirm"] | None = None
        self._until = 0.0

    def begin(self, doing: Literal["stage", "confirm"]) -> None:
        if self._budget is not None:
            limit = getattr(self._budget, f"{doing}_timeout_seconds")
            self._doing, self._until = doing, self._clock.monotonic() + limit

    def check(self) -> None:
        if self._doing is not None and self._clock.monotonic() > self._until:
            raise PublishTimeout(
                f"to {self._doing} took longer than {self._doing}_timeout_seconds of the publish budget",
                hint="nothing was published, and what was sealed is resumed; raise it if the store is just that slow",
            )

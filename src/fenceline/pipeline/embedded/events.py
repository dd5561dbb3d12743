"""What workers tell about attempts while they run: phases, Spark's progress, guard verdicts, outcomes."""

from __future__ import annotations

import logging
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Protocol

from fenceline.errors import StoreError
from fenceline.pipeline.embedded.store import Store, add_event
from fenceline.task.orchestrator import HandedOut

log = logging.getLogger(__name__)


class Events(Protocol):
    """Whoever wants to know. It must not raise, and must not take long: the attempt waits for it."""

    def tell(self, attempt: HandedOut, kind: str, data: Mapping[str, Any]) -> None: ...


@dataclass(frozen=True, slots=True)
class Silent:
    """Nobody wants to know."""

    def tell(self, attempt: HandedOut, kind: str, data: Mapping[str, Any]) -> None:
        return None


@dataclass(frozen=True, slots=True)
class StoredEvents:
    """Into the runner's store, beside the run. What a power cut loses of them is not missed."""

    store: Store

    def tell(self, attempt: HandedOut, kind: str, data: Mapping[str, Any]) -> None:
        identity = attempt.identity
        told = {**data, "step": identity.reference, "attempt": identity.retry_count, "task": attempt.task}
        try:
            with self.store.write(durable=False) as db:
                add_event(db, identity.workflow, self.store.seams.clock.now(), kind, told)
        except StoreError as error:
            log.warning("an event of %s could not be kept: %s", identity.step, error)

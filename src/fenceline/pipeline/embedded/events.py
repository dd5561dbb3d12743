"""What workers tell, kept beside the run."""

from __future__ import annotations

import logging
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from fenceline.errors import StoreError
from fenceline.pipeline.embedded.store import Store, add_event
from fenceline.task.orchestrator import HandedOut

log = logging.getLogger(__name__)


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

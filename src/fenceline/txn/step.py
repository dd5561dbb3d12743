"""A step's identity, and what an earlier attempt of it left that can be resumed."""

from __future__ import annotations

import hashlib
from dataclasses import dataclass
from typing import Any

from fenceline.errors import ObjectDamaged, ObjectMissing
from fenceline.repo.model import RefEntry, canonical
from fenceline.repo.port import Repository
from fenceline.txn.intent import Intent, IntentStore, Verdict
from fenceline.txn.publish import settle
from fenceline.txn.records import end_record


@dataclass(frozen=True, slots=True)
class StepIdentity:
    """Which step of which run, and which try at it, as the orchestrator hands it out."""

    workflow: str
    reference: str
    task_id: str
    retry_count: int
    iteration: int = 0
    seq: int = 0
    epoch: int = 0
    """Raised by a forced rerun, which keeps task id and retry count on some orchestrators."""

    @property
    def step(self) -> str:
        return f"{self.workflow}/{self.reference}/{self.iteration}"

    @property
    def attempt(self) -> str:
        return f"{self.task_id}/{self.retry_count}/{self.epoch}"

    @property
    def label(self) -> dict[str, str | int]:
        """For the marker in an attempt's directory: whose it is."""
        names = ("workflow", "reference", "seq", "iteration", "task_id", "retry_count")
        return {name: getattr(self, name) for name in names}


def step_txn(
    identity: StepIdentity, task: str, version: str, repository: str, branch: str, commit: str, params: Any
) -> str:
    """The identity of what a step publishes: the same inputs under the same code are the same transaction."""
    value = ["step", identity.step, task, version, repository, branch, commit, params, identity.epoch]
    return hashlib.sha256(canonical(value)).hexdigest()


@dataclass(frozen=True, slots=True)
class Resumable:
    """A sealed execution of the same txn: its body need not run again, whether its owner is dead or only slow."""

    intent: Intent
    verdict: Verdict


def resumable(repo: Repository, intents: IntentStore, txn: str) -> Resumable | None:
    """A sealed, unfenced, never published, readable execution of this txn."""
    for execution, verdict in intents.verdicts_of(txn):
        intent = intents.find(execution)
        if verdict.verdict != "sealed" or intent is None or intents.record(execution) or settle(repo, intent):
            continue
        try:
            repo.check_staged(repo.commit(verdict.commit or ""))
        except (ObjectMissing, ObjectDamaged):
            continue  # the sweep quarantines it; the body runs again
        return Resumable(intent, verdict)
    return None


def finish_resumed(repo: Repository, intents: IntentStore, resumed: Resumable, decided: RefEntry, by: str) -> None:
    """The record of an execution that a retry published: anyone may finish an intent once the log decided it."""
    intents.finish(end_record(repo, resumed.intent, decided, by, resumed.verdict))

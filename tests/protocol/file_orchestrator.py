"""An orchestrator that real processes share: one step, its state in a JSON file that the test writes."""

from __future__ import annotations

import json
import os
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

from fenceline.errors import StaleAttemptError
from fenceline.task.orchestrator import IN_PROGRESS, HandedOut, Standing
from fenceline.task.result import TaskResult
from fenceline.txn.step import StepIdentity


@dataclass(frozen=True)
class FileOrchestrator:
    """The orchestrator port over one file."""

    file: Path

    @classmethod
    def scheduled(cls, file: Path, input: Any, workflow: str = "w1") -> FileOrchestrator:  # noqa: A002
        made = cls(file)
        made._write(IN_PROGRESS, HandedOut(StepIdentity(workflow, "build", "t1", 0), "build", input))
        return made

    def retry(self) -> None:
        """Give the current attempt up: new task id, retry count + 1."""
        _, now = self._read()
        count = now.identity.retry_count + 1
        identity = replace(now.identity, task_id=f"t{count + 1}", retry_count=count)
        self._write(IN_PROGRESS, replace(now, identity=identity))

    def poll(self, task: str) -> HandedOut:
        return self._read()[1]

    def current(self, attempt: HandedOut) -> Standing:
        status, now = self._read()
        return Standing(status, now.identity)

    def heartbeat(self, attempt: HandedOut) -> None:
        if self._read()[1].identity != attempt.identity:
            raise StaleAttemptError("the lease is lost")

    def complete(self, attempt: HandedOut, result: TaskResult) -> bool:
        status, now = self._read()
        wanted = status == IN_PROGRESS and now.identity == attempt.identity
        if wanted:
            self._write(result.status, now)
        return wanted

    def _read(self) -> tuple[str, HandedOut]:
        value = json.loads(self.file.read_text())
        return value["status"], HandedOut(StepIdentity(**value["identity"]), value["task"], value["input"])

    def _write(self, status: str, handed_out: HandedOut) -> None:
        value = {
            "status": status,
            "identity": asdict(handed_out.identity),
            "task": handed_out.task,
            "input": handed_out.input,
        }
        temporary = self.file.with_suffix(".new")
        temporary.write_text(json.dumps(value))
        os.replace(temporary, self.file)

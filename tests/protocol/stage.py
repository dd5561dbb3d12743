"""A repository with one step to run on it, attempt by attempt, in child processes."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from file_orchestrator import FileOrchestrator
from harness import run

import fenceline as fl


class Stage:
    """A repository with a step to run on it."""

    def __init__(self, directory: Path) -> None:
        directory.mkdir(parents=True, exist_ok=True)
        self.root = directory / "repo"
        self.file = directory / "orchestrator.json"
        repo = fl.open_repository(self.root, create=True)
        with repo.transaction("main", actor="test", message="start") as tx:
            tx.write("step/in.txt", b"in")
        self.input = tx.result.commit
        place = {"repository": "r", "branch": "main", "ref_type": "commit", "ref": self.input}
        self.orchestrator = FileOrchestrator.scheduled(self.file, {"workspace": place, "params": {}})

    def child(self, text: str, version: str = "1", on_conflict: str = "fail") -> list[str | Path]:
        return ["attempt", self.root, self.file, text, version, on_conflict]

    def retry(self, text: str, version: str = "1", on_conflict: str = "fail") -> dict[str, Any]:
        self.orchestrator.retry()
        return run(self.child(text, version, on_conflict))

    @property
    def repo(self) -> fl.Repository:
        return fl.open_repository(self.root, sweep=False)

    @property
    def runs(self) -> int:
        file = self.file.parent / "runs"
        return len(file.read_text().splitlines()) if file.exists() else 0

    def publications(self) -> list[str]:
        return [str(e.op) for e in self.repo.entries("main") if e.step and e.op in ("publish", "relocate")]

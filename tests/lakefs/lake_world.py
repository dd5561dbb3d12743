"""A lakeFS repository with the fence installed, an orchestrator, and tasks whose bodies are counted."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from pydantic import BaseModel, ConfigDict

from fenceline.repo.lakefs import hook
from fenceline.repo.lakefs.client import Client
from fenceline.repo.lakefs.notes import STAGING
from fenceline.repo.lakefs.repository import LakeRepository
from fenceline.task.attempt import AttemptRunner
from fenceline.task.contract import TaskDefinition, task
from fenceline.task.orchestrator import HandedOut
from fenceline.task.result import TaskResult
from fenceline.task.spec import WorkspaceSpec
from fenceline.testing.orchestrator import MemoryOrchestrator, ScheduledStep

Body = Callable[[Path], None]


class Params(BaseModel):
    model_config = ConfigDict(extra="forbid")
    day: str = "monday"


class Result(BaseModel):
    rows: int


@dataclass
class World:
    repo: LakeRepository
    orchestrator: MemoryOrchestrator
    root: Path
    runs: int = 0

    @property
    def client(self) -> Client:
        return self.repo.client

    def task(self, body: Body, name: str = "build", version: str = "1", **spec: Any) -> TaskDefinition[Any, Any]:
        @task(name=name, owner="data@example.com", version=version, workspace=WorkspaceSpec(**spec))
        def build(workspace: Path, params: Params) -> Result:
            self.runs += 1
            body(workspace)
            return Result(rows=self.runs)

        return build

    def schedule(self, name: str = "build", workflow: str = "w1", ref: str | None = None) -> ScheduledStep:
        place = {"repository": self.repo.url, "branch": "main", "ref_type": "commit", "ref": ref or self.head}
        return self.orchestrator.schedule(name, {"workspace": place, "params": {}}, workflow=workflow)

    def run(self, definition: TaskDefinition[Any, Any], step: ScheduledStep, report: bool = True) -> TaskResult:
        return self.attempt(definition, self.orchestrator.take(step), report)

    def attempt(self, definition: TaskDefinition[Any, Any], attempt: HandedOut, report: bool = True) -> TaskResult:
        result = self.runner().run(definition, attempt)
        if report:
            self.orchestrator.complete(attempt, result)
        return result

    def runner(self, **more: Any) -> AttemptRunner:
        return AttemptRunner(lambda url: self.repo, self.orchestrator, self.root, actor="worker", **more)

    def foreign(self, path: str, text: str = "foreign") -> str:
        self.client.put("main", path, text.encode())
        return self.client.commit("main", f"a colleague's {path}").id

    @property
    def head(self) -> str:
        return self.client.head("main")

    def content(self) -> dict[str, bytes]:
        found = (o for o in self.client.objects("main") if not o.path.startswith(hook.ACTIONS))
        return {o.path: self.client.read("main", o.path) for o in found}

    def publications(self, step: str = "w1/build/0") -> list[str]:
        line = self.repo.line(self.repo.commit(self.head))
        return [commit.execution for commit in line if commit.step == step]

    def staging(self) -> list[str]:
        return [ref.name for ref in self.client.branches(STAGING)]


def make_world(client: Client, root: Path) -> World:
    client.put("main", hook.HOOK_PATH, hook.ACTION.encode())
    client.put("main", "raw/a.txt", b"a")
    client.commit("main", "start")
    return World(LakeRepository(client), MemoryOrchestrator(), root)


def writes(text: str = "out") -> Body:
    def body(path: Path) -> None:
        (path / "out.txt").write_text(text)

    return body


def nothing(path: Path) -> None:
    assert (path / "raw/a.txt").read_text() == "a"


def ref_of(result: TaskResult) -> str:
    assert result.status == "COMPLETED", result.reason
    return str(result.output["workspace"]["ref"])

"""Tasks that change a graph and files together: `python graph_task.py ROOT ORCHESTRATOR` runs one attempt of them."""

from __future__ import annotations

import json
import sys
from pathlib import Path

from file_orchestrator import FileOrchestrator
from pydantic import BaseModel, ConfigDict

import fenceline as fl
from fenceline.task.attempt import AttemptRunner

SCHEMA = """
node Person { name: String @key  age: I32? @range(0..150) }
node City { name: String @key }
edge Knows: Person -> Person
edge LivesIn: Person -> City @card(0..1)
"""


class Params(BaseModel):
    model_config = ConfigDict(extra="forbid")
    age: int = 40


class Result(BaseModel):
    people: int


@fl.task(name="build", owner="data@example.com", version="1", workspace=fl.WorkspaceSpec())
def build(workspace: fl.Workspace, params: Params) -> Result:
    """Three tables and a file; each statement sees those before it."""
    if runs := sys.argv[2:]:
        with (Path(runs[0]).parent / "runs").open("a") as file:
            file.write("run\n")
    graph = workspace.graph("social")
    graph.insert("Person", {"name": "eve", "age": params.age})
    graph.update("Person", "eve", {"age": params.age + 1})
    graph.insert_edge("Knows", "eve", "ada", id="k2")
    graph.delete("City", "Rome")
    (workspace.path / "report.txt").write_text(f"{graph.count('Person')} people\n")
    return Result(people=graph.count("Person"))


def main(root: str, orchestrator: str) -> None:
    repo = fl.open_repository(root, sweep=False)
    port = FileOrchestrator(Path(orchestrator))
    attempt = port.poll("build")
    runner = AttemptRunner(lambda url: repo.native, port, Path(orchestrator).parent / "work", actor="child")
    result = runner.run(build, attempt)
    accepted = port.complete(attempt, result)
    print(json.dumps({"status": result.status, "reason": result.reason, "accepted": accepted}), flush=True)


if __name__ == "__main__":
    main(*sys.argv[1:3])

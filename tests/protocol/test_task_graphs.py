"""Graph tables in tasks: they publish with the attempt's files, once, or not at all."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import graph_task
import pyarrow as pa  # type: ignore[import-untyped]
import pytest
from file_orchestrator import FileOrchestrator
from graph_task import SCHEMA, Params, Result
from harness import HERE, assert_sound, environment

import fenceline as fl
from fenceline import failpoints
from fenceline.task.attempt import AttemptRunner
from fenceline.task.contract import TaskDefinition
from fenceline.task.result import TaskResult
from fenceline.testing.orchestrator import MemoryOrchestrator, ScheduledStep
from fenceline.txn.trying import Try

FULL = os.environ.get("FENCELINE_KILLS") == "full"
Body = Callable[[fl.Workspace], Any]
Place = dict[str, Any]


@dataclass
class World:
    repo: fl.Repository
    orchestrator: MemoryOrchestrator
    root: Path
    runs: int = 0

    def task(self, body: Body, version: str = "1", **spec: Any) -> TaskDefinition[Any, Any]:
        @fl.task(name="build", owner="data@example.com", version=version, workspace=fl.WorkspaceSpec(**spec))
        def build(workspace: fl.Workspace, params: Params) -> Result:
            self.runs += 1
            return Result(people=int(body(workspace) or 0))

        return build

    def schedule(self) -> ScheduledStep:
        return self.orchestrator.schedule("build", {"workspace": place(self.repo), "params": {}}, workflow="w")

    def run(self, task: TaskDefinition[Any, Any], step: ScheduledStep | None = None, report: bool = True) -> TaskResult:
        attempt = self.orchestrator.take(step or self.schedule())
        runner = AttemptRunner(lambda url: self.repo.native, self.orchestrator, self.root, actor="worker")
        result = runner.run(task, attempt)
        if report:
            self.orchestrator.complete(attempt, result)
        return result

    def names(self, table: str = "Person") -> list[str]:
        return sorted(row["id"] for row in self.repo.graph("main", "social").table(table).rows())

    def commits(self) -> int:
        return len(list(self.repo.log("main", full=True)))


def place(repo: fl.Repository) -> Place:
    return {"repository": repo.url, "branch": "main", "ref_type": "commit", "ref": repo.head("main").commit.id}


def with_graph(root: Path) -> fl.Repository:
    repo = fl.open_repository(root, create=True)
    graph = repo.graph("main", "social")
    graph.init(SCHEMA, actor="test")
    with graph.transaction(actor="test") as tx:
        tx.insert("Person", [{"name": "ada", "age": 36}, {"name": "bob"}])
        tx.insert("City", [{"name": "Rome"}, {"name": "Oslo"}])
        tx.insert_edge("LivesIn", "ada", "Rome", id="l1")
        tx.files.write("raw/in.txt", "in")
    return repo


@pytest.fixture
def world(tmp_path: Path) -> World:
    return World(with_graph(tmp_path / "repo"), MemoryOrchestrator(), tmp_path / "work")


def check_sound(repo: fl.Repository) -> None:
    repo.recover()
    repo.gc(grace=0)
    assert list(repo.intents()) == []
    assert_sound(repo)


def nothing_staged(repo: fl.Repository) -> None:
    """What is there after a failure is what garbage collection would leave."""
    before = sorted(each.key for each in repo.native.objects.list("tables/"))
    repo.gc(grace=0)
    assert sorted(each.key for each in repo.native.objects.list("tables/")) == before
    assert list(repo.intents()) == []


def test_tables_and_files_are_one_commit(world: World) -> None:
    before, entries = world.commits(), len(list(world.repo.entries("main")))
    assert world.run(graph_task.build).status == "COMPLETED"
    assert world.commits() == before + 1
    assert len(list(world.repo.entries("main"))) == entries + 1
    assert world.repo.read("main", "report.txt") == b"3 people\n"
    changed = {unit.path for unit in world.repo.diff("main~1", "main")}
    pins = {f"social/tables/{name}.pin" for name in ("node.Person", "node.City", "edge.Knows", "edge.LivesIn")}
    assert changed == {"report.txt", *pins}
    graph = world.repo.graph("main", "social")
    assert graph.table("Person").rows({"name": "eve"}) == [{"id": "eve", "name": "eve", "age": 41}]
    assert [world.names(table) for table in ("City", "Knows", "LivesIn")] == [["Oslo"], ["k2"], []]
    assert graph.table("Person").pin.published == 3
    check_sound(world.repo)


def test_the_intent_names_each_table_before_it_is_written(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    declared: list[str] = []
    real = Try.declare_table

    def noting(self: Try, *tables: str) -> None:
        declared.extend(tables)
        real(self, *tables)

    monkeypatch.setattr(Try, "declare_table", noting)
    world.run(graph_task.build)
    view = world.repo.graph("main", "social").at("main")
    assert set(declared) == {view.table(key).pin.table for key in view.schema.table_keys()}


def test_a_retry_adopts_what_was_published(world: World) -> None:
    step = world.schedule()
    task = world.task(lambda workspace: workspace.graph("social").insert("Person", {"name": "eve"}) and 1)
    world.run(task, step, report=False)
    commits = world.commits()
    assert world.run(task, world.orchestrator.retry(step)).output["result"] == {"people": 1}
    assert (world.runs, world.commits()) == (1, commits)
    assert next(iter(world.repo.entries("main"))).op == "adopt"


def test_changed_code_replaces_the_tables_of_its_own_earlier_attempt(world: World) -> None:
    def adding(name: str) -> Body:
        return lambda workspace: workspace.graph("social").insert("Person", {"name": name}) and 1

    step = world.schedule()
    world.run(world.task(adding("old")), step, report=False)
    world.run(world.task(adding("new"), version="2"), world.orchestrator.retry(step))
    assert world.names() == ["ada", "bob", "new"]
    assert next(iter(world.repo.entries("main"))).op == "relocate"
    check_sound(world.repo)


def test_statements_loads_and_tables_see_what_was_done_before_them(world: World) -> None:
    def body(workspace: fl.Workspace) -> int:
        graph = workspace.graph("social")
        graph.insert("Person", {"name": "eve"})
        assert graph.table("Person").to_arrow(["id"])["id"].to_pylist() == ["ada", "bob", "eve"]
        (workspace.path / "people.csv").write_text("name,age\nfay,7\n")
        assert graph.load("people.csv", table="Person").tables["node:Person"].rows == 4
        graph.load(pa.table({"id": ["k1"], "from": ["eve"], "to": ["fay"]}), table="Knows")
        graph.update("Person", "fay", {"age": 8})
        assert graph.delete("Person", "eve") == 1
        assert graph.count("Knows") == 0
        assert graph.rows("Person", id="fay")[0]["age"] == 8
        return graph.count("Person")

    assert world.run(world.task(body)).output["result"] == {"people": 3}
    assert world.names() == ["ada", "bob", "fay"]
    pin = world.repo.graph("main", "social").table("Person").pin
    assert pin.published == 3, "however often it was staged, it was published once"
    check_sound(world.repo)


def test_a_task_creates_a_graph_below_its_prefix(world: World) -> None:
    def body(workspace: fl.Workspace) -> int:
        graph = workspace.graph("own")
        assert not graph.exists
        graph.init("node Song { title: String @key }")
        graph.load({"Song": pa.table({"title": ["Aurora", "Echoes"]})})
        assert graph.exists
        assert graph.path == "part/own"
        return graph.count("Song")

    assert world.run(world.task(body, prefix="part")).status == "COMPLETED"
    assert world.repo.graph("main", "part/own").table("Song").count() == 2
    assert world.repo.graph("main", "part/own").table("Song").pin.published == 1
    check_sound(world.repo)


@pytest.mark.parametrize("way", ["statement", "load"])
def test_rows_that_break_a_rule_end_the_step_with_nothing_published(world: World, way: str) -> None:
    def body(workspace: fl.Workspace) -> None:
        (workspace.path / "half.txt").write_text("never seen")
        graph = workspace.graph("social")
        graph.insert("City", {"name": "Bari"})
        if way == "statement":
            graph.insert_edge("Knows", "ada", "nobody")
        else:
            graph.load(pa.table({"name": ["eve"], "age": [200]}), table="Person")

    before = world.repo.head("main")
    result = world.run(world.task(body))
    assert result.status == "FAILED_WITH_TERMINAL_ERROR"
    assert result.code == ("guard.constraint" if way == "statement" else "guard.load")
    assert ("nobody" if way == "statement" else "200") in (result.reason or "")
    assert world.repo.head("main") == before
    nothing_staged(world.repo)
    assert world.run(graph_task.build).status == "COMPLETED", "the next attempt proceeds"


def test_a_failed_body_and_a_failed_guard_leave_nothing(world: World) -> None:
    def loads(workspace: fl.Workspace) -> None:
        workspace.graph("social").load(pa.table({"name": ["eve"]}), table="Person")

    def fails(workspace: fl.Workspace) -> None:
        loads(workspace)
        raise ValueError("no")

    for body in (loads, fails):
        result = world.run(world.task(body, post=[fl.require_file("missing.txt")]))
        assert result.status == "FAILED"
        nothing_staged(world.repo)
    assert world.names() == ["ada", "bob"]


@pytest.mark.parametrize("table", ["City", "Person"])
def test_a_step_rebases_over_a_table_it_did_not_touch(world: World, table: str) -> None:
    def body(workspace: fl.Workspace) -> None:
        workspace.graph("social").insert("Person", {"name": "eve"})
        with world.repo.graph("main", "social").transaction(actor="colleague") as tx:
            tx.insert(table, {"name": "new"})

    result = world.run(world.task(body, reads=["raw"], on_conflict="rebase"))
    if table == "Person":
        assert result.status == "FAILED"
        assert "social/tables/node.Person.pin" in (result.reason or "")
        assert world.names() == ["ada", "bob", "new"]
    else:
        assert result.status == "COMPLETED", result.reason
        assert (world.names("City"), world.names()) == (["Oslo", "Rome", "new"], ["ada", "bob", "eve"])
        check_sound(world.repo)


def test_a_read_only_task_reads_tables_and_changes_none(world: World) -> None:
    def reads(workspace: fl.Workspace) -> int:
        graph = workspace.graph("social")
        assert graph.rows("Person", {"age": 36})[0]["id"] == "ada"
        return len(graph.table("Person").to_arrow())

    assert world.run(world.task(reads, read_only=True)).output["result"] == {"people": 2}
    changes: list[Body] = [
        lambda workspace: workspace.graph("social").insert("Person", {"name": "eve"}),
        lambda workspace: workspace.graph("social").load(pa.table({"name": ["eve"]}), table="Person"),
        lambda workspace: workspace.graph("social").init("node A { }"),
    ]
    for change in changes:
        refused = world.run(world.task(change, read_only=True))
        assert "read-only" in (refused.reason or "")


def test_the_graphs_own_files_are_not_changed_by_hand_beside_its_calls(world: World) -> None:
    def body(workspace: fl.Workspace) -> None:
        workspace.graph("social").insert("Person", {"name": "eve"})
        (workspace.path / "social/tables/node.Person.pin").unlink()

    result = world.run(world.task(body))
    assert "social/tables/node.Person.pin" in (result.reason or "")
    assert result.code == "contract"
    nothing_staged(world.repo)


def test_a_rehearsal_tells_what_would_change_and_leaves_nothing(world: World) -> None:
    before = world.repo.head("main")
    tried = fl.try_task(graph_task.build, world.repo.at("main"))
    assert {unit.path for unit in tried.changes} >= {"report.txt", "social/tables/node.Person.pin"}
    assert tried.result == {"people": 3}
    assert world.repo.head("main") == before
    nothing_staged(world.repo)


def test_a_graph_needs_an_attempt() -> None:
    with pytest.raises(fl.ContractError, match="no graphs"):
        fl.Workspace(Path(), "c", "").graph()


# --- killed -------------------------------------------------------------------------------------------------------


def attempt(root: Path, file: Path, points: str = "") -> int:
    """One attempt in a process of its own; its exit code."""
    command = [sys.executable, str(HERE / "graph_task.py"), str(root), str(file)]
    done = subprocess.run(command, env=environment(points), capture_output=True, text=True, check=False, timeout=120)
    assert done.returncode in (0, -9), done.stderr
    return done.returncode


POINTS = ["verdict.seal.after@1", "entry.publish.after@1", "table.stage.after@3"]
MORE = ["table.stage.before@1", "table.write.after@2", "verdict.seal.before@1", "entry.publish.before@1"]


@pytest.mark.slow
@pytest.mark.parametrize("point", POINTS + (MORE if FULL else []))
def test_an_attempt_killed_anywhere_is_finished_by_its_retry(tmp_path: Path, point: str) -> None:
    repo = with_graph(tmp_path / "repo")
    assert point.partition("@")[0].rpartition(".")[0] in failpoints.effects()
    file = tmp_path / "orchestrator.json"
    port = FileOrchestrator.scheduled(file, {"workspace": place(repo), "params": {}})
    assert attempt(tmp_path / "repo", file, f"{point}=crash") == -9
    port.retry()
    assert attempt(tmp_path / "repo", file) == 0
    runs = (tmp_path / "runs").read_text().count("run")
    sealed = point.startswith(("verdict.seal.after", "entry."))
    assert runs == (1 if sealed else 2), "what was sealed is not computed again"
    steps = [item for item in repo.log("main", full=True) if item.commit.step]
    assert len(steps) == 1
    world = World(repo, MemoryOrchestrator(), tmp_path)
    assert (world.names(), world.names("Knows"), world.names("City")) == (["ada", "bob", "eve"], ["k2"], ["Oslo"])
    assert repo.read("main", "report.txt") == b"3 people\n"
    check_sound(repo)

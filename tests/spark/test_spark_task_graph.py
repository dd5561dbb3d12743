"""Graph tables in Spark tasks: loaded from frames by executors, published with the task's datasets."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pyarrow as pa  # type: ignore[import-untyped]
import pytest
from pydantic import BaseModel, ConfigDict
from pyspark.sql import functions as F  # noqa: N812 - as everyone writes it

import fenceline as fl
from fenceline.spark import SparkSettings
from fenceline.task.attempt import AttemptRunner
from fenceline.task.result import TaskResult
from fenceline.testing.orchestrator import MemoryOrchestrator, ScheduledStep

pytestmark = [pytest.mark.slow, pytest.mark.filterwarnings("ignore:lance is not fork-safe")]

SCHEMA = """
node Person { name: String @key  plays: I64? @range(0..1000) }
node Song { title: String @key }
edge Listened: Person -> Song { times: I64 }
"""


class Params(BaseModel):
    model_config = ConfigDict(extra="forbid")
    dangling: bool = False


class Result(BaseModel):
    rows: int


@fl.task(name="build", owner="data@example.com", version="1", workspace=fl.WorkspaceSpec(prefix="work"))
def build(workspace: fl.SparkWorkspace, params: Params) -> Result:
    people = workspace.spark.range(20).select(
        F.concat(F.lit("p"), F.col("id")).alias("name"), (F.col("id") * 3).alias("plays")
    )
    written = workspace.write(people, "people")
    graph = workspace.graph("graph")
    if not graph.exists:
        graph.init(SCHEMA)
    listened = workspace.spark.createDataFrame(
        [("e1", "p1", "Aurora", 2), ("e2", "p2", "Nothing" if params.dangling else "Aurora", 1)],
        "id STRING, src STRING, dst STRING, times LONG",
    )
    songs = pa.table({"title": ["Aurora", "Echoes"]})
    loaded = graph.load({"Person": workspace.read.dataset("people"), "Song": songs, "Listened": listened}, mode="merge")
    assert loaded.engine == "spark"
    graph.update("Song", "Echoes", {"title": "Echoes"})
    graph.delete("Person", "p2")
    heard = graph.table("Listened").to_spark().join(graph.table("Person").to_spark(), F.col("src") == F.col("name"))
    assert [row["plays"] for row in heard.collect()] == [3]
    return Result(rows=written.rows or 0)


class World:
    def __init__(self, root: Path, settings: SparkSettings) -> None:
        self.repo = fl.open_repository(root / "repo", create=True)
        self.orchestrator = MemoryOrchestrator()
        self._root, self._settings = root / "work", settings

    def schedule(self, **params: Any) -> ScheduledStep:
        head = self.repo.head("main").commit.id
        place = {"repository": self.repo.url, "branch": "main", "ref_type": "commit", "ref": head}
        return self.orchestrator.schedule("build", {"workspace": place, "params": params})

    def run(self, step: ScheduledStep, report: bool = True) -> TaskResult:
        attempt = self.orchestrator.take(step)
        runner = AttemptRunner(
            lambda url: self.repo.native, self.orchestrator, self._root, actor="worker", spark=self._settings
        )
        result = runner.run(build, attempt)
        if report:
            self.orchestrator.complete(attempt, result)
        return result


@pytest.fixture
def world(tmp_path: Path, settings: SparkSettings, session: object) -> World:
    return World(tmp_path, settings)


def test_frames_and_statements_publish_with_the_datasets_and_a_retry_adopts_them(world: World) -> None:
    step = world.schedule()
    result = world.run(step, report=False)
    assert result.status == "COMPLETED", result.reason
    steps = [item for item in world.repo.log("main", full=True) if item.commit.step]
    assert len(steps) == 1
    graph = world.repo.graph("main", "work/graph")
    assert {key: graph.table(key).count() for key in graph.schema.table_keys()} == {
        "node:Person": 19,
        "node:Song": 2,
        "edge:Listened": 1,
    }
    assert graph.table("Person").pin.published == 1
    assert world.repo.stat("main", "work/people").dataset is not None
    assert world.run(world.orchestrator.retry(step)).output == result.output
    assert len([item for item in world.repo.log("main", full=True) if item.commit.step]) == 1
    world.repo.gc(grace=0)
    assert world.repo.fsck().clean


def test_an_edge_without_its_node_ends_the_step_with_nothing_published(world: World) -> None:
    before = world.repo.head("main")
    result = world.run(world.schedule(dangling=True))
    assert result.status == "FAILED_WITH_TERMINAL_ERROR"
    assert "Nothing" in (result.reason or "")
    assert world.repo.head("main") == before
    assert list(world.repo.intents()) == []
    kept = {each.key for each in world.repo.native.objects.list("tables/")}
    world.repo.gc(grace=0)
    assert {each.key for each in world.repo.native.objects.list("tables/")} == kept == set()

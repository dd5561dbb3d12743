"""Spark tasks on a real lakeFS through its S3 gateway: nothing is copied, and a write is whole or not there.

Needs a server, and the jars of s3a from Maven: FENCELINE_LAKEFS=full.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from lake_world import Params, Result, World, make_world, ref_of

import fenceline as fl
from fenceline.errors import AlreadyExists, ContractError
from fenceline.repo.lakefs.client import Client
from fenceline.repo.lakefs.sdk import Access
from fenceline.spark import SparkSettings, SparkWorkspace, get_session, stop_session
from fenceline.spark.s3a import with_jars
from fenceline.task.contract import TaskDefinition, task
from fenceline.task.result import TaskResult
from fenceline.task.spec import WorkspaceSpec

REAL = os.environ.get("FENCELINE_TEST_LAKEFS_ENDPOINT")
pytestmark = [
    pytest.mark.slow,
    pytest.mark.timeout(900),
    pytest.mark.skipif(
        REAL is None or os.environ.get("FENCELINE_LAKEFS") != "full",
        reason="FENCELINE_LAKEFS=full and FENCELINE_TEST_LAKEFS_ENDPOINT run Spark on a real server",
    ),
]

SETTINGS = SparkSettings(
    master="local[2]",
    conf=with_jars({"spark.jars": jars} if (jars := os.environ.get("FENCELINE_TEST_SPARK_JARS")) else {}),
)
"""FENCELINE_TEST_SPARK_JARS may name the jar of Spark's cloud classes: then the magic committer is used."""


@pytest.fixture(scope="module", autouse=True)
def spark() -> Iterator[None]:
    get_session(SETTINGS)
    yield
    stop_session()


@pytest.fixture
def world(repository_name: str, tmp_path: Path) -> Iterator[World]:
    access = Access(REAL, os.environ["FENCELINE_TEST_LAKEFS_KEY"], os.environ["FENCELINE_TEST_LAKEFS_SECRET"])
    client = Client(repository_name, access)
    client.create(f"local://fenceline-tests/{repository_name}")
    yield make_world(client, tmp_path / "work")
    client.close()


def spark_task(body: Callable[[SparkWorkspace], int], name: str = "build", **spec: Any) -> TaskDefinition[Any, Any]:
    @task(name=name, owner="data@example.com", version="1", workspace=WorkspaceSpec(**spec))
    def build(workspace: fl.SparkWorkspace, params: Params) -> Result:
        return Result(rows=body(workspace))

    return build


def run(world: World, body: Callable[[SparkWorkspace], int], workflow: str = "w1", **spec: Any) -> TaskResult:
    step = world.schedule(workflow=workflow)
    attempt = world.orchestrator.take(step)
    result = world.runner(spark=SETTINGS).run(spark_task(body, **spec), attempt)
    world.orchestrator.complete(attempt, result)
    return result


def numbers(workspace: SparkWorkspace, start: int, end: int) -> Any:
    from pyspark.sql import functions

    return workspace.spark.range(start, end, 1, 4).withColumn("k", (functions.col("id") % 2).cast("string"))


def counted(world: World, path: str = "out") -> int:
    found: list[int] = []

    def look(workspace: SparkWorkspace) -> int:
        found.append(workspace.read.dataset(path).count())
        return found[0]

    ref_of(run(world, look, workflow=f"look-{world.head[:8]}-{len(world.publications())}", read_only=True))
    return found[0]


def test_a_frame_is_published_and_read_again(world: World) -> None:
    def body(workspace: SparkWorkspace) -> int:
        written = workspace.write(numbers(workspace, 0, 1000), "out")
        assert workspace.read.parquet("out").count() == 1000, "its own writes are seen"
        return written.rows

    result = run(world, body)
    assert ref_of(result) == world.head
    assert result.output["result"] == {"rows": 1000}
    assert world.staging() == []
    paths = sorted(path for path in world.content() if path != "raw/a.txt")
    assert len(paths) == 4
    assert all(path.startswith("out/part-") and path.endswith(".parquet") for path in paths), "no markers, no litter"
    assert counted(world) == 1000


def test_modes(world: World) -> None:
    def partitioned(mode: str, start: int, end: int) -> Callable[[SparkWorkspace], int]:
        def body(workspace: SparkWorkspace) -> int:
            frame = numbers(workspace, start, end)
            if mode == "overwrite_partitions":
                frame = frame.where("k = '1'")
            return workspace.write(frame, "out", mode=mode, partition_by="k").rows  # type: ignore[arg-type]

        return body

    ref_of(run(world, partitioned("error", 0, 100), "one"))
    refused = run(world, partitioned("error", 0, 100), "two")
    assert (refused.status, AlreadyExists.code in str(refused.code)) == ("FAILED", True)
    ref_of(run(world, partitioned("append", 100, 150), "three"))
    assert counted(world) == 150
    ref_of(run(world, partitioned("overwrite_partitions", 0, 20), "four"))
    assert counted(world) == 75 + 10
    ref_of(run(world, partitioned("overwrite", 0, 7), "five"))
    assert counted(world) == 7
    assert world.staging() == []


def test_a_write_that_failed_and_was_caught_leaves_nothing(world: World) -> None:
    def body(workspace: SparkWorkspace) -> int:
        from pyspark.sql import functions

        broken = numbers(workspace, 0, 1000).withColumn(
            "x", functions.when(functions.col("id") == 990, functions.raise_error(functions.lit("boom"))).otherwise("x")
        )
        with pytest.raises(Exception, match="boom"):
            workspace.write(broken, "out")
        assert not workspace.exists("out")
        return workspace.write(numbers(workspace, 0, 10), "out").rows

    ref_of(run(world, body))
    assert counted(world) == 10


def test_overwriting_what_is_read(world: World) -> None:
    ref_of(run(world, lambda workspace: workspace.write(numbers(workspace, 0, 100), "out").rows, "one"))

    def double(workspace: SparkWorkspace) -> int:
        frame = workspace.read.parquet("out")
        return workspace.write(frame.union(frame), "out", mode="overwrite").rows

    ref_of(run(world, double, "two"))
    assert counted(world) == 200


def test_what_is_not_there_says_so(world: World) -> None:
    def body(workspace: SparkWorkspace) -> int:
        with pytest.raises(ContractError, match="not there"):
            workspace.write(numbers(workspace, 0, 1), "out", mode=workspace.replace_where("id = 1"))
        with pytest.raises(ContractError, match="not there"):
            workspace.output_dir("out")
        return 0

    before = world.head
    assert ref_of(run(world, body)) == before

"""What is different behind Spark Connect. Run by test_spark_connect.py, in a process whose session is on a server."""

from __future__ import annotations

import os
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from pydantic import BaseModel, ConfigDict
from pyspark.sql import SparkSession

import fenceline as fl
from fenceline.seams import Seams
from fenceline.spark import SparkSettings, cancel, get_session, isolated
from fenceline.spark.progress import StageProgress
from fenceline.spark.session import is_connect, job_group, release, runs_locally
from fenceline.task.attempt import AttemptRunner
from fenceline.task.by_hand import ByHand, handed_out
from fenceline.task.contract import TaskDefinition
from fenceline.task.loading import load
from fenceline.task.result import TaskResult

if TYPE_CHECKING:
    from tests.spark.conftest import Lab

assert os.environ.get("FENCELINE_TEST_MASTER", "").startswith("sc://"), "this file is run by test_spark_connect.py"


class Params(BaseModel):
    model_config = ConfigDict(extra="forbid")


class Built(BaseModel):
    rows: int
    total: int


@fl.task(
    name="build",
    owner="data@example.com",
    version="1",
    workspace=fl.WorkspaceSpec(pre=(fl.require_rows("raw", min=1),), post=(fl.expect("out", "id >= 0"),)),
)
def build(workspace: fl.SparkWorkspace, params: Params) -> Built:
    written = workspace.write(workspace.read.dataset("raw").selectExpr("id", "id % 2 as k"), "out", partition_by="k")
    workspace.write(workspace.spark.range(5, 6).selectExpr("id", "1L as k"), "out", mode="append", partition_by="k")
    row = workspace.read.dataset("out").selectExpr("sum(id)").first()
    assert row is not None
    return Built(rows=written.rows, total=row[0])


def attempt(lab: Lab, definition: TaskDefinition[Any, Any], root: Path, **more: Any) -> TaskResult:
    head = lab.repo.head("main").commit.id
    place = {"repository": lab.repo.url, "branch": "main", "ref_type": "commit", "ref": head}
    runner = AttemptRunner(lambda url: lab.repo.native, ByHand(), root, **more)
    return runner.run(definition, handed_out(definition.name, {"workspace": place, "params": {}}, Seams()))


def test_a_task_reads_writes_and_publishes(lab: Lab, settings: SparkSettings, tmp_path: Path) -> None:
    lab.put(lab.session.range(0, 4, 1, 2), "raw")
    seen: list[StageProgress] = []
    result = attempt(lab, build, tmp_path, spark=settings, on_progress=seen.append)
    assert result.status == "COMPLETED", result.reason
    assert result.output["result"] == {"rows": 4, "total": 11}
    assert result.output["workspace"]["ref"] == lab.repo.head("main").commit.id
    assert lab.rows("out") == [(0, 0), (1, 1), (2, 0), (3, 1), (5, 1)]
    assert any(progress.total for progress in seen)
    assert lab.repo.fsck().problems == ()


def test_sessions_are_isolated_and_end(session: SparkSession, settings: SparkSettings) -> None:
    assert is_connect(session)
    assert not runs_locally(session)
    assert get_session() is get_session(settings) is session
    own = isolated(session)
    own.range(3).createOrReplaceTempView("numbers")
    assert own.catalog.tableExists("numbers")
    assert not session.catalog.tableExists("numbers")
    release(own)
    assert session.range(3).count() == 3


def test_a_running_query_is_cancelled_by_its_tag(lab: Lab, tmp_path: Path) -> None:
    marker = tmp_path / "runs"
    ended: list[str] = []

    def query() -> None:
        with job_group(lab.session, "stop-me", "x"):
            try:
                lab.session.range(0, 2, 1, 2).mapInArrow(hanging(str(marker)), "id bigint").collect()
            except Exception as error:  # noqa: BLE001 - whatever Connect raises
                ended.append(str(error))

    thread = threading.Thread(target=query)
    thread.start()
    while not marker.exists():
        thread.join(0.05)
        assert thread.is_alive(), ended
    cancel(lab.session, "stop-me")
    thread.join(60)
    assert not thread.is_alive()
    assert "CANCEL" in ended[0].upper()


def hanging(marker: str) -> Callable[[Iterator[Any]], Iterator[Any]]:
    def hang(batches: Iterator[Any]) -> Iterator[Any]:
        import time

        for batch in batches:
            open(marker, "w").close()
            time.sleep(300)
            yield batch

    return hang


hanging.__module__ = "__main__"  # the server has no module of this name


TASK = """
import fenceline as fl
from pydantic import BaseModel, ConfigDict
from pyspark.sql import functions as F


class Params(BaseModel):
    model_config = ConfigDict(extra="forbid")


class Built(BaseModel):
    total: int


def twice(n):
    return n * 2


@fl.task(name="doubled", owner="data@example.com", version="1", workspace=fl.WorkspaceSpec())
def doubled(workspace: fl.SparkWorkspace, params: Params) -> Built:
    workspace.write(workspace.spark.range(0, 10, 1, 2).select(F.udf(twice, "long")("id").alias("n")), "doubled")
    return Built(total=workspace.read.dataset("doubled").agg(F.sum("n")).first()[0])
"""


def test_functions_of_a_task_file_reach_the_server(lab: Lab, settings: SparkSettings, tmp_path: Path) -> None:
    file = tmp_path / "only_here" / "doubling_behind_connect.py"
    file.parent.mkdir()
    file.write_text(TASK)
    (definition,) = load(f"{file}:doubled")
    result = attempt(lab, definition, tmp_path, spark=settings)
    assert result.status == "COMPLETED", result.reason
    assert result.output["result"] == {"total": 90}


def test_a_body_that_fails_registers_nothing(lab: Lab, tmp_path: Path) -> None:
    @fl.task(name="breaks", owner="data@example.com", version="1", workspace=fl.WorkspaceSpec())
    def breaks(workspace: fl.SparkWorkspace, params: Params) -> Built:
        workspace.write(workspace.spark.range(3), "out")
        workspace.spark.sql("select raise_error('on purpose')").collect()
        return Built(rows=0, total=0)

    result = attempt(lab, breaks, tmp_path)
    assert result.status == "FAILED"
    assert "on purpose" in (result.reason or "")
    assert list(lab.repo.intents()) == []
    with pytest.raises(fl.FencelineError):
        lab.rows("out")

"""`repo.at(ref).spark(session)`, and what other engines find of what Spark wrote."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pandas as pd  # type: ignore[import-untyped]
import pytest
from pydantic import BaseModel

import fenceline as fl
from fenceline.errors import NotFound
from fenceline.task.guard import GuardsDidNotRun, GuardView

if TYPE_CHECKING:
    from tests.spark.conftest import Lab


class Params(BaseModel, extra="forbid"):
    rows: int = 3


class Result(BaseModel):
    rows: int


@fl.task(name="demo.spark", owner="data@example.com", version="1", workspace=fl.WorkspaceSpec())
def grow(workspace: fl.SparkWorkspace, params: Params) -> Result:
    out = workspace.write(workspace.spark.range(params.rows), "numbers", mode="append")
    workspace.metrics.gauge("rows", out.rows)
    return Result(rows=workspace.read.parquet("numbers").count())


def test_frames_at_a_commit(lab: Lab) -> None:
    lab.put(lab.frame([(1, "a"), (2, "b")], "n INT, k STRING"), "plays", partition_by=["k"])
    with lab.repo.transaction() as tx:
        tx.write("raw/a.csv", "n,k\n3,c\n")
        tx.write("raw.json", '{"n": 4}\n')
    lab.put(lab.frame([(9, "z")], "n INT, k STRING"), "plays", mode="overwrite", partition_by=["k"])
    now, before = lab.repo.at("main").spark(lab.session), lab.repo.at("main~1").spark(lab.session)
    assert lab.collect(now.parquet("plays")) == [(9, "z")]
    assert lab.collect(before.dataset("plays")) == [(1, "a"), (2, "b")]
    assert lab.collect(before.csv("raw", header=True)) == [("3", "c")]
    assert lab.collect(before.json("raw.json")) == [(4,)]
    assert lab.collect(now.text("raw.json")) == [('{"n": 4}',)]
    with pytest.raises(NotFound, match="absent"):
        now.orc("absent")


def test_uris_are_the_live_files_of_what_spark_wrote(lab: Lab) -> None:
    for day, n in (("01", 1), ("02", 2), ("02", 3)):
        lab.put(lab.frame([(n, day)], "n INT, day STRING"), "plays", mode="overwrite_partitions", partition_by=["day"])
    found = lab.repo.at("main").uris("plays")
    assert sorted(int(n) for uri in found for n in pd.read_parquet(uri)["n"]) == [1, 3]
    assert lab.collect(lab.session.read.parquet(*found).select("n")) == [(1,), (3,)]


def test_trying_a_spark_task_shows_the_dataset_and_leaves_nothing(lab: Lab) -> None:
    lab.put(lab.session.range(2).coalesce(1), "numbers")
    tried = fl.try_task(grow, lab.repo.at("main"), Params(rows=3))
    assert (tried.result, tried.metrics) == ({"rows": 5}, {"rows": 3})
    (unit,) = tried.changes
    assert (unit.path, unit.is_dataset, unit.status) == ("numbers", True, "changed")
    assert "2 rows → " in str(tried)
    assert "5 rows" in str(tried)
    assert len(lab.rows("numbers")) == 2
    assert list(lab.repo.intents()) == []
    assert len(lab.repo.at("main").uris("numbers")) == lab.dataset("numbers").files


def test_a_pre_guard_that_spark_cannot_run_may_be_retried(lab: Lab) -> None:
    def on_spark(view: GuardView) -> bool:
        view.frame("numbers").selectExpr("raise_error('the executor is lost')").collect()
        return True

    @fl.task(name="demo.guarded", owner="d@example.com", version="1", workspace=fl.WorkspaceSpec(pre=[on_spark]))
    def guarded(workspace: fl.SparkWorkspace, params: Params) -> Result:
        raise AssertionError("it ran without its guard")

    lab.put(lab.session.range(2).coalesce(1), "numbers")
    with pytest.raises(GuardsDidNotRun, match="the executor is lost"):
        fl.try_task(guarded, lab.repo.at("main"))

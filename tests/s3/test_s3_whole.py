"""What stands on the object port works in a bucket too: attempts on a directory, graph tables, gc, the doctor."""

from __future__ import annotations

from pathlib import Path

import pytest
from pydantic import BaseModel, ConfigDict
from s3_server import S3Server

import fenceline as fl
from fenceline.cli import doctor_remote
from fenceline.cli.doctor import clock
from fenceline.repo.native.gc import Retention
from fenceline.repo.native.remote.objects import RemoteObjects
from fenceline.seams import Seams

SCHEMA = "node Person { name: String @key  age: I32? }\nedge Knows: Person -> Person"


class Day(BaseModel):
    model_config = ConfigDict(extra="forbid")
    day: str


class Rows(BaseModel):
    files: int


@fl.task(name="s3.load", owner="tests@example.com", version="1", workspace=fl.WorkspaceSpec(prefix="plays"))
def load(workspace: Path, params: Day) -> Rows:
    (workspace / f"{params.day}.csv").write_text("Aurora,3\n")
    return Rows(files=len(list(workspace.iterdir())))


@fl.pipeline(name="on_s3")
def daily(run: fl.Run[Day]) -> None:
    run.step(load, day=run.params.day)


def test_a_pipeline_of_path_tasks_runs_on_s3(s3: S3Server, s3_url: str, tmp_path: Path) -> None:
    with fl.open_repository(s3_url, create=True, options=s3.options) as repo:
        for number in (1, 2):
            done = fl.run(daily, repo, branch="main", params=Day(day=f"{number}"), store=tmp_path / "runs.sqlite")
            assert done.check().step("load").output["result"] == {"files": number}
        assert [entry.path for entry in repo.list("main")] == ["plays/1.csv", "plays/2.csv"]


def test_runs_of_a_remote_repository_are_kept_where_the_environment_says(
    s3: S3Server, s3_url: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    repo = fl.open_repository(s3_url, create=True, options=s3.options)
    with pytest.raises(fl.ConfigError) as raised:
        fl.run(daily, repo, branch="main", params=Day(day="1"))
    assert "FENCELINE_RUNS" in (raised.value.hint or "")
    monkeypatch.setenv("FENCELINE_RUNS", str(tmp_path / "runs.sqlite"))
    fl.run(daily, repo, branch="main", params=Day(day="1"), workspace_root=tmp_path / "work").check()
    assert (tmp_path / "runs.sqlite").exists()


def test_graph_tables_live_on_s3(s3: S3Server, s3_url: str) -> None:
    """Keys given as options reach Lance too: nothing is in the environment here."""
    repo = fl.open_repository(s3_url, create=True, options=s3.options)
    graph = repo.graph()
    graph.init(SCHEMA, actor="test")
    with graph.transaction(actor="test") as tx:
        tx.insert("Person", [{"name": "ada", "age": 36}, {"name": "bob"}])
        tx.insert_edge("Knows", "ada", "bob", id="k1")
    fresh = fl.open_repository(s3_url, options=s3.options)
    assert sorted(fresh.graph().table("Person").to_arrow(["id"])["id"].to_pylist()) == ["ada", "bob"]
    assert fresh.fsck().clean
    assert fresh.plan_gc().objects == ()


def test_gc_gives_up_old_content_on_s3(s3: S3Server, s3_url: str) -> None:
    repo = fl.open_repository(s3_url, create=True, options=s3.options)
    for number in range(6):
        with repo.transaction("main") as tx:
            tx.write("same", str(number))
    deleted = repo.gc(Retention(keep=3, expire=True), grace=0)
    assert [info.key.partition("/")[0] for info in deleted.objects].count("files") == 3
    fresh = fl.open_repository(s3_url, options=s3.options)
    assert fresh.fsck().clean
    assert fresh.read("main", "same") == b"5"
    assert fresh.plan_gc().objects == ()


def test_the_doctor_lets_writers_race_on_the_store(s3_objects: RemoteObjects, monkeypatch: pytest.MonkeyPatch) -> None:
    findings = list(doctor_remote.examine_store(s3_objects, clock, Seams()))
    assert [(finding.check, finding.state) for finding in findings] == [("object store", "ok"), ("clock", "ok")]
    assert list(s3_objects.list("tmp/")) == []
    # a server that looks and then writes, as some do
    monkeypatch.setattr(RemoteObjects, "create", RemoteObjects.put)
    assert next(iter(doctor_remote.examine_store(s3_objects, clock, Seams()))).state == "fail"

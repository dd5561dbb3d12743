"""Graphs on Spark: loads by executors, rules on both engines, tables as frames and as a data source."""

from __future__ import annotations

import datetime as dt
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import SparkSession

from fenceline import Repository, open_repository
from fenceline.errors import FencelineError
from fenceline.graph.graph import Graph
from fenceline.graph.load import load
from fenceline.graph.loading import on_spark
from fenceline.graph.loading.bad_rows import LoadRefused
from fenceline.graph.loading.job import FrameSource
from fenceline.graph.loading.result import TableRows

pytestmark = [pytest.mark.slow, pytest.mark.filterwarnings("ignore:lance is not fork-safe")]

SCHEMA = """
node Person {
  name: String @key
  age: I32? @range(0..150)
  email: String? @unique
  seen: DateTime?
  big: U64?
  face: Vector(2)?
}
node Note { text: String? }
edge Knows: Person -> Person @card(0..2) { since: Date?  @unique(src, dst) }
"""
Write = Callable[..., str]


def person(name: str, **data: Any) -> dict[str, Any]:
    return {"type": "Person", "data": {"name": name, **data}}


def knows(source: str, target: str, **more: Any) -> dict[str, Any]:
    return {"edge": "Knows", "from": source, "to": target, **more}


@pytest.fixture
def repo(tmp_path: Path) -> Repository:
    return open_repository(tmp_path / "repo", create=True)


@pytest.fixture
def graph(repo: Repository) -> Graph:
    made = repo.graph("main", "g")
    made.init(SCHEMA)
    return made


@pytest.fixture(params=["rules in process", "rules on Spark"])
def rules(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    if request.param == "rules on Spark":
        monkeypatch.setattr(on_spark, "MOST_IN_PROCESS", -1)


def rows(graph: Graph, name: str) -> list[dict[str, Any]]:
    return sorted(graph.table(name).rows(), key=lambda row: str(row["id"]))


@pytest.mark.usefixtures("rules")
def test_a_load_on_spark_does_what_one_in_process_does(
    repo: Repository, graph: Graph, write: Write, spark: SparkSession
) -> None:
    other = repo.graph("main", "h")
    other.init(SCHEMA)
    whole = person("ada", age=36, email="a@x", seen="2026-01-01T12:00:00Z", big=2**63, face=[1, 2])
    first = write("a.jsonl", whole, person("bob"), knows("ada", "bob", id="k1", data={"since": "2026-01-01"}))
    second = write(
        "b.jsonl", person("ada", age=37), person("cy", age=1), person("cy", email="c@x"), knows("bob", "cy", id="k1")
    )
    for path, mode in ((first, "append"), (second, "merge"), (first, "overwrite"), (second, "merge")):
        here = load(other, path, mode=mode, engine="local", piece=40)  # type: ignore[arg-type]
        there = load(graph, path, mode=mode, session=spark, piece=40)  # type: ignore[arg-type]
        assert there.engine == "spark"
        assert there.tables == here.tables
        for name in ("Person", "Knows"):
            assert rows(graph, name) == rows(other, name)
    assert not repo.fsck().problems


@pytest.mark.usefixtures("rules")
def test_bad_rows_are_named_as_in_process_and_nothing_is_published(
    graph: Graph, write: Write, spark: SparkSession
) -> None:
    load(graph, write("old.jsonl", person("ada", email="a@x"), person("bob"), knows("ada", "bob")), session=spark)
    before = graph._repo.head("main").commit.id
    unreadable = write("bad.jsonl", person("x"), person("y", age="old"), "{", person("z", agee=1))
    broken = write(
        "broken.jsonl",
        person("x", age=200),
        person("y", email="a@x"),
        person("y"),
        person("ada"),
        knows("ada", "zed"),
        knows("ada", "x"),
        knows("ada", "bob"),
    )
    for path in (unreadable, broken):
        told = []
        for engine in ("local", "spark"):
            with pytest.raises(LoadRefused) as caught:
                load(graph, path, engine=engine, on_error="report", session=spark, piece=50)
            told.append(sorted((row.line or 0, row.property or "", row.type or "") for row in caught.value.rows))
        assert told[0] == told[1]
        assert len(told[0]) >= 3
    assert graph._repo.head("main").commit.id == before
    load(graph, write("next.jsonl", person("next")), session=spark)


def test_a_dry_run_on_spark_leaves_nothing(repo: Repository, graph: Graph, write: Write, spark: SparkSession) -> None:
    before = graph._repo.head("main").seq
    dry = load(graph, write("a.jsonl", person("ada")), dry_run=True, session=spark)
    assert (dry.result, dry.tables["node:Person"]) == (None, TableRows(1, 1, 0, 0, 1))
    assert graph._repo.head("main").seq == before
    assert list(repo.intents()) == []


def test_a_frame_is_loaded(graph: Graph, spark: SparkSession) -> None:
    people = spark.range(1000).selectExpr("concat('p', id) AS who", "cast(id % 100 AS int) AS age")
    pairs = spark.range(999).selectExpr("concat('p', id) AS src", "concat('p', id + 1) AS dst")
    sources = [FrameSource(people, "Person", {"who": "name"}), FrameSource(pairs, "Knows")]
    loaded = load(graph, sources, session=spark)
    assert loaded.tables["node:Person"].inserted == 1000
    assert graph.table("Knows").count() == 999
    assert len({row["id"] for row in rows(graph, "Knows")}) == 999
    again = load(graph, FrameSource(people, "Person", {"who": "name"}), mode="merge", session=spark)
    assert (again.tables["node:Person"].updated, graph.table("Person").count()) == (1000, 1000)
    with pytest.raises(LoadRefused, match=r"partition .*age.*200"):
        load(graph, FrameSource(spark.sql("SELECT 'x' AS name, '200' AS age"), "Person"), session=spark)


def test_a_table_is_a_frame(graph: Graph, write: Write, spark: SparkSession) -> None:
    load(
        graph,
        write("a.jsonl", person("ada", big=2**63, face=[1, 2], seen="2026-01-01T00:00:00Z"), person("bob")),
        engine="local",
    )
    load(graph, write("b.jsonl", knows("ada", "bob", data={"since": "2026-01-02"})), engine="local")
    found = graph.table("Person").to_spark(spark)
    ada = found.where("id = 'ada'").first()
    assert ada is not None
    assert (int(ada["big"]), list(ada["face"])) == (2**63, [1.0, 2.0])
    edges = graph.table("Knows").to_spark(spark, ["id", "src", "dst"])
    assert edges.columns == ["id", "src", "dst"]  # as GraphFrames wants them
    assert graph.table("Note").to_spark(spark).count() == 0


def test_the_data_source_reads_a_commit(graph: Graph, write: Write, spark: SparkSession, tmp_path: Path) -> None:
    from fenceline.graph.spark_source import register

    register(spark)
    spark.conf.set("spark.sql.python.filterPushdown.enabled", "true")
    load(graph, write("a.jsonl", *(person(f"p{n}", age=n) for n in range(20))), engine="local")
    first = graph._repo.head("main").commit.id
    load(
        graph, write("b.jsonl", person("ada", age=36), knows("p1", "p2", data={"since": "2026-01-02"})), engine="local"
    )

    def read(ref: str, table: str, **options: str) -> Any:
        return spark.read.format("fenceline").option("table", table).options(**options).load(f"{tmp_path}/repo@{ref}:g")

    assert read("main", "Person").count() == 21
    assert read(first, "Person").count() == 20
    assert read("main", "Person").where("age > 17 AND name <> 'ada'").count() == 2
    assert [row["id"] for row in read("main", "Person", columns="id,age").where("id IN ('ada', 'no')").collect()] == [
        "ada"
    ]
    assert read("main", "Knows").where(f"since = date'{dt.date(2026, 1, 2)}'").count() == 1
    assert read("main", "Note").count() == 0
    with pytest.raises(Exception, match="no type 'Nobody'"):
        read("main", "Nobody").count()


def test_frames_stay_as_they_are_when_the_branch_moves(graph: Graph, write: Write, spark: SparkSession) -> None:
    load(graph, write("a.jsonl", person("ada")), engine="local")
    found = graph.table("Person").to_spark(spark)
    load(graph, write("b.jsonl", person("bob")), mode="overwrite", engine="local")
    assert [row["id"] for row in found.collect()] == ["ada"]


def test_an_engine_that_is_not_there(graph: Graph) -> None:
    with pytest.raises(FencelineError):
        load(graph, "nothing.jsonl", engine="spark")

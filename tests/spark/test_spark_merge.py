"""Branches of a graph merged on Spark: the same rows, and the same conflicts, as in process."""

from __future__ import annotations

import os
from typing import Any

import pytest
from pyspark.sql import SparkSession

from fenceline import MergeConflict, Repository
from fenceline.graph import merge_relations
from fenceline.graph.graph import Graph
from fenceline.graph.schema_apply import apply_schema
from fenceline.graph.transaction import GraphTransaction
from fenceline.repo.merge import Strategy

pytestmark = [pytest.mark.slow, pytest.mark.filterwarnings("ignore:lance is not fork-safe")]

SCHEMA = """
node Person {
  name: String @key
  age: I32? @range(0..150)
  email: String? @unique
  mood: String?
  seen: DateTime?
  big: U64?
  face: Vector(2)?
  tags: [String]?
}
node City { name: String @key }
edge Knows: Person -> Person @card(0..2) { since: Date? }
edge LivesIn: Person -> City
"""


WHERE = ["differences here"] + ["on Spark"] * (os.environ.get("FENCELINE_ENGINES") == "full")


@pytest.fixture(params=WHERE)
def repo(disk_repo: Repository, request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> Repository:
    if request.param == "on Spark":
        monkeypatch.setattr(merge_relations, "MOST_HERE", -1)
    graph = disk_repo.graph()
    graph.init(SCHEMA)
    with graph.transaction() as tx:
        people = [{"name": f"p{n}", "age": n, "big": 2**63 + n, "face": [n, 1], "tags": ["a"]} for n in range(12)]
        tx.insert("Person", people)
        tx.insert("City", [{"name": "Rome"}, {"name": "Oslo"}])
        for n in range(6):
            tx.insert_edge("Knows", f"p{n}", f"p{n + 1}", id=f"k{n}")
    disk_repo.create_branch("dev", "main")
    return disk_repo


def agreeing(tx: GraphTransaction, side: str) -> None:
    """Changes of both sides that go together: other rows, other properties of one row, the same deletion."""
    dev = side == "dev"
    tx.update("Person", "p1", {"mood": "calm"} if dev else {"age": 99})
    tx.update("Person", "p2", {"face": [7, 7]} if dev else {"tags": ["b", "c"], "seen": "2026-01-01T00:00:00Z"})
    tx.update("Person", "p3" if dev else "p4", {"big": 2**64 - 1})
    tx.insert("Person", [{"name": side, "email": f"{side}@x"}, {"name": "both", "age": 5}])
    tx.delete("Person", "p10" if dev else "p11")
    tx.delete("Person", "p9")
    tx.insert_edge("LivesIn", "p1", "Rome" if dev else "Oslo", id=f"l-{side}")
    tx.update_edge("Knows", "k0" if dev else "k1", {"since": "2026-01-01"})


def disagreeing(tx: GraphTransaction, side: str) -> None:
    """A conflict of every kind."""
    dev = side == "dev"
    tx.update("Person", "p1", {"age": 11 if dev else 12, "tags": [side]})
    tx.insert("Person", {"name": "new", "big": 2**63 if dev else 1})
    if dev:
        tx.delete("Person", "p8")
        tx.delete_edge("Knows", "k2")
    else:
        tx.update("Person", "p8", {"age": 80})
        tx.update_edge("Knows", "k2", {"since": "2026-02-02"})


def breaking(tx: GraphTransaction, side: str) -> None:
    """What each side may have, and both may not."""
    dev = side == "dev"
    tx.update("Person", "p6" if dev else "p7", {"email": "same@x"})
    tx.insert_edge("Knows", "p0", "p2" if dev else "p3", id=f"many-{side}")
    if dev:
        tx.insert_edge("Knows", "p8", "p9", id="orphan")
        tx.delete("Person", "p10")
    else:
        tx.delete("Person", "p9")
        tx.insert_edge("LivesIn", "p10", "Rome", id="left")


def both_sides(repo: Repository, change: Any) -> None:
    for side in ("dev", "main"):
        with repo.graph(side).transaction() as tx:
            change(tx, side)
    repo.create_branch("copy", "main")


def rows(graph: Graph) -> dict[str, Any]:
    return {key: sorted(graph.table(key).rows(), key=lambda row: str(row["id"])) for key in graph.schema.table_keys()}


def conflicts(repo: Repository, into: str, spark: SparkSession | None, strategy: Strategy | None = None) -> list[str]:
    """What a merge is refused for. An edge's text names one of several rows that it collides with: which is free."""
    before = repo.head(into).seq
    with pytest.raises(MergeConflict) as caught:
        repo.merge("dev", into=into, session=spark, strategy=strategy)
    assert repo.head(into).seq == before
    return sorted(str(each) for each in caught.value.conflicts)


def test_rows_merged_on_spark_are_those_merged_here(repo: Repository, spark: SparkSession) -> None:
    both_sides(repo, agreeing)
    repo.merge("dev", session=spark)
    repo.merge("dev", into="copy", engine="local")
    found = rows(repo.graph())
    assert found == rows(repo.graph("copy"))
    ada = next(row for row in found["node:Person"] if row["id"] == "p2")
    assert (ada["face"], ada["tags"], ada["big"]) == ([7.0, 7.0], ["b", "c"], 2**63 + 2)
    assert repo.fsck().clean


def test_conflicts_on_spark_are_those_told_here_and_a_strategy_decides_alike(
    repo: Repository, spark: SparkSession
) -> None:
    both_sides(repo, disagreeing)
    told = conflicts(repo, "main", spark)
    assert told == conflicts(repo, "copy", None)
    assert len(told) == 5
    repo.merge("dev", session=spark, strategy="theirs")
    repo.merge("dev", into="copy", engine="local", strategy="theirs")
    assert rows(repo.graph()) == rows(repo.graph("copy"))


def test_rules_on_the_result_are_those_of_both_engines(repo: Repository, spark: SparkSession) -> None:
    both_sides(repo, breaking)
    told = conflicts(repo, "main", spark)
    assert told == conflicts(repo, "copy", None)
    assert {each.partition(" ")[0] for each in told} == {"OrphanEdge", "UniqueViolation", "CardinalityViolation"}
    with repo.graph("dev").transaction() as tx:  # what no strategy decides is put right
        tx.update("Person", "p6", {"email": None})
        tx.delete_edge("Knows", "many-dev")
    repo.merge("dev", session=spark, strategy="theirs")
    repo.merge("dev", into="copy", engine="local", strategy="theirs")
    assert rows(repo.graph()) == rows(repo.graph("copy"))


def test_schemas_that_both_changed_merge_on_spark_too(repo: Repository, spark: SparkSession) -> None:
    for side, name in (("dev", "nick"), ("main", "note")):
        text = SCHEMA.replace("mood: String?", f"mood: String?  {name}: String?")
        text = text.replace("age: I32?", "age: I64?") if side == "dev" else text
        text = (
            text
            if side == "dev"
            else text.replace("tags: [", "@index(name)  labels: [").replace(
                "[String]?", '[String]? @rename_from("tags")'
            )
        )
        apply_schema(repo.graph(side), text)
        with repo.graph(side).transaction() as tx:
            tx.update("Person", "p1", {name: side})
            tx.insert("Person", {"name": side, name: "new"})
    repo.create_branch("copy", "main")
    repo.merge("dev", session=spark)
    repo.merge("dev", into="copy", engine="local")
    found = rows(repo.graph())
    assert found == rows(repo.graph("copy"))
    one = next(row for row in found["node:Person"] if row["id"] == "p1")
    assert (one["nick"], one["note"], one["labels"], one["age"]) == ("dev", "main", ["a"], 1)

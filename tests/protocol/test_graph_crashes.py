"""Kill a graph transaction at every durable effect: all of its tables and files, or none of them, and one record."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import pytest
from children import GRAPH
from harness import assert_sound, copy, hits, killed, occurrences, run, state
from test_crashes import check_no_leftovers

import fenceline as fl

FULL = os.environ.get("FENCELINE_KILLS") == "full"


@pytest.fixture(scope="module")
def template(tmp_path_factory: pytest.TempPathFactory) -> Path:
    root = tmp_path_factory.mktemp("template") / "repo"
    graph = fl.open_repository(root, create=True).graph()
    graph.init(GRAPH, actor="test")
    with graph.transaction(actor="test") as tx:
        tx.insert("Person", [{"name": "ada", "age": 36}, {"name": "bob"}])
        tx.insert("City", {"name": "Rome"})
        tx.insert_edge("Knows", "ada", "bob", id="k1")
        tx.insert_edge("LivesIn", "ada", "Rome", id="l1")
    return root


def tables(repo: fl.Repository, ref: str = "main") -> dict[str, Any]:
    """Every row of every table, and the files beside them."""
    view = repo.graph().at(ref)
    rows = {key: sorted(view.table(key).rows(), key=repr) for key in view.schema.table_keys()}
    return {**rows, "files": [e.path for e in repo.list(ref) if e.path.endswith(".txt")]}


def check_twice(root: Path, allowed: list[dict[str, Any]]) -> fl.Repository:
    first = fl.open_repository(root)
    assert tables(first) in allowed
    before = state(first)
    assert before["intents"] == []
    assert len(before["records"]) == len({record[0] for record in before["records"]})
    again = fl.open_repository(root)
    assert state(again) == before
    assert tables(again) in allowed
    assert_sound(again)
    return again


def chosen(point: str) -> bool:
    """Every occurrence of every point in the full form; in the short one, those around the decision."""
    return FULL or point in (
        "table.stage.after@1",
        "verdict.seal.after@1",
        "entry.publish.after@1",
        "entry.merge.after@1",
    )


@pytest.mark.slow
@pytest.mark.timeout(900)
def test_a_graph_transaction_killed_anywhere_is_wholly_there_or_not_at_all(template: Path, tmp_path: Path) -> None:
    before = tables(fl.open_repository(template, mode="r"))
    whole = copy(template, tmp_path / "whole")
    points = occurrences(hits(["graph", whole], tmp_path / "log"))
    after = tables(fl.open_repository(whole, mode="r"))
    assert {point.partition("@")[0] for point in points} >= {"table.write.after", "table.stage.after"}
    assert sum(point.startswith("intent.declare.after") for point in points) == 1, (
        "all touched tables are declared at once"
    )
    begun, sealed = points.index("intent.create.after@1"), points.index("verdict.seal.after@1")
    for number, point in enumerate(points):
        if point.startswith("disk.") and not point.endswith("@1"):
            continue  # what every effect is made of: killed everywhere in test_crashes.py
        if not chosen(point):
            continue
        root = copy(template, tmp_path / f"{number}")
        assert killed(["graph", root], f"{point}=crash"), f"{point} was not reached"
        sealing = points.index("verdict.seal.before@1") < number < sealed
        repo = check_twice(root, [before, after] if sealing else [after] if number >= sealed else [before])
        records = [record.kind for record in repo.recoveries() if record.recovered_for == "child"]
        assert len(records) == 1 or (number < begun and not records), point
        with repo.graph().transaction() as tx:  # the next one proceeds, without a restart
            tx.insert("Person", {"name": "next"})
        check_no_leftovers(repo)
        assert repo.graph().table("Person").count("name = 'next'") == 1


@pytest.mark.slow
@pytest.mark.timeout(600)
def test_creating_a_graph_killed_anywhere_is_done_or_not(tmp_path: Path) -> None:
    empty = tmp_path / "empty"
    fl.open_repository(empty, create=True)
    points = occurrences(hits(["graph_init", copy(empty, tmp_path / "whole")], tmp_path / "log"))
    sealed = points.index("verdict.seal.after@1")
    for number, point in enumerate(points):
        if point.startswith(("table.", "intent.declare", "verdict", "entry", "record")) and chosen(point):
            root = copy(empty, tmp_path / f"{number}")
            assert killed(["graph_init", root], f"{point}=crash"), f"{point} was not reached"
            repo = fl.open_repository(root)
            assert (len(list(repo.list("main"))) > 0) == (number >= sealed)
            check_no_leftovers(repo)
            if number < sealed:
                repo.graph().init(GRAPH)
            assert repo.graph().table("Person").count() == 0


@pytest.mark.slow
def test_the_same_key_after_a_kill_applies_a_graph_transaction_once(template: Path, tmp_path: Path) -> None:
    after = tables(_done(template, tmp_path))
    for number, point in enumerate(("table.stage.after", "verdict.seal.after", "entry.publish.after")):
        root = copy(template, tmp_path / f"{number}")
        assert killed(["graph", root], f"{point}=crash")
        assert run(["graph", root])["outcome"] == "applied"  # the retry does not even recover first
        repo = check_twice(root, [after])
        assert sum(item.commit.message == "graph" for item in repo.log("main")) == 1


@pytest.mark.slow
@pytest.mark.timeout(600)
def test_a_merge_of_graphs_killed_anywhere_is_wholly_there_or_not_at_all(template: Path, tmp_path: Path) -> None:
    diverged = copy(template, tmp_path / "diverged")
    repo = fl.open_repository(diverged)
    repo.create_branch("dev", "main")
    with repo.graph("dev").transaction(actor="test") as tx:
        tx.update("Person", "ada", {"age": 37})
        tx.insert("City", {"name": "Bari"})
    with repo.graph("main").transaction(actor="test") as tx:
        tx.update("Person", "ada", {"email": "ada@x"})
    before = tables(repo)
    whole = copy(diverged, tmp_path / "whole")
    points = occurrences(hits(["graph_merge", whole], tmp_path / "log"))
    after = tables(fl.open_repository(whole, mode="r"))
    assert after["node:Person"][0] == {"id": "ada", "name": "ada", "age": 37, "email": "ada@x"}
    sealed = points.index("verdict.seal.after@1")
    for number, point in enumerate(points):
        if not point.startswith("disk.") and chosen(point):
            root = copy(diverged, tmp_path / f"{number}")
            assert killed(["graph_merge", root], f"{point}=crash"), f"{point} was not reached"
            check_no_leftovers(check_twice(root, [after] if number >= sealed else [before]))


def _done(template: Path, tmp_path: Path) -> fl.Repository:
    run(["graph", copy(template, tmp_path / "done")])
    return fl.open_repository(tmp_path / "done", mode="r")


@pytest.mark.slow
@pytest.mark.parametrize(
    ("meanwhile", "kind"),
    [("person dan", "rolled_back"), ("", "rolled_forward")],
)
def test_a_sealed_append_is_rolled_forward_only_where_its_tables_are_as_it_saw_them(
    template: Path, tmp_path: Path, meanwhile: str, kind: str
) -> None:
    """A sweep cannot validate again, so where another append came first it fences."""
    root = copy(template, tmp_path / "repo")
    assert killed(["graph_statement", root, "person cy"], "verdict.seal.after=crash")
    if meanwhile:
        assert run(["graph_statement", root, meanwhile])["outcome"] == "applied"
    repo = fl.open_repository(root)
    kinds = [record.kind for record in repo.recoveries() if record.recovered_for == "child"]
    assert kind in kinds
    assert repo.graph().table("Person").count("name = 'cy'") == (kind == "rolled_forward")
    check_no_leftovers(repo)

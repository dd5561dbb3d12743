"""Several processes on one graph: one winner or both, never a broken graph, nothing lost."""

from __future__ import annotations

import os
from pathlib import Path

import pytest
from harness import Paused, assert_sound, copy, run, spawn
from test_graph_crashes import template  # noqa: F401 - the same graph

import fenceline as fl

pytestmark = pytest.mark.slow
FULL = os.environ.get("FENCELINE_KILLS") == "full"


def race(root: Path, first: str, second: str, at: str = "verdict.seal.before", tries: str = "5") -> tuple[str, str]:
    """`first` is stopped on its way, `second` goes past it, `first` wakes up; what each was told."""
    paused = Paused.at(at, ["graph_statement", root, first, tries])
    two = run(["graph_statement", root, second])
    one = paused.wake()
    return one.get("error", one["outcome"]), two.get("error", two["outcome"])


POINTS = ["intent.create.before", "table.stage.before", "verdict.seal.before", "entry.publish.before"]
POINTS = POINTS if FULL else POINTS[1::2]


@pytest.mark.parametrize("at", POINTS)
def test_two_changes_of_one_row_have_one_winner(template: Path, tmp_path: Path, at: str) -> None:  # noqa: F811
    root = copy(template, tmp_path / "repo")
    assert race(root, "age 1", "age 2", at) == ("conflict.expected_version", "applied")
    repo = fl.open_repository(root)
    assert repo.graph().table("Person").rows({"name": "ada"})[0]["age"] == 2
    assert_sound(repo)


@pytest.mark.parametrize("at", POINTS)
def test_two_appends_both_win(template: Path, tmp_path: Path, at: str) -> None:  # noqa: F811
    root = copy(template, tmp_path / "repo")
    assert race(root, "person cy", "person dan", at) == ("applied", "applied")
    repo = fl.open_repository(root)
    assert sorted(repo.graph().table("Person").to_arrow()["id"].to_pylist()) == ["ada", "bob", "cy", "dan"]
    assert repo.graph().at("main").snapshot.pin("node:Person").published == 4
    repo.gc(grace=0)
    assert_sound(repo)


@pytest.mark.parametrize("at", POINTS)
@pytest.mark.parametrize(("first", "told"), [("delete", "conflict.expected_version"), ("edge", "guard.constraint")])
def test_an_edge_and_the_deletion_of_its_end_never_both_win(
    template: Path,  # noqa: F811
    tmp_path: Path,
    at: str,
    first: str,
    told: str,
) -> None:
    root = copy(template, tmp_path / "repo")
    second = "edge" if first == "delete" else "delete"
    assert race(root, first, second, at) == (told, "applied")
    repo = fl.open_repository(root)
    assert repo.graph().table("Person").count() == (2 if second == "edge" else 1)
    assert repo.graph().table("Knows").count() == (2 if second == "edge" else 0)
    assert_sound(repo)


@pytest.mark.timeout(900)
@pytest.mark.parametrize(("processes", "each"), [(8, 50) if FULL else (8, 5)])
def test_many_processes_lose_nothing_and_every_commit_is_whole(
    template: Path,  # noqa: F811
    tmp_path: Path,
    processes: int,
    each: int,
) -> None:
    root = copy(template, tmp_path / "repo")
    children = [spawn(["graph_worker", root, f"w{n}", str(each)]) for n in range(processes)]
    for child in children:
        out, err = child.communicate(timeout=800)
        assert child.returncode == 0, err
        assert '"applied"' in out, out
    repo = fl.open_repository(root)
    made = {f"w{n}-{i}" for n in range(processes) for i in range(each)}
    gone = {f"w{n}-{i - 3}" for n in range(processes) for i in range(each) if i % 4 == 3}
    graph = repo.graph()
    assert set(graph.table("Person").to_arrow(["id"])["id"].to_pylist()) == {"ada", "bob", *(made - gone)}
    messages = [item.commit.message for item in repo.log("main")]
    assert len(messages) == len(set(messages)) == processes * each + 3
    for item in list(repo.log("main"))[:-2]:
        view = graph.at(item.commit.id)
        people = set(view.table("Person").to_arrow(["id"])["id"].to_pylist())
        edges = view.table("Knows").to_arrow(["id", "src", "dst"])
        assert {*edges["src"].to_pylist(), *edges["dst"].to_pylist()} <= people, item.commit.id
        assert len(set(edges["id"].to_pylist())) == edges.num_rows
    repo.gc(grace=0)
    assert_sound(repo)
    assert graph.table("Person").count() == len(made - gone) + 2

"""Changes of schema carried out on data, and upkeep of tables: each one commit, or nothing."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from fenceline import Repository, open_repository
from fenceline.errors import ContractError
from fenceline.graph import schema_apply
from fenceline.graph.graph import Graph
from fenceline.graph.maintenance import ensure_indices, optimize, wanted_indices
from fenceline.graph.schema import parse
from fenceline.graph.schema_apply import DataLoss, apply_schema, plan_schema
from fenceline.graph.violations import ConstraintViolations, ExpectedVersionMismatch

PERSON = "node Person { name: String @key  age: I32?  city: String? }"
EDGE = "edge Knows: Person -> Person { since: Date? }"
SONG = "node Song { title: String @key }"
SCHEMA = "\n".join((PERSON, EDGE, SONG))


@pytest.fixture
def repo(tmp_path: Path) -> Repository:
    return open_repository(tmp_path / "repo", create=True)


@pytest.fixture
def graph(repo: Repository) -> Graph:
    made = repo.graph()
    made.init(SCHEMA)
    with made.transaction() as tx:
        tx.insert("Person", [{"name": "ada", "age": 36, "city": "Rome"}, {"name": "bob"}])
        tx.insert_edge("Knows", "ada", "bob", {"since": "2026-01-01"}, id="k")
    return made


def rows(graph: Graph, name: str, ref: str = "main") -> list[dict[str, Any]]:
    return sorted(graph.at(ref).table(name).rows(), key=lambda row: str(row["id"]))


def test_properties_are_added_renamed_widened_reordered_and_dropped_in_one_commit(graph: Graph) -> None:
    before = graph._repo.head("main").seq
    new = SCHEMA.replace(PERSON, 'node Person { note: String?  years: I64? @rename_from("age")  name: String @key }')
    with pytest.raises(DataLoss, match=r"drop property node:Person\.city"):
        apply_schema(graph, new)
    change = apply_schema(graph, new, allow_data_loss=True)
    assert change.result.seq == before + 1
    assert rows(graph, "Person")[0] == {"id": "ada", "note": None, "years": 36, "name": "ada"}
    assert rows(graph, "Person", "main~1")[0]["city"] == "Rome"
    with graph.transaction() as tx:
        tx.insert("Person", {"name": "cy", "years": 2**40, "note": "n"})
        tx.update("Person", "ada", {"note": "m"})
    assert {row["name"]: (row["years"], row["note"]) for row in rows(graph, "Person")} == {
        "ada": (36, "m"),
        "bob": (None, None),
        "cy": (2**40, "n"),
    }


def test_types_are_added_renamed_and_dropped(graph: Graph, repo: Repository) -> None:
    new = """
    node Human @rename_from("Person") { name: String @key  age: I32?  city: String? }
    node Place { name: String @key }
    edge Knows: Human -> Human { since: Date? }
    edge LivesIn: Human -> Place
    """
    steps = [str(step) for step in plan_schema(graph, new).steps]
    assert "drop type node:Song" in steps
    apply_schema(graph, new, allow_data_loss=True)
    assert len(rows(graph, "Human")) == 2
    assert rows(graph, "Knows")[0]["dst"] == "bob"
    with graph.transaction() as tx:
        tx.insert("Place", {"name": "Rome"})
        tx.insert_edge("LivesIn", "ada", "Rome")
    assert graph.at("main").snapshot.manifest.published == 2
    assert not repo.fsck().problems


def test_a_type_may_take_the_name_that_another_gives_up(graph: Graph) -> None:
    new = """
    node Human @rename_from("Person") { name: String @key  age: I32?  city: String? }
    node Person @rename_from("Song") { title: String @key }
    edge Knows: Human -> Human { since: Date? }
    """
    apply_schema(graph, new)
    assert [row["id"] for row in rows(graph, "Human")] == ["ada", "bob"]
    assert rows(graph, "Person") == []


def test_the_same_schema_again_changes_nothing(graph: Graph) -> None:
    before = graph._repo.head("main").seq
    assert apply_schema(graph, SCHEMA).result.op == "noop"
    assert graph._repo.head("main").seq == before


@pytest.mark.parametrize(
    ("old", "new", "told"),
    [
        ("age: I32?", "age: I32", "age"),
        ("age: I32?", "age: I32? @range(0..10)", "@range(0..10)"),
        ("city: String?", 'city: String? @check("^X")', "@check"),
        ("{ since", "@card(2..3) { since", "@card(2..3)"),
        ("{ since", "@card(1..) { since", "'bob'"),
    ],
)
def test_a_rule_that_the_data_breaks_is_refused_and_names_the_row(graph: Graph, old: str, new: str, told: str) -> None:
    before = graph._repo.head("main").commit.id
    with pytest.raises(ConstraintViolations) as caught:
        apply_schema(graph, SCHEMA.replace(old, new))
    assert told in str(caught.value)
    assert graph._repo.head("main").commit.id == before


def test_a_rule_that_the_data_keeps_is_added_and_holds_from_then_on(graph: Graph) -> None:
    apply_schema(graph, SCHEMA.replace("age: I32?", "age: I32? @range(0..100) @unique"))
    with pytest.raises(ConstraintViolations), graph.transaction() as tx:
        tx.insert("Person", {"name": "cy", "age": 36})


def test_a_required_property_needs_an_empty_table(graph: Graph) -> None:
    with pytest.raises(ContractError, match="2 rows"):
        apply_schema(graph, SCHEMA.replace("age: I32?", "age: I32?  mail: String"))
    apply_schema(graph, SCHEMA.replace(SONG, "node Song { title: String @key  length: I32 }"))
    with graph.transaction() as tx:
        tx.insert("Song", {"title": "Aurora", "length": 3})


def test_other_branches_keep_their_schema(graph: Graph, repo: Repository) -> None:
    repo.create_branch("dev")
    dev = repo.graph("dev")
    apply_schema(dev, SCHEMA.replace("city: String?", 'town: String? @rename_from("city")'))
    assert rows(graph, "Person")[0]["city"] == "Rome"
    assert rows(dev, "Person", "dev")[0]["town"] == "Rome"
    with graph.transaction() as tx:
        tx.insert("Person", {"name": "main only", "city": "Oslo"})
    assert len(rows(dev, "Person", "dev")) == 2


def test_a_rule_added_while_a_row_that_breaks_it_is_inserted_never_lets_both_in(graph: Graph) -> None:
    new = SCHEMA.replace("age: I32?", "age: I32? @range(0..100)")
    with pytest.raises(ExpectedVersionMismatch), graph.transaction() as tx:  # noqa: PT012
        tx.insert("Person", {"name": "old", "age": 500})
        apply_schema(graph, new)
    assert {row["name"] for row in rows(graph, "Person")} == {"ada", "bob"}


def test_a_row_inserted_while_a_rule_that_it_breaks_is_added_never_lets_both_in(
    graph: Graph, monkeypatch: pytest.MonkeyPatch
) -> None:
    checked, once = schema_apply.check, list[int]()

    def check(*args: Any) -> None:
        checked(*args)
        if not once:  # after the data was asked, and before the rule is there
            once.append(1)
            with graph.transaction() as tx:
                tx.insert("Person", {"name": "old", "age": 500})

    monkeypatch.setattr(schema_apply, "check", check)
    with pytest.raises(ConstraintViolations, match="500"):
        apply_schema(graph, SCHEMA.replace("age: I32?", "age: I32? @range(0..100)"))
    assert {row["name"] for row in rows(graph, "Person")} == {"ada", "bob", "old"}
    assert graph.schema.node("Person").property("age").range is None


# --- upkeep -----------------------------------------------------------------------------------------------------


def test_the_indices_of_a_table_follow_its_schema() -> None:
    text = "node A { name: String @key  b: I32? @unique  c: String? @index  v: Vector(4)? @index }\nedge E: A -> A"
    catalogue = parse(text)
    assert wanted_indices(catalogue.table("A")) == [
        ("id", "btree"),
        ("b", "btree"),
        ("c", "btree"),
        ("c", "inverted"),
        ("v", "vector"),
    ]
    assert wanted_indices(catalogue.table("E")) == [("id", "btree"), ("src", "btree"), ("dst", "btree")]


def test_indices_are_built_once_and_cover_what_comes_later(graph: Graph) -> None:
    done = ensure_indices(graph)
    assert set(done.tables) == {"node:Person", "edge:Knows"}
    assert ensure_indices(graph).result.op == "noop"
    with graph.transaction() as tx:
        tx.insert("Person", {"name": "cy"})
    again = ensure_indices(graph, ["Person"])
    (index,) = again.tables["node:Person"].indices
    assert index.fragments == again.tables["node:Person"].fragments == 2
    assert rows(graph, "Person")[-1]["name"] == "cy"


def test_optimize_makes_few_fragments_of_many_and_keeps_rows_and_indices(graph: Graph, repo: Repository) -> None:
    for n in range(5):
        with graph.transaction() as tx:
            tx.insert("Person", {"name": f"p{n}"})
    ensure_indices(graph)
    before = rows(graph, "Person")
    done = optimize(graph)
    assert done.tables["node:Person"].fragments == 1
    assert rows(graph, "Person") == before
    assert [each.fragments for each in done.tables["node:Person"].indices] == [1]
    assert optimize(graph).result.op == "noop"
    assert not repo.fsck().problems

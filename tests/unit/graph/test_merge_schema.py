"""Branches that changed a graph's schema merged: what is disjoint is combined, what overlaps is listed."""

from __future__ import annotations

from typing import Any

import pytest

from fenceline import MergeConflict, Repository
from fenceline.graph.graph import Graph
from fenceline.graph.row_merge import ConflictKind, GraphConflict
from fenceline.graph.schema_apply import apply_schema

PERSON = "node Person { name: String @key  age: I32? @range(0..150)  email: String?  mood: String? }"
CITY = "node City { name: String @key }"
KNOWS = "edge Knows: Person -> Person { since: Date? }"
LIVES = "edge LivesIn: Person -> City"
SCHEMA = "\n".join((PERSON, CITY, KNOWS, LIVES))


@pytest.fixture
def repo(disk_repo: Repository) -> Repository:
    graph = disk_repo.graph()
    graph.init(SCHEMA)
    with graph.transaction() as tx:
        tx.insert("Person", [{"name": "ada", "age": 36, "mood": "calm"}, {"name": "bob", "age": 40}, {"name": "cy"}])
        tx.insert("City", {"name": "Rome"})
        tx.insert_edge("Knows", "ada", "bob", id="k1")
    disk_repo.create_branch("dev", "main")
    return disk_repo


def change(repo: Repository, branch: str, *replacements: tuple[str, str]) -> Graph:
    text = SCHEMA
    for old, new in replacements:
        assert old in text
        text = text.replace(old, new)
    graph = repo.graph(branch)
    apply_schema(graph, text, allow_data_loss=True)
    return graph


def rows(repo: Repository, table: str = "Person", branch: str = "main") -> dict[str, dict[str, Any]]:
    return {row["id"]: row for row in repo.graph(branch).table(table).rows()}


def told(repo: Repository) -> list[tuple[str, str, str, tuple[str, ...]]]:
    before = repo.head("main").seq
    with pytest.raises(MergeConflict) as caught:
        repo.merge("dev")
    assert repo.head("main").seq == before
    found = caught.value.conflicts
    assert all(isinstance(each, GraphConflict) for each in found)
    return sorted((each.kind, each.table_key, each.id, each.properties) for each in found)  # type: ignore[attr-defined]


def test_properties_that_both_sides_added_are_both_there_with_their_values(repo: Repository) -> None:
    dev = change(repo, "dev", ("mood: String?", "mood: String?  nick: String?"))
    with dev.transaction() as tx:
        tx.update("Person", "ada", {"nick": "countess", "age": 37})
        tx.insert("Person", {"name": "dev", "nick": "d"})
    main = change(repo, "main", ("mood: String?", "mood: String?  note: String?"))
    with main.transaction() as tx:
        tx.update("Person", "ada", {"note": "first"})
        tx.insert("Person", {"name": "main", "note": "m"})
    result = repo.merge("dev")
    assert len(repo.commit(result.commit).parents) == 2
    found = rows(repo)
    ada = {"id": "ada", "name": "ada", "age": 37, "email": None, "mood": "calm", "note": "first", "nick": "countess"}
    assert {k: found["ada"][k] for k in ada} == ada
    assert (found["dev"]["nick"], found["dev"]["note"]) == ("d", None)
    assert (found["main"]["nick"], found["main"]["note"]) == (None, "m")
    assert len(found) == 5
    assert repo.fsck().clean
    with repo.graph().transaction() as tx:
        tx.insert("Person", {"name": "after", "nick": "a", "note": "b"})
    repo.merge("main", into="dev")
    assert rows(repo, branch="dev") == rows(repo)


def test_a_rename_meets_rows_and_rules_of_the_other_side(repo: Repository) -> None:
    change(repo, "dev", ("age: I32?", 'years: I32? @rename_from("age")'), ("email: String?", "email: String? @unique"))
    with repo.graph().transaction() as tx:
        tx.update("Person", "bob", {"age": 41})
        tx.insert("Person", {"name": "new", "age": 1, "email": "n@x"})
    repo.merge("dev")
    found = rows(repo)
    assert {name: row["years"] for name, row in found.items()} == {"ada": 36, "bob": 41, "cy": None, "new": 1}
    assert "age" not in found["ada"]
    assert repo.graph().schema.node("Person").unique == (("email",),)
    assert repo.fsck().clean


def test_a_property_that_was_renamed_and_widened_at_once_is_another_one(repo: Repository) -> None:
    """A cast column is a new one, and nothing says what it was made of: values that were changed here are not lost."""
    change(repo, "dev", ("age: I32?", 'years: I64? @rename_from("age")'))
    with repo.graph().transaction() as tx:
        tx.update("Person", "bob", {"age": 41})
    assert told(repo) == [(ConflictKind.SCHEMA, "node:Person", "", ("age",))]


def test_renames_of_a_type_and_of_its_property_on_two_sides(repo: Repository) -> None:
    human = SCHEMA.replace("Person", "Human").replace("node Human {", 'node Human @rename_from("Person") {')
    apply_schema(repo.graph("dev"), human)
    with repo.graph("dev").transaction() as tx:
        tx.insert_edge("LivesIn", "ada", "Rome", id="l1")
    change(repo, "main", ("mood: String?", 'humour: String? @rename_from("mood")'))
    with repo.graph().transaction() as tx:
        tx.update("Person", "bob", {"humour": "wild"})
    repo.merge("dev")
    assert rows(repo, "Human")["bob"]["humour"] == "wild"
    assert rows(repo, "Human")["ada"]["humour"] == "calm"
    assert rows(repo, "LivesIn")["l1"]["dst"] == "Rome"
    assert [node.name for node in repo.graph().schema.nodes] == ["City", "Human"]
    assert not [e for e in repo.list("main") if "node.Person" in e.path]
    assert repo.fsck().clean
    repo.gc(grace=0)
    assert len(rows(repo, "Human")) == 3


def test_types_added_and_dropped_on_two_sides(repo: Repository) -> None:
    change(repo, "dev", (LIVES, ""), (CITY, "node Song { title: String @key }"))
    with repo.graph("dev").transaction() as tx:
        tx.insert("Song", {"title": "Aurora"})
    change(repo, "main", (KNOWS, f"{KNOWS}\nnode Band {{ name: String @key }}\nedge In: Person -> Band"))
    with repo.graph().transaction() as tx:
        tx.insert("Band", {"name": "The Keys"})
        tx.insert_edge("In", "ada", "The Keys")
    repo.merge("dev")
    assert repo.graph().schema.table_keys() == (
        "node:Band",
        "node:Person",
        "node:Song",
        "edge:In",
        "edge:Knows",
    )
    assert set(rows(repo, "Song")) == {"Aurora"}
    assert len(rows(repo, "In")) == 1
    assert repo.graph().at("main").snapshot.manifest.published == 3


def test_the_same_type_on_both_sides_has_the_rows_of_both(repo: Repository) -> None:
    for branch in ("dev", "main"):
        graph = change(repo, branch, (CITY, f"{CITY}\nnode Song {{ title: String @key  year: I32? }}"))
        with graph.transaction() as tx:
            tx.insert("Song", [{"title": branch}, {"title": "both", "year": 1}])
    repo.merge("dev")
    assert sorted(rows(repo, "Song")) == ["both", "dev", "main"]


@pytest.mark.parametrize(
    ("dev", "main", "expected"),
    [
        (("age: I32?", "age: I64?"), ("age: I32? @range(0..150)", "age: I32? @range(0..99)"), None),
        (("@range(0..150)", "@range(0..200)"), ("@range(0..150)", "@range(0..300)"), ("node:Person", ("age",))),
        (
            ("mood: String?", 'a: String? @rename_from("mood")'),
            ("mood: String?", 'b: String? @rename_from("mood")'),
            ("node:Person", ("b",)),
        ),
        (
            ("mood: String?", "mood: String?  x: I32?"),
            ("mood: String?", "mood: String?  x: String?"),
            ("node:Person", ("x",)),
        ),
        (("mood: String?", ""), ("mood: String?", 'mood: String? @check("^c")'), ("node:Person", ("mood",))),
        (("mood: String?", ""), ("mood: String? }", "mood: String?  @unique(email, mood) }"), ("schema", ())),
        ((LIVES, ""), (LIVES, "edge LivesIn: Person -> City @card(0..1)"), ("edge:LivesIn", ())),
    ],
)
def test_what_both_changed_conflicts_and_what_they_did_not_merges(
    repo: Repository, dev: tuple[str, str], main: tuple[str, str], expected: tuple[str, tuple[str, ...]] | None
) -> None:
    change(repo, "dev", dev)
    change(repo, "main", main)
    if expected is None:
        repo.merge("dev")
        age = repo.graph().schema.node("Person").property("age")
        assert (str(age.kind), str(age.range)) == ("I64", "0..99")
        assert rows(repo)["ada"]["age"] == 36
    else:
        assert told(repo) == [(ConflictKind.SCHEMA, expected[0], "", expected[1])]


def test_a_property_dropped_here_and_filled_there_conflicts_together_with_rows(repo: Repository) -> None:
    change(repo, "dev", ("mood: String?", ""))
    with repo.graph("dev").transaction() as tx:
        tx.update("Person", "bob", {"age": 1})
    with repo.graph().transaction() as tx:
        tx.update("Person", "cy", {"mood": "glad"})
        tx.update("Person", "bob", {"age": 2})
    assert told(repo) == [
        (ConflictKind.DIVERGENT_UPDATE, "node:Person", "bob", ("age",)),
        (ConflictKind.SCHEMA, "node:Person", "", ("mood",)),
    ]
    repo.create_branch("copy", "main")
    repo.merge("dev", strategy="ours")
    assert (rows(repo)["cy"]["mood"], rows(repo)["bob"]["age"]) == ("glad", 2)
    repo.merge("dev", into="copy", strategy="theirs")
    assert "mood" not in rows(repo, branch="copy")["cy"]
    assert rows(repo, branch="copy")["bob"]["age"] == 1


def test_a_type_dropped_here_and_filled_there_conflicts(repo: Repository) -> None:
    change(repo, "dev", (KNOWS, ""))
    with repo.graph().transaction() as tx:
        tx.insert_edge("Knows", "bob", "cy", id="k2")
    assert told(repo) == [(ConflictKind.SCHEMA, "edge:Knows", "", ())]
    repo.merge("dev", strategy="theirs")
    assert "edge:Knows" not in repo.graph().schema.table_keys()


def test_a_rule_added_there_is_checked_on_the_rows_that_came_here(repo: Repository) -> None:
    change(
        repo,
        "dev",
        ("email: String?", "email: String? @unique"),
        (KNOWS, "edge Knows: Person -> Person @card(0..1) { since: Date? }"),
    )
    with repo.graph().transaction() as tx:
        tx.insert("Person", [{"name": "x", "email": "same"}, {"name": "y", "email": "same"}])
        tx.insert_edge("Knows", "ada", "cy", id="k2")
    assert told(repo) == [
        (ConflictKind.CARDINALITY, "node:Person", "ada", ()),
        (ConflictKind.UNIQUE, "node:Person", "x", ("email",)),
        (ConflictKind.UNIQUE, "node:Person", "y", ("email",)),
    ]


def test_edges_of_a_new_type_to_nodes_that_are_gone_here_conflict(repo: Repository) -> None:
    dev = change(repo, "dev", (KNOWS, f"{KNOWS}\nedge Likes: Person -> Person"))
    with dev.transaction() as tx:
        tx.insert_edge("Likes", "ada", "cy", id="l")
    with repo.graph().transaction() as tx:
        tx.delete("Person", "cy")
    assert told(repo) == [(ConflictKind.ORPHAN_EDGE, "edge:Likes", "l", ("dst",))]


def test_a_change_of_schema_can_be_undone_while_its_property_is_unused(repo: Repository) -> None:
    change(repo, "main", ("mood: String?", "mood: String?  note: String?"))
    wrong = repo.head("main").commit.id
    with repo.graph().transaction() as tx:
        tx.insert("Person", {"name": "new"})
    repo.create_branch("used", "main")
    repo.revert(wrong)
    assert set(rows(repo)["new"]) == {"id", "name", "age", "email", "mood"}
    with repo.graph("used").transaction() as tx:
        tx.update("Person", "new", {"note": "n"})
    with pytest.raises(MergeConflict, match="note"):
        repo.revert(wrong, "used")

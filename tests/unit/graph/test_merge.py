"""Branches of a graph merged: pins where one side changed, rows and properties where both did, rules on the result."""

from __future__ import annotations

import functools
import os
from collections.abc import Callable
from typing import Any

import pyarrow as pa  # type: ignore[import-untyped]
import pytest
from hypothesis import given
from hypothesis import strategies as st

from fenceline import MergeConflict, Repository
from fenceline.graph import merge_sql
from fenceline.graph.engine import in_process
from fenceline.graph.graph import Graph
from fenceline.graph.row_merge import ConflictKind, Delta, GraphConflict, merge_rows
from fenceline.graph.transaction import GraphTransaction
from fenceline.repo.merge import Strategy

SCHEMA = """
node Person { name: String @key  age: I32? @range(0..150)  email: String? @unique  mood: String? }
node City { name: String @key }
edge Knows: Person -> Person @card(0..2) { since: Date? }
edge LivesIn: Person -> City
"""
Statements = Callable[[GraphTransaction], object]
ENGINES = ["local", "spark"] if os.environ.get("FENCELINE_ENGINES") == "full" else ["local"]
"""All of it on both engines takes minutes; `tests/spark/test_spark_merge.py` compares them in one graph."""


@pytest.fixture(params=ENGINES)
def repo(disk_repo: Repository, request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> Repository:
    monkeypatch.setattr(disk_repo, "merge", functools.partial(disk_repo.merge, engine=request.param))
    graph = disk_repo.graph()
    graph.init(SCHEMA)
    with graph.transaction() as tx:
        tx.insert("Person", [{"name": "ada", "age": 36}, {"name": "bob", "age": 40}, {"name": "cy"}])
        tx.insert("City", {"name": "Rome"})
        tx.insert_edge("Knows", "ada", "bob", id="k1")
    disk_repo.create_branch("dev", "main")
    return disk_repo


def on(repo: Repository, branch: str, *statements: Statements) -> None:
    with repo.graph(branch).transaction() as tx:
        for statement in statements:
            statement(tx)


def rows(repo: Repository, table: str = "Person") -> dict[str, dict[str, Any]]:
    return {row["id"]: row for row in repo.graph().table(table).rows()}


def conflicts(repo: Repository) -> list[GraphConflict]:
    before = repo.head("main").seq
    with pytest.raises(MergeConflict) as caught:
        repo.merge("dev")
    assert repo.head("main").seq == before
    assert not list(repo.intents())
    found = [each for each in caught.value.conflicts if isinstance(each, GraphConflict)]
    assert len(found) == len(caught.value.conflicts)
    return found


def told(found: list[GraphConflict]) -> list[tuple[str, str, str, tuple[str, ...]]]:
    return sorted((each.kind, each.table_key, each.id, each.properties) for each in found)


def test_a_table_that_one_side_changed_is_taken_without_a_new_version(repo: Repository) -> None:
    on(repo, "dev", lambda tx: tx.insert("City", {"name": "Bari"}))
    on(repo, "main", lambda tx: tx.update("Person", "ada", {"age": 1}))
    version = repo.graph("dev").at("dev").snapshot.pin("node:City").version
    result = repo.merge("dev")
    assert len(repo.commit(result.commit).parents) == 2
    pin = repo.graph().at("main").snapshot.pin("node:City")
    assert (pin.version, pin.published) == (version, 3)
    assert set(rows(repo, "City")) == {"Rome", "Bari"}
    assert rows(repo)["ada"]["age"] == 1


def test_rows_and_properties_of_one_table_are_merged(repo: Repository) -> None:
    on(
        repo,
        "dev",
        lambda tx: tx.update("Person", "ada", {"age": 37}),
        lambda tx: tx.insert("Person", [{"name": "dev", "age": 1}, {"name": "both", "age": 2}]),
        lambda tx: tx.delete("Person", "cy"),
    )
    on(
        repo,
        "main",
        lambda tx: tx.update("Person", "ada", {"mood": "calm"}),
        lambda tx: tx.update("Person", "bob", {"age": 41}),
        lambda tx: tx.insert("Person", [{"name": "main"}, {"name": "both", "age": 2}]),
    )
    repo.merge("dev")
    found = rows(repo)
    assert sorted(found) == ["ada", "bob", "both", "dev", "main"]
    assert (found["ada"]["age"], found["ada"]["mood"], found["bob"]["age"]) == (37, "calm", 41)
    assert repo.graph().at("main").snapshot.pin("node:Person").published == 4
    assert repo.fsck().clean
    repo.gc(grace=0)
    assert len(rows(repo)) == 5
    assert repo.merge("dev").op in ("merge", "noop"), "nothing is left to bring in"


def test_all_conflicts_of_all_tables_are_told_together(repo: Repository) -> None:
    on(
        repo,
        "dev",
        lambda tx: tx.update("Person", "ada", {"age": 1, "mood": "dev"}),
        lambda tx: tx.insert("Person", {"name": "new", "age": 1}),
        lambda tx: tx.delete("Person", "cy"),
        lambda tx: tx.update_edge("Knows", "k1", {"since": "2026-01-01"}),
    )
    on(
        repo,
        "main",
        lambda tx: tx.update("Person", "ada", {"age": 2, "mood": "main"}),
        lambda tx: tx.insert("Person", {"name": "new", "age": 2}),
        lambda tx: tx.update("Person", "cy", {"age": 3}),
        lambda tx: tx.delete_edge("Knows", "k1"),
    )
    found = conflicts(repo)
    assert told(found) == [
        ("DeleteVsUpdate", "edge:Knows", "k1", ()),
        ("DeleteVsUpdate", "node:Person", "cy", ()),
        ("DivergentInsert", "node:Person", "new", ()),
        ("DivergentUpdate", "node:Person", "ada", ("age",)),
        ("DivergentUpdate", "node:Person", "ada", ("mood",)),
    ]
    age = next(each for each in found if each.properties == ("age",))
    assert (age.base, age.ours, age.theirs) == (36, 2, 1)
    repo.create_branch("copy", "main")
    repo.merge("dev", strategy="ours")
    assert rows(repo)["ada"]["age"] == 2
    assert rows(repo)["cy"]["age"] == 3
    assert rows(repo, "Knows") == {}
    repo.merge("dev", into="copy", strategy="theirs")
    theirs = {row["id"]: row for row in repo.graph("copy").table("Person").rows()}
    assert (theirs["ada"]["mood"], theirs["new"]["age"], "cy" in theirs) == ("dev", 1, False)
    assert repo.graph("copy").table("Knows").count() == 1


@pytest.mark.parametrize(
    ("dev", "main", "expected"),
    [
        (
            lambda tx: tx.insert_edge("Knows", "ada", "cy", id="k2"),
            lambda tx: tx.delete("Person", "cy"),
            ("OrphanEdge", "edge:Knows", "k2", ("dst",)),
        ),
        (
            lambda tx: tx.delete("Person", "cy"),
            lambda tx: tx.insert_edge("Knows", "cy", "ada", id="k2"),
            ("OrphanEdge", "edge:Knows", "k2", ("src",)),
        ),
        (
            lambda tx: tx.update("Person", "ada", {"email": "a@x"}),
            lambda tx: tx.update("Person", "bob", {"email": "a@x"}),
            ("UniqueViolation", "node:Person", "ada", ("email",)),
        ),
        (
            lambda tx: tx.insert_edge("Knows", "ada", "cy", id="k2"),
            lambda tx: tx.insert_edge("Knows", "ada", "ada", id="k3"),
            ("CardinalityViolation", "node:Person", "ada", ()),
        ),
    ],
)
def test_what_each_side_may_have_and_both_may_not(
    repo: Repository, dev: Statements, main: Statements, expected: tuple[Any, ...]
) -> None:
    on(repo, "dev", dev)
    on(repo, "main", main)
    assert told(conflicts(repo)) == [expected]


def orphaned(repo: Repository, edge_on: str) -> None:
    on(repo, edge_on, lambda tx: tx.insert_edge("Knows", "ada", "cy", id="k2"))
    on(repo, "main" if edge_on == "dev" else "dev", lambda tx: tx.delete("Person", "cy"))


@pytest.mark.parametrize("strategy", ["ours", "theirs"])
@pytest.mark.parametrize("edge_on", ["main", "dev"])
def test_the_winner_keeps_its_edge_or_its_deletion(repo: Repository, edge_on: str, strategy: Strategy) -> None:
    orphaned(repo, edge_on)
    repo.merge("dev", strategy=strategy)
    kept = (edge_on == "main") == (strategy == "ours")
    assert ("cy" in rows(repo)) == kept
    assert ("k2" in rows(repo, "Knows")) == kept
    assert "k1" in rows(repo, "Knows")
    assert repo.fsck().clean


def test_rules_are_checked_under_a_strategy_too(repo: Repository) -> None:
    on(repo, "dev", lambda tx: tx.update("Person", "ada", {"email": "a@x"}))
    on(repo, "main", lambda tx: tx.update("Person", "bob", {"email": "a@x"}))
    with pytest.raises(MergeConflict, match="UniqueViolation"):
        repo.merge("dev", strategy="theirs")


def test_files_and_tables_conflict_together(repo: Repository) -> None:
    on(repo, "dev", lambda tx: tx.update("Person", "ada", {"age": 1}), lambda tx: tx.files.write("a.txt", "dev"))
    on(repo, "main", lambda tx: tx.update("Person", "ada", {"age": 2}), lambda tx: tx.files.write("a.txt", "main"))
    with pytest.raises(MergeConflict) as caught:
        repo.merge("dev")
    assert sorted(str(each).partition(":")[0] for each in caught.value.conflicts) == [
        "DivergentUpdate node",
        "a.txt",
    ]


def test_the_same_change_on_both_sides_is_none(repo: Repository) -> None:
    for branch in ("dev", "main"):
        on(repo, branch, lambda tx: tx.update("Person", "ada", {"age": 1}), lambda tx: tx.delete("Person", "cy"))
    repo.merge("dev")
    assert rows(repo)["ada"]["age"] == 1
    assert "cy" not in rows(repo)


def test_merging_again_brings_only_what_is_new(repo: Repository) -> None:
    on(repo, "dev", lambda tx: tx.insert("Person", {"name": "d1"}))
    on(repo, "main", lambda tx: tx.insert("Person", {"name": "m1"}))
    repo.merge("dev")
    on(repo, "dev", lambda tx: tx.insert("Person", {"name": "d2"}))
    on(repo, "main", lambda tx: tx.delete("Person", "d1"))
    repo.merge("dev")
    assert sorted(rows(repo)) == ["ada", "bob", "cy", "d2", "m1"]
    repo.merge("main", into="dev")
    assert {row["id"] for row in repo.graph("dev").table("Person").rows()} == set(rows(repo))


def test_a_revert_keeps_later_rows_and_never_leaves_an_edge_without_its_node(repo: Repository) -> None:
    on(repo, "main", lambda tx: tx.insert("Person", [{"name": "eve"}, {"name": "flo"}]))
    wrong = repo.head("main").commit.id
    on(repo, "main", lambda tx: tx.insert("Person", {"name": "gus"}))
    repo.revert(wrong)
    assert sorted(rows(repo)) == ["ada", "bob", "cy", "gus"]
    on(repo, "main", lambda tx: tx.insert("City", {"name": "Bari"}))
    bari = repo.head("main").commit.id
    on(repo, "main", lambda tx: tx.insert_edge("LivesIn", "ada", "Bari", id="l1"))
    with pytest.raises(MergeConflict, match="OrphanEdge edge:LivesIn 'l1'"):
        repo.revert(bari)


def test_graphs_that_both_sides_created_conflict_as_files_and_a_strategy_takes_one_whole(
    disk_repo: Repository,
) -> None:
    disk_repo.create_branch("dev", "main")
    for branch, schema in (("main", "node A { name: String @key }"), ("dev", "node B { name: String @key }")):
        graph = disk_repo.graph(branch)
        graph.init(schema)
        with graph.transaction() as tx:
            tx.insert(schema[5], {"name": branch})
    with pytest.raises(MergeConflict, match=r"graph\.json"):
        disk_repo.merge("dev")
    disk_repo.merge("dev", strategy="theirs")
    merged: Graph = disk_repo.graph()
    assert [node.name for node in merged.schema.nodes] == ["B"]
    assert merged.table("B").count() == 1
    assert not [e for e in disk_repo.list("main") if "node.A" in e.path]


# --- rows, against a model --------------------------------------------------------------------------------------

ROW = st.fixed_dictionaries({"x": st.integers(0, 2), "y": st.integers(0, 2)})
SIDE = st.dictionaries(st.sampled_from("abcd"), ROW)


def delta_of(base: dict[str, Any], side: dict[str, Any]) -> Delta:
    return Delta({k: v for k, v in side.items() if base.get(k) != v}, frozenset(base.keys() - side.keys()))


@given(SIDE, SIDE, SIDE, st.sampled_from([None, "ours", "theirs"]))
def test_merging_rows_is_what_cell_by_cell_says(
    base: dict[str, Any], ours: dict[str, Any], theirs: dict[str, Any], strategy: Strategy | None
) -> None:
    base, ours, theirs = ({k: {"id": k, **v} for k, v in side.items()} for side in (base, ours, theirs))
    merged = merge_rows("node:T", base, delta_of(base, ours), delta_of(base, theirs), strategy)
    result = {k: v for k, v in {**ours, **merged.puts}.items() if k not in merged.removes}
    assert not (merged.conflicts and strategy)
    for key in {*base, *ours, *theirs}:
        b, o, t = base.get(key), ours.get(key), theirs.get(key)
        mine = [c for c in merged.conflicts if c.id == key]
        if o == t or t == b:
            assert (result.get(key), mine) == (o, [])
        elif o == b:
            assert (result.get(key), mine) == (t, [])
        elif o is None or t is None or b is None:
            kind = ConflictKind.DIVERGENT_INSERT if b is None else ConflictKind.DELETE_VS_UPDATE
            assert strategy or [c.kind for c in mine] == [kind]
            assert strategy is None or result.get(key) == (o if strategy == "ours" else t)
        else:
            both = [n for n in ("x", "y") if o[n] != b[n] and t[n] != b[n] and o[n] != t[n]]
            assert strategy or sorted(c.properties[0] for c in mine) == both
            for name in ("x", "y"):
                winner = t[name] if o[name] == b[name] or (name in both and strategy == "theirs") else o[name]
                assert result[key][name] == winner


SCHEMA_OF_ROW = pa.schema([("id", pa.string()), ("x", pa.int64()), ("y", pa.int64())])


@given(SIDE, SIDE, SIDE, st.sampled_from([None, "ours", "theirs"]))
def test_the_sql_of_a_merge_says_what_its_python_says(
    base: dict[str, Any], ours: dict[str, Any], theirs: dict[str, Any], strategy: Strategy | None
) -> None:
    base, ours, theirs = ({k: {"id": k, **v} for k, v in side.items()} for side in (base, ours, theirs))
    own, brought = delta_of(base, ours), delta_of(base, theirs)
    both = own.changed.keys() & brought.changed.keys()
    relations = {
        "own": pa.Table.from_pylist(list(own.changed.values()), schema=SCHEMA_OF_ROW),
        "brought": pa.Table.from_pylist(list(brought.changed.values()), schema=SCHEMA_OF_ROW),
        "before": pa.Table.from_pylist([row for k, row in base.items() if k in both], schema=SCHEMA_OF_ROW),
        "own_gone": pa.table({"id": pa.array(sorted(own.deleted), pa.string())}),
        "their_gone": pa.table({"id": pa.array(sorted(brought.deleted), pa.string())}),
    }
    merged = merge_rows("node:T", base, own, brought, strategy)
    query = in_process().query
    puts = {row["id"]: row for row in query(merge_sql.puts(SCHEMA_OF_ROW.names, strategy), relations).to_pylist()}
    assert puts == merged.puts
    assert set(query(merge_sql.removes(strategy), relations)["id"].to_pylist()) == merged.removes
    found = query(merge_sql.conflicting(SCHEMA_OF_ROW.names, 100), relations)["id"].to_pylist()
    assert found == sorted({each.id for each in merge_rows("node:T", base, own, brought).conflicts})

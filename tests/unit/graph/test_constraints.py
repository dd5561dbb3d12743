"""Every rule of a schema, kept and broken, with the row that breaks it. The same checks run on Spark in few jobs."""

from __future__ import annotations

import inspect
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import pytest

from fenceline.graph.constraints import Change, Evaluator, Near
from fenceline.graph.engine import DuckEngine, Engine, Relation
from fenceline.graph.pending import Pending, arrow
from fenceline.graph.schema import Rule, parse
from fenceline.graph.violations import BrokenRule, ConstraintViolations

CATALOGUE = parse(
    r"""
    node Person {
      name: String @key
      age: I32? @range(0..150)
      score: F64? @range(-1.5..)
      email: String? @unique @check("^[^@'\\s]+@\\w+\\.\\w+$")
      mood: enum(calm, "it's fine")?
      tags: [enum(red, blue)]?
      first: String?
      last: String?
      born: Date?
      @unique(first, last)
    }
    node City { name: String @key }
    edge Knows: Person -> Person @card(0..2) { since: Date?  @unique(src, dst) }
    edge LivesIn: Person -> City @card(1..1)
    """
)
Rows = Sequence[Mapping[str, Any]]


@dataclass(frozen=True)
class Check:
    """One query of the evaluator, and what DuckDB answered."""

    sql: str
    relations: dict[str, Relation]
    found: list[dict[str, Any]]


class Recording(DuckEngine):
    """Notes every check, so that Spark can be asked all of them at once: `tests/spark/test_spark_constraints.py`."""

    def __init__(self) -> None:
        super().__init__()
        self.checks: list[Check] = []

    def records(self, sql: str, relations: Mapping[str, Relation]) -> list[dict[str, Any]]:
        found = super().records(sql, relations)
        self.checks.append(Check(sql, dict(relations), found))
        return found


@pytest.fixture(scope="module")
def engine() -> Engine:
    return DuckEngine()


def every_check() -> list[Check]:
    """What all tests of this module ask an engine, and the answers that they were content with."""
    engine = Recording()
    for name, test in list(globals().items()):
        if not name.startswith("test_") or "engine" not in inspect.signature(test).parameters:
            continue
        marks = [mark for mark in getattr(test, "pytestmark", ()) if mark.name == "parametrize"]
        for row in marks[0].args[1] if marks else [()]:
            test(engine, *row)
    return engine.checks


class World:
    """Committed rows, and changes to them, given as rows by table key."""

    def __init__(self, engine: Engine, committed: Mapping[str, Rows]) -> None:
        self._engine = engine
        self.committed = {key: [full(key, row) for row in committed.get(key, ())] for key in CATALOGUE.table_keys()}
        self.asked: set[str] = set()

    def check(
        self, new: Mapping[str, Rows] | None = None, gone: Mapping[str, Sequence[str]] | None = None, most: int = 100
    ) -> list[BrokenRule]:
        changes = {}
        for key in {**(new or {}), **(gone or {})}:
            pending = Pending(CATALOGUE.table(key))
            for row in (new or {}).get(key, ()):
                pending.rows[full(key, row)["id"]] = full(key, row)
            for row in self.committed[key]:
                if row["id"] in (gone or {}).get(key, ()):
                    pending.gone[row["id"]] = row
            changes[key] = pending.change()
        broken, self.more = Evaluator(self._engine, CATALOGUE, changes, self._rows).broken(most)
        return broken

    def _rows(self, key: str, columns: Sequence[str], near: Near | None) -> Relation:
        self.asked.add(key)
        return arrow(CATALOGUE.table(key), self.committed[key]).select(list(columns))


def full(key: str, row: Mapping[str, Any]) -> dict[str, Any]:
    table = CATALOGUE.table(key)
    made = {**dict.fromkeys(p.name for p in table.properties), **row}
    return {"id": made.get("name"), **made}


def person(name: str, **more: Any) -> dict[str, Any]:
    return {"name": name, **more}


def lives(name: str, city: str = "Rome") -> dict[str, Any]:
    return {"id": f"{name} in {city}", "src": name, "dst": city}


def knows(one: str, other: str, number: str = "") -> dict[str, Any]:
    return {"id": f"{one}-{other}{number}", "src": one, "dst": other}


def settled(*names: str) -> dict[str, Rows]:
    """People who live in Rome, so that the cardinality of LivesIn holds."""
    return {
        "node:Person": [person(name) for name in names],
        "node:City": [{"name": "Rome"}],
        "edge:LivesIn": [lives(name) for name in names],
    }


def told(broken: Sequence[BrokenRule]) -> list[tuple[Any, ...]]:
    return [(b.table_key, b.id, b.rule, b.properties, b.value, b.other) for b in broken]


def moved_in(*people: Mapping[str, Any]) -> dict[str, Rows]:
    return {"node:Person": people, "edge:LivesIn": [lives(p["name"]) for p in people]}


def test_what_keeps_every_rule_is_silent(engine: Engine) -> None:
    world = World(engine, settled("ada", "bob"))
    ok = person("cy", age=150, score=-1.5, email="a@b.it", mood="it's fine", tags=["red", "blue"], first="C", last="Y")
    assert world.check({**moved_in(ok, person("dan")), "edge:Knows": [knows("cy", "ada"), knows("cy", "dan")]}) == []


@pytest.mark.parametrize(
    ("row", "rule", "column", "value"),
    [
        ({"age": 151}, Rule.RANGE, "age", "151"),
        ({"age": -1}, Rule.RANGE, "age", "-1"),
        ({"score": -1.75}, Rule.RANGE, "score", "-1.75"),
        ({"email": "it's@no one"}, Rule.CHECK, "email", "it's@no one"),
        ({"email": "a@b"}, Rule.CHECK, "email", "a@b"),
        ({"mood": "wild"}, Rule.ENUM, "mood", "wild"),
        ({"tags": ["red", "green"]}, Rule.ENUM, "tags", "green"),
        ({"name": None, "id": "cy"}, Rule.REQUIRED, "name", None),
    ],
)
def test_a_row_by_itself(engine: Engine, row: dict[str, Any], rule: Rule, column: str, value: str | None) -> None:
    new = {**moved_in(person("cy")), "node:Person": [{**person("cy"), **row}]}
    (broken,) = World(engine, settled("ada")).check(new)
    assert told([broken]) == [("node:Person", "cy", rule, (column,), value, None)]
    assert column in broken.constraint
    assert "'cy'" in str(broken)


def test_an_id_that_is_taken(engine: Engine) -> None:
    world = World(engine, settled("ada"))
    new = {"node:Person": [person("ada")]}
    assert told(world.check(new)) == [("node:Person", "ada", Rule.KEY, ("name",), "ada", "ada")]
    assert world.check(new, {"node:Person": ["ada"]}) == [], "replacing it is something else"


def test_the_same_id_twice_in_one_change(engine: Engine) -> None:
    world = World(engine, settled("ada"))
    twice = arrow(CATALOGUE.table("node:City"), [{"id": "Bari", "name": "Bari"}] * 2)
    broken, _ = Evaluator(engine, CATALOGUE, {"node:City": Change(twice)}, world._rows).broken()
    assert told(broken) == [("node:City", "Bari", Rule.KEY, ("name",), "Bari", "Bari")]


def test_unique_sees_committed_pending_replaced_and_deleted_rows(engine: Engine) -> None:
    start = settled("ada", "bob")
    start["node:Person"] = [person("ada", email="a@b.it"), person("bob", email="b@b.it")]
    world = World(engine, start)
    cy, dan = person("cy", email="a@b.it"), person("dan", email="d@b.it")
    assert told(world.check(moved_in(cy))) == [("node:Person", "cy", Rule.UNIQUE, ("email",), "a@b.it", "ada")]
    twice = world.check(moved_in(dan, person("eve", email="d@b.it")))
    assert [(b.id, b.other) for b in twice] == [("dan", "eve"), ("eve", "dan")]
    replaced = {"node:Person": [person("ada", email="new@b.it"), cy], "edge:LivesIn": [lives("cy")]}
    assert world.check(replaced, {"node:Person": ["ada"]}) == [], "ada has let go of it"
    assert world.check(moved_in(cy), {"node:Person": ["ada"], "edge:LivesIn": ["ada in Rome"]}) == []


def test_unique_over_several_columns_exempts_nulls(engine: Engine) -> None:
    start = settled("ada")
    start["node:Person"] = [person("ada", first="A", last="B")]
    world = World(engine, start)
    assert world.check(moved_in(person("cy", first="A"), person("dan", first="A", last="C"))) == []
    assert world.check(moved_in(person("eve"), person("flo"))) == []
    (broken,) = world.check(moved_in(person("gus", first="A", last="B")))
    assert (broken.properties, broken.value, broken.other) == (("first", "last"), "A, B", "ada")


def test_edges_need_both_ends_in_what_will_be(engine: Engine) -> None:
    world = World(engine, settled("ada", "bob"))
    broken = world.check({"edge:Knows": [knows("ada", "bob"), knows("no", "ada"), knows("bob", "nobody")]})
    assert told(broken) == [
        ("edge:Knows", "no-ada", Rule.ENDPOINTS, ("src",), "no", "Person"),
        ("edge:Knows", "bob-nobody", Rule.ENDPOINTS, ("dst",), "nobody", "Person"),
    ]
    assert world.check({**moved_in(person("cy")), "edge:Knows": [knows("cy", "ada")]}) == []
    gone = {"node:Person": ["bob"], "edge:LivesIn": ["bob in Rome"]}
    assert [b.id for b in world.check({"edge:Knows": [knows("ada", "bob")]}, gone)] == ["ada-bob"]


def test_nodes_that_go_leave_no_edges_behind(engine: Engine) -> None:
    start = {**settled("ada", "bob"), "edge:Knows": [knows("ada", "bob"), knows("bob", "ada")]}
    world = World(engine, start)
    gone = {"node:Person": ["bob"], "edge:LivesIn": ["bob in Rome"]}
    assert sorted(told(world.check(gone=gone))) == [
        ("edge:Knows", "ada-bob", Rule.ENDPOINTS, ("dst",), "bob", "Person"),
        ("edge:Knows", "bob-ada", Rule.ENDPOINTS, ("src",), "bob", "Person"),
    ]
    assert world.check(gone={**gone, "edge:Knows": ["ada-bob", "bob-ada"]}) == []
    assert world.check({"node:Person": [person("bob", age=3)]}, {"node:Person": ["bob"]}) == [], "it is replaced"


def test_cardinality_above(engine: Engine) -> None:
    start = {**settled("ada", "bob", "cy", "dan"), "edge:Knows": [knows("ada", "bob")]}
    world = World(engine, start)
    new = {"edge:Knows": [knows("ada", "cy"), knows("ada", "dan"), knows("bob", "cy")]}
    (broken,) = world.check(new)
    assert told([broken]) == [("node:Person", "ada", Rule.CARD, (), "3", "Knows")]
    assert "3 edges of Knows" in str(broken)
    assert world.check(new, {"edge:Knows": ["ada-bob"]}) == []


def test_cardinality_below(engine: Engine) -> None:
    world = World(engine, settled("ada", "bob"))
    below = ("node:Person", "cy", Rule.CARD, (), "0", "LivesIn")
    assert told(world.check({"node:Person": [person("cy")]})) == [below]
    assert told(world.check(gone={"edge:LivesIn": ["ada in Rome"]})) == [(*below[:1], "ada", *below[2:])]
    assert world.check(gone={"edge:LivesIn": ["ada in Rome"], "node:Person": ["ada"]}) == [], (
        "who is gone lives nowhere"
    )


def test_equal_edges(engine: Engine) -> None:
    world = World(engine, {**settled("ada", "bob"), "edge:Knows": [knows("ada", "bob")]})
    (broken,) = world.check({"edge:Knows": [knows("ada", "bob", "2")]})
    assert told([broken]) == [("edge:Knows", "ada-bob2", Rule.UNIQUE, ("src", "dst"), "ada, bob", "ada-bob")]


def test_everything_is_reported_together_and_no_more_than_asked_for(engine: Engine) -> None:
    world = World(engine, settled("ada"))
    new = {**moved_in(person("ada", age=999)), "edge:Knows": [knows("ada", "x"), knows("y", "ada")]}
    rules = sorted(b.rule for b in world.check(new))
    assert rules == sorted([Rule.RANGE, Rule.KEY, Rule.KEY, Rule.CARD, Rule.ENDPOINTS, Rule.ENDPOINTS])
    assert len(world.check(new, most=2)) == 2
    assert world.more


def test_only_tables_that_the_change_can_collide_with_are_looked_at(engine: Engine) -> None:
    world = World(engine, settled("ada", "bob"))
    world.check({"node:City": [{"name": "Bari"}]})
    assert world.asked == {"node:City"}
    world.asked.clear()
    world.check({"edge:Knows": [knows("ada", "bob")]})
    assert world.asked == {"edge:Knows", "node:Person"}


def test_the_error_carries_every_row() -> None:
    broken = [BrokenRule("node:Person", str(n), Rule.RANGE, "age @range(0..1)", ("age",), "9") for n in range(30)]
    error = ConstraintViolations(broken, more=True)
    assert len(error.violations) == 30
    assert "30 or more row(s)" in str(error)
    assert "and 10 more" in str(error)
    assert error.as_dict()["code"] == "guard.constraint"

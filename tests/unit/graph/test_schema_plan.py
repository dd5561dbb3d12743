"""Plans: each kind of change, what it does to the data, and what cannot be done."""

from __future__ import annotations

import pytest

from fenceline.graph.schema import Catalogue, Effect, Op, Rule, SchemaChangeError, Step, parse, plan, settled


def steps(old: str, new: str) -> list[Step]:
    return list(plan(parse(old), parse(new)).steps)


def only(old: str, new: str) -> Step:
    (step,) = steps(old, new)
    return step


METADATA, REWRITES, CHECKS, LOSES = Effect.METADATA, Effect.REWRITES, Effect.CHECKS, Effect.LOSES


@pytest.mark.parametrize(
    ("old", "new", "op", "effect"),
    [
        ("", "node A", Op.ADD_TYPE, METADATA),
        ("node A", "", Op.DROP_TYPE, LOSES),
        ("node A", "node B @rename_from(A)", Op.RENAME_TYPE, METADATA),
        ("", "interface I", Op.ADD_INTERFACE, METADATA),
        ("interface I", "", Op.DROP_INTERFACE, METADATA),
        ("interface I", "interface J @rename_from(I)", Op.RENAME_INTERFACE, METADATA),
        ("interface I", "interface I { a: I32 }", Op.CHANGE_INTERFACE, METADATA),
        ("interface I node A", "interface I node A implements I", Op.IMPLEMENT, METADATA),
        ("node A", "node A { a: I32? }", Op.ADD_PROPERTY, METADATA),
        ("node A", "node A { a: I32 }", Op.ADD_PROPERTY, CHECKS),
        ("node A { a: I32 }", "node A", Op.DROP_PROPERTY, LOSES),
        ("node A { a: I32 }", "node A { b: I32 @rename_from(a) }", Op.RENAME_PROPERTY, METADATA),
        ("node A { a: I32 }", "node A { a: I64 }", Op.CHANGE_TYPE, REWRITES),
        ("node A { a: U32 }", "node A { a: U64 }", Op.CHANGE_TYPE, REWRITES),
        ("node A { a: U32 }", "node A { a: I64 }", Op.CHANGE_TYPE, REWRITES),
        ("node A { a: F32 }", "node A { a: F64 }", Op.CHANGE_TYPE, REWRITES),
        ("node A { a: [I32] }", "node A { a: [I64] }", Op.CHANGE_TYPE, REWRITES),
        ("node A { a: enum(x) }", "node A { a: enum(y, x) }", Op.CHANGE_TYPE, METADATA),
        ("node A { a: [enum(x)] }", "node A { a: [enum(x, y)] }", Op.CHANGE_TYPE, METADATA),
        ("node A { a: enum(x) }", "node A { a: String }", Op.CHANGE_TYPE, METADATA),
        ("node A { a: I32 }", "node A { a: I32? }", Op.MAKE_NULLABLE, METADATA),
        ("node A { a: I32? }", "node A { a: I32 }", Op.MAKE_REQUIRED, CHECKS),
        ("node A { a: I32 }", "node A { a: I32 @unique }", Op.ADD_CONSTRAINT, CHECKS),
        ("node A { a: I32 @unique }", "node A { a: I32 }", Op.DROP_CONSTRAINT, METADATA),
        ("node A { a: I32 }", "node A { a: I32 @index }", Op.ADD_INDEX, METADATA),
        ("node A { a: I32 @index }", "node A { a: I32 }", Op.DROP_INDEX, METADATA),
        ("node A { a: I32 }", "node A { a: I32 @range(0..) }", Op.ADD_CONSTRAINT, CHECKS),
        ("node A { a: I32 @range(0..5) }", "node A { a: I32 @range(0..6) }", Op.ADD_CONSTRAINT, METADATA),
        ("node A { a: I32 @range(0..5) }", "node A { a: I32 @range(1..) }", Op.ADD_CONSTRAINT, CHECKS),
        ("node A { a: I32 @range(0..5) }", "node A { a: I32 }", Op.DROP_CONSTRAINT, METADATA),
        ("node A { a: String }", 'node A { a: String @check("x") }', Op.ADD_CONSTRAINT, CHECKS),
        ('node A { a: String @check("x") }', "node A { a: String }", Op.DROP_CONSTRAINT, METADATA),
        ("node A edge E: A -> A", "node A edge E: A -> A @card(0..1)", Op.ADD_CONSTRAINT, CHECKS),
        ("node A edge E: A -> A @card(0..1)", "node A edge E: A -> A @card(0..2)", Op.ADD_CONSTRAINT, METADATA),
        ("node A edge E: A -> A @card(0..1)", "node A edge E: A -> A", Op.DROP_CONSTRAINT, METADATA),
        ("node A", 'node A @description("x")', Op.DESCRIBE, METADATA),
        ("node A { a: I32 }", 'node A { a: I32 @description("x") }', Op.DESCRIBE, METADATA),
        ("node A { a: I32 b: I32 }", "node A { b: I32 a: I32 }", Op.REORDER, METADATA),
        (
            "node A { t: String v: Vector(2) }",
            "node A { t: String v: Vector(2) @embed(t) }",
            Op.CHANGE_EMBED,
            METADATA,
        ),
    ],
)
def test_one_change_is_one_step(old: str, new: str, op: Op, effect: Effect) -> None:
    step = only(old, new)
    assert (step.op, step.effect) == (op, effect)


def test_no_change_is_no_step() -> None:
    schema = parse("interface I { a: I32 @key } node A implements I { b: [String]? } edge E: A -> A @card(1..2)")
    assert plan(schema, schema).empty
    assert str(plan(schema, schema)) == "nothing to change"


def test_steps_come_in_an_order_in_which_they_can_be_done() -> None:
    old = """
    interface Named { name: String @key }
    node Person implements Named { age: I32? @range(0..150) email: String? @unique bio: String }
    node Old { x: I32 }   edge Has: Person -> Old   edge Knows: Person -> Person
    """
    new = """
    interface Named { fullName: String @key @rename_from(name) }
    node Human implements Named @rename_from(Person) {
      age: I64 @range(0..120)   mail: String? @rename_from(email)   tags: [String]?   @unique(age, mail)
    }
    node New   edge Makes: Human -> New @card(1..)   edge Knows: Human -> Human { since: Date? @index }
    """
    made = plan(parse(old), parse(new))
    assert str(made) == "\n".join(
        [
            " 1. change interface interface:Named  [metadata only]",
            " 2. drop type edge:Has  [loses data]",
            " 3. drop type node:Old  [loses data]",
            " 4. rename type node:Human: Person -> Human  [metadata only]",
            " 5. add type node:New  [metadata only]",
            " 6. add type edge:Makes  [metadata only]",
            " 7. drop constraint node:Human: @unique(mail)  [metadata only]",
            " 8. drop property node:Human.bio  [loses data]",
            " 9. rename property node:Human.fullName: name -> fullName  [metadata only]",
            "10. rename property node:Human.mail: email -> mail  [metadata only]",
            "11. add property node:Human.tags: [String]?  [metadata only]",
            "12. change type node:Human.age: I32 -> I64  [rewrites the column]",
            "13. make required node:Human.age  [needs a check of the data]",
            "14. add constraint node:Human.age: @range(0..150) -> @range(0..120)  [needs a check of the data]",
            "15. add constraint node:Human: @unique(age, mail)  [needs a check of the data]",
            "16. add property edge:Knows.since: Date?  [metadata only]",
            "17. add index edge:Knows.since (built when indices are next ensured)  [metadata only]",
            "18. add constraint edge:Makes: @card(1..) (there must be no Human yet)  [needs a check of the data]",
        ]
    )
    assert (made.loses_data, made.rewrites, len(made.checks)) == (True, True, 4)
    assert plan(settled(parse(new)), parse(new)).empty, "a @rename_from that was applied says nothing any more"


def test_a_step_that_needs_a_check_carries_the_rule() -> None:
    step = only("node A { a: I32 }", "node A { a: I32 @range(0..9) }")
    assert step.constraint is not None
    assert (step.constraint.rule, step.constraint.low, step.constraint.high) == (Rule.RANGE, 0, 9)
    assert step.to_json() == {
        "op": "add_constraint",
        "on": "node:A",
        "effect": "checks",
        "property": "a",
        "after": "@range(0..9)",
        "rule": "range",
        "columns": ["a"],
    }
    required = only("node A { a: I32? }", "node A { a: I32 }").constraint
    assert required is not None
    assert required.rule is Rule.REQUIRED


def test_widening_an_f32_with_a_range_looks_at_the_data() -> None:
    """0.1 as an F32 is more than 0.1 as an F64."""
    made = steps("node A { a: F32 @range(..0.1) }", "node A { a: F64 @range(..0.1) }")
    assert [(step.op, step.effect) for step in made] == [(Op.CHANGE_TYPE, REWRITES), (Op.ADD_CONSTRAINT, CHECKS)]


def test_a_constraint_on_a_new_property_needs_no_check() -> None:
    made = steps("node A { a: I32 }", "node A { a: I32 b: I32? @range(0..1) @unique(a, b) }")
    assert {step.effect for step in made} == {METADATA}


def test_what_goes_with_a_dropped_property_is_no_step_of_its_own() -> None:
    assert only("node A { a: I32 @unique @index @range(0..1) }", "node A").op is Op.DROP_PROPERTY


def test_renames_in_a_chain_wait_for_the_name_to_be_free() -> None:
    made = steps("node A { a: I32 b: I32 }", "node A { b: I32 @rename_from(a) c: I32 @rename_from(b) }")
    assert [(step.before, step.after) for step in made] == [("b", "c"), ("a", "b")]


def test_a_rename_from_nothing_is_told() -> None:
    made = plan(parse("node Person { name: String }"), parse("node Person { full: String? @rename_from(nam) }"))
    assert made.loses_data
    assert made.notes == ("node:Person.full is new: there is no nam that it could be renamed from",)
    assert plan(Catalogue(), parse("node A @rename_from(B)")).notes == ()


@pytest.mark.parametrize(
    ("old", "new", "said"),
    [
        ("node A { a: I64 }", "node A { a: I32 }", "node:A.a is I64 and cannot become I32: add a property"),
        ("node A { a: String }", "node A { a: I32 }", "is String and cannot become I32"),
        ("node A { a: String }", "node A { a: enum(x) }", "is String and cannot become enum(x)"),
        ("node A { a: enum(x, y) }", "node A { a: enum(x) }", "cannot become enum(x)"),
        ("node A { a: Vector(2) }", "node A { a: Vector(3) }", "cannot become Vector(3)"),
        ("node A { a: I32 }", "node A { a: [I32] }", "cannot become [I32]"),
        ("node A { a: I32 @key }", "node A { a: I32 }", "has @key(a) and cannot get no key"),
        ("node A { a: I32 }", "node A { a: I32 @key }", "has no key and cannot get @key(a)"),
        ("node A { a: I32 b: I32 @key(a, b) }", "node A { a: I32 b: I32 @key(b, a) }", "cannot get @key(b, a)"),
        ("node A node B edge E: A -> A", "node A node B edge E: A -> B", "cannot lead from A to B"),
        ("node A { a: I32 }", "node A { a: I32 b: I32? @rename_from(a) }", "which is still declared"),
        ("node A { a: I32 b: I32 }", "node A { b: I32 @rename_from(a) }", "but b exists already"),
        (
            "node A { a: I32 b: I32 }",
            "node A { a: I32 @rename_from(b) b: I32 @rename_from(a) }",
            "wait for one another",
        ),
        ("node A node B", "node A @rename_from(B) node B @rename_from(A)", "wait for one another"),
    ],
)
def test_what_cannot_be_done(old: str, new: str, said: str) -> None:
    with pytest.raises(SchemaChangeError) as caught:
        plan(parse(old), parse(new))
    (problem,) = caught.value.problems
    assert said in problem
    assert caught.value.code == "schema.change"


def test_all_that_cannot_be_done_is_told_together() -> None:
    old = "node A { a: I64 b: String @key } node B { x: F64 }"
    new = "node A { a: I32 b: String } node B { x: F32 }"
    with pytest.raises(SchemaChangeError) as caught:
        plan(parse(old), parse(new))
    assert len(caught.value.problems) == 3


def test_a_key_may_be_renamed_and_widened() -> None:
    """Ids are made of the values: neither changes one."""
    made = steps("node A { a: I32 @key }", "node A { b: I64 @key @rename_from(a) }")
    assert [step.op for step in made] == [Op.RENAME_PROPERTY, Op.CHANGE_TYPE]


def test_a_left_over_annotation_is_passed_over() -> None:
    """The name that it tells of was given to something new since."""
    old = "node A { a: I32? b: I32 }"
    assert steps(old, "node A { a: I32? b: I32 @rename_from(a) }") == []

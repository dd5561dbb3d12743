"""The schema language: what it says, and how it refuses."""

from __future__ import annotations

import json
import pickle

import pytest

from fenceline.errors import ContractError, NotFound
from fenceline.graph.schema import (
    Card,
    Catalogue,
    Choice,
    Embed,
    ListOf,
    Property,
    Rule,
    Scalar,
    SchemaError,
    SchemaSyntaxError,
    Span,
    Vector,
    columns,
    constraints,
    from_json,
    parse,
    render,
    schema_id,
    settled,
    to_json,
)

SOCIAL = """
// people and what they write
interface Named { name: String @key }
node Person implements Named @description("Someone \\"real\\"") {
  age: I32? @range(0..150)   email: String? @unique   @index(name)
}
/* edges
   of two kinds */
edge Knows: Person -> Person @card(0..100) { since: Date?   @unique(src, dst) }
edge Wrote: Person -> Post @card(1..)
node Post {
  blog: String  number: U64  text: String @check("\\\\S")
  state: enum(draft, "in review", published) @index
  tags: [String]  moods: [enum(glad, sad)]?
  score: F32 @range(-0.5..1)  sure: Bool  at: DateTime  raw: Blob?  votes: I64  size: U32  weight: F64?
  vector: Vector(3)? @embed(text, "small") @rename_from(embedding)
  @key(blog, number)
}
"""


def test_everything_the_language_can_say() -> None:
    schema = parse(SOCIAL)
    person = schema.node("Person")
    assert person.implements == ("Named",)
    assert person.key == ("name",)
    assert person.properties[:2] == (
        Property("name", Scalar.STRING),
        Property("age", Scalar.I32, nullable=True, range=Span(0, 150)),
    )
    assert (person.unique, person.index, person.description) == ((("email",),), ("name",), 'Someone "real"')
    knows = schema.edge("Knows")
    assert (knows.source, knows.target, knows.card) == ("Person", "Person", Card(0, 100))
    assert knows.unique == (("src", "dst"),)
    assert schema.edge("Wrote").card == Card(1, None)
    post = schema.node("Post")
    assert post.key == ("blog", "number")
    assert {each.name: each.kind for each in post.properties} == {
        "blog": Scalar.STRING,
        "number": Scalar.U64,
        "text": Scalar.STRING,
        "state": Choice(("draft", "in review", "published")),
        "tags": ListOf(Scalar.STRING),
        "moods": ListOf(Choice(("glad", "sad"))),
        "score": Scalar.F32,
        "sure": Scalar.BOOL,
        "at": Scalar.DATETIME,
        "raw": Scalar.BLOB,
        "votes": Scalar.I64,
        "size": Scalar.U32,
        "weight": Scalar.F64,
        "vector": Vector(3),
    }
    assert post.property("text").check == r"\S"
    assert post.property("score").range == Span(-0.5, 1.0)
    assert post.property("vector").embed == Embed("text", "small")
    assert post.property("vector").rename_from == "embedding"
    assert [each.name for each in post.properties if each.nullable] == ["moods", "raw", "weight", "vector"]


def test_tables_have_keys_and_columns() -> None:
    schema = parse(SOCIAL)
    assert schema.table_keys() == ("node:Person", "node:Post", "edge:Knows", "edge:Wrote")
    assert columns(schema.table("edge:Knows")) == ("id", "src", "dst", "since")
    assert columns(schema.table("Person")) == ("id", "name", "age", "email")
    assert [each.name for each in schema.implementing("Named")] == ["Person"]
    assert [each.name for each in schema.edges_at("Post")] == ["Wrote"]


def test_a_name_that_is_not_there_is_told_with_the_nearest() -> None:
    schema = parse(SOCIAL)
    with pytest.raises(NotFound, match=r"no node type 'Persn' \(did you mean Person\?\)"):
        schema.node("Persn")
    with pytest.raises(NotFound, match="no edge type 'Person'"):
        schema.edge("Person")
    with pytest.raises(NotFound, match=r"Person has no property 'Age' \(did you mean age\?\)"):
        schema.node("Person").property("Age")


def test_constraints_are_one_flat_list() -> None:
    schema = parse(SOCIAL)
    assert [(each.rule, each.columns) for each in constraints(schema.node("Person"))] == [
        (Rule.REQUIRED, ("name",)),
        (Rule.RANGE, ("age",)),
        (Rule.KEY, ("name",)),
        (Rule.UNIQUE, ("email",)),
    ]
    endpoints, card, unique = constraints(schema.edge("Knows"))
    assert (endpoints.rule, endpoints.text) == (Rule.ENDPOINTS, "Person -> Person")
    assert (card.low, card.high, card.text) == (0, 100, "@card(0..100)")
    assert unique.columns == ("src", "dst")


def test_the_range_of_an_f32_is_compared_as_an_f32() -> None:
    """0.1 is stored as 0.10000000149: it must not fall out of a range that ends with 0.1."""
    (score,) = parse("node A { score: F32 @range(..0.1) }").node("A").properties
    bounds = score.bounds()
    assert bounds is not None
    assert bounds.high == pytest.approx(0.1, abs=1e-8)
    assert bounds.high != 0.1


def test_forms_are_equal_both_ways() -> None:
    schema = parse(SOCIAL)
    assert parse(render(schema)) == schema
    assert from_json(json.loads(json.dumps(to_json(schema)))) == schema
    assert pickle.loads(pickle.dumps(schema)) == schema
    assert hash(parse(SOCIAL)) == hash(schema)


def test_canonical_text_forgets_how_it_was_written() -> None:
    one = "node B { x: I32 @unique } node A { a: String b: String @key(a) @unique(b, a) @index(a, b) @unique(a) }"
    other = "node A { a: String @index @key // the key\n b: String @index @unique(a, b) }\nnode B{x:I32 @unique(x)}"
    assert render(parse(one)) == render(parse(other))
    assert render(parse(one)) == (
        "node A {\n  a: String @key @index\n  b: String @index\n  @unique(a, b)\n}\n\nnode B {\n  x: I32 @unique\n}\n"
    )


def test_the_schema_id_does_not_depend_on_renames() -> None:
    schema = parse(SOCIAL)
    assert settled(schema) != schema
    assert schema_id(settled(schema)) == schema_id(schema)
    assert schema_id(schema) != schema_id(parse("node Person"))


def test_keywords_are_names_of_properties_too() -> None:
    schema = parse("node A { node: String @key edge: I32? @index interface: Bool enum: enum(enum) } edge E: A -> A")
    assert [each.name for each in schema.node("A").properties] == ["node", "edge", "interface", "enum"]


def test_an_interface_gives_its_properties_and_constraints() -> None:
    schema = parse(
        """
        interface Named { name: String @key @index }
        interface Dated { at: DateTime? @unique }
        node A implements Named, Dated { x: I32 }
        node B implements Dated { at: DateTime? @description("when")  z: Bool }
        """
    )
    a, b = schema.nodes
    assert (columns(a), a.key, a.unique, a.index) == (("id", "name", "at", "x"), ("name",), (("at",),), ("name",))
    assert (columns(b), b.unique) == (("id", "at", "z"), (("at",),))
    assert b.property("at").description == "when"
    assert "node A implements Named, Dated {\n  x: I32\n}" in render(schema)


def test_a_byte_order_mark_is_no_part_of_the_schema() -> None:
    assert parse("\ufeffnode A") == parse("node A")


@pytest.mark.parametrize(
    ("text", "line", "column", "said"),
    [
        ("nod Person {}", 1, 1, "expected 'interface', 'node', 'edge' or the end, found 'nod'"),
        ("node Person {", 1, 14, "the text ends, but a property, an annotation or '}' was expected"),
        ("node Person {\n  name String }", 2, 8, "expected ':', found 'String'"),
        ("node Person {\n  a: String, b: I32 }", 2, 12, "separated by blanks or new lines"),
        ("node A { a: String\nnode B { b: I32 }", 2, 6, "is the '}' of the type before it missing?"),
        ("edge Knows: Person ->", 1, 22, "the node type it leads to was expected"),
        ("edge Knows: {}", 1, 13, "expected the node type it starts from, found '{'"),
        ("node A { a: }", 1, 13, "expected a type, found '}'"),
        ("node A { a: String @range(0..1 }", 1, 32, "expected ',' or ')', found '}'"),
        ('node A { a: String @check("x }\n', 1, 27, "does not end on its line"),
        ("node A\n\n  /* forever", 3, 3, "this comment is never closed"),
        ("node A # old", 1, 8, "comments are //"),
        ("node A { a: String @description('x') }", 1, 33, "texts stand in double quotes"),
    ],
)
def test_syntax_errors_have_a_place_and_say_what_was_expected(text: str, line: int, column: int, said: str) -> None:
    with pytest.raises(SchemaSyntaxError) as caught:
        parse(text)
    assert (caught.value.line, caught.value.column) == (line, column)
    assert said in caught.value.message
    assert caught.value.code == "schema.syntax"


def test_an_error_shows_the_line_with_a_caret() -> None:
    with pytest.raises(SchemaError) as caught:
        parse("node Person {\n\tname: Strin\n}\n", "social.pg")
    assert caught.value.message == (
        "social.pg:2:8: unknown type 'Strin'\n  2 | \tname: Strin\n    | \t      ^^^^^\n      did you mean String?"
    )
    assert caught.value.as_dict()["context"] == {
        "source": "social.pg",
        "problems": ["social.pg:2:8: unknown type 'Strin'"],
    }


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("node A\nnode A", "there are two types called A"),
        ("node A\nedge e: A -> A", "begins with an upper-case letter"),
        ("node Knows\nedge KNOWS: Knows -> Knows", "there are two types called KNOWS"),
        ("node A { B: I32 }", "write b"),
        ("node A { _b: I32 }", "begins with a lower-case letter"),
        ("node A { a: I32 a: I32 }", "A has the property a twice"),
        ("node A { ab: I32 aB: I32 }", "do not tell them apart by case"),
        ("node A { id: String @key }", "id cannot be a property"),
        ("node A\nedge E: A -> A { from: I32 }", "from cannot be a property"),
        ("node A { a: Int }", "write I32 or I64"),
        ("node A { a: B }\nnode B", "B is a type of the schema, not of a property"),
        ("node A { a: String(3) }", "String takes no arguments"),
        ("node A { a: Vector }", "a Vector says its length"),
        ("node A { a: Vector(0) }", "a Vector says its length"),
        ("node A { a: [[I32]] }", "a list cannot hold lists"),
        ("node A { a: [Vector(2)] }", "a list cannot hold vectors"),
        ("node A { a: [I32?] }", "never null"),
        ("node A { a: enum() }", "an enum names its values"),
        ("node A { a: enum(x, y, x) }", "the enum has 'x' twice"),
        ("node A { a: enum(1) }", "names or texts"),
        ('node A { a: enum("") }', "an empty value"),
        ("node A { a: String @kee }", "did you mean @key?"),
        ("node A { a: String @index @index }", "@index stands here twice"),
        ("node A { a: String? @key }", "a cannot be a key: it may be null"),
        ("node A { a: F64 @key }", "a cannot be a key: it is F64"),
        ("node A { a: String @key b: String @key }", "A has two keys"),
        ("node A\nedge E: A -> A { a: String @key }", "an edge has no key"),
        ("node A { a: Blob @unique }", "a cannot be unique"),
        ("node A { a: [I32] @index }", "a cannot be indexed"),
        ("node A { a: I32 @unique(a, b) }", "A has no property b"),
        ("node A { name: I32 @unique(nam) }", "did you mean name?"),
        ("node A { a: I32 @unique(a, a) }", "@unique has a twice"),
        ("node A { @unique a: I32 }", "there is no property that @unique is for"),
        ('node A { a: I32 @unique(a) @description("x") }', "there is no property that @description is for"),
        ("node A { a: String @range(0..1) }", "@range is for numbers"),
        ("node A { a: I32 @range(2..1) }", "no value is in 2..1"),
        ("node A { a: I32 @range(0..3000000000) }", "not a number that I32 can hold"),
        ("node A { a: U32 @range(-1..) }", "not a number that U32 can hold"),
        ("node A { a: I32 @range(0.5..1) }", "not a number that I32 can hold"),
        ("node A { a: F64 @range(0..1e999) }", "not a number that F64 can hold"),
        ("node A { a: I32 @range(..) }", "@range needs a bound"),
        ("node A { a: I32 @range(5) }", "@range takes low..high"),
        ('node A { a: String @check("(") }', "not a regular expression"),
        ('node A { a: String @check("(?=x)") }', "RE2"),
        ('node A { a: String @check("\\d") }', "a backslash is written"),
        ('node A { a: I32 @check("x") }', "@check is for String"),
        ("node A { a: Vector(2) @embed(b) }", "A has no property b to embed"),
        ("node A { b: I32 a: Vector(2) @embed(b) }", "b cannot be embedded: it is I32"),
        ("node A { b: String a: String @embed(b) }", "@embed is for Vector(n)"),
        ("node A @card(0..1)", "@card is for edge types"),
        ("node A\nedge E: A -> A @card(2..1)", "no number of edges"),
        ("node A\nedge E: A -> A @card(0..0)", "allows no edge at all"),
        ("node A\nedge E: A -> A @card(-1..2)", "whole numbers from 0"),
        ("node A\nedge E: A -> B", "there is no node type B"),
        ("interface I\nnode A\nedge E: A -> I", "I is not a node type but an interface"),
        ("node A implements Namd\ninterface Named", "did you mean Named?"),
        ("interface I { a: I32 }\nnode A implements I, I", "implements I twice"),
        ("interface I { a: I32 }\nnode A implements I { a: I64 }", "I has a: I32, this is another"),
        ("interface I { a: I32 }\ninterface J { a: I64 }\nnode A implements I, J", "both have a, but differently"),
        ("interface I { a: I32 @key }\ninterface J { b: I32 @key }\nnode A implements I, J", "both have a key"),
        ("node A @rename_from(A)", "renamed from itself"),
        ("node A { a: I32 @rename_from(x) b: I32 @rename_from(x) }", "two are renamed from x"),
        ("node A @rename_from(B)\nnode C @rename_from(B)", "two are renamed from B"),
        ("node A { a: I32 @rename_from(X) }", "begins with a lower-case letter"),
        ("node A @description(x)", "@description takes one text"),
        ('node A @description("\\ud800")', "half of a character"),
        (f"node {'A' * 101}", "longer than 100 letters"),
    ],
)
def test_a_schema_that_contradicts_itself(text: str, said: str) -> None:
    with pytest.raises(SchemaError) as caught:
        parse(text)
    assert said in caught.value.message
    assert caught.value.code == "schema.invalid"
    assert len(caught.value.problems) == 1, caught.value.message


def test_all_mistakes_are_told_together_in_their_order() -> None:
    text = """
    node Person { name: Strin @key   age: I32 @rang(0..1)   mail: String? @key }
    edge Knows: Person -> Persn { since: Dat }
    node person
    """
    with pytest.raises(SchemaError) as caught:
        parse(text)
    said = [(problem.spot.line, problem.message) for problem in caught.value.problems]
    assert said == [
        (2, "unknown type 'Strin'"),
        (2, "unknown annotation @rang"),
        (2, "mail cannot be a key: it may be null"),
        (3, "there is no node type Persn"),
        (3, "unknown type 'Dat'"),
        (4, "the name of a node type begins with an upper-case letter"),
        (4, "there are two types called person"),
    ]


def test_a_long_list_of_mistakes_is_cut_but_kept() -> None:
    with pytest.raises(SchemaError, match="and 10 more") as caught:
        parse("node A {\n" + "\n".join(f"  a{n}: Nope" for n in range(30)) + "\n}")
    assert len(caught.value.problems) == 30


@pytest.mark.parametrize(
    "change",
    [
        {"format": 2},
        {"nodes": [{}]},
        {"nodes": [{"name": "A { } node B"}]},
        {"nodes": [{"name": "A", "properties": [{"name": "x", "type": {"tuple": 3}}]}]},
        {"nodes": [{"name": "A", "properties": [{"name": "x", "type": {"list": {"vector": 2}}}]}]},
        {"nodes": [{"name": "A", "implements": ["Named"]}]},
        {"nodes": None},
    ],
)
def test_a_wrong_document_is_refused(change: dict[str, object]) -> None:
    with pytest.raises(ContractError):
        from_json({**to_json(Catalogue()), **change})

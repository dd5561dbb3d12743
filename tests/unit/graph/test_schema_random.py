"""Random schemas: forms round-trip, errors have a place, and a plan's steps lead from one schema to the other."""

from __future__ import annotations

import json
import pickle
from dataclasses import dataclass, replace
from typing import Any

from hypothesis import example, given
from hypothesis import strategies as st

from fenceline.graph.schema import (
    Catalogue,
    Effect,
    Embed,
    Op,
    Property,
    SchemaChangeError,
    SchemaError,
    SchemaPlan,
    from_json,
    parse,
    plan,
    render,
    schema_id,
    settled,
    to_json,
)

PROPERTIES = ("a", "b", "c", "d", "name", "node", "longerName")
NODES = ("A", "B", "Person", "Post")
EDGES = ("Knows", "Wrote")
KINDS = ("String", "Bool", "I32", "I64", "U32", "U64", "F32", "F64", "Date", "DateTime", "Blob", "Vector(3)")
texts = st.text(st.characters(codec="utf-8"), max_size=8)


def quoted(text: str) -> str:
    return json.dumps(text, ensure_ascii=False)


@st.composite
def kinds(draw: st.DrawFn) -> str:
    scalar = draw(st.sampled_from(KINDS))
    if draw(st.integers(0, 3)):
        return scalar
    values = draw(st.lists(st.text('abc é"\\\n', min_size=1, max_size=4), min_size=1, max_size=3, unique=True))
    item = draw(st.sampled_from(["String", "I32", f"enum({', '.join(map(quoted, values))})"]))
    return draw(st.sampled_from([item, f"[{item}]"]))


@st.composite
def bounds(draw: st.DrawFn, kind: str) -> str:
    numbers = st.integers(0, 9) if kind[0] in "IU" else st.floats(-1e9, 1e9, width=32)
    low, high = sorted(draw(st.lists(numbers, min_size=2, max_size=2)))
    return draw(st.sampled_from([f"{low}..{high}", f"{low}..", f"..{high}"]))


@st.composite
def properties(draw: st.DrawFn, name: str, *, key: bool = False) -> str:
    kind = draw(st.sampled_from(["String", "I64", "Date"])) if key else draw(kinds())
    words = [f"{name}: {kind}{'?' if not key and draw(st.booleans()) else ''}"]
    words += ["@key"] if key else []
    if kind not in ("Blob", "Vector(3)") and not kind.startswith("["):
        words += draw(st.sampled_from([[], ["@unique"], ["@index"]]))
    if kind in ("I32", "I64", "U32", "U64", "F32", "F64") and draw(st.booleans()):
        words.append(f"@range({draw(bounds(kind))})")
    if kind == "String" and draw(st.booleans()):
        words.append(f"@check({quoted(draw(st.sampled_from(['^a', '[a-z]+$', '.'])))})")
    if draw(st.booleans()):
        words.append(f"@description({quoted(draw(texts))})")
    return " ".join(words)


@st.composite
def bodies(draw: st.DrawFn, *, keyed: bool, ends: bool = False) -> str:
    names = draw(st.lists(st.sampled_from(PROPERTIES), max_size=4, unique=True))
    key = names[0] if names and keyed and draw(st.booleans()) else None
    lines = [draw(properties(name, key=name == key)) for name in names]
    sources = [name for name, line in zip(names, lines, strict=True) if line.startswith(f"{name}: String")]
    if draw(st.booleans()) and sources:
        lines.append(f"vec: Vector(3)? @embed({sources[0]})")
    if ends and draw(st.booleans()):
        lines.append("@unique(dst, src)")
    gap = draw(st.sampled_from([" ", "\n", "  // said\n", " /* } */ "]))
    return f" {{ {gap.join(lines)} }}" if draw(st.booleans()) or lines else ""


@st.composite
def schemas(draw: st.DrawFn) -> str:
    """Valid text. The interface's properties are called otherwise than those of types, but for one that repeats it."""
    blocks = ["interface Tagged { tag: String @index label: I32? @unique(tag, label) }"] if draw(st.booleans()) else []
    nodes = draw(st.lists(st.sampled_from(NODES), max_size=3, unique=True))
    for name in nodes:
        implements = " implements Tagged" if blocks[:1] and "Tagged" in blocks[0] and draw(st.booleans()) else ""
        said = f" @description({quoted(draw(texts))})" if draw(st.booleans()) else ""
        blocks.append(f"node {name}{implements}{said}{draw(bodies(keyed=True))}")
    for name in draw(st.lists(st.sampled_from(EDGES), max_size=2, unique=True)) if nodes else []:
        source, target = draw(st.sampled_from(nodes)), draw(st.sampled_from(nodes))
        card = draw(st.sampled_from(["", " @card(0..1)", " @card(1..)", " @card(..7)"]))
        blocks.append(f"edge {name}: {source} -> {target}{card}{draw(bodies(keyed=False, ends=True))}")
    return "\n".join(draw(st.permutations(blocks)))


@given(schemas())
def test_every_form_round_trips(text: str) -> None:
    schema = parse(text)
    assert parse(render(schema)) == schema
    assert render(parse(render(schema))) == render(schema)
    assert from_json(json.loads(json.dumps(to_json(schema)))) == schema
    assert pickle.loads(pickle.dumps(schema)) == schema
    assert plan(schema, schema).empty
    assert schema_id(settled(schema)) == schema_id(schema)


def refused(text: str) -> SchemaError | None:
    try:
        parse(text)
    except SchemaError as error:
        return error
    return None


def assert_parses_or_points_inside(text: str) -> None:
    error = refused(text)
    if error is None:
        return
    text = text.removeprefix("\ufeff")
    lines = text.split("\n")
    assert error.problems
    for problem in error.problems:
        assert 1 <= problem.spot.line <= len(lines)
        assert 1 <= problem.spot.column <= len(lines[problem.spot.line - 1]) + 1
        assert problem.show(text, "schema.pg") in error.message or len(error.problems) > 20


TOKENS = [
    *("node", "edge", "interface", "implements", "A", "B", "a", "b", "String", "I32", "Vector", "enum", "Tagged"),
    *("{", "}", "(", ")", "[", "]", ":", "->", ",", "?", "..", "@key", "@unique", "@index", "@range", "@check"),
    *(
        "@card",
        "@embed",
        "@rename_from",
        "@description",
        "@nope",
        '"x"',
        '"\\q"',
        '"',
        "1",
        "-2.5",
        "1e999",
        "9" * 5000,
    ),
    *("//", "/*", "*/", "\n", "\t", " ", ";", "#", "é", "\ufeff", "\x00", "\r\n"),
]


@given(st.lists(st.sampled_from(TOKENS), max_size=30).map(" ".join))
@example("")
@example("\n\n  \n node")
@example("node A { x: " + "[" * 3000 + "I32" + "]" * 3000 + " }")
@example("node A { a: String @embed(a, b) }")
def test_every_error_of_random_tokens_points_inside_the_text(text: str) -> None:
    assert_parses_or_points_inside(text)


@given(st.text(max_size=40))
def test_every_error_of_random_text_points_inside_it(text: str) -> None:
    assert_parses_or_points_inside(text)


@given(schemas(), st.data())
def test_every_error_of_a_damaged_schema_points_inside_it(text: str, data: st.DataObject) -> None:
    at = data.draw(st.integers(0, len(text)))
    end = data.draw(st.integers(at, min(len(text), at + 5)))
    assert_parses_or_points_inside(text[:at] + data.draw(st.sampled_from([*TOKENS, ""])) + text[end:])


# --- plans --------------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Table:
    """What a step can change, by column."""

    columns: dict[str, tuple[str, bool]]


def shape(catalogue: Catalogue) -> dict[str, Table]:
    return {
        each.table_key: Table({p.name: (str(p.kind), p.nullable) for p in each.properties})
        for each in catalogue.tables()
    }


def carry_out(made: SchemaPlan, tables: dict[str, Table], new: Catalogue) -> dict[str, Table]:
    """Does the steps one after the other; a name that is taken or missing is a step out of order."""
    for step in made.steps:
        if step.op is Op.DROP_TYPE:
            del tables[step.on]
        elif step.op is Op.RENAME_TYPE:
            kind = step.on.partition(":")[0]
            assert step.on not in tables
            tables[step.on] = tables.pop(f"{kind}:{step.before}")
        elif step.op is Op.ADD_TYPE:
            assert step.on not in tables
            tables[step.on] = shape(new)[step.on]
        elif step.on in tables and step.property is not None:
            _carry_out(step.op, step.property, step.before, step.after, tables[step.on].columns)
    return tables


def _carry_out(op: Op, name: str, before: str | None, after: str | None, columns: dict[str, Any]) -> None:
    if op is Op.DROP_PROPERTY:
        del columns[name]
    elif op is Op.RENAME_PROPERTY:
        assert name not in columns
        columns[name] = columns.pop(before)  # type: ignore[arg-type]
    elif op is Op.ADD_PROPERTY:
        assert name not in columns
        assert after is not None
        columns[name] = (after.removesuffix("?"), after.endswith("?"))
    elif op is Op.CHANGE_TYPE:
        assert columns[name][0] == before
        columns[name] = (after, columns[name][1])
    elif op in (Op.MAKE_NULLABLE, Op.MAKE_REQUIRED):
        columns[name] = (columns[name][0], op is Op.MAKE_NULLABLE)


@given(schemas(), schemas())
def test_the_steps_of_a_plan_lead_to_the_new_schema(one: str, other: str) -> None:
    old, new = parse(one), parse(other)
    try:
        made = plan(old, new)
    except SchemaChangeError:
        return
    assert carry_out(made, shape(old), new) == shape(new)
    assert made.empty == (schema_id(old) == schema_id(new))
    json.dumps(made.to_json())


def _renamed(each: Property, to: dict[str, str]) -> Property:
    embed = Embed(to.get(each.embed.source, each.embed.source), each.embed.model) if each.embed else None
    if each.name not in to:
        return replace(each, embed=embed)
    return replace(each, name=to[each.name], rename_from=each.name, embed=embed)


@given(schemas(), st.data())
def test_renames_lose_nothing(text: str, data: st.DataObject) -> None:
    """Names are exchanged for new ones in any way that is free of circles; nothing is dropped or added."""
    old = parse(text)
    nodes = []
    for node in old.nodes:
        spare = data.draw(st.permutations(["p", "q", "r", "s"]))
        mine = {p.name for p in node.properties} - {"tag", "label"}
        chosen = [p for p in sorted(mine) if data.draw(st.booleans())]
        to = dict(zip(chosen, spare, strict=False))
        nodes.append(
            replace(
                node,
                properties=tuple(_renamed(p, to) for p in node.properties),
                key=tuple(to.get(k, k) for k in node.key),
                unique=tuple(tuple(to.get(k, k) for k in u) for u in node.unique),
                index=tuple(to.get(k, k) for k in node.index),
            )
        )
    new = Catalogue(old.interfaces, tuple(nodes), old.edges)
    assert parse(render(new)) == new
    made = plan(old, new)
    assert {step.op for step in made.steps} <= {Op.RENAME_PROPERTY}
    assert {step.effect for step in made.steps} <= {Effect.METADATA}
    assert carry_out(made, shape(old), new) == shape(new)
    assert plan(new, new).empty

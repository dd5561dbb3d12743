"""Values: what each type takes, what it makes of it, and what the refusal says."""

from __future__ import annotations

import datetime as dt
from typing import Any

import numpy as np
import pandas as pd  # type: ignore[import-untyped]
import pyarrow as pa  # type: ignore[import-untyped]
import pytest
from hypothesis import given
from hypothesis import strategies as st

from fenceline.errors import ContractError
from fenceline.graph.schema import (
    InvalidValue,
    Property,
    UnknownProperty,
    arrow_array,
    arrow_schema,
    broken_rule,
    edge_id,
    key_id,
    matches,
    node_id,
    normalise,
    normalise_row,
    parse,
    spark_ddl,
    spark_schema,
)

UTC = dt.UTC
EVERY = """
node Every {
  text: String  flag: Bool  i32: I32  i64: I64  u32: U32  u64: U64  f32: F32  f64: F64
  day: Date  at: DateTime  raw: Blob  vec: Vector(2)  tags: [String]  days: [Date]  state: enum(on, off)
}
"""


def of(kind: str, *annotations: str) -> Property:
    (found,) = parse(f"node A {{ x: {kind} {' '.join(annotations)} }}").node("A").properties
    return found


@pytest.mark.parametrize(
    ("kind", "given", "stored"),
    [
        ("String", "é", "é"),
        ("String", "", ""),
        ("Bool", True, True),
        ("Bool", np.bool_(False), False),
        ("I32", -(2**31), -(2**31)),
        ("I64", 2**63 - 1, 2**63 - 1),
        ("U32", 0, 0),
        ("U64", 2**64 - 1, 2**64 - 1),
        ("I32", np.int64(7), 7),
        ("F64", 3, 3.0),
        ("F64", np.float32(0.5), 0.5),
        ("F32", 0.1, float(np.float32(0.1))),
        ("Date", "2026-02-28", dt.date(2026, 2, 28)),
        ("Date", dt.date(2026, 2, 28), dt.date(2026, 2, 28)),
        ("DateTime", "2026-01-01T10:00:00Z", dt.datetime(2026, 1, 1, 10, tzinfo=UTC)),
        ("DateTime", "2026-01-01 10:00", dt.datetime(2026, 1, 1, 10, tzinfo=UTC)),
        ("DateTime", "2026-01-01T10:00:00.5+02:00", dt.datetime(2026, 1, 1, 8, 0, 0, 500_000, UTC)),
        ("DateTime", dt.datetime(2026, 1, 1, 10), dt.datetime(2026, 1, 1, 10, tzinfo=UTC)),
        ("DateTime", pd.Timestamp("2026-01-01T10:00:00+01:00"), dt.datetime(2026, 1, 1, 9, tzinfo=UTC)),
        ("Blob", b"\x00\xff", b"\x00\xff"),
        ("Blob", bytearray(b"x"), b"x"),
        ("Blob", "AP8=", b"\x00\xff"),
        ("Vector(2)", [1, 0.5], [1.0, 0.5]),
        ("Vector(2)", np.array([1, 2], dtype="f4"), [1.0, 2.0]),
        ("[String]", ["a", "b"], ["a", "b"]),
        ("[String]", (), []),
        ("[Date]", ["2026-01-01"], [dt.date(2026, 1, 1)]),
        ("enum(on, off)", "on", "on"),
        ("I32?", None, None),
    ],
)
def test_what_a_type_takes(kind: str, given: object, stored: object) -> None:
    made = normalise(of(kind), given)
    assert made == stored
    assert type(made) is type(stored)
    assert arrow_array(of(kind), [given]).to_pylist() == [stored]


@pytest.mark.parametrize(
    ("kind", "given", "expected"),
    [
        ("String", 1, "a String"),
        ("String", b"x", "a String"),
        ("String", "\ud800", "half of a character"),
        ("Bool", 1, "a Bool"),
        ("Bool", "true", "a Bool"),
        ("I32", 2**31, "an I32 (a whole number from -2147483648 to 2147483647)"),
        ("I32", True, "an I32"),
        ("I32", 1.0, "an I32"),
        ("I32", "1", "an I32"),
        ("U32", -1, "a U32 (a whole number from 0 to 4294967295)"),
        ("U64", 2**64, "a U64"),
        ("I64", np.float64(1), "an I64"),
        ("F64", "1", "an F64"),
        ("F64", True, "an F64"),
        ("F64", float("nan"), "an F64 (a finite number"),
        ("F64", float("inf"), "an F64"),
        ("F64", 2**53 + 1, "that it holds exactly"),
        ("F64", 10**400, "an F64"),
        ("F32", 1e39, "an F32 (a finite number up to 3.4e38)"),
        ("F32", 10**400, "an F32"),
        ("Date", "2026-02-30", 'a Date ("2026-01-31", or a date)'),
        ("Date", "20260101", "a Date"),
        ("Date", "2026-01-01T00:00:00", "a Date"),
        ("Date", dt.datetime(2026, 1, 1), "a Date"),
        ("DateTime", "2026-01-01", "a DateTime"),
        ("DateTime", dt.date(2026, 1, 1), "a DateTime"),
        ("DateTime", "2026-01-01T25:00:00Z", "a DateTime"),
        ("DateTime", "2026-01-01T10:00:00.1234567Z", "to the microsecond"),
        ("DateTime", pd.Timestamp("2026-01-01T10:00:00.000000001"), "to the microsecond"),
        ("DateTime", "0001-01-01T00:00:00+10:00", "a DateTime"),
        ("DateTime", 1_700_000_000, "a DateTime"),
        ("Blob", "not base64!", "a Blob (bytes, or base64 text)"),
        ("Blob", [1], "a Blob"),
        ("Vector(2)", [1.0], "a Vector(2) (2 numbers, not 1)"),
        ("Vector(2)", "ab", "a Vector(2)"),
        ("Vector(2)", [1.0, True], "an F32"),
        ("Vector(2)", [1.0, None], "an F32"),
        ("[String]", "abc", "a list: it is [String]"),
        ("[String]", ["a", 1], "a String"),
        ("[String]", ["a", None], "never null"),
        ("enum(on, off)", "onn", "one of on, off (did you mean on?)"),
        ("enum(on, off)", 1, "one of on, off"),
        ("I32", None, "it is required"),
    ],
)
def test_what_a_type_refuses(kind: str, given: object, expected: str) -> None:
    with pytest.raises(InvalidValue) as caught:
        normalise(of(kind), given)
    assert expected in str(caught.value)
    assert caught.value.property.startswith("x")
    with pytest.raises(InvalidValue):
        arrow_array(of(kind), [given])


def test_an_item_is_named_by_its_place() -> None:
    with pytest.raises(InvalidValue, match=r"x\[1\]: 5 is not a String"):
        normalise(of("[String]"), ["a", 5])


def test_a_long_value_is_shown_in_short() -> None:
    with pytest.raises(InvalidValue) as caught:
        normalise(of("I32"), "x" * 1000)
    assert len(caught.value.message) < 200


def test_a_row_has_every_property_and_no_other() -> None:
    person = parse("node Person { name: String @key age: I32? }").node("Person")
    assert normalise_row(person, {"id": "a", "name": "a"}) == {"name": "a", "age": None}
    with pytest.raises(UnknownProperty, match=r"Person has no property 'agee' \(did you mean age\?\)"):
        normalise_row(person, {"name": "a", "agee": 3})
    with pytest.raises(InvalidValue, match=r"Person\.age: 'x' is not an I32") as caught:
        normalise_row(person, {"name": "a", "age": "x"})
    assert (caught.value.table, caught.value.property, caught.value.value) == ("Person", "age", "x")
    with pytest.raises(InvalidValue, match=r"Person\.name: None is not a String: it is required"):
        normalise_row(person, {})


def test_rules_of_one_value() -> None:
    assert broken_rule(of("I32", "@range(0..9)"), 10) == "@range(0..9)"
    assert broken_rule(of("I32", "@range(0..9)"), 9) is None
    assert broken_rule(of("I32?", "@range(0..9)"), None) is None
    assert broken_rule(of("String", '@check("^a")'), "ba") == '@check("^a")'
    assert broken_rule(of("F32", "@range(..0.1)"), normalise(of("F32"), 0.1)) is None


@pytest.mark.parametrize("pattern", ["^a", "b$", r"^\d+$", r"\w", "a.c", "^$"])
@pytest.mark.parametrize("value", ["abc", "b\n", "٣", "", "a\nc", "12"])
def test_a_pattern_means_what_it_means_to_the_engine(pattern: str, value: str) -> None:
    import duckdb

    (found,) = duckdb.execute("select regexp_matches(?, ?)", [value, pattern]).fetchone() or ()
    assert matches(pattern, value) == found


# --- ids --------------------------------------------------------------------------------------------------------


def fresh() -> str:
    return "01fresh"


def node(text: str) -> Any:
    return parse(text).nodes[0]


@pytest.mark.parametrize(
    ("kind", "value", "made"),
    [
        ("String", "Ada", "Ada"),
        ("I64", 7, "7"),
        ("Bool", True, "true"),
        ("Date", "2026-01-01", "2026-01-01"),
        ("DateTime", "2026-01-01T10:00:00+01:00", "2026-01-01T09:00:00Z"),
        ("enum(a, b)", "b", "b"),
    ],
)
def test_the_id_of_a_node_is_its_key(kind: str, value: object, made: str) -> None:
    assert node_id(node(f"node A {{ k: {kind} @key }}"), {"k": value}, fresh) == made


def test_the_id_of_a_key_of_several_is_an_array() -> None:
    keyed = node("node A { b: I32 a: String @key(a, b) }")
    assert node_id(keyed, {"a": 'é"', "b": 3}, fresh) == '["é\\"",3]'
    assert key_id(keyed, ["x", 1]) == '["x",1]'
    with pytest.raises(ContractError, match="1 values for the key of A, which has 2"):
        key_id(keyed, ["x"])


def test_a_node_without_a_key_gets_a_fresh_id_or_the_one_it_is_given() -> None:
    plain = node("node A { a: String }")
    assert node_id(plain, {}, fresh) == "01fresh"
    assert node_id(plain, {"id": "mine"}, fresh) == "mine"
    assert (edge_id({}, fresh), edge_id({"id": "e"}, fresh)) == ("01fresh", "e")
    for wrong in ("", 5, "x" * 5000):
        with pytest.raises(InvalidValue, match="an id"):
            node_id(plain, {"id": wrong}, fresh)


def test_an_id_that_contradicts_the_key_is_refused() -> None:
    keyed = node("node A { a: String @key }")
    assert node_id(keyed, {"id": "x", "a": "x"}, fresh) == "x"
    with pytest.raises(InvalidValue, match="leave id out"):
        node_id(keyed, {"id": "y", "a": "x"}, fresh)
    with pytest.raises(InvalidValue, match="an id"):
        node_id(keyed, {"a": ""}, fresh)


@given(st.text(min_size=1, max_size=5), st.integers(-9, 9), st.text(min_size=1, max_size=5), st.integers(-9, 9))
def test_different_keys_have_different_ids(a: str, m: int, b: str, n: int) -> None:
    keyed = node("node A { a: String b: I32 @key(a, b) }")
    assert (key_id(keyed, [a, m]) == key_id(keyed, [b, n])) == ((a, m) == (b, n))


# --- columns ----------------------------------------------------------------------------------------------------


def test_arrow_fields_are_nullable_but_for_the_tables_own() -> None:
    schema = parse(EVERY + "edge To: Every -> Every { since: Date }")
    assert str(arrow_schema(schema.edge("To"))) == (
        "id: string not null\nsrc: string not null\ndst: string not null\nsince: date32[day]"
    )
    fields = {field.name: (str(field.type), field.nullable) for field in arrow_schema(schema.node("Every"))}
    assert fields == {
        "id": ("string", False),
        "text": ("string", True),
        "flag": ("bool", True),
        "i32": ("int32", True),
        "i64": ("int64", True),
        "u32": ("uint32", True),
        "u64": ("uint64", True),
        "f32": ("float", True),
        "f64": ("double", True),
        "day": ("date32[day]", True),
        "at": ("timestamp[us, tz=UTC]", True),
        "raw": ("binary", True),
        "vec": ("fixed_size_list<item: float>[2]", True),
        "tags": ("list<item: string>", True),
        "days": ("list<item: date32[day]>", True),
        "state": ("string", True),
    }


def test_rows_become_a_table_of_the_schema() -> None:
    every = parse(EVERY).node("Every")
    row = {
        "text": "a",
        "flag": True,
        "i32": 1,
        "i64": 2,
        "u32": 3,
        "u64": 2**64 - 1,
        "f32": 0.5,
        "f64": 0.1,
        "day": "2026-01-01",
        "at": "2026-01-01T00:00:00Z",
        "raw": "AA==",
        "vec": [1, 2],
        "tags": ["x"],
        "days": [],
        "state": "off",
    }
    table = pa.Table.from_pylist([{"id": "1", **normalise_row(every, row)}], schema=arrow_schema(every))
    table.validate(full=True)
    assert table.to_pylist()[0] == {"id": "1", **normalise_row(every, row)}


def test_spark_reads_the_schema() -> None:
    from pyspark.sql.types import StructType

    every = parse(EVERY).node("Every")
    read = StructType.fromJson(spark_schema(every))
    assert read.simpleString() == (
        "struct<id:string,text:string,flag:boolean,i32:int,i64:bigint,u32:bigint,u64:decimal(20,0),f32:float,"
        "f64:double,day:date,at:timestamp,raw:binary,vec:array<float>,tags:array<string>,days:array<date>,state:string>"
    )
    said = [f"`{f.name}` {f.dataType.simpleString().upper()}{'' if f.nullable else ' NOT NULL'}" for f in read.fields]
    assert spark_ddl(every) == ", ".join(said)

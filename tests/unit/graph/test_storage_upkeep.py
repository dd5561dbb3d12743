"""Indices, compaction and changed columns: queries stay right, through the index and past it."""

from __future__ import annotations

import random
from collections.abc import Iterable

import pyarrow as pa  # type: ignore[import-untyped]
import pytest

from fenceline.errors import ContractError
from fenceline.graph import index_plan
from fenceline.graph.pins import Pin
from fenceline.graph.storage import TableStore
from fenceline.graph.table_columns import AddColumn, ChangeColumn, DropColumn, stage_columns
from fenceline.repo.native.local import LocalObjects

SCHEMA = pa.schema(
    [
        pa.field("id", pa.string(), nullable=False),
        ("body", pa.string()),
        ("age", pa.int32()),
        ("tags", pa.list_(pa.string())),
        ("place", pa.list_(pa.float32(), 4)),
    ]
)
KINDS = {"id": "btree", "age": "btree", "body": "inverted", "tags": "label_list", "place": "vector"}


@pytest.fixture
def empty(store: TableStore) -> Pin:
    return store.create("t1", SCHEMA)


def notes(numbers: Iterable[int], age: int | None = None) -> pa.Table:
    listed = list(numbers)
    return pa.table(
        {
            "id": [f"p{n}" for n in listed],
            "body": [f"note word{n % 7} end" for n in listed],
            "age": [n if age is None else age for n in listed],
            "tags": [[f"t{n % 3}", "all"] for n in listed],
            "place": [[float(n), 1.0, 2.0, 3.0] for n in listed],
        },
        schema=SCHEMA,
    )


def indexed(store: TableStore, pin: Pin) -> Pin:
    for column, kind in KINDS.items():
        pin = store.stage_index(pin, column, kind)  # type: ignore[arg-type]
    return pin


def check(store: TableStore, pin: Pin, expected: dict[int, int]) -> None:
    """Compare look-ups of every kind with a plain model: number → age."""
    dataset = store.open(pin)
    assert store.count(pin) == len(expected)
    sample = random.Random(7)
    for number in [*sample.sample(sorted(expected), min(20, len(expected))), 99_999]:
        found = store.scan(pin, ["id", "age"], f"`id` = 'p{number}'").read_all().to_pylist()
        assert found == ([{"id": f"p{number}", "age": expected[number]}] if number in expected else [])
        age = expected.get(number, number)
        wanted = {f"p{n}" for n, a in expected.items() if a == age}
        assert set(store.scan(pin, ["id"], f"`age` = {age}").read_all()["id"].to_pylist()) == wanted
    words = dataset.to_table(full_text_query="word3", columns=["id", "_score"])
    assert set(words["id"].to_pylist()) == {f"p{n}" for n in expected if n % 7 == 3}
    tagged = dataset.to_table(filter="array_has(`tags`, 't1')", columns=["id"])
    assert set(tagged["id"].to_pylist()) == {f"p{n}" for n in expected if n % 3 == 1}
    target = sample.choice(sorted(expected))
    near = dataset.to_table(
        nearest={"column": "place", "q": [float(target), 1.0, 2.0, 3.0], "k": 1, "nprobes": 50},
        columns=["id", "_distance"],
    )
    assert near["id"].to_pylist() == [f"p{target}"]


def uses_index(store: TableStore, pin: Pin, where: str) -> bool:
    return "ScalarIndexQuery" in store.open(pin).scanner(filter=where).explain_plan()


# --- indices ----------------------------------------------------------------------------------------------------


def test_an_index_covers_what_is_there_and_later_rows_are_found_past_it(store: TableStore, empty: Pin) -> None:
    pin = indexed(store, store.stage_append(empty, notes(range(400))))
    assert {(i.name, i.column, i.kind, i.fragments) for i in pin.indices} == {
        (f"{column}_{kind}", column, kind, 1) for column, kind in KINDS.items()
    }
    assert uses_index(store, pin, "`id` = 'p7'")
    check(store, pin, {n: n for n in range(400)})
    pin = store.stage_append(pin, notes(range(400, 700)))
    pin = store.stage_merge(pin, notes(range(390, 410), age=5))
    pin = store.stage_delete(pin, ids=["p0", "p650"])
    expected = {n: 5 if 390 <= n < 410 else n for n in range(1, 700) if n != 650}
    assert {(i.fragments, pin.fragments) for i in pin.indices} == {(1, 3)}
    check(store, pin, expected)
    whole = indexed(store, pin)
    assert {i.fragments for i in whole.indices if i.kind != "vector"} == {3}
    check(store, whole, expected)
    assert indexed(store, whole) == whole, "nothing is left to index"


def test_many_small_appends_do_not_make_many_segments(store: TableStore, empty: Pin) -> None:
    pin = store.stage_append(empty, notes(range(5)))
    for number in range(1, 12):
        pin = store.stage_index(store.stage_append(pin, notes([number * 10])), "id", "btree")
    described = store.open(pin).describe_indices()[0]
    assert len(described.segments) <= index_plan.MOST_SEGMENTS
    assert pin.index("id_btree") == pin.indices[0]
    assert pin.indices[0].fragments == pin.fragments
    check_ids = [
        row["id"] for n in range(1, 12) for row in store.scan(pin, ["id"], f"`id` = 'p{n * 10}'").read_all().to_pylist()
    ]
    assert check_ids == [f"p{n * 10}" for n in range(1, 12)]


def test_a_segment_takes_in_what_is_not_much_larger_than_itself() -> None:
    assert index_plan.absorbed({"large": 1000, "small": 8}, 10) == {"small"}
    assert index_plan.absorbed({"large": 1000, "small": 8}, 600) == {"small", "large"}
    assert index_plan.absorbed({}, 5) == set()
    sizes = {f"s{n}": 10**n for n in range(1, index_plan.MOST_SEGMENTS + 1)}
    assert index_plan.absorbed(sizes, 1) == {"s1"}, "or there would be one too many"
    segments: dict[str, int] = {}
    built = 0
    for n in range(10_000):
        gone = index_plan.absorbed(segments, 1)
        rows = 1 + sum(segments.pop(each) for each in gone)
        segments[f"s{n}"] = rows
        built += rows
        assert len(segments) <= index_plan.MOST_SEGMENTS
    assert built < 10_000 * 12


def test_an_index_of_nothing_or_of_few_vectors_is_left_out(store: TableStore, empty: Pin) -> None:
    assert indexed(store, empty) == empty
    few = store.stage_append(empty, notes(range(20)))
    assert store.stage_index(few, "place", "vector") == few


def test_large_vector_tables_are_quantised() -> None:
    small = index_plan.segment("vector", {0: 300}, 64)
    assert small is not None
    assert small.type == "IVF_FLAT"
    large = index_plan.segment("vector", {0: 80_000}, 100)
    assert large is not None
    assert (large.type, dict(large.options)) == ("IVF_PQ", {"num_partitions": 9, "num_sub_vectors": 25})
    assert index_plan.segment("vector", {1: 100}, 64, like="IVF_PQ") is None


def test_an_index_that_cannot_be_is_a_contract_error(store: TableStore, empty: Pin) -> None:
    pin = store.stage_append(empty, notes(range(300)))
    with pytest.raises(ContractError, match="nope"):
        store.stage_index(pin, "nope", "btree")
    with pytest.raises(ContractError, match="INVERTED"):
        store.stage_index(pin, "age", "inverted")
    with pytest.raises(ContractError, match="one length"):
        store.stage_index(pin, "age", "vector")


def test_an_index_can_be_dropped(store: TableStore, empty: Pin) -> None:
    pin = indexed(store, store.stage_append(empty, notes(range(300))))
    less = store.stage_drop_index(pin, "id_btree")
    assert {i.name for i in pin.indices} - {i.name for i in less.indices} == {"id_btree"}
    assert not uses_index(store, less, "`id` = 'p7'")
    assert store.stage_drop_index(less, "id_btree") == less


# --- compaction -------------------------------------------------------------------------------------------------


def test_compaction_keeps_every_row_and_its_indices_answer_right(store: TableStore, empty: Pin) -> None:
    pin = indexed(store, store.stage_append(empty, notes(range(300))))
    for start in range(300, 600, 50):
        pin = store.stage_append(pin, notes(range(start, start + 50)))
    pin = indexed(store, pin)
    pin = store.stage_merge(pin, notes(range(100, 350), age=5))
    pin = store.stage_delete(pin, where="`age` >= 550")
    expected = {n: 5 if 100 <= n < 350 else n for n in range(550)}
    check(store, pin, expected)
    compacted = store.stage_compaction(pin)
    # runs of fragments with the same indices become one each
    assert compacted.fragments < pin.fragments
    assert {i.fragments for i in compacted.indices if i.kind != "vector"} == {compacted.fragments}
    assert uses_index(store, compacted, "`id` = 'p7'")
    check(store, compacted, expected)
    check(store, pin, expected)  # the version before stays readable
    after = store.stage_append(compacted, notes([1000]))
    check(store, after, {**expected, 1000: 1000})


# --- columns ----------------------------------------------------------------------------------------------------


def test_columns_are_added_dropped_renamed_and_cast(store: TableStore, empty: Pin, objects: LocalObjects) -> None:
    pin = store.stage_append(store.stage_append(empty, notes(range(10))), notes(range(10, 20)))
    pin = store.stage_index(store.stage_index(pin, "id", "btree"), "age", "btree")
    pin = store.stage_delete(pin, ids=["p3", "p15"])
    data = {info.key for info in objects.list("tables/") if "/data/" in info.key}
    changed = stage_columns(
        store,
        pin,
        [
            AddColumn(pa.field("email", pa.string())),
            DropColumn("tags"),
            ChangeColumn("body", pa.field("noteText", pa.string())),
        ],
    )
    assert {info.key for info in objects.list("tables/") if "/data/" in info.key} == data, "no data was written"
    assert store.schema(changed).names == ["id", "noteText", "age", "place", "email"]
    assert store.scan(changed, ["id", "noteText", "email"], "`id` = 'p4'").read_all().to_pylist() == [
        {"id": "p4", "noteText": "note word4 end", "email": None}
    ]
    assert {i.name for i in changed.indices} == {"id_btree", "age_btree"}
    cast = stage_columns(
        store,
        changed,
        [
            ChangeColumn("age", pa.field("age", pa.int64(), nullable=False)),
            AddColumn(pa.field("kind", pa.string(), nullable=False), "person"),
        ],
    )
    assert store.schema(cast).field("age") == pa.field("age", pa.int64(), nullable=False)
    assert store.schema(cast).names == ["id", "noteText", "age", "place", "email", "kind"]
    found = store.scan(cast, ["id", "age", "kind"]).read_all().to_pylist()
    assert found == [{"id": f"p{n}", "age": n, "kind": "person"} for n in range(20) if n not in (3, 15)]
    assert {i.name for i in cast.indices} == {"id_btree"}, "an index of the old type is gone"
    more = store.stage_append(
        cast,
        pa.table(
            {"id": ["x"], "age": [2**40], "kind": ["robot"]},
            store.schema(cast).empty_table().select(["id", "age", "kind"]).schema,
        ),
    )
    assert store.scan(more, ["age", "kind", "noteText"], "`id` = 'x'").read_all().to_pylist() == [
        {"age": 2**40, "kind": "robot", "noteText": None}
    ]
    assert store.scan(pin).read_all().num_rows == 18  # the version before stays readable


def test_columns_of_an_empty_table_change_too(store: TableStore, empty: Pin) -> None:
    changed = stage_columns(
        store,
        empty,
        [
            ChangeColumn("age", pa.field("years", pa.int64())),
            DropColumn("body"),
            AddColumn(pa.field("body", pa.list_(pa.string()))),
            AddColumn(pa.field("must", pa.bool_(), nullable=False)),
        ],
    )
    assert store.schema(changed).names == ["id", "years", "tags", "place", "body", "must"]
    rows = pa.table(
        {"id": ["a"], "years": [7], "tags": [["x"]], "place": [None], "body": [["y", "z"]], "must": [True]},
        store.schema(changed),
    )
    assert store.scan(store.stage_append(changed, rows)).read_all().to_pylist() == rows.to_pylist()


def test_a_dropped_column_does_not_come_back_with_its_name(store: TableStore, empty: Pin) -> None:
    pin = store.stage_append(empty, notes(range(5)))
    again = stage_columns(store, pin, [DropColumn("age"), AddColumn(pa.field("age", pa.int32()))])
    assert store.scan(again, ["age"]).read_all()["age"].to_pylist() == [None] * 5


def test_column_changes_that_cannot_be(store: TableStore, empty: Pin) -> None:
    pin = store.stage_append(empty, notes(range(5)))
    for change, match in [
        (DropColumn("nope"), "nope"),
        (AddColumn(pa.field("age", pa.int32())), "already"),
        (ChangeColumn("age", pa.field("id", pa.int32())), "already"),
        (ChangeColumn("nope", pa.field("nope", pa.int32())), "nope"),
        (AddColumn(pa.field("must", pa.int32(), nullable=False)), "may not be null"),
        (ChangeColumn("body", pa.field("body", pa.int32())), "body|parse|cast"),
    ]:
        with pytest.raises(ContractError, match=match):
            stage_columns(store, pin, [change])  # type: ignore[list-item]

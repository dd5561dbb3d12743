"""Tables in detached versions: what each way of staging leaves readable, and that a table's head never moves."""

from __future__ import annotations

import json
import pickle
import subprocess
import sys
from collections.abc import Iterable

import lance
import pyarrow as pa  # type: ignore[import-untyped]
import pytest

from fenceline.errors import (
    AccessDenied,
    AlreadyExists,
    ContractError,
    ObjectDamaged,
    ObjectMissing,
    StoreError,
    StoreFull,
    StoreReadOnly,
)
from fenceline.graph.filters import any_of, literal, quoted
from fenceline.graph.lance_errors import typed
from fenceline.graph.pins import IndexState, Pin
from fenceline.graph.storage import TableStore, open_place, write_fragments, write_fresh_fragments
from fenceline.graph.table_columns import AddColumn, ChangeColumn, DropColumn, stage_columns
from fenceline.repo.native.local import LocalObjects

SCHEMA = pa.schema([pa.field("id", pa.string(), nullable=False), ("fullName", pa.string()), ("age", pa.int32())])


@pytest.fixture
def empty(store: TableStore) -> Pin:
    return store.create("t1", SCHEMA)


def people(numbers: Iterable[int], age: int | None = None) -> pa.Table:
    listed = list(numbers)
    return pa.table(
        {
            "id": [f"p{n}" for n in listed],
            "fullName": [f"Name {n} O'Brien" for n in listed],
            "age": pa.array([n if age is None else age for n in listed], pa.int32()),
        },
        schema=SCHEMA,
    )


def rows(store: TableStore, pin: Pin, where: str | None = None) -> dict[str, int]:
    table = store.scan(pin, ["id", "age"], where).read_all()
    found = dict(zip(table["id"].to_pylist(), table["age"].to_pylist(), strict=True))
    assert len(found) == table.num_rows, "no id twice"
    return found


def head(objects: LocalObjects, table: str = "t1") -> tuple[int, int]:
    """What other tools see of the table."""
    ordinary = lance.dataset(objects.path(f"tables/{table}.lance"))
    return ordinary.version, ordinary.count_rows()


# --- pins -------------------------------------------------------------------------------------------------------


def test_a_pin_is_json_both_ways_and_keeps_all_64_bits() -> None:
    pin = Pin("t1", 2**64 - 3, 7, 2, 3, (IndexState("id_btree", "id", "btree", 2),))
    assert Pin.from_bytes(pin.to_bytes()) == pin
    assert json.loads(pin.to_bytes())["version"] == "18446744073709551613"


@pytest.mark.parametrize(
    "data", [b"", b"[]", b"{}", b'{"fenceline.pin":1,"table":"t"}', b'{"fenceline.pin":9,"table":"t"}']
)
def test_what_is_no_pin_is_refused(data: bytes) -> None:
    with pytest.raises(ObjectDamaged, match=r"tables/node\.Person\.pin"):
        Pin.from_bytes(data, "tables/node.Person.pin")


def test_publications_are_counted_once_however_many_steps_were_staged() -> None:
    base = Pin("t1", 5, published=7)
    assert Pin("t1", 9).published_after(base).published == 8
    assert Pin("t1", 9).published_after(None).published == 1


# --- rows -------------------------------------------------------------------------------------------------------


def test_versions_chain_each_stays_readable_and_the_head_never_moves(
    store: TableStore, empty: Pin, objects: LocalObjects
) -> None:
    one = store.stage_append(empty, people(range(10)))
    two = store.stage_append(one, people(range(10, 15)))
    other = store.stage_append(one, people(range(100, 101)))
    three = store.stage_delete(two, ids=["p3", "p12", "nobody"])
    four = store.stage_merge(three, people([4, 77], age=1000))
    assert [pin.rows for pin in (empty, one, two, other, three, four)] == [0, 10, 15, 11, 13, 14]
    again = TableStore(objects)  # another process, nothing in its caches
    for pin in (empty, one, two, other, three, four):
        assert len(rows(again, pin)) == pin.rows == again.count(pin)
        assert again.open(pin).version == pin.version
    assert rows(again, four)["p4"] == rows(again, four)["p77"] == 1000
    assert rows(again, three)["p4"] == 4
    assert head(objects) == (1, 0)


def test_creating_a_table_twice_is_refused(store: TableStore, empty: Pin) -> None:
    with pytest.raises(AlreadyExists, match="t1"):
        store.create("t1", SCHEMA)


def test_nothing_to_do_stages_nothing(store: TableStore, empty: Pin, objects: LocalObjects) -> None:
    pin = store.stage_append(empty, people(range(3)))
    before = [info.key for info in objects.list("tables/") if "_versions/" in info.key]
    assert store.stage_append(pin, people([])) == pin
    assert store.stage_merge(pin, people([])) == pin
    assert store.stage_merge(pin, people([9]), insert=False) == pin
    assert store.stage_delete(pin, ids=[]) == pin
    assert store.stage_delete(pin, ids=["nobody"]) == pin
    assert store.stage_delete(pin, where=f"{quoted('age')} > 50") == pin
    assert store.stage_compaction(pin) == pin
    assert [info.key for info in objects.list("tables/") if "_versions/" in info.key] == before


def test_a_merge_updates_only_the_columns_that_it_has(store: TableStore, empty: Pin) -> None:
    pin = store.stage_append(empty, people(range(5)))
    part = pa.table({"id": ["p1", "new"], "age": pa.array([50, 51], pa.int32())})
    merged = store.stage_merge(pin, part)
    found = {row["id"]: row for row in store.scan(merged).read_all().to_pylist()}
    assert found["p1"] == {"id": "p1", "fullName": "Name 1 O'Brien", "age": 50}
    assert found["new"] == {"id": "new", "fullName": None, "age": 51}
    updated = store.stage_merge(pin, part, insert=False)
    assert set(rows(store, updated)) == {f"p{n}" for n in range(5)}


def test_a_merge_with_an_id_twice_is_refused(store: TableStore, empty: Pin) -> None:
    pin = store.stage_append(empty, people(range(5)))
    with pytest.raises(ContractError, match="Ambiguous"):
        store.stage_merge(pin, pa.concat_tables([people([1]), people([1])]))


def test_deletes_by_filter_by_few_ids_and_by_many_agree(store: TableStore, empty: Pin) -> None:
    pin = store.stage_append(store.stage_append(empty, people(range(3000))), people(range(3000, 4000)))
    pin = store.stage_delete(pin, ids=["p5"])  # offsets behind a deleted row must still be right
    many = store.stage_delete(pin, ids=[f"p{n}" for n in range(2500)])
    where = store.stage_delete(pin, where=f"{quoted('age')} < 2500")
    few = pin
    for start in range(0, 2500, 500):
        few = store.stage_delete(few, ids=[f"p{n}" for n in range(start, start + 500)])
    assert rows(store, many) == rows(store, where) == rows(store, few) == {f"p{n}": n for n in range(2500, 4000)}
    nothing = store.stage_delete(many, where="true")
    assert (nothing.rows, nothing.fragments, rows(store, nothing)) == (0, 0, {})
    assert rows(store, store.stage_append(nothing, people([1]))) == {"p1": 1}


def test_an_overwrite_replaces_rows_and_columns(store: TableStore, empty: Pin) -> None:
    pin = store.stage_index(store.stage_append(empty, people(range(20))), "id", "btree")
    other = pa.schema([("id", pa.string()), ("weight", pa.float64())])
    new = store.stage_overwrite(pin, other, pa.table({"id": ["a"], "weight": [1.5]}, schema=other))
    assert store.scan(new).read_all().to_pylist() == [{"id": "a", "weight": 1.5}]
    assert new.indices == ()
    assert len(rows(store, pin)) == 20
    cleared = store.stage_overwrite(pin, SCHEMA)
    assert (cleared.rows, store.schema(cleared).names) == (0, ["id", "fullName", "age"])


# --- fragments --------------------------------------------------------------------------------------------------


def test_executors_write_fragments_and_one_commit_takes_them(
    store: TableStore, empty: Pin, objects: LocalObjects
) -> None:
    place = pickle.loads(pickle.dumps(store.place(empty)))
    made = [f for part in range(3) for f in write_fragments(place, people(range(part * 10, part * 10 + 10)), SCHEMA)]
    made += write_fragments(place, iter([]), SCHEMA)
    assert open_place(place).count_rows() == 0
    pin = store.stage_append(empty, fragments=pickle.loads(pickle.dumps(made)))
    assert rows(store, pin) == {f"p{n}": n for n in range(30)}
    assert set(store.fragment_files("t1", made)) < set(store.own_files(empty, pin))
    fresh = write_fresh_fragments(store.place(pin), people([9]).to_batches(), SCHEMA)
    assert rows(store, store.stage_overwrite(pin, SCHEMA, fragments=fresh)) == {"p9": 9}


def test_the_same_fragments_are_not_taken_twice(store: TableStore, empty: Pin) -> None:
    made = write_fragments(store.place(empty), people(range(10)), SCHEMA)
    pin = store.stage_append(empty, fragments=made)
    with pytest.raises(AlreadyExists, match="already"):
        store.stage_append(pin, fragments=made)
    with pytest.raises(AlreadyExists, match="already"):
        store.stage_append(empty, fragments=[*made, *made])
    assert pin.rows == 10


def test_two_appends_both_win_when_the_second_is_rebased(store: TableStore, empty: Pin, objects: LocalObjects) -> None:
    start = store.stage_append(empty, people(range(5)))
    ours = write_fragments(store.place(start), people(range(10, 15)), SCHEMA)
    staged = store.stage_append(start, fragments=ours)
    theirs = store.stage_append(start, people(range(20, 25)))
    data = {info.key for info in objects.list("tables/") if "/data/" in info.key}
    rebased = store.rebase_append(theirs, ours)
    assert {info.key for info in objects.list("tables/") if "/data/" in info.key} == data, "no data is rewritten"
    assert rows(store, rebased) == {f"p{n}": n for n in (*range(5), *range(10, 15), *range(20, 25))}
    assert len(rows(store, staged)) == 10


def test_fragments_for_other_columns_are_refused(store: TableStore, empty: Pin) -> None:
    old = write_fragments(store.place(empty), people(range(5)), SCHEMA)
    wider = stage_columns(store, empty, [AddColumn(pa.field("email", pa.string()))])
    assert store.scan(store.rebase_append(wider, old), ["email"]).read_all()["email"].to_pylist() == [None] * 5
    for change in (
        DropColumn("age"),
        ChangeColumn("age", pa.field("age", pa.int64())),
        AddColumn(pa.field("must", pa.string(), nullable=False)),
    ):
        with pytest.raises(ContractError, match="other columns"):
            store.rebase_append(stage_columns(store, empty, [change]), old)


# --- filters and errors -----------------------------------------------------------------------------------------


def test_filters_quote_names_and_values(store: TableStore, empty: Pin) -> None:
    pin = store.stage_append(empty, people(range(5)))
    where = f"{quoted('fullName')} = {literal(chr(39).join(['Name 3 O', 'Brien']))}"
    assert rows(store, pin, where) == {"p3": 3}
    assert store.count(pin, any_of("id", ["p1", "p2", "' OR true --"])) == 2
    assert any_of("id", []) == "false"
    assert literal(True) == "true"
    with pytest.raises(ContractError, match="back-quote"):
        quoted("a`b")


@pytest.mark.parametrize(
    ("data", "match"),
    [
        (pa.table({"id": [1]}), "string"),
        (pa.table({"zzz": ["1"]}), "zzz"),
        (pa.table({"id": pa.array([None], pa.string())}), "null"),
    ],
)
def test_rows_that_do_not_fit_are_a_contract_error(store: TableStore, empty: Pin, data: pa.Table, match: str) -> None:
    for stage in (store.stage_append, store.stage_merge):
        with pytest.raises(ContractError, match=match):
            stage(empty, data)


def test_a_scan_of_what_is_not_there_is_a_contract_error(store: TableStore, empty: Pin) -> None:
    with pytest.raises(ContractError, match="nope"):
        store.scan(empty, ["nope"])
    with pytest.raises(ContractError, match="nope"):
        store.scan(empty, where="nope = 1").read_all()


@pytest.mark.parametrize(
    ("text", "kind"),
    [
        ("LanceError(IO): Generic LocalFileSystem error: No space left on device (os error 28)", StoreFull),
        ("Read-only file system (os error 30)", StoreReadOnly),
        ("Permission denied (os error 13)", AccessDenied),
        ("Encountered corrupt file x.lance: bad magic, /a/b/c.rs:1:2", StoreError),
    ],
)
def test_what_the_disk_says_is_typed(text: str, kind: type[StoreError]) -> None:
    found = typed(OSError(text), "writing rows")
    assert type(found) is kind
    assert "writing rows" in str(found)
    assert ".rs:" not in str(found)


CHILD = """
import sys
import pyarrow as pa
from fenceline.graph.pins import Pin
from fenceline.graph.storage import TableStore
from fenceline.repo.native.local import LocalObjects
store, pin, me = TableStore(LocalObjects(sys.argv[1])), Pin.from_bytes(sys.argv[2].encode()), int(sys.argv[3])
for n in range(15):
    rows = pa.table({"id": [f"c{me}-{n}"], "age": pa.array([n], pa.int32())})
    pin = store.stage_append(pin, rows) if n % 3 else store.stage_merge(pin, rows)
print(pin.to_bytes().decode())
"""


@pytest.mark.slow
def test_many_processes_stage_on_one_table_at_once(store: TableStore, empty: Pin, objects: LocalObjects) -> None:
    base = store.stage_append(empty, people(range(5)))
    root = objects.path("").rstrip("/")
    children = [
        subprocess.Popen(
            [sys.executable, "-c", CHILD, root, base.to_bytes().decode(), str(n)], stdout=subprocess.PIPE, text=True
        )
        for n in range(4)
    ]
    for number, child in enumerate(children):
        out, _ = child.communicate(timeout=120)
        assert child.returncode == 0
        pin = Pin.from_bytes(out.encode())
        assert set(rows(store, pin)) == {*(f"p{n}" for n in range(5)), *(f"c{number}-{n}" for n in range(15))}
    assert head(objects) == (1, 0)
    assert len(rows(store, base)) == 5


def test_a_version_that_is_gone_is_named_by_its_address(store: TableStore, empty: Pin, objects: LocalObjects) -> None:
    pin = store.stage_append(empty, people(range(5)))
    fresh = TableStore(objects)
    manifest = f"tables/t1.lance/_versions/d{pin.version}.manifest"
    saved = objects.get(manifest)
    objects.delete([manifest])
    with pytest.raises(ObjectMissing) as gone:
        fresh.open(pin)
    assert gone.value.context["address"] == manifest
    objects.put(manifest, saved)
    data = next(key for key in store.own_files(empty, pin) if "/data/" in key)
    objects.delete([data])
    with pytest.raises(ObjectMissing) as cut:
        fresh.scan(pin).read_all()
    assert cut.value.context["address"] == data

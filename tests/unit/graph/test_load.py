"""Loading files in process: formats, modes, rules, and rows named by file and line."""

from __future__ import annotations

import gzip
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pyarrow as pa  # type: ignore[import-untyped]
import pyarrow.parquet as pq  # type: ignore[import-untyped]
import pytest

from fenceline import open_repository
from fenceline.errors import AlreadyExists, ContractError, FencelineError, NotFound, PublishConflict
from fenceline.graph.bulk import Bulk, published
from fenceline.graph.export import export
from fenceline.graph.graph import Graph
from fenceline.graph.load import load
from fenceline.graph.loading.bad_rows import LoadRefused
from fenceline.graph.loading.result import LoadProgress, TableRows
from fenceline.graph.loading.sources import Source
from fenceline.graph.schema_apply import apply_schema
from fenceline.graph.violations import ExpectedVersionMismatch

SCHEMA = """
node Person { name: String @key  age: I32? @range(0..150)  email: String? @unique  mood: enum(calm, wild)? }
node Note { text: String? }
node Place { land: String  town: String  big: Bool?  area: F64?  @key(land, town) }
edge Knows: Person -> Person @card(0..2) { since: Date?  tags: [String]? }
edge LivesIn: Person -> Place { }
"""
Write = Callable[..., str]


def person(name: str, **data: Any) -> dict[str, Any]:
    return {"type": "Person", "data": {"name": name, **data}}


def knows(source: str, target: str, **data: Any) -> dict[str, Any]:
    return {"edge": "Knows", "from": source, "to": target, "data": data}


@pytest.fixture
def graph(tmp_path: Path) -> Graph:
    made = open_repository(tmp_path / "repo", create=True).graph("main", "graphs/social")
    made.init(SCHEMA)
    return made


def rows(graph: Graph, name: str) -> list[dict[str, Any]]:
    return sorted(graph.table(name).rows(), key=lambda row: str(row["id"]))


def refused(graph: Graph, *sources: str | Source, **options: Any) -> LoadRefused:
    before = graph._repo.head("main").commit.id
    with pytest.raises(LoadRefused) as caught:
        load(graph, sources, **{"on_error": "report", **options})
    assert graph._repo.head("main").commit.id == before
    return caught.value


# --- what is loaded ---------------------------------------------------------------------------------------------


def test_jsonl_fills_several_tables_in_one_commit(graph: Graph, write: Write) -> None:
    before = graph._repo.head("main").seq
    path = write(
        "a.jsonl",
        person("ada", age=36, mood="calm"),
        person("bob"),
        {"type": "Note", "data": {"text": "hi"}},
        {"type": "Place", "data": {"land": "IT", "town": "Rome", "big": True}},
        knows("ada", "bob", since="2026-01-01", tags=["a", "b"]),
        {"edge": "LivesIn", "from": "ada", "to": ["IT", "Rome"], "id": "l1"},
    )
    loaded = load(graph, path)
    assert loaded.engine == "local"
    assert loaded.result is not None
    assert loaded.result.seq == before + 1
    assert loaded.tables["node:Person"] == TableRows(2, 2, 0, 0, 2)
    assert rows(graph, "Person")[0] == {"id": "ada", "name": "ada", "age": 36, "email": None, "mood": "calm"}
    assert rows(graph, "LivesIn") == [{"id": "l1", "src": "ada", "dst": '["IT","Rome"]'}]
    assert rows(graph, "Knows")[0]["tags"] == ["a", "b"]
    assert graph._repo.head("main").commit.message == "Load a.jsonl (append)"


def test_fresh_ids_differ_and_look_like_all_others(graph: Graph, write: Write) -> None:
    notes = [{"type": "Note", "data": {"text": str(n)}} for n in range(500)]
    load(graph, [write("a.jsonl", *notes), write("b.jsonl", *notes)], piece=1000)
    ids = [row["id"] for row in rows(graph, "Note")]
    assert len(set(ids)) == 1000
    assert {len(each) for each in ids} == {26}


def test_pieces_cut_anywhere_read_every_line_once(graph: Graph, write: Write) -> None:
    names = [f"{'é' * (n % 7)}p{n}" for n in range(300)]
    path = write("a.jsonl", *(person(name) for name in names))
    for size in (1, 37, 1000, 10**9):
        load(graph, path, mode="overwrite", piece=size)
        assert sorted(row["name"] for row in rows(graph, "Person")) == sorted(names)


def test_parquet_and_csv_are_of_the_type_they_are_named_after(graph: Graph, tmp_path: Path, write: Write) -> None:
    (tmp_path / "in").mkdir()
    pq.write_table(
        pa.table({"name": ["ada", "bob"], "age": pa.array([36, None], pa.int64())}), tmp_path / "in/Person.parquet"
    )
    csv = write("in/Place.csv", "land,town,big,area", "IT,Rome,true,1.5", '"F,R",Paris,,')
    load(graph, str(tmp_path / "in"))
    assert [row["age"] for row in rows(graph, "Person")] == [36, None]
    assert [(row["land"], row["big"], row["area"]) for row in rows(graph, "Place")] == [
        ("F,R", None, None),
        ("IT", True, 1.5),
    ]
    assert csv.endswith("Place.csv")


def test_columns_can_be_mapped_and_left_out(graph: Graph, write: Write, tmp_path: Path) -> None:
    csv = write("people.csv", "who,years,junk", "ada,36,x")
    load(graph, Source(csv, "Person", {"who": "name", "years": "age", "junk": ""}))
    pq.write_table(pa.table({"who": ["bob"], "junk": [1]}), tmp_path / "more.parquet")
    load(graph, Source(str(tmp_path / "more.parquet"), "Person", {"who": "name", "junk": ""}))
    assert [(row["name"], row["age"]) for row in rows(graph, "Person")] == [("ada", 36), ("bob", None)]
    with pytest.raises(ContractError, match="there is no column 'nope' to map"):
        load(graph, Source(str(tmp_path / "more.parquet"), "Person", {"nope": "name"}))


def test_gzip_is_read(graph: Graph, tmp_path: Path) -> None:
    path = tmp_path / "a.jsonl.gz"
    with gzip.open(path, "wt") as file:
        file.write(json.dumps(person("ada")) + "\n\n" + json.dumps(person("bob", age=-1)) + "\n")
    assert [(row.line, row.property) for row in refused(graph, str(path)).rows] == [(3, "age")]


def test_a_source_that_is_not_there_or_says_nothing(graph: Graph, write: Write) -> None:
    with pytest.raises(NotFound, match="there is no file"):
        load(graph, "nothing/here.jsonl")
    with pytest.raises(ContractError, match="does not say of which type"):
        load(graph, write("things.csv", "a"))
    with pytest.raises(ContractError, match="does not say what it holds"):
        load(graph, write("things.txt", "a"))
    with pytest.raises(ContractError, match="mode is 'replace'"):
        load(graph, write("a.jsonl"), mode="replace")  # type: ignore[arg-type]


# --- modes ------------------------------------------------------------------------------------------------------


def test_merge_changes_what_rows_give_and_inserts_the_rest(graph: Graph, write: Write) -> None:
    load(graph, write("a.jsonl", person("ada", age=36, email="a@x"), person("bob", age=1)))
    path = write(
        "b.jsonl", person("ada", age=37), person("cy", age=5), person("bob", age=None), person("cy", mood="wild")
    )
    for size in (10**6, 1):  # in one piece, and each row in its own
        loaded = load(graph, path, mode="merge", piece=size)
        assert loaded.tables["node:Person"].read == 4
        found = {row["name"]: (row["age"], row["email"], row["mood"]) for row in rows(graph, "Person")}
        assert found == {"ada": (37, "a@x", None), "bob": (None, None, None), "cy": (5, None, "wild")}
    assert loaded.tables["node:Person"] == TableRows(4, 0, 3, 0, 3)


def test_merge_of_equal_ids_takes_the_last_row(graph: Graph, tmp_path: Path) -> None:
    whole = {"email": ["a", "b", "c"], "mood": pa.nulls(3, pa.string()), "age": [1, 2, 3]}
    pq.write_table(pa.table({"name": ["ada", "bob", "ada"], **whole}), tmp_path / "Person.parquet", row_group_size=1)
    load(graph, str(tmp_path / "Person.parquet"), mode="merge", piece=1)
    assert {row["name"]: row["age"] for row in rows(graph, "Person")} == {"ada": 3, "bob": 2}


def test_merge_of_a_new_row_needs_what_is_required(graph: Graph, tmp_path: Path, write: Write) -> None:
    place = {"type": "Place", "data": {"land": "IT", "town": "Rome"}}
    load(graph, write("a.jsonl", place), mode="merge")
    error = refused(graph, write("b.jsonl", {"type": "Place", "data": {"land": "IT"}}), mode="merge")
    assert "Place" in str(error.rows[0])


def test_overwrite_replaces_the_tables_that_the_input_names(graph: Graph, write: Write) -> None:
    load(graph, write("a.jsonl", person("ada"), person("bob"), {"type": "Note", "data": {"text": "stays"}}))
    loaded = load(graph, write("b.jsonl", person("cy")), mode="overwrite")
    assert loaded.tables == {"node:Person": TableRows(1, 1, 0, 2, 1)}
    assert [row["name"] for row in rows(graph, "Person")] == ["cy"]
    assert len(rows(graph, "Note")) == 1


def test_overwrite_may_not_leave_edges_behind(graph: Graph, write: Write) -> None:
    load(graph, write("a.jsonl", person("ada"), person("bob"), knows("ada", "bob")))
    error = refused(graph, write("b.jsonl", person("ada")), mode="overwrite")
    assert error.rows[0].file is None
    assert "there is no Person with that id" in str(error)


def test_overwrite_with_an_empty_file_empties_the_table_it_names(graph: Graph, write: Write) -> None:
    load(graph, write("a.jsonl", person("ada")))
    load(graph, write("Person.csv", "name,age"), mode="overwrite")
    assert rows(graph, "Person") == []


# --- what is refused --------------------------------------------------------------------------------------------

BAD = [
    ('{"type": "Person", "data": {"name": "x", "age": "old"}}', "Person", "age", "'old'"),
    ('{"type": "Person", "data": {"name": "x", "age": 3.5}}', "Person", "age", "3.5"),
    ('{"type": "Person", "data": {"name": "x", "agee": 3}}', "Person", "agee", None),
    ('{"type": "Person", "data": {"name": "x", "mood": "sad"}}', "Person", "mood", "'sad'"),
    ('{"type": "Person", "data": {"age": 1}}', "Person", "name", None),
    ('{"type": "Persona", "data": {"age": 1}}', None, None, None),
    ('{"type": "Person", "name": "x"}', None, None, None),
    ('{"edge": "Knows", "from": "a"}', "Knows", "to", None),
    ('{"data": {"age": 1}}', None, None, None),
    ('{"type": "Person", "data": {"name": "x", "age": NaN}}', None, None, None),
    ('{"type": "Person", "data": {"name": "x", "name": "y"}}', None, None, None),
    ("[1, 2]", None, None, None),
    ("{", None, None, None),
    ('{"type": "Note", "id": 7}', "Note", "id", "7"),
]


@pytest.mark.parametrize(("text", "type_", "property_", "value"), BAD)
def test_a_row_that_cannot_be_read_is_named(
    graph: Graph, write: Write, text: str, type_: str | None, property_: str | None, value: str | None
) -> None:
    path = write("a.jsonl", person("ada"), "", text, person("bob"))
    (row,) = refused(graph, path).rows
    assert (row.file, row.line) == (path, 3)
    assert (row.type, row.property, row.value) == (type_, property_, value)
    assert str(row).startswith(f"{path}:3: ")


def test_rows_of_parquet_and_csv_are_named_too(graph: Graph, tmp_path: Path, write: Write) -> None:
    pq.write_table(
        pa.table({"name": ["a", "b", "c"], "age": [1, 2**40, 3]}), tmp_path / "Person.parquet", row_group_size=1
    )
    (row,) = refused(graph, str(tmp_path / "Person.parquet")).rows
    assert (row.line, row.property, row.value) == (2, "age", str(2**40))
    pq.write_table(pa.table({"land": ["x"], "town": ["y"], "area": [float("nan")]}), tmp_path / "Place.parquet")
    assert refused(graph, str(tmp_path / "Place.parquet")).rows[0].property == "area"
    csv = write("Place.csv", "land,town,big", 'x,"a', 'b",true', "x,y,perhaps", "x,y")
    found = [(row.line, row.property) for row in refused(graph, csv).rows]
    assert found == [(4, "big"), (5, None)]


def test_rules_over_many_rows_name_their_lines(graph: Graph, write: Write) -> None:
    load(graph, write("old.jsonl", person("ada", email="a@x")))
    path = write(
        "new.jsonl",
        person("x", age=200),
        person("bob", email="a@x"),
        person("bob", email="b@x"),
        person("ada"),
        knows("ada", "zed"),
        knows("ada", "x"),
        knows("ada", "bob"),
    )
    error = refused(graph, path)
    told = [str(row).removeprefix(f"{path}:") for row in error.rows]
    assert any(text.startswith("1: ") and "@range" in text for text in told)
    assert any(text.startswith("2: ") and "@unique(email)" in text for text in told)
    assert any(text.startswith("3: ") and "@key" in text and f"also {path}:2" in text for text in told)
    assert any(text.startswith("4: ") and "@key" in text for text in told)
    assert any(text.startswith("5: ") and "there is no Person" in text for text in told)
    assert any(text.startswith("7: ") and "@card(0..2)" in text for text in told)


def test_fail_stops_at_the_first_bad_row_and_report_lists_up_to_most(graph: Graph, write: Write) -> None:
    path = write("a.jsonl", *(person(f"p{n}", age="x") for n in range(30)))
    first = refused(graph, path, on_error="fail")
    assert [row.line for row in first.rows] == [1]
    ten = refused(graph, path, most=10)
    assert ([row.line for row in ten.rows], ten.more) == (list(range(1, 11)), True)
    everything = refused(graph, path)
    assert (len(everything.rows), everything.more) == (30, False)
    assert everything.as_dict()["code"] == "guard.load"


def test_the_next_load_after_a_refused_one_proceeds(graph: Graph, write: Write) -> None:
    refused(graph, write("a.jsonl", person("ada"), knows("ada", "nobody")))
    load(graph, write("b.jsonl", person("ada")))
    assert len(rows(graph, "Person")) == 1


# --- branches, keys, dry runs, progress -------------------------------------------------------------------------


def test_a_dry_run_checks_everything_and_changes_nothing(graph: Graph, write: Write) -> None:
    before = graph._repo.head("main")
    path = write("a.jsonl", person("ada"))
    dry = load(graph, path, dry_run=True)
    assert (dry.result, dry.tables["node:Person"].rows) == (None, 1)
    assert graph._repo.head("main").seq == before.seq
    refused(graph, write("b.jsonl", person("ada", age=-1)), dry_run=True)


def test_a_branch_is_created_for_a_load_and_goes_again_when_it_fails(
    tmp_path: Path, graph: Graph, write: Write
) -> None:
    repo = open_repository(tmp_path / "repo")
    there = repo.graph("dev", "graphs/social")
    with pytest.raises(LoadRefused):
        load(there, write("bad.jsonl", person("ada", age=-1)), source_branch="main")
    assert [head.name for head in repo.branches()] == ["main"]
    load(there, write("a.jsonl", person("ada")), source_branch="main")
    load(there, write("b.jsonl", person("bob")), source_branch="main")
    assert len(rows(there, "Person")) == 2
    assert rows(graph, "Person") == []


def test_a_key_loads_once(graph: Graph, write: Write) -> None:
    path = write("a.jsonl", person("ada"))
    load(graph, path, key="monday")
    again = load(graph, path, key="monday")
    assert again.result is not None
    assert again.result.op == "adopt"
    assert len(rows(graph, "Person")) == 1


def test_progress_tells_phases_and_bytes(graph: Graph, write: Write) -> None:
    seen: list[LoadProgress] = []
    load(graph, write("a.jsonl", person("ada"), person("bob")), piece=30, progress=seen.append)
    phases = list(dict.fromkeys(each.phase for each in seen))
    assert phases == ["read", "check", "write", "publish"]
    assert seen[1].done_bytes > 0
    assert seen[0].total_bytes == sum((len(json.dumps(person("ada"))), len(json.dumps(person("bob"))), 2))


def test_a_load_goes_on_when_another_table_was_published_meanwhile(graph: Graph, write: Write) -> None:
    path, once = write("a.jsonl", person("ada")), list[int]()

    def meanwhile(progress: LoadProgress) -> None:
        if progress.phase == "publish" and not once:
            once.append(1)
            with graph.transaction() as tx:
                tx.insert("Person", {"name": "bob"})

    load(graph, path, progress=meanwhile)
    assert [row["name"] for row in rows(graph, "Person")] == ["ada", "bob"]


def test_a_row_that_collides_with_one_published_meanwhile_is_refused(graph: Graph, write: Write) -> None:
    path, once = write("a.jsonl", person("ada")), list[int]()

    def meanwhile(progress: LoadProgress) -> None:
        if progress.phase == "publish" and not once:
            once.append(1)
            with graph.transaction() as tx:
                tx.insert("Person", {"name": "ada", "age": 1})

    with pytest.raises(LoadRefused, match="@key"):
        load(graph, path, progress=meanwhile)
    assert rows(graph, "Person")[0]["age"] == 1


@pytest.mark.parametrize("change", ["its end is deleted", "a rule is added"])
def test_a_load_and_what_makes_its_rows_wrong_never_both_win(graph: Graph, write: Write, change: str) -> None:
    load(graph, write("old.jsonl", person("ada"), person("bob")))
    path, once = write("a.jsonl", person("cy", age=140), knows("ada", "bob", since="2026-01-01")), list[int]()

    def meanwhile(progress: LoadProgress) -> None:
        if progress.phase == "publish" and not once:
            once.append(1)
            if change == "a rule is added":
                apply_schema(graph, SCHEMA.replace("@range(0..150)", "@range(0..100)"))
            else:
                with graph.transaction() as tx:
                    tx.delete("Person", "bob")

    with pytest.raises(FencelineError) as caught:
        load(graph, path, progress=meanwhile)
    assert "schema changed" in str(caught.value) if change == "a rule is added" else "'bob'" in str(caught.value)
    assert rows(graph, "Knows") == []
    assert "cy" not in [row["name"] for row in rows(graph, "Person")]


def test_the_graph_itself_loads_files_and_says_of_which_type_they_are(graph: Graph, write: Write) -> None:
    csv = write("people.csv", "who,years", "ada,36")
    loaded = graph.load(csv, table="Person", mapping={"who": "name", "years": "age"}, message="people", actor="me")
    assert loaded.tables["node:Person"] == TableRows(1, 1, 0, 0, 1)
    assert graph._repo.head("main").commit.message == "people"
    graph.load(
        [write("more.jsonl", person("bob")), Source(csv, "Person", {"who": "name", "years": "age"})], mode="merge"
    )
    assert [row["name"] for row in rows(graph, "Person")] == ["ada", "bob"]
    assert graph.load(write("b.jsonl", person("cy")), dry_run=True).result is None
    with pytest.raises(LoadRefused):
        graph.load(write("c.jsonl", person("cy", age=-1)), on_error="report", most=5)


def test_work_that_always_comes_late_names_the_table(graph: Graph) -> None:
    def late(bulk: Bulk) -> None:
        pin = bulk.declare("node:Person")
        with graph.transaction() as tx:
            tx.insert("Person", {"name": f"p{pin.published}"})
        schema = bulk.store.schema(pin)
        bulk.publish("node:Person", bulk.store.stage_overwrite(pin, schema))

    with pytest.raises(ExpectedVersionMismatch) as caught:
        published(graph, late, tries=2)
    assert (caught.value.table_key, caught.value.expected, caught.value.actual) == ("node:Person", 2, 3)
    assert isinstance(caught.value.__cause__, PublishConflict)


# --- export -----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("form", ["jsonl", "parquet"])
def test_what_is_exported_loads_again_to_the_same_rows(graph: Graph, write: Write, tmp_path: Path, form: Any) -> None:
    load(
        graph,
        write(
            "a.jsonl",
            person("ada", age=36, email="a@x"),
            person("bob"),
            {"type": "Note", "data": {"text": "zeile\nzwei"}},
            {"type": "Place", "data": {"land": "IT", "town": "Rome", "area": 0.1}},
            knows("ada", "bob", since="2026-01-01", tags=["a"]),
            {"edge": "LivesIn", "from": "ada", "to": {"land": "IT", "town": "Rome"}},
        ),
    )
    before = {name: rows(graph, name) for name in ("Person", "Note", "Place", "Knows", "LivesIn")}
    counts = export(graph.at("main"), str(tmp_path / "out"), format=form)
    assert counts["node:Person"] == 2
    other = open_repository(tmp_path / "other", create=True).graph()
    other.init(SCHEMA)
    load(other, str(tmp_path / "out"))
    assert {name: rows(other, name) for name in before} == before
    load(other, str(tmp_path / "out"), mode="merge")
    assert {name: rows(other, name) for name in before} == before
    with pytest.raises(AlreadyExists):
        export(graph.at("main"), str(tmp_path / "out"), format=form)


def test_nothing_left_of_a_refused_load_but_what_gc_removes(tmp_path: Path, graph: Graph, write: Write) -> None:
    refused(graph, write("a.jsonl", person("ada"), knows("ada", "nobody")))
    repo = open_repository(tmp_path / "repo")
    assert not repo.fsck().problems
    assert list(repo.intents()) == []


def test_errors_are_ours(graph: Graph, tmp_path: Path) -> None:
    (tmp_path / "Person.parquet").write_bytes(b"no parquet")
    with pytest.raises(FencelineError):
        load(graph, str(tmp_path / "Person.parquet"))

"""Each kind of wrong row, in each format, is named by its file and line; nothing is published.

`tests/spark/test_spark_bad_rows.py` loads the same files on Spark.
"""

from __future__ import annotations

import csv
import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pyarrow as pa  # type: ignore[import-untyped]
import pyarrow.parquet as pq  # type: ignore[import-untyped]
import pytest

from fenceline import Repository
from fenceline.graph.loading.bad_rows import LoadRefused
from fenceline.graph.loading.sources import Source

SCHEMA = """
node Person { name: String @key  age: I32? @range(0..150)  email: String? @unique }
edge Knows: Person -> Person { since: Date? }
"""
FORMATS = ("jsonl", "csv", "parquet")
FIRST = {"jsonl": 1, "csv": 2, "parquet": 1}
"""The number of the first row: CSV has a header."""


@dataclass(frozen=True)
class Case:
    """People and edges of a load; one row is wrong."""

    people: Sequence[Mapping[str, Any]]
    edges: Sequence[Mapping[str, Any]]
    table: str
    at: int
    """The place of the wrong row in its file, from 0."""
    property: str | None
    says: str
    readable: bool = True
    """Whether only rules can tell that it is wrong."""


def people(*names: str, **more: Any) -> list[dict[str, Any]]:
    return [{"name": name, **more} for name in names]


def cases(mark: str) -> dict[str, Case]:
    """`mark` keeps those of several formats apart, so that all of them can be loaded at once."""
    a, b, c = (f"{mark}-{each}" for each in "abc")
    two = [*people(a, age="36"), *people(b, age="old")]
    return {
        "wrong type": Case(two, [], "Person", 1, "age", "is not an I32", readable=False),
        "unknown": Case([{"name": c, "agee": "x"}], [], "Person", 0, "agee", "has no property", readable=False),
        "out of range": Case(people(a, b, age="1") + people(c, age="151"), [], "Person", 2, "age", "@range(0..150)"),
        "dangling end": Case(
            people(a, b),
            [{"from": a, "to": b}, {"from": a, "to": f"{mark}-nobody"}],
            "Knows",
            1,
            "dst",
            "there is no Person",
        ),
        "duplicate key": Case(people(a, b, c, b), [], "Person", 3, "name", "is taken by"),
        "not unique": Case([*people(a, email="x"), *people(b, email=mark), *people(c, email=mark)], [], "Person", 2,
                           "email", "@unique(email)"),
    }  # fmt: skip


def written(directory: Path, case: Case, form: str) -> list[Source]:
    """The files of a case. Ages are texts in it, and numbers where a format has them."""
    directory.mkdir(parents=True)
    tables = {"Person": case.people, "Knows": case.edges}
    return [_file(directory, name, rows, form) for name, rows in tables.items() if rows]


def _file(directory: Path, name: str, rows: Sequence[Mapping[str, Any]], form: str) -> Source:
    path = directory / f"{name}.{form}"
    numbers = [{k: int(v) if k == "age" and v.isdigit() else v for k, v in row.items()} for row in rows]
    if form == "jsonl":
        path.write_text("".join(json.dumps(_said(name, row)) + "\n" for row in numbers))
    elif form == "csv":
        names = list(dict.fromkeys(key for row in rows for key in row))
        with open(path, "w", newline="") as file:
            writer = csv.DictWriter(file, names)
            writer.writeheader()
            writer.writerows(rows)
    elif any(isinstance(row.get("age"), str) for row in numbers):  # a number that no column of Arrow's can be
        numbers = [{**row, "age": 36 if isinstance(row["age"], int) else 2**40} for row in numbers]
        pq.write_table(pa.Table.from_pylist(numbers), path, row_group_size=1)
    else:
        pq.write_table(pa.Table.from_pylist([dict(row) for row in numbers]), path, row_group_size=1)
    return Source(str(path), None if form == "jsonl" else name)


def _said(name: str, row: Mapping[str, Any]) -> dict[str, Any]:
    if name == "Knows":
        return {"edge": name, **row}
    return {"type": name, "data": dict(row)}


@pytest.mark.parametrize("form", FORMATS)
@pytest.mark.parametrize("kind", list(cases("")))
def test_a_wrong_row_is_named_by_file_and_line(disk_repo: Repository, tmp_path: Path, form: str, kind: str) -> None:
    graph, case = disk_repo.graph(), cases("x")[kind]
    graph.init(SCHEMA)
    before = disk_repo.head("main").commit.id
    sources = written(tmp_path / "in", case, form)
    with pytest.raises(LoadRefused) as caught:
        graph.load(sources, engine="local", on_error="report")
    wanted = (str(tmp_path / "in" / f"{case.table}.{form}"), case.at + FIRST[form])
    found = [row for row in caught.value.rows if (row.file, row.line) == wanted]
    assert found, caught.value
    assert found[0].property == case.property
    assert case.says in str(found[0])
    assert disk_repo.head("main").commit.id == before
    assert list(disk_repo.intents()) == []
    graph.load(written(tmp_path / "ok", Case(people("ok"), [], "Person", 0, None, ""), form))
    assert graph.table("Person").count() == 1

"""Loads and changes of schema killed around durable effects: all of it is there or none, and the next proceeds."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from fenceline import failpoints, open_repository
from fenceline.graph.load import load
from fenceline.graph.schema_apply import apply_schema

pytestmark = pytest.mark.slow

SCHEMA = "node Person { name: String @key  age: I32? }\nnode Song { title: String @key }\nedge Likes: Person -> Song"
CHILD = """
import sys
import fenceline as fl
from fenceline.graph.load import load
from fenceline.graph.schema_apply import apply_schema
root, source, doing = sys.argv[1:]
graph = fl.open_repository(root, sweep=False).graph()
if doing == "schema":
    apply_schema(graph, open(source).read(), allow_data_loss=True)
else:
    load(graph, source, mode=doing, engine="local")
"""


def prepared(tmp_path: Path) -> tuple[Path, Path, Path]:
    root, first, second = tmp_path / "repo", tmp_path / "a.jsonl", tmp_path / "b.jsonl"
    graph = open_repository(root, create=True).graph()
    graph.init(SCHEMA)
    rows = [{"type": "Person", "data": {"name": f"p{n}", "age": n}} for n in range(3)]
    first.write_text("".join(json.dumps(row) + "\n" for row in rows))
    load(graph, str(first))
    more = [
        {"type": "Person", "data": {"name": "p1", "age": 99}},
        {"type": "Person", "data": {"name": "new"}},
        {"type": "Song", "data": {"title": "Aurora"}},
        {"edge": "Likes", "id": "l", "from": "new", "to": "Aurora"},
    ]
    second.write_text("".join(json.dumps(row) + "\n" for row in more))
    schema = tmp_path / "new.pg"
    schema.write_text(SCHEMA.replace("age: I32?", 'years: I64? @rename_from("age")  note: String?'))
    return root, second, schema


def child(root: Path, source: Path, doing: str, **env: str) -> int:
    command = [sys.executable, "-c", CHILD, str(root), str(source), doing]
    return subprocess.run(command, env={**os.environ, **env}, check=False, capture_output=True).returncode


def counts(root: Path) -> tuple[int, int, int]:
    graph = open_repository(root).graph()
    found = [graph.table(name).count() for name in ("Person", "Song", "Likes")]
    return found[0], found[1], found[2]


POINTS = [
    f"{effect}.{side}"
    for effect in ("intent.declare", "table.write", "table.stage", "verdict.seal", "entry.publish")
    for side in (("before", "after") if os.environ.get("FENCELINE_KILLS") == "full" else ("after",))
]


@pytest.mark.parametrize("point", POINTS)
def test_a_load_killed_anywhere_leaves_all_or_nothing(tmp_path: Path, point: str) -> None:
    root, source, _ = prepared(tmp_path)
    assert child(root, source, "merge", **{failpoints.ENV: f"{point}=crash"}) == -signal.SIGKILL
    repo = open_repository(root)
    found = counts(root)
    assert found in ((3, 0, 0), (4, 1, 1))
    assert found == (4, 1, 1) or not point.startswith(("entry.publish.after", "verdict.seal.after"))
    load(repo.graph(), str(source), mode="merge")
    assert counts(root) == (4, 1, 1)
    assert not repo.fsck().problems
    assert list(repo.intents()) == []


@pytest.mark.parametrize("point", ["table.stage.after", "verdict.seal.before", "entry.publish.after"])
def test_a_change_of_schema_killed_anywhere_leaves_all_or_nothing(tmp_path: Path, point: str) -> None:
    root, _, schema = prepared(tmp_path)
    assert child(root, schema, "schema", **{failpoints.ENV: f"{point}=crash"}) == -signal.SIGKILL
    repo = open_repository(root)
    graph = repo.graph()
    assert graph.schema.table("Person").has("years") == (point == "entry.publish.after")
    apply_schema(graph, schema.read_text())
    assert sorted(row["years"] for row in graph.table("Person").rows()) == [0, 1, 2]
    assert not repo.fsck().problems

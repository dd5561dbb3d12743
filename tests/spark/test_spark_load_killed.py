"""`fenceline graph load --engine spark` killed with SIGKILL around durable effects: all tables or none, and one record.

Each kill needs a driver of its own, and with it a JVM: the short form kills at what decides.
"""

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

pytestmark = pytest.mark.slow

FULL = os.environ.get("FENCELINE_KILLS") == "full"
SCHEMA = "node Person { name: String @key  age: I32? }\nnode Song { title: String @key }\nedge Likes: Person -> Song"
DECISIVE = ["table.stage.after", "verdict.seal.after", "entry.publish.after"]
POINTS = [
    f"{effect}.{side}"
    for effect in ("intent.declare", "table.stage", "disk.persist", "verdict.seal", "entry.publish", "record.create")
    for side in ("before", "after")
]
CHILD = """
import sys
from fenceline.cli.main import app
from fenceline.spark import SparkSettings, get_session

quick = {"spark.driver.extraJavaOptions": "-XX:TieredStopAtLevel=1", "spark.sql.codegen.wholeStage": "false"}
get_session(SparkSettings(master="local[1]", conf={**quick, "spark.driver.memory": "600m"}))
app(["graph", "load", *sys.argv[1:]])
"""


def rows(path: Path, *rows: object) -> str:
    path.write_text("".join(json.dumps(row) + "\n" for row in rows))
    return str(path)


def killed(root: Path, source: str, point: str) -> None:
    """The command, killed at a point; its JVM ends with it, and is ended if it does not."""
    command = [sys.executable, "-c", CHILD, source, "--mode", "merge", "--engine", "spark", "--repo", str(root)]
    env = {**os.environ, failpoints.ENV: f"{point}=crash"}
    child = subprocess.Popen(command, env=env, stdout=subprocess.PIPE, stderr=subprocess.PIPE, start_new_session=True)
    try:
        _, err = child.communicate(timeout=240)
        assert child.returncode == -signal.SIGKILL, f"{point} was not reached: {err.decode()}"
    finally:
        try:
            os.killpg(child.pid, signal.SIGKILL)
        except ProcessLookupError:
            pass  # nothing of it is left


@pytest.mark.timeout(1800 if FULL else 400)
def test_a_load_on_spark_killed_anywhere_leaves_all_or_nothing(tmp_path: Path) -> None:
    first = rows(tmp_path / "a.jsonl", *({"type": "Person", "data": {"name": f"p{n}", "age": n}} for n in range(3)))
    second = rows(
        tmp_path / "b.jsonl",
        {"type": "Person", "data": {"name": "p1", "age": 99}},
        {"type": "Person", "data": {"name": "new"}},
        {"type": "Song", "data": {"title": "Aurora"}},
        {"edge": "Likes", "id": "l", "from": "new", "to": "Aurora"},
    )
    sealed, published = (POINTS.index(point) for point in ("verdict.seal.after", "entry.publish.after"))
    for number, point in enumerate(POINTS):
        if not FULL and point not in DECISIVE:
            continue
        root = tmp_path / f"repo-{number}"
        repo = open_repository(root, create=True)
        repo.graph().init(SCHEMA, actor="test")
        load(repo.graph(), first, actor="test")
        killed(root, second, point)
        for _ in range(2):  # swept once, and once more
            repo = open_repository(root)
            counts = tuple(repo.graph().table(name).count() for name in ("Person", "Song", "Likes"))
            assert counts == ((4, 1, 1) if number >= sealed else (3, 0, 0)), point
            records = [record.kind for record in repo.recoveries() if record.recovered_for != "test"]
            ending = "published" if number >= published else "rolled_forward" if number >= sealed else "aborted"
            assert records == [ending], point
        load(repo.graph(), second, mode="merge")  # the next one proceeds
        assert repo.graph().table("Person").rows("name = 'p1'")[0]["age"] == 99
        assert list(repo.intents()) == []
        repo.gc(grace=0)
        assert repo.fsck().clean

"""Writers killed at their durable effects on a real S3 server: the next ones find all of it or nothing.

In a short form: the points on either side of every change of state. FENCELINE_KILLS=full takes all.
"""

from __future__ import annotations

import os

import pytest
from harness import assert_sound, content, hits, killed, occurrences, run, state
from s3_server import S3Server

import fenceline as fl

pytestmark = pytest.mark.slow

TELLING = (
    "intent.create.after@1",
    "stage.file.after@1",
    "verdict.seal.before@1",
    "verdict.seal.after@1",
    "entry.publish.before@1",
    "entry.publish.after@1",
    "record.create.after@1",
)


@pytest.fixture
def environment(s3: S3Server, monkeypatch: pytest.MonkeyPatch) -> None:
    """For this process and its children."""
    for name, value in s3.environment.items():
        monkeypatch.setenv(name, value)


def prepared(url: str, parts: str) -> fl.Repository:
    repo = fl.open_repository(url, create=True)
    with repo.transaction("main", message="start", actor="test") as tx:
        tx.write("old/changed.txt", b"before")
        tx.write("old/removed.txt", b"before")
        tx.put_dataset(parts, "data", partition_by=["day"])
    return repo


@pytest.fixture
def parts_directory(tmp_path_factory: pytest.TempPathFactory) -> str:
    root = tmp_path_factory.mktemp("parts")
    (root / "day=1").mkdir()
    (root / "day=1" / "first.parquet").write_bytes(b"first")
    return str(root)


@pytest.mark.usefixtures("environment")
def test_a_writer_killed_anywhere_on_s3_is_wholly_visible_or_wholly_absent(
    s3_url: str, parts_directory: str, tmp_path_factory: pytest.TempPathFactory
) -> None:
    """INV-7, 9, 10: and the same key then applies exactly once."""
    before = content(prepared(f"{s3_url}/whole", parts_directory))
    points = occurrences(hits(["everything", f"{s3_url}/whole"], tmp_path_factory.mktemp("log") / "log"))
    after = content(fl.open_repository(f"{s3_url}/whole", mode="r"))
    assert set(TELLING) <= set(points)
    sealed = points.index("verdict.seal.after@1")
    for point in points if os.environ.get("FENCELINE_KILLS") == "full" else TELLING:
        url = f"{s3_url}/{point.replace('@', '-')}"
        prepared(url, parts_directory)
        assert killed(["everything", url], f"{point}=crash"), f"{point} was not reached"
        first = fl.open_repository(url)
        assert content(first) == (after if points.index(point) >= sealed else before)
        left = state(first)
        assert left["intents"] == []
        assert state(fl.open_repository(url)) == left
        told = run(["everything", url])
        assert told["outcome"] == "applied"
        repo = fl.open_repository(url)
        assert content(repo) == after
        assert sum(item.commit.message == "everything" for item in repo.log("main")) == 1
        repo.gc(grace=0)
        assert_sound(repo)
        assert repo.plan_gc().objects == ()


@pytest.mark.usefixtures("environment")
def test_four_processes_publish_on_s3_and_nothing_is_lost(s3_url: str) -> None:
    """One branch, rebases: every process's files are there in the end."""
    from harness import spawn

    fl.open_repository(s3_url, create=True)
    writers = [spawn(["write", s3_url, f"from-{n}.txt", str(n), "rebase"]) for n in range(4)]
    for writer in writers:
        _, err = writer.communicate(timeout=120)
        assert writer.returncode == 0, err
    repo = fl.open_repository(s3_url)
    assert content(repo) == {f"from-{n}.txt": str(n).encode() for n in range(4)}
    assert repo.head("main").seq == 5

"""`repo.at(ref)`: one commit, read the same way wherever the branch goes."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from urllib.parse import unquote, urlsplit

import pandas as pd  # type: ignore[import-untyped]
import pytest

from fenceline import CommitView, ConfigError, Repository
from fenceline.errors import ContractError, NotFound, ObjectDamaged, ObjectMissing

Put = Callable[..., str]
Parts = Callable[..., str]


def opened(uri: str) -> bytes:
    return Path(unquote(urlsplit(uri).path)).read_bytes()


def test_a_view_stays_at_its_commit(memory_repo: Repository, put: Put) -> None:
    first = put(memory_repo, {"a": b"1", "d/b": b"2"})
    view = memory_repo.at("main")
    put(memory_repo, {"a": b"changed", "d/b": None})
    assert view.commit.id == first
    assert view.read("a") == b"1"
    assert [entry.path for entry in view.list()] == ["a", "d/b"]
    assert [entry.path for entry in view.list("d")] == ["d/b"]
    assert memory_repo.at().read("a") == b"changed"


def test_every_kind_of_ref(memory_repo: Repository, put: Put) -> None:
    commits = [put(memory_repo, {"a": str(n).encode()}) for n in range(3)]
    memory_repo.create_tag("v1", commits[0])
    memory_repo.create_branch("dev", commits[1])
    found = {ref: memory_repo.at(ref) for ref in ("main", "main~2", "dev", "dev~1", "v1", commits[1], commits[1][:10])}
    assert {ref: view.read("a") for ref, view in found.items()} == {
        "main": b"2",
        "main~2": b"0",
        "dev": b"1",
        "dev~1": b"0",
        "v1": b"0",
        commits[1]: b"1",
        commits[1][:10]: b"1",
    }
    assert [view.branch for view in found.values()] == ["main", "main", "dev", "dev", "main", "main", "main"]


def test_what_is_not_there_is_named(memory_repo: Repository, put: Put) -> None:
    put(memory_repo, {"a": b"1"})
    with pytest.raises(NotFound, match="nowhere"):
        memory_repo.at("nowhere")
    view = memory_repo.at("main")
    for look in (view.read, view.uris):
        with pytest.raises(NotFound, match="there is no 'b' in main"):
            look("b")


def test_uris_of_files_and_directories(disk_repo: Repository, put: Put) -> None:
    put(disk_repo, {"d/a": b"1", "d/e/b c%.txt": b"2", "f": b"3"})
    view = disk_repo.at("main")
    assert [opened(uri) for uri in view.uris("f")] == [b"3"]
    assert [opened(uri) for uri in view.uris("d/")] == [b"1", b"2"]
    assert len(view.uris()) == 3
    assert all(uri.startswith("file:///") and " " not in uri for uri in view.uris())


def test_uris_of_a_dataset_are_its_live_parts(disk_repo: Repository, parts: Parts) -> None:
    """Other engines take them as they are: names of partitions are not escaped."""
    for day, song in (("2026-01-01", "Aurora"), ("2026-01-02", "Borealis"), ("2026-01-02", "Corona")):
        local = parts({})
        directory = Path(local) / f"day={day}"
        directory.mkdir()
        pd.DataFrame({"song": [song]}).to_parquet(directory / "part-0.parquet")
        with disk_repo.transaction() as tx:
            tx.put_dataset(local, "plays", mode="overwrite_partitions", partition_by=["day"])
    found = disk_repo.at("main").uris("plays")
    assert [uri.rpartition("/day=")[2] for uri in found] == ["2026-01-01/part-0.parquet", "2026-01-02/part-0.parquet"]
    assert [song for uri in found for song in pd.read_parquet(uri)["song"]] == ["Aurora", "Corona"]
    assert len(disk_repo.at("main~1").uris("plays")) == 2
    with pytest.raises(ContractError, match="plays/ is a dataset"):
        disk_repo.at("main").read("plays")


def test_uris_of_data_in_place_are_looked_at(disk_repo: Repository, tmp_path: Path) -> None:
    outside = tmp_path / "lake"
    outside.mkdir()
    (outside / "a.csv").write_text("1")
    with disk_repo.transaction() as tx:
        tx.import_in_place(outside.as_uri(), "raw")
    view = disk_repo.at("main")
    assert view.uris("raw") == [(outside / "a.csv").as_uri()]
    (outside / "a.csv").write_text("changed")
    with pytest.raises(ObjectDamaged, match="changed since"):
        view.uris("raw")
    (outside / "a.csv").unlink()
    with pytest.raises(ObjectMissing, match="is gone"):
        view.uris("raw")


def test_a_store_without_files_says_so(memory_repo: Repository, put: Put) -> None:
    put(memory_repo, {"a": b"1"})
    with pytest.raises(ConfigError, match="cannot open"):
        memory_repo.at("main").uris("a")


def test_without_pyspark_the_error_says_what_to_install(tmp_path: Path) -> None:
    script = f"""
import sys
sys.modules["pyspark"] = None
import fenceline as fl
view = fl.open_repository({str(tmp_path / "r")!r}, create=True).at("main")
try:
    view.spark()
except fl.ConfigError as error:
    assert error.hint == "pip install 'fenceline[spark]'", error.hint
else:
    raise SystemExit("no error")
"""
    subprocess.run([sys.executable, "-c", script], check=True)


def test_a_view_shows_what_it_is(memory_repo: Repository) -> None:
    view: CommitView = memory_repo.at("main")
    assert repr(view) == f"CommitView('main', commit={view.commit.id[:12]!r})"

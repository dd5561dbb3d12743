"""Table versions and the repository: what keeps them, who deletes them, and that nothing pinned ever goes."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import pyarrow as pa  # type: ignore[import-untyped]
import pytest

import fenceline as fl
from fenceline import Retention
from fenceline.errors import AlreadyExists, ConfigError, ConflictError
from fenceline.graph.following import FollowPins
from fenceline.graph.pins import Pin
from fenceline.graph.storage import TableStore, write_fragments
from fenceline.repo.native import local
from fenceline.repo.native.local import LocalObjects
from fenceline.txn.intent import Verdict
from fenceline.txn.transaction import Transaction

SCHEMA = pa.schema([pa.field("id", pa.string(), nullable=False), ("age", pa.int64())])
PERSON = "graphs/social/tables/node.Person.pin"
EXPIRE = Retention(keep=3, expire=True)


def people(numbers: Iterable[int]) -> pa.Table:
    listed = list(numbers)
    return pa.table({"id": [f"p{n}" for n in listed], "age": listed}, schema=SCHEMA)


@dataclass
class Graph:
    """A repository with tables, by hand: what graph transactions will do."""

    repo: fl.Repository
    objects: LocalObjects

    @property
    def store(self) -> TableStore:
        return TableStore(self.objects)

    @contextmanager
    def writing(self, *tables: str) -> Iterator[tuple[Transaction, TableStore]]:
        with self.repo.transaction("main") as tx:
            for table in tables:
                tx._try.declare_table(table)
            yield tx, self.store.noting(tx._try.wrote)

    def pin(self, ref: str = "main", path: str = PERSON) -> Pin:
        return Pin.from_bytes(self.repo.read(ref, path), path)

    def create(self, table: str = "t1", path: str = PERSON) -> Pin:
        with self.writing(table) as (tx, store):
            pin = store.create(table, SCHEMA)
            tx.write(path, pin.to_bytes())
        return pin

    def append(self, numbers: Iterable[int], path: str = PERSON) -> Pin:
        base = self.pin(path=path)
        with self.writing(base.table) as (tx, store):
            pin = store.stage_append(base, people(numbers)).published_after(base)
            tx.write(path, pin.to_bytes())
        return pin

    def files(self) -> set[str]:
        return {info.key for info in self.objects.list("tables/")}

    def rows(self, pin: Pin) -> int:
        return int(self.store.scan(pin).read_all().num_rows)


@pytest.fixture
def graph(tmp_path: Path) -> Graph:
    return opened(tmp_path / "repo")


def opened(root: Path) -> Graph:
    return Graph(fl.open_repository(root, create=True), LocalObjects(root))


# --- taking back ------------------------------------------------------------------------------------------------


def test_a_cancelled_transaction_takes_back_what_it_staged(graph: Graph) -> None:
    graph.create()
    pin = graph.append(range(5))
    before = graph.files()
    with pytest.raises(ZeroDivisionError), graph.writing("t1", "t2") as (tx, store):  # noqa: PT012
        staged = store.stage_append(pin, people(range(5, 10)))
        staged = store.stage_index(store.stage_delete(staged, ids=["p1"]), "id", "btree")
        other = store.stage_append(store.create("t2", SCHEMA), people([1]))
        tx.write(PERSON, staged.to_bytes())
        tx.write("tables/node.Other.pin", other.to_bytes())
        assert graph.files() > before
        1 / 0
    assert graph.files() == before
    assert not Path(graph.objects.path("tables/t2.lance")).exists()
    assert graph.rows(pin) == 5


@pytest.mark.parametrize("when", ["before the seal", "after the seal"])
def test_a_transaction_that_lost_takes_back_what_it_staged(
    graph: Graph, when: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    graph.create()
    base = graph.append(range(5))
    with pytest.raises(ConflictError), graph.writing("t1") as (tx, store):  # noqa: PT012
        tx.read(PERSON)
        lost = store.stage_append(base, people([50]))
        tx.write(PERSON, lost.to_bytes())
        assert set(graph.store.own_files(base, lost)) <= graph.files()
        if when == "before the seal":
            graph.append([60])
        else:
            confirm = tx._confirm
            monkeypatch.setattr(tx, "_confirm", lambda verdict: graph.append([60]) and confirm(verdict))
    assert graph.rows(graph.pin()) == 6
    assert graph.files() == {
        file.key for ref in ("main", "main~1", "main~2") for file in graph.store.files_of(graph.pin(ref))
    }
    assert [record.kind for record in graph.repo.recoveries()].count("rolled_back") == (when == "after the seal")


def test_fragments_are_handed_over_to_the_next_execution(graph: Graph) -> None:
    graph.create()
    start = graph.append(range(5))
    fragments = write_fragments(graph.store.place(start), people([50]), SCHEMA)
    with graph.writing("t1") as (tx, store):
        with pytest.raises(ZeroDivisionError), graph.writing("t1") as (first, mine):  # noqa: PT012
            keys = mine.fragment_files("t1", fragments)
            first._try.wrote(keys)
            mine.stage_append(start, fragments=fragments)
            tx._try.wrote(keys)
            first._try.hand_over(keys)
            1 / 0
        tx.write(PERSON, store.rebase_append(start, fragments).to_bytes())
    assert graph.rows(graph.pin()) == 6
    assert not graph.repo.gc(grace=0).objects, "the version of the first one went with it"
    assert graph.rows(graph.pin()) == 6


def test_fragments_that_are_published_are_not_taken_back_by_who_tried_them_again(graph: Graph) -> None:
    graph.create()
    base = graph.pin()
    fragments = write_fragments(graph.store.place(base), people(range(5)), SCHEMA)
    with graph.writing("t1") as (tx, store):
        tx.write(PERSON, store.stage_append(base, fragments=fragments).to_bytes())
    for stage in (TableStore.rebase_append, lambda s, pin, f: s.stage_overwrite(pin, SCHEMA, fragments=f)):
        with pytest.raises(AlreadyExists), graph.writing("t1") as (tx, store):
            stage(store, graph.pin(), fragments)
    assert graph.rows(graph.pin()) == 5


CHILD = """
import sys
from pathlib import Path
sys.path.insert(0, {tests!r})
from test_graph_gc import PERSON, opened, people
graph = opened(Path({root!r}))
base = graph.pin()
with graph.writing("t1", "t2") as (tx, store):
    staged = store.stage_index(store.stage_append(base, people(range(5, 10))), "id", "btree")
    tx.write(PERSON, staged.published_after(base).to_bytes())
    tx.write("tables/node.Other.pin", store.create("t2", people([]).schema).to_bytes())
"""


def run_child(root: Path, failpoints: str) -> int:
    code = CHILD.format(tests=str(Path(__file__).parent), root=str(root))
    env = {**os.environ, "FENCELINE_FAILPOINTS": failpoints}
    return subprocess.run([sys.executable, "-c", code], env=env, check=False, timeout=120).returncode


@pytest.mark.slow
@pytest.mark.parametrize(
    "point",
    [
        "table.write.before@1",
        "table.write.after@1",
        "table.stage.before@1",
        "table.stage.after@1",
        "table.write.after@2",
        "table.stage.after@2",
        "table.create.before",
        "table.create.after",
        "disk.persist.before",
        "verdict.seal.before",
        "verdict.seal.after",
        "entry.publish.after",
    ],
)
def test_a_killed_writer_leaves_the_table_as_it_was_and_gc_removes_the_rest(point: str, tmp_path: Path) -> None:
    root = tmp_path / "repo"
    graph = opened(root)
    graph.create()
    pin = graph.append(range(5))
    assert run_child(root, f"{point}=crash") == -signal.SIGKILL
    held = {info.key for info in graph.repo.gc(grace=0).objects if info.key.startswith("tables/")}
    assert held == set(), "its intent is unfinished: the tables that it declared are left alone"
    after = opened(root)  # sweeps
    sealed = point in ("verdict.seal.after", "entry.publish.after")
    assert after.rows(after.pin()) == (10 if sealed else 5)
    assert (after.pin() == pin) != sealed
    after.repo.gc(grace=0)
    expected = {file.key for file in after.store.files_of(after.pin())}
    if sealed:
        other = after.pin(path="tables/node.Other.pin")
        expected |= {file.key for p in (pin, other) for file in after.store.files_of(p)}
    else:
        assert not Path(after.objects.path("tables/t2.lance")).exists()
        expected |= {file.key for file in after.store.files_of(after.pin("main~1"))}
    assert after.files() == expected
    assert after.repo.fsck().clean
    assert after.append([77]).rows == (11 if sealed else 6)


# --- garbage collection -----------------------------------------------------------------------------------------


def test_what_no_pin_names_is_collected_and_what_one_names_stays(graph: Graph) -> None:
    graph.create()
    pins = [graph.append(range(n * 10, n * 10 + 10)) for n in range(4)]
    stray = graph.store.stage_delete(graph.store.stage_append(pins[-1], people([99])), ids=["p1"])
    unpinned = set(graph.store.own_files(pins[-1], stray))
    plan = graph.repo.gc(grace=0)
    assert unpinned < {info.key for info in plan.objects}
    assert [graph.rows(pin) for pin in pins] == [10, 20, 30, 40]
    assert graph.files() == {file.key for pin in pins for file in graph.store.files_of(pin)}
    assert graph.repo.gc(grace=0).objects == ()
    assert graph.repo.fsck().clean


def test_a_table_is_left_alone_while_a_transaction_writes_into_it(graph: Graph) -> None:
    graph.create()
    graph.create("t2", "tables/node.Other.pin")
    base = graph.append(range(5))
    graph.store.stage_append(graph.pin(path="tables/node.Other.pin"), people([1]))  # garbage in a table nobody declared
    with graph.writing("t1") as (tx, store):
        fragments = write_fragments(store.place(base), people([50]), SCHEMA)
        staged = store.stage_append(base, people([60]))
        gone = {info.key.split("/")[1] for info in graph.repo.gc(grace=0).objects}
        assert gone == {"t2.lance"}
        final = store.stage_append(staged, fragments=fragments)
        tx.write(PERSON, final.to_bytes())
    assert graph.rows(graph.pin()) == 7


def test_expired_commits_give_up_their_versions_and_the_kept_ones_stay_readable(graph: Graph) -> None:
    graph.create()
    pins = [graph.append([n]) for n in range(8)]
    graph.repo.create_tag("early", "main~6")
    graph.repo.gc(EXPIRE, grace=0)
    kept = [pins[1], *pins[-3:]]
    assert [graph.rows(pin) for pin in kept] == [2, 6, 7, 8]
    assert graph.pin("early") == pins[1]
    for pin in (pins[0], *pins[2:5]):
        assert f"tables/t1.lance/_versions/d{pin.version}.manifest" not in graph.files()
    assert graph.repo.fsck().clean
    assert graph.append([100]).rows == 9


def test_a_dropped_table_disappears_with_its_directories(graph: Graph) -> None:
    graph.create()
    graph.create("t2", "tables/node.Other.pin")
    graph.append(range(5), "tables/node.Other.pin")
    for n in range(4):
        with graph.repo.transaction("main") as tx:
            tx.write("n.txt", str(n))
            if n == 0:
                tx.delete("tables/node.Other.pin")
    graph.repo.gc(EXPIRE, grace=0)
    assert not Path(graph.objects.path("tables/t2.lance")).exists()
    assert graph.rows(graph.pin()) == 0


def test_empty_index_directories_go_and_the_table_stays(graph: Graph) -> None:
    graph.create()
    pin = graph.append(range(5))
    graph.store.stage_index(pin, "id", "btree")
    indices = Path(graph.objects.path("tables/t1.lance/_indices"))
    assert len(list(indices.iterdir())) == 1
    graph.repo.gc(grace=0)
    assert list(indices.iterdir()) == []
    assert graph.rows(graph.pin()) == 5


def test_a_file_that_only_ends_like_a_pin_is_a_file(graph: Graph) -> None:
    graph.create()
    with graph.repo.transaction("main") as tx:
        tx.write("rolling.pin", b"not json")
        tx.write("other.pin", b'{"table": "t1"}')
    assert graph.repo.gc(grace=0).objects == ()
    assert graph.repo.fsck().clean


def test_each_pin_is_followed_once(graph: Graph, monkeypatch: pytest.MonkeyPatch) -> None:
    graph.create()
    graph.append(range(5))
    for n in range(10):
        with graph.repo.transaction("main") as tx:
            tx.write("n.txt", str(n))
    graph.store.stage_append(graph.pin(), people([99]))
    followed: list[bytes] = []
    files = FollowPins.files

    def counted(self: FollowPins, content: bytes) -> Iterable[str]:
        followed.append(content)
        return files(self, content)

    monkeypatch.setattr(FollowPins, "files", counted)
    assert graph.repo.gc(grace=0).objects != ()
    assert len(followed) == 2


def test_without_the_engine_nothing_is_deleted(graph: Graph, monkeypatch: pytest.MonkeyPatch) -> None:
    graph.create()
    graph.store.stage_append(graph.pin(), people([99]))
    before = graph.files()
    monkeypatch.setitem(sys.modules, "fenceline.graph.storage", None)
    monkeypatch.setattr(FollowPins, "_store", lambda self: None)
    with pytest.raises(ConfigError, match="fenceline\\[graph\\]"):
        graph.repo.gc(grace=0)
    assert graph.files() == before
    report = graph.repo.fsck()
    assert report.clean
    assert any("tables were not verified" in note for note in report.notes)


# --- fsck -------------------------------------------------------------------------------------------------------


def broken_graph(graph: Graph) -> tuple[Pin, Pin]:
    graph.create()
    first = graph.append(range(5))
    base = graph.pin()
    with graph.writing("t1") as (tx, store):
        staged = store.stage_delete(store.stage_append(base, people(range(5, 10))), ids=["p1"])
        staged = store.stage_index(staged, "id", "btree").published_after(base)
        tx.write(PERSON, staged.to_bytes())
    return first, staged


@pytest.mark.parametrize("area", ["data", "_deletions", "_versions", "_transactions"])
def test_fsck_names_the_missing_file_the_table_and_the_commit(graph: Graph, area: str) -> None:
    first, second = broken_graph(graph)
    assert graph.repo.fsck().clean
    doomed = next(key for key in graph.store.own_files(first, second) if f"/{area}/" in key)
    graph.objects.delete([doomed])
    report = graph.repo.fsck(content=False)
    assert [problem.address for problem in report.problems] == [doomed]
    said = str(report.problems[0])
    assert "is missing" in said
    assert f"branch main at {graph.repo.head().commit.id[:12]}: the table of {PERSON}" in said
    assert len(report.problems[0].breaks) == 1, "the commit before is sound"


def test_fsck_notices_cut_off_files_and_lost_index_files(graph: Graph) -> None:
    first, second = broken_graph(graph)
    own = graph.store.own_files(first, second)
    data = next(key for key in own if "/data/" in key)
    index = [key for key in own if "/_indices/" in key]
    size = len(graph.objects.get(data))
    graph.objects.put(data, graph.objects.get(data)[:-10])
    graph.objects.delete(index[:1])
    found = {problem.address: problem.what for problem in graph.repo.fsck().problems}
    assert found[data] == f"has {size - 10} bytes instead of {size}"
    assert found[index[0].rpartition("/")[0] + "/"].startswith("has less than")


@pytest.mark.parametrize("what", ["version", "pin"])
def test_gc_deletes_nothing_of_a_table_that_it_cannot_follow(graph: Graph, what: str) -> None:
    first, second = broken_graph(graph)
    graph.store.stage_append(second, people([99]))
    manifest = f"tables/t1.lance/_versions/d{first.version}.manifest"
    entry = next(entry for entry in graph.repo.list("main~1") if entry.path == PERSON)
    graph.objects.delete([manifest if what == "version" else entry.address])
    before = graph.files()
    fl.open_repository(graph.objects.path("")).gc(grace=0)
    assert graph.files() == before


# --- durability -------------------------------------------------------------------------------------------------


def test_every_file_and_directory_of_a_version_is_fsynced_before_the_seal(
    graph: Graph, monkeypatch: pytest.MonkeyPatch
) -> None:
    graph.create()
    base = graph.append(range(5))
    synced: list[str] = []
    real = local._fsync_path

    def sync(path: str) -> None:
        synced.append(path)
        real(path)

    monkeypatch.setattr(local, "_fsync_path", sync)
    with graph.writing("t1") as (tx, store):
        staged = store.stage_index(store.stage_append(base, people([50])), "id", "btree")
        staged = store.stage_delete(staged, ids=["p1"])
        tx.write(PERSON, staged.to_bytes())
        before_seal: list[int] = []
        seal = tx._try.seal

        def sealing(verdict: Verdict) -> None:
            before_seal.append(len(synced))
            seal(verdict)

        monkeypatch.setattr(tx._try, "seal", sealing)
    early = set(synced[: before_seal[0]])
    own = [graph.objects.path(key) for key in graph.store.own_files(base, staged)]
    assert len(own) >= 6
    assert set(own) <= early
    assert {os.path.dirname(path) for path in own} <= early
    assert {graph.objects.path(f"tables/t1.lance/{name}") for name in ("_indices", "_deletions")} <= early


def test_persist_alone_makes_a_version_durable(graph: Graph, monkeypatch: pytest.MonkeyPatch) -> None:
    pin = graph.store.stage_append(graph.store.create("t9", SCHEMA), people([1]))
    synced: list[str] = []
    monkeypatch.setattr(local, "_fsync_path", synced.append)
    graph.store.persist(pin)
    assert {graph.objects.path(file.key) for file in graph.store.files_of(pin)} <= set(synced)
    assert graph.objects.path("tables") in synced

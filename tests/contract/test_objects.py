"""The object port's contract, the same for every adapter."""

from __future__ import annotations

import os
import random
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from s3_server import ENDPOINT_ENV

from fenceline.errors import ObjectExists, ObjectMissing, Outcome
from fenceline.repo.native.local import LocalObjects
from fenceline.repo.native.objects import ObjectStore
from fenceline.repo.native.remote.objects import RemoteObjects
from fenceline.testing import MemoryObjects


def local(directory: Path) -> ObjectStore:
    return LocalObjects(directory / "store")


def memory(directory: Path) -> ObjectStore:
    return MemoryObjects()


ADAPTERS = [local, memory]  # one line more for every adapter that needs no server


@pytest.fixture(params=[*ADAPTERS, "s3"], ids=["local", "memory", "s3"])
def store(request: pytest.FixtureRequest, tmp_path: Path) -> ObjectStore:
    if request.param == "s3":
        found: ObjectStore = request.getfixturevalue("s3_objects")
        return found
    make: Callable[[Path], ObjectStore] = request.param
    return make(tmp_path)


def keys(store: ObjectStore, prefix: str = "") -> list[str]:
    return [info.key for info in store.list(prefix)]


# --- create: the conditional write ------------------------------------------------------------------------------


def test_create_writes_a_free_key_and_refuses_a_taken_one(store: ObjectStore) -> None:
    """INV-1: what a key holds is never written over."""
    store.create("refs/main/0000000001", b"first")
    with pytest.raises(ObjectExists) as raised:
        store.create("refs/main/0000000001", b"second")
    assert raised.value.outcome is Outcome.NOT_APPLIED
    assert store.get("refs/main/0000000001") == b"first"
    assert keys(store) == ["refs/main/0000000001"]


def test_create_refuses_a_key_that_was_put(store: ObjectStore) -> None:
    store.put("a", b"put")
    with pytest.raises(ObjectExists):
        store.create("a", b"created")
    assert store.get("a") == b"put"


def test_a_deleted_key_can_be_created_again(store: ObjectStore) -> None:
    store.create("a", b"1")
    store.delete(["a"])
    store.create("a", b"2")
    assert store.get("a") == b"2"


def test_exactly_one_of_sixteen_threads_creates_a_key(store: ObjectStore) -> None:
    """The compare-and-set that every branch move rests on (section 4)."""
    rounds = 1 if isinstance(store, RemoteObjects) else 5  # a contested lock of SeaweedFS takes seconds
    for round_ in range(rounds):
        barrier = threading.Barrier(16)

        def race(n: int, key: str = f"k/{round_}", barrier: threading.Barrier = barrier) -> bool:
            barrier.wait()
            try:
                store.create(key, str(n).encode())
                return True
            except ObjectExists:
                return False

        with ThreadPoolExecutor(16) as pool:
            won = [n for n, first in enumerate(pool.map(race, range(16))) if first]
        assert len(won) == 1
        assert store.get(f"k/{round_}") == str(won[0]).encode()
    assert len(keys(store)) == rounds


RACER = """
import sys
from fenceline.errors import ObjectExists
from fenceline.repo.native.local import LocalObjects
store = LocalObjects(sys.argv[1])
print("ready", flush=True)
sys.stdin.readline()
won = []
for n in range(20):
    try:
        store.create(f"k/{n}", sys.argv[2].encode())
        won.append(n)
    except ObjectExists:
        pass
print(*won)
"""


def test_exactly_one_of_eight_processes_creates_each_key_on_local_disk(tmp_path: Path) -> None:
    """The same between processes, where no lock of ours could help."""
    root = tmp_path / "store"
    racers = [
        subprocess.Popen(
            [sys.executable, "-c", RACER, str(root), str(n)], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
        )
        for n in range(8)
    ]
    for racer in racers:
        assert racer.stdout is not None
        assert racer.stdout.readline() == "ready\n"
    for racer in racers:
        assert racer.stdin is not None
        racer.stdin.write("go\n")
        racer.stdin.flush()
    won = {n: [int(k) for k in racer.communicate(timeout=60)[0].split()] for n, racer in enumerate(racers)}
    assert sorted(k for wins in won.values() for k in wins) == list(range(20))
    store = LocalObjects(root)
    for n, wins in won.items():
        assert {store.get(f"k/{k}") for k in wins} <= {str(n).encode()}
    assert keys(store, "tmp/") == []


# --- put --------------------------------------------------------------------------------------------------------


def test_put_replaces_the_whole_object(store: ObjectStore) -> None:
    store.put("beats/a", b"a long first value")
    store.put("beats/a", b"short")
    assert store.get("beats/a") == b"short"
    assert [(i.key, i.size) for i in store.list("")] == [("beats/a", 5)]


def test_put_takes_a_stream_of_any_size(store: ObjectStore) -> None:
    piece = random.Random(1).randbytes(256 << 10)

    def pieces() -> Iterator[bytes]:
        for _ in range(40):
            yield piece
        yield b""
        yield b"end"

    store.put("big", pieces())
    info = store.stat("big")
    assert info is not None
    assert info.size == 40 * len(piece) + 3
    assert store.get("big", 39 * len(piece)) == piece + b"end"


def test_put_of_an_empty_stream_is_an_empty_object(store: ObjectStore) -> None:
    store.put("empty", iter(()))
    assert store.get("empty") == b""


@pytest.mark.parametrize("before", [None, b"old"])
def test_a_stream_that_breaks_leaves_what_was_there(store: ObjectStore, before: bytes | None) -> None:
    """INV-7: a part of an object is never seen under its key, nor left anywhere else."""
    if before is not None:
        store.put("f", before)

    def broken() -> Iterator[bytes]:
        yield b"half of "
        raise ValueError("the source broke")

    with pytest.raises(ValueError, match="the source broke"):
        store.put("f", broken())
    assert keys(store) == ([] if before is None else ["f"])
    if before is not None:
        assert store.get("f") == before


def test_readers_of_a_key_that_is_replaced_see_the_old_whole_or_the_new_whole(store: ObjectStore) -> None:
    """Hints and beats are read while they are written."""
    store.put("hints/refs/main", b"old value")
    seen = []

    def slow() -> Iterator[bytes]:
        yield b"first half, "
        seen.append(store.get("hints/refs/main"))
        yield b"second half"

    store.put("hints/refs/main", slow())
    assert seen == [b"old value"]
    assert store.get("hints/refs/main") == b"first half, second half"
    assert keys(store) == ["hints/refs/main"]


# --- get and stat -----------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("start", "length", "expected"),
    [
        (0, None, b"0123456789"),
        (3, None, b"3456789"),
        (0, 4, b"0123"),
        (3, 4, b"3456"),
        (8, 4, b"89"),
        (10, None, b""),
        (10, 1, b""),
        (99, None, b""),
        (99, 5, b""),
        (4, 0, b""),
    ],
)
def test_get_reads_the_range_that_was_asked_for(
    store: ObjectStore, start: int, length: int | None, expected: bytes
) -> None:
    store.put("digits", b"0123456789")
    assert store.get("digits", start, length) == expected


@pytest.mark.parametrize("length", [None, 0, 5])
def test_an_empty_object_reads_as_nothing(store: ObjectStore, length: int | None) -> None:
    store.create("empty", b"")
    assert store.get("empty", 0, length) == b""
    info = store.stat("empty")
    assert info is not None
    assert (info.key, info.size) == ("empty", 0)


def test_a_missing_key_is_named(store: ObjectStore) -> None:
    with pytest.raises(ObjectMissing) as raised:
        store.get("files/x/y")
    assert raised.value.context["address"] == "files/x/y"
    assert store.stat("files/x/y") is None


def test_what_only_has_keys_below_it_is_no_object(store: ObjectStore) -> None:
    """A directory of the disk is not an object: adapters answer alike."""
    store.put("a/b", b"1")
    assert store.stat("a") is None
    with pytest.raises(ObjectMissing):
        store.get("a")
    assert keys(store) == ["a/b"]


def test_a_key_below_an_object_is_missing(store: ObjectStore) -> None:
    store.put("a", b"1")
    assert store.stat("a/b") is None
    with pytest.raises(ObjectMissing):
        store.get("a/b")
    assert keys(store, "a/") == []


# --- list and children ------------------------------------------------------------------------------------------

DISTINCT = ["a-b", "a/b-c", "a/b/c", "a/b0", "a0", "b-/x", "b/x", "b0/x"]


def test_list_is_sorted_by_the_whole_key(store: ObjectStore) -> None:
    """'-' < '/' < '0': a directory sorts among its siblings as its name with the slash."""
    for key in reversed(DISTINCT):
        store.put(key, key.encode())
    assert keys(store) == sorted(DISTINCT)
    assert [(i.key, i.size) for i in store.list("a/")] == [("a/b-c", 5), ("a/b/c", 5), ("a/b0", 4)]


@pytest.mark.parametrize("prefix", ["", "a", "a/", "a/b", "a/b/", "a/b-", "b", "b-", "b/x", "c", "c/", "a/b/c/d"])
def test_list_takes_any_prefix_not_only_directories(store: ObjectStore, prefix: str) -> None:
    for key in DISTINCT:
        store.put(key, b"")
    assert keys(store, prefix) == sorted(key for key in DISTINCT if key.startswith(prefix))


@settings(max_examples=40, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(st.sets(st.text("a-/0", min_size=1, max_size=6), max_size=12), st.text("a-/0", max_size=4))
@pytest.mark.parametrize("make", ADAPTERS, ids=lambda make: make.__name__)
def test_list_and_children_agree_with_plain_strings(
    tmp_path_factory: pytest.TempPathFactory, make: Callable[[Path], ObjectStore], names: set[str], prefix: str
) -> None:
    chosen = [n for n in names if "//" not in n and not n.startswith("/") and not n.endswith("/")]
    chosen = [n for n in chosen if not any(other.startswith(n + "/") for other in chosen)]
    store = make(tmp_path_factory.mktemp("listing"))
    for name in chosen:
        store.put("z/" + name, b"")
    prefix = "z/" + prefix.replace("//", "/").removeprefix("/")
    assert keys(store, prefix) == sorted("z/" + n for n in chosen if ("z/" + n).startswith(prefix))
    assert sorted(store.children("z/")) == sorted({n.partition("/")[0] for n in chosen})


def test_children_names_each_component_once_in_order(store: ObjectStore) -> None:
    for key in DISTINCT:
        store.put("root/" + key, b"")
    assert list(store.children("root/")) == ["a", "a-b", "a0", "b", "b-", "b0"]
    assert list(store.children("root/a/")) == ["b", "b-c", "b0"]
    assert list(store.children("nothing/")) == []


@pytest.mark.parametrize("area", ["refs", "files"])
def test_a_name_without_keys_below_it_is_no_child(store: ObjectStore, area: str) -> None:
    if isinstance(store, RemoteObjects) and ENDPOINT_ENV not in os.environ:
        pytest.skip("SeaweedFS goes on showing an emptied directory for some seconds; nothing here asks for those")
    store.create(f"{area}/x/1", b"")
    store.delete([f"{area}/x/1"])
    assert list(store.children(f"{area}/")) == []


def test_listing_survives_deletes_underway(store: ObjectStore) -> None:
    for n in range(20):
        store.put(f"files/e/{n:02}", b"")
    seen = []
    for info in store.list("files/"):
        seen.append(info.key)
        store.delete([f"files/e/{n:02}" for n in range(10, 20)])
    assert seen[:10] == [f"files/e/{n:02}" for n in range(10)]
    assert keys(store) == seen[:10]


# --- delete and persist -----------------------------------------------------------------------------------------


def test_delete_takes_missing_keys_and_any_iterable(store: ObjectStore) -> None:
    for key in ("files/e/a", "files/e/b/c", "files/f/a"):
        store.put(key, b"1")
    store.delete(iter(["files/e/a", "files/e/none", "nowhere/x", "files/e/b/c", "files/e/a/below"]))
    store.delete([])
    assert keys(store) == ["files/f/a"]


def test_what_was_listed_can_be_deleted_as_it_comes(store: ObjectStore) -> None:
    for n in range(30):
        store.put(f"trees/e/{n}", b"1")
    store.delete(info.key for info in store.list("trees/e/"))
    assert keys(store) == []
    store.put("trees/e/0", b"again")
    assert store.get("trees/e/0") == b"again"


def test_persist_takes_objects_whoever_wrote_them(store: ObjectStore) -> None:
    store.put("files/e/a", b"1")
    store.create("commits/c", b"2")
    store.persist(iter(["files/e/a", "commits/c"]))
    store.persist([])
    assert store.get("files/e/a") == b"1"


@pytest.mark.parametrize("others", [0, 100], ids=["alone", "among-many"])
def test_persist_of_a_missing_key_raises(store: ObjectStore, others: int) -> None:
    """INV-2: what is not there cannot be called durable, however many are made durable at once."""
    if isinstance(store, RemoteObjects):
        pytest.skip("what was acknowledged is durable: there is nothing to do, and so nothing to look at")
    for n in range(others):
        store.put(f"files/e/{n}", b"1")
    with pytest.raises(ObjectMissing) as raised:
        store.persist([*(f"files/e/{n}" for n in range(others)), "files/e/gone"])
    assert raised.value.context["address"] == "files/e/gone"


# --- keys -------------------------------------------------------------------------------------------------------

ODD = [
    "a b",
    " lead",
    "tail ",
    "ä/ö",
    "日本/語",
    "a[1].txt",
    "a*?b",
    "100%",
    "%2f",
    "a%20b",
    "a'b\"c",
    "a+b=c&d",
    "~",
    "#x",
]


@pytest.mark.parametrize("name", ODD)
def test_odd_characters_in_keys_round_trip(store: ObjectStore, name: str) -> None:
    key = f"files/e/{name}"
    store.create(key, name.encode())
    store.put(f"other/{name}", b"x")
    store.persist([key, f"other/{name}"])
    assert store.get(key) == name.encode()
    assert keys(store, "files/") == [key]
    assert keys(store, key) == [key]
    assert list(store.children("files/e/")) == [name.partition("/")[0]]
    store.delete([key])
    assert store.stat(key) is None


def test_odd_keys_are_all_different_objects(store: ObjectStore) -> None:
    for name in ODD:
        store.create(f"files/{name}", name.encode())
    assert keys(store, "files/") == sorted(f"files/{name}" for name in ODD)
    assert {store.get(f"files/{name}").decode() for name in ODD} == set(ODD)


def test_the_store_names_itself(store: ObjectStore) -> None:
    assert "://" in store.url

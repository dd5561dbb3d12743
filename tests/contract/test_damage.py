"""Opening, reading only, and what damage does: typed errors with an address, and everything else goes on."""

# ruff: noqa: PT012 — what raises is the whole block of a transaction

from __future__ import annotations

import json
from collections.abc import Callable

import pytest

from fenceline import ConfigError, Repository, StoreError, open_repository
from fenceline.errors import FormatTooNew, NotARepository, ObjectDamaged, ObjectMissing, TransactionClosed
from fenceline.repo.model import Op
from fenceline.repo.native.local import LocalObjects
from fenceline.repo.native.objects import ObjectStore
from fenceline.seams import Seams
from fenceline.testing import MemoryObjects

Put = Callable[..., str]
Abandon = Callable[..., str]


def damage(store: ObjectStore, key: str, data: bytes | None) -> None:
    """Change stored bytes behind everyone's back; None removes them."""
    store.delete([key])
    if data is not None:
        store.put(key, data)


def flip(store: ObjectStore, key: str) -> None:
    data = store.get(key)
    damage(store, key, bytes([data[0] ^ 1]) + data[1:])


def everything(store: ObjectStore) -> list[tuple[str, bytes, float]]:
    return [(i.key, store.get(i.key), i.modified) for i in store.list("")]


# --- opening ----------------------------------------------------------------------------------------------------


def test_what_is_no_repository_is_refused_and_left_alone(store: ObjectStore, seams: Seams) -> None:
    store.put("files/x", b"someone else's")
    for mode in ("r", "rw"):
        with pytest.raises(NotARepository, match="create"):
            Repository.on(store, mode, seams=seams)
    assert [i.key for i in store.list("")] == ["files/x"]


def test_creating_twice_opens_the_one_that_is_there(store: ObjectStore, seams: Seams, put: Put) -> None:
    first = Repository.on(store, create=True, seams=seams)
    put(first, {"a": b"1"})
    again = Repository.on(store, create=True, seams=seams)
    assert again.id == first.id
    assert again.read("main", "a") == b"1"


def test_a_creation_that_was_cut_off_is_finished_by_the_next(store: ObjectStore, seams: Seams) -> None:
    Repository.on(store, create=True, seams=seams)
    store.delete(["format.json"])
    with pytest.raises(NotARepository):
        Repository.on(store, seams=seams)
    repo = Repository.on(store, create=True, seams=seams)
    assert [(e.seq, e.op) for e in repo.entries()] == [(1, Op.CREATE)]


def test_a_newer_format_is_refused_with_the_version_that_reads_it(store: ObjectStore, seams: Seams) -> None:
    Repository.on(store, create=True, seams=seams)
    damage(store, "format.json", json.dumps({"format": 2, "repository": "x", "needs": "9.1"}).encode())
    before = everything(store)
    for mode in ("r", "rw"):
        with pytest.raises(FormatTooNew, match=r"fenceline>=9\.1"):
            Repository.on(store, mode, create=mode == "rw", seams=seams)
    assert everything(store) == before


@pytest.mark.parametrize("text", [b"", b"{", b"[]", b"{}", b'{"format": "one"}', b"\xff"])
def test_an_unreadable_format_record_is_damage(store: ObjectStore, seams: Seams, text: bytes) -> None:
    Repository.on(store, create=True, seams=seams)
    damage(store, "format.json", text)
    with pytest.raises(ObjectDamaged) as raised:
        Repository.on(store, seams=seams)
    assert raised.value.context["address"] == "format.json"


def test_urls_are_read_or_refused(tmp_path_factory: pytest.TempPathFactory) -> None:
    root = tmp_path_factory.mktemp("a place with spaces")
    made = open_repository(root / "r ü", create=True)
    assert open_repository(made.url).id == made.id
    assert open_repository(f"file://localhost{made.url.removeprefix('file://')}").id == made.id
    for url in ("ftp://bucket/x", "s3://", "s3://key:secret@bucket/x", "file://elsewhere/x"):
        with pytest.raises(ConfigError):
            open_repository(url)
    with pytest.raises(ConfigError, match="mode"):
        Repository.on(MemoryObjects(), "w")  # type: ignore[arg-type]


# --- read-only --------------------------------------------------------------------------------------------------


def read_all_of(repo: Repository) -> None:
    for head in (*repo.branches(), *repo.tags()):
        for entry in repo.list(head.name):
            if entry.address:
                repo.read(head.name, entry.path)
    list(repo.log(full=True))
    list(repo.entries())
    list(repo.diff("main~1", "main"))
    list(repo.recoveries())
    list(repo.intents())
    repo.plan_gc()
    repo.fsck()


@pytest.mark.parametrize("hints", [True, False], ids=["with-hints", "hints-lost"])
def test_read_only_never_writes(store: ObjectStore, seams: Seams, put: Put, abandon: Abandon, hints: bool) -> None:
    """`r` never writes: not for dead transactions, which stay as they are, and not for lost hints."""
    repo = Repository.on(store, create=True, seams=seams)
    for n in range(4):
        put(repo, {"a": str(n).encode()})
    repo.create_tag("v1")
    abandon(repo, lambda tx: tx.write("b", b"2"), "sealed")
    abandon(repo, lambda tx: tx.write("c", b"3"), "open")
    seams.clock.sleep(3600)
    if not hints:
        store.delete([i.key for i in store.list("hints/")])
    before = everything(store)
    reader = Repository.on(store, "r", seams=seams)
    read_all_of(reader)
    assert everything(store) == before
    assert [s.state for s in reader.intents()] == ["sealed", "open"]


def test_read_only_refuses_every_change(store: ObjectStore, seams: Seams) -> None:
    Repository.on(store, create=True, seams=seams)
    repo = Repository.on(store, "r", create=True, seams=seams)
    before = everything(store)
    changes: list[Callable[[], object]] = [
        repo.transaction,
        lambda: repo.merge("main"),
        lambda: repo.revert("main"),
        lambda: repo.create_branch("b"),
        lambda: repo.delete_branch("b"),
        lambda: repo.relocate_branch("main", "main"),
        lambda: repo.create_tag("t"),
        lambda: repo.delete_tag("t"),
        repo.recover,
        lambda: repo.resolve_intent("x"),
        repo.start_sweeper,
        repo.gc,
    ]
    for change in changes:
        with pytest.raises(TransactionClosed, match="read-only"):
            change()
    assert everything(store) == before


# --- damage -----------------------------------------------------------------------------------------------------


@pytest.fixture
def two_branches(repo: Repository, put: Put) -> Repository:
    """`main` and `safe`, which share their first commit."""
    put(repo, {"shared": b"shared content"})
    repo.create_branch("safe")
    put(repo, {"own": b"own content"})
    return repo


def reopened(repo: Repository, store: ObjectStore, seams: Seams) -> Repository:
    """As another process sees it, without caches."""
    return Repository.on(store, "r", seams=seams)


def assert_reads_fail(repo: Repository, kind: type[StoreError], address: str) -> None:
    with pytest.raises(kind) as raised:
        for entry in repo.list("main"):
            repo.read("main", entry.path)
    assert raised.value.context["address"] == address
    assert not raised.value.retryable
    assert repo.read("safe", "shared") == b"shared content"
    assert [item.commit.message for item in repo.log("safe")][-1] == "Repository created"


@pytest.mark.parametrize("missing", [True, False], ids=["missing", "damaged"])
@pytest.mark.parametrize("what", ["file", "tree", "commit"])
def test_a_broken_object_is_named_and_breaks_only_what_needs_it(
    two_branches: Repository, store: ObjectStore, seams: Seams, what: str, missing: bool
) -> None:
    head = two_branches.head().commit
    assert head.tree is not None
    address = {
        "file": two_branches.stat("main", "own").address,
        "tree": head.tree.address.partition("#")[0],
        "commit": f"commits/{head.id}",
    }[what]
    if missing:
        store.delete([address])
    else:
        flip(store, address)
    assert_reads_fail(reopened(two_branches, store, seams), ObjectMissing if missing else ObjectDamaged, address)


def test_a_truncated_and_a_longer_file_are_damage(two_branches: Repository, store: ObjectStore, seams: Seams) -> None:
    address = two_branches.stat("main", "own").address
    for data in (b"own", b"own content and more", b""):
        damage(store, address, data)
        with pytest.raises(ObjectDamaged) as raised:
            reopened(two_branches, store, seams).read("main", "own")
        assert raised.value.context["address"] == address


@pytest.mark.parametrize("data", [b"", b"{}", b"[]", b"null", b'{"op": "explode"}', b"\xff\xfe"])
def test_a_damaged_ref_entry_is_named_and_other_branches_stay(
    two_branches: Repository, store: ObjectStore, seams: Seams, data: bytes
) -> None:
    key = f"refs/main/{two_branches.head().seq:010}"
    damage(store, key, data)
    repo = reopened(two_branches, store, seams)
    with pytest.raises(ObjectDamaged) as raised:
        repo.head("main")
    assert raised.value.context["address"] == key
    assert repo.read("safe", "shared") == b"shared content"


def test_a_damaged_branch_does_not_stop_writes_to_others(
    two_branches: Repository, store: ObjectStore, seams: Seams, put: Put
) -> None:
    """INV-11 in spirit: what is broken stops only what needs it."""
    damage(store, f"refs/main/{two_branches.head().seq:010}", b"broken")
    repo = Repository.on(store, seams=seams)
    put(repo, {"more": b"1"}, branch="safe")
    assert repo.read("safe", "more") == b"1"


@pytest.mark.parametrize("data", [b"", b"{}", b"[]", b"null", b'""', b"7", b"\xff"])
def test_a_damaged_intent_is_quarantined_and_stops_nobody(
    repo: Repository, store: ObjectStore, seams: Seams, put: Put, abandon: Abandon, data: bytes
) -> None:
    """INV-11: opening read-write, reading and writing go on beside an intent that cannot be read."""
    execution = abandon(repo, lambda tx: tx.write("a", b"1"), "sealed")
    damage(store, f"intents/{execution}", data)
    other = Repository.on(store, seams=seams)
    put(other, {"b": b"2"})
    assert [(s.execution, s.state) for s in other.intents()] == [(execution, "quarantined")]


def test_a_damaged_dataset_declaration_is_quarantined(
    repo: Repository, store: ObjectStore, seams: Seams, parts: Callable[..., str], abandon: Abandon
) -> None:
    """INV-11, as above."""
    execution = abandon(repo, lambda tx: tx.put_dataset(parts({"p": b"1"}), "d"), "open")
    damage(store, f"intents/{execution}+1", b"\xff")
    seams.clock.sleep(60)
    other = Repository.on(store, seams=seams)
    assert [s.state for s in other.intents()] == ["quarantined"]


@pytest.mark.parametrize("area", ["condemned", "expired"])
def test_a_damaged_list_of_garbage_collection_is_a_typed_error(repo: Repository, store: ObjectStore, area: str) -> None:
    """Whether a commit is condemned cannot be known then: refuse, and say which object is broken."""
    store.put(f"{area}/run", b"broken")
    with pytest.raises(ObjectDamaged) as raised, repo.transaction() as tx:
        tx.write("a", b"1")
    assert raised.value.context["address"] == f"{area}/run"


def test_the_repository_of_a_local_disk_names_its_directory(tmp_path_factory: pytest.TempPathFactory) -> None:
    root = tmp_path_factory.mktemp("r")
    repo = open_repository(root, create=True)
    assert repo.url == root.as_uri()
    assert isinstance(repo.native.objects, LocalObjects)

"""The values of a repository: what is written is what is read, and damage never passes for content."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from fenceline.errors import ObjectDamaged
from fenceline.repo.model import Commit, Dataset, Entry, Kind, Node, Op, RefEntry, Side, Write, canonical, digest

texts = st.text(st.characters(exclude_categories=["Cs"]), max_size=12)
plain = st.none() | texts | st.integers(-(2**40), 2**40) | st.booleans()
values = st.recursive(
    plain, lambda inner: st.lists(inner, max_size=3) | st.dictionaries(texts, inner, max_size=3), max_leaves=6
)
datasets = st.builds(
    Dataset,
    id=texts,
    format=texts,
    generation=texts,
    job=texts,
    operation=texts,
    partition_by=st.lists(texts, max_size=3).map(tuple),
    schema=st.none() | texts,
    options=st.dictionaries(texts, texts, max_size=3),
    files=st.integers(0, 9),
    rows=st.none() | st.integers(0, 9),
)
entries = st.builds(
    Entry,
    path=texts,
    kind=st.sampled_from(Kind),
    size=st.integers(0, 2**50),
    address=texts,
    checksum=st.sampled_from(["none", "sha256:ab", "etag:1-2"]),
    mode=st.none() | st.integers(0, 0o7777),
    write=st.none() | st.sampled_from(Write),
    dataset=st.none() | datasets,
)
nodes = st.builds(
    Node,
    last=texts,
    digest=texts,
    address=texts,
    height=st.integers(0, 5),
    entries=st.integers(0, 9),
    size=st.integers(0),
)


@given(entries)
def test_an_entry_survives_its_row(entry: Entry) -> None:
    read = Entry.from_row(json.loads(json.dumps(entry.to_row())))
    assert read == entry
    assert isinstance(read.kind, Kind)
    assert read.write is None or isinstance(read.write, Write)
    assert read.same_content(entry)


def test_plain_files_have_short_rows() -> None:
    assert Entry("a", Kind.FILE, 1, "files/e/a", "sha256:x").to_row() == ["a", "file", 1, "files/e/a", "sha256:x"]


@given(
    st.builds(
        Commit.make,
        parents=st.lists(texts, max_size=2).map(tuple),
        tree=st.none() | nodes,
        depth=st.integers(0, 99),
        execution=texts,
        actor=texts,
        time=st.floats(0, 2e9),
        message=texts,
        kind=texts,
        step=st.none() | texts,
        txn=st.none() | texts,
        attempt=st.none() | texts,
        result=values,
        metadata=st.dictionaries(texts, texts, max_size=3),
    )
)
def test_a_commit_survives_its_bytes(commit: Commit) -> None:
    assert commit.id == digest(commit.to_bytes())
    assert Commit.from_bytes(commit.id, commit.to_bytes()) == commit


@given(st.binary(max_size=60), st.integers(0, 59))
def test_a_commit_whose_bytes_changed_is_damaged(noise: bytes, at: int) -> None:
    commit = Commit.make(parents=(), tree=None, depth=0, execution="e", actor="a", time=1.0, message="m")
    data = commit.to_bytes()
    broken = data[:at] + noise + data[at + len(noise) :]
    if broken != data:
        with pytest.raises(ObjectDamaged) as raised:
            Commit.from_bytes(commit.id, broken)
        assert raised.value.context["address"] == f"commits/{commit.id}"


def test_two_commits_of_different_executions_are_different() -> None:
    """Its id names its execution, so no two collide."""
    same: dict[str, Any] = {"parents": (), "tree": None, "depth": 0, "actor": "a", "time": 1.0, "message": "m"}
    assert Commit.make(execution="e1", **same).id != Commit.make(execution="e2", **same).id


@given(
    st.builds(
        RefEntry,
        seq=st.integers(1, 10**9),
        op=st.sampled_from(Op),
        commit=st.none() | texts,
        by=texts,
        actor=texts,
        time=st.floats(0, 2e9),
        output=st.none() | texts,
        execution=st.none() | texts,
        step=st.none() | texts,
        txn=st.none() | texts,
        attempt=st.none() | texts,
        result=values,
        note=texts,
    )
)
def test_a_ref_entry_survives_its_bytes(entry: RefEntry) -> None:
    read = RefEntry.from_bytes("k", entry.to_bytes())
    assert read == entry
    assert read.to_bytes() == entry.to_bytes()
    assert isinstance(read.op, Op)


@pytest.mark.parametrize(
    "data",
    [b"", b"{", b"null", b"[]", b"1", b'"x"', b"{}", b'{"op":"publish"}', b'{"op":"other","seq":1}', b"\xff\x00"],
)
def test_a_damaged_ref_entry_is_named(data: bytes) -> None:
    with pytest.raises(ObjectDamaged) as raised:
        RefEntry.from_bytes("refs/main/0000000003", data)
    assert raised.value.context["address"] == "refs/main/0000000003"


def test_canonical_json_is_one_form() -> None:
    assert canonical({"b": 1, "a": [True, None, "é"]}) == canonical({"a": [True, None, "é"], "b": 1})
    assert canonical({"b": 1, "a": "é"}) == '{"a":"é","b":1}'.encode()
    with pytest.raises(ValueError, match="JSON compliant"):
        canonical(float("nan"))


def test_content_is_the_same_wherever_its_bytes_lie() -> None:
    one = Entry("a", Kind.FILE, 1, "files/e1/a", "sha256:x")
    assert one.same_content(one._replace(address="files/e2/a"))
    assert not one.same_content(one._replace(checksum="sha256:y"))
    assert not one.same_content(one._replace(mode=0o755))
    unhashed = one._replace(checksum="none")
    assert not unhashed.same_content(unhashed._replace(address="files/e2/a"))


def test_the_status_of_a_side() -> None:
    a = Entry("a", Kind.FILE, 1, "x", "none")
    assert [Side("a", *s).status for s in ((None, a), (a, None), (a, a))] == ["added", "removed", "changed"]

"""Names of branches, tags and paths: what is refused, and that encoding confuses no two of them."""

from __future__ import annotations

import unicodedata
from collections.abc import Callable

import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from fenceline.errors import ContractError, InvalidName
from fenceline.repo.names import (
    MAX_COMPONENT_BYTES,
    MAX_PATH_BYTES,
    MAX_REF_BYTES,
    check_path,
    check_prefix,
    check_ref,
    decode_ref,
    encode_ref,
    overlap,
    within,
)

CHECKS = pytest.mark.parametrize("check", [check_path, check_ref], ids=["path", "ref"])


@CHECKS
@pytest.mark.parametrize(
    "name",
    [
        "",
        "/",
        "/absolute",
        "..",
        "../x",
        "a/../b",
        "a/..",
        ".",
        "./a",
        "a/./b",
        "a//b",
        "a/",
        "nul\0",
        "line\nbreak",
        "tab\t",
        "bell\x07",
        "del\x7f",
        "c1\x85",
        "lone\ud800surrogate",
        unicodedata.normalize("NFD", "é"),
        "ﬁ/" + unicodedata.normalize("NFD", "ü"),
        "x" * (MAX_COMPONENT_BYTES + 1),
        "ü" * (MAX_COMPONENT_BYTES // 2 + 1),
    ],
    ids=ascii,
)
def test_names_that_escape_or_confuse_are_refused(check: Callable[[str], str], name: str) -> None:
    with pytest.raises(InvalidName) as raised:
        check(name)
    assert isinstance(raised.value, ContractError)
    assert raised.value.hint
    assert str(raised.value).isprintable()


@CHECKS
@pytest.mark.parametrize(
    "name", ["a", "main", "a/b", "été", "日本/語", "a b"[0:1], "a-b_c.d", "x" * 60, "a%2fb", "a+b"]
)
def test_ordinary_names_pass_unchanged(check: Callable[[str], str], name: str) -> None:
    assert check(name) == name


@pytest.mark.parametrize("path", ["a b", "a[1].txt", "a:b", "~", "-x", ".hidden/x", "a@b", "x" * MAX_COMPONENT_BYTES])
def test_paths_may_hold_what_refs_may_not(path: str) -> None:
    assert check_path(path) == path


@pytest.mark.parametrize(
    "ref",
    ["a b", "a~1", "a^", "a:b", "a?", "a*", "a[0]", "a\\b", "a@1", "-a", ".a", "a/.b", "0" * 64, "ab" * 32],
)
def test_refs_refuse_what_means_something_else(ref: str) -> None:
    with pytest.raises(InvalidName):
        check_ref(ref)
    assert check_ref("0" * 63) == "0" * 63


def test_the_longest_names_are_the_last_that_pass() -> None:
    longest = "/".join(["x" * 204] * 5)
    assert len(longest) == MAX_PATH_BYTES
    assert check_path(longest) == longest
    with pytest.raises(InvalidName):
        check_path(longest + "x")
    assert check_ref("a" * MAX_REF_BYTES)
    with pytest.raises(InvalidName, match="too long"):
        check_ref("a" * (MAX_REF_BYTES + 1))
    with pytest.raises(InvalidName, match="too long"):
        check_ref("A" * (MAX_REF_BYTES // 3 + 1))


def test_a_prefix_is_a_directory_or_the_root() -> None:
    assert [check_prefix(p) for p in ("", "/", "a", "a/", "a/b/")] == ["", "", "a", "a", "a/b"]
    for bad in ("//", "/a", "a//", "../"):
        with pytest.raises(InvalidName):
            check_prefix(bad)


def test_a_branch_and_one_below_its_name_do_not_meet() -> None:
    """On a disk `a` would be a file where `a/1` needs a directory."""
    assert encode_ref("a") == "a"
    assert encode_ref("a/1") == "a%2f1"
    assert len({encode_ref(n).lower() for n in ("Main", "main", "MAIN", "m%61in")}) == 4


@given(st.text(st.characters(exclude_categories=["Cs"]), max_size=40))
def test_encoding_a_ref_can_be_undone_and_is_one_plain_component(name: str) -> None:
    encoded = encode_ref(name)
    assert decode_ref(encoded) == name
    assert "/" not in encoded
    assert encoded == encoded.lower()
    assert encoded.isascii()


@given(st.text(max_size=20), st.text(max_size=20))
def test_no_two_refs_are_encoded_alike(one: str, other: str) -> None:
    assume(one != other)
    try:
        assert encode_ref(one) != encode_ref(other)
    except UnicodeEncodeError:
        with pytest.raises(InvalidName):
            check_ref(one + other)


@given(st.text(max_size=60))
def test_what_passes_can_be_stored_anywhere(name: str) -> None:
    """Whatever the input: it is refused as InvalidName, or it is safe as a path below a directory."""
    try:
        check_path(name)
    except InvalidName:
        return
    assert name == unicodedata.normalize("NFC", name)
    assert all(0 < len(part.encode()) <= MAX_COMPONENT_BYTES and part not in (".", "..") for part in name.split("/"))
    assert "\0" not in name


def test_within_and_overlap_go_by_components() -> None:
    assert within("a/b", "a")
    assert within("a", "a")
    assert within("anything", "")
    assert not within("ab", "a")
    assert not within("a", "a/b")
    assert overlap("a", "a/b")
    assert overlap("a/b", "a")
    assert not overlap("a/b", "a/c")
    assert not overlap("a", "a-b")

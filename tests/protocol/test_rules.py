"""The rules marked † in the protocol: a real process is stopped at the named point, the other side acts, it wakes.

Every test runs twice: as the code is, and with that one rule taken out (`ablations.py`). The second run must show the
damage the rule prevents; if it does not, the test proves nothing.
"""

from __future__ import annotations

import json
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import ablations
import pytest
from harness import Paused, assert_sound, content, prepared, run

import fenceline as fl

LEASE_OF_CHILDREN = 0.3


@pytest.fixture
def root(tmp_path: Path) -> Path:
    return prepared(tmp_path / "repo")


@pytest.fixture(params=["kept", "taken out"])
def kept(request: pytest.FixtureRequest) -> bool:
    return bool(request.param == "kept")


@pytest.fixture
def rule(kept: bool, monkeypatch: pytest.MonkeyPatch) -> Callable[[str], list[str]]:
    """Takes the rule out of this process when asked to; returns the arguments that do the same in a child."""

    def choose(name: str) -> list[str]:
        if kept:
            return []
        ablations.take_out(name, monkeypatch.setattr)
        return ["--without", name]

    return choose


def outlived(repo: fl.Repository) -> None:
    """Wait until the paused child's lease has run out, then sweep."""
    time.sleep(LEASE_OF_CHILDREN + 0.1)
    repo.recover()


def unswept(root: Path) -> fl.Repository:
    return fl.open_repository(root, sweep=False)


def broken(root: Path) -> bool:
    return not fl.open_repository(root, mode="r").fsck().clean


def test_d1_who_wins_aborted_may_delete_and_the_sleeper_loses_its_seal(
    root: Path, kept: bool, rule: Callable[[str], list[str]]
) -> None:
    without = rule("D1 abort")
    writer = Paused.at("verdict.seal.before", ["write", root, "a.txt", "a", *without])
    outlived(unswept(root))
    told = writer.wake()
    if kept:
        assert told["error"] == "fence.execution"
        assert told["outcome"] == "not_applied"
        repo = fl.open_repository(root)
        assert "a.txt" not in content(repo)
        assert [r.kind for r in repo.recoveries() if r.recovered_for == "child"] == ["aborted"]
        assert_sound(repo)
    else:
        assert told["outcome"] == "applied"
        assert broken(root), "the head reaches data that the sweep deleted"


def test_d1_what_is_sealed_is_not_deleted_before_a_fence_stands(
    root: Path, kept: bool, rule: Callable[[str], list[str]]
) -> None:
    without = rule("D1 sealed")
    writer = Paused.at("entry.publish.before", ["write", root, "a.txt", "a", *without])
    outlived(unswept(root))
    told = writer.wake()
    assert told["outcome"] == "applied"
    if kept:
        repo = fl.open_repository(root)
        assert content(repo)["a.txt"] == b"a"
        assert [r.kind for r in repo.recoveries() if r.recovered_for == "child"] == ["rolled_forward"]
        assert_sound(repo)
    else:
        assert broken(root), "the sleeper published what the sweep deleted"


def test_a_sleeper_whose_change_was_overtaken_is_fenced_and_stays_out(root: Path) -> None:
    """INV-8, D1: the sweep fences a sealed transaction that can no longer go on; waking it changes nothing."""
    writer = Paused.at("entry.publish.before", ["write", root, "old/changed.txt", "stale"])
    repo = unswept(root)
    with repo.transaction("main", actor="other") as tx:
        tx.write("old/changed.txt", b"fresh")
    outlived(repo)
    before = [(e.seq, e.op) for e in repo.entries("main")]
    told = writer.wake()
    assert told["outcome"] == "not_applied"
    repo = fl.open_repository(root)
    assert content(repo)["old/changed.txt"] == b"fresh"
    assert [(e.seq, e.op) for e in repo.entries("main")] == before
    assert [r.kind for r in repo.recoveries() if r.recovered_for == "child"] == ["rolled_back"]
    assert_sound(repo)


def test_d2_not_applied_after_sealing_only_behind_its_own_fence(
    root: Path, kept: bool, rule: Callable[[str], list[str]]
) -> None:
    without = rule("D2")
    arguments: list[str | Path] = ["write", root, "a.txt", "a", *without]
    if kept:  # its own entry cannot be written; it is about to fence itself when a sweep takes it for dead
        writer = Paused.at("entry.fence.before", arguments, more="entry.publish.before=error:ENOSPC")
        outlived(unswept(root))
        told = writer.wake()
        assert told["outcome"] == "applied", "the sweep rolled it forward, and it says so"
    else:
        told = run(arguments, "entry.publish.before=error:ENOSPC")
        assert told["outcome"] == "not_applied"
        outlived(unswept(root))
        assert "a.txt" in content(fl.open_repository(root)), "told not_applied, and then applied"
        return
    repo = fl.open_repository(root)
    assert content(repo)["a.txt"] == b"a"
    assert_sound(repo)


def test_d3_a_ref_to_a_condemned_commit_is_refused(root: Path, kept: bool, rule: Callable[[str], list[str]]) -> None:
    rule("D3 refuse")
    repo = unswept(root)
    old = repo.head("main").commit.id
    for n in range(4):
        with repo.transaction("main", actor="test") as tx:
            tx.write("old/changed.txt", str(n).encode())
    repo.delete_branch("dev")
    for _ in range(3):  # the deleted branch's entries leave the kept ones too
        repo.create_branch("dev", "main")
        repo.delete_branch("dev")
    collector = Paused.at("gc.delete.before", ["collect", root, "3", "expire"])
    if kept:
        with pytest.raises(fl.RecoveryError, match="removed by garbage collection"):
            repo.create_tag("keepsake", old)
        assert repo.tags() == []
        collector.wake()
        assert_sound(fl.open_repository(root))
        with pytest.raises(fl.RecoveryError, match="removed by garbage collection"):
            repo.create_tag("keepsake", old)
    else:
        repo.create_tag("keepsake", old)
        collector.wake()
        with pytest.raises(fl.StoreError):
            content(fl.open_repository(root, mode="r"), "keepsake")


@pytest.mark.parametrize(
    ("how", "point"),
    [("relocate", "entry.relocate.before"), ("branch", "entry.create.before"), ("tag", "entry.create.before")],
)
def test_d3_who_asked_before_the_announcement_loses_the_number(
    root: Path, kept: bool, rule: Callable[[str], list[str]], how: str, point: str
) -> None:
    rule("D3 number")
    repo = unswept(root)
    old = repo.head("main").commit.id
    for n in range(4):
        with repo.transaction("main", actor="test") as tx:
            tx.write("old/changed.txt", str(n).encode())
    head = repo.head("main").commit.id
    repo.delete_branch("dev")
    for _ in range(3):
        repo.create_branch("dev", "main")
        repo.delete_branch("dev")
    operator = Paused.at(point, ["point", root, how, old])  # it has found that nobody condemned the commit
    unswept(root).gc(fl.Retention(keep=3, expire=True), grace=0)
    told = operator.wake()
    name = {"relocate": "main", "branch": "again", "tag": "keepsake"}[how]
    if kept:
        assert "removed by garbage collection" in told["refused"]
        shown = fl.open_repository(root)
        assert shown.head("main").commit.id == head
        assert_sound(shown)
    else:
        assert told["refused"] is None
        with pytest.raises(fl.StoreError):
            content(fl.open_repository(root, mode="r"), name)


@pytest.mark.parametrize("point", ["stage.commit.after", "verdict.seal.after", "entry.publish.before"])
def test_d3_what_an_unfinished_intent_staged_is_kept(
    root: Path, kept: bool, rule: Callable[[str], list[str]], point: str
) -> None:
    rule("D3 intents")
    writer = Paused.at(point, ["write", root, "a.txt", "a"])
    unswept(root).gc(grace=0)
    told = writer.wake()
    if kept:
        assert told["outcome"] == "applied"
        assert_sound(fl.open_repository(root))
    else:
        assert told["outcome"] != "applied" or broken(root)


def test_d3_what_a_rebase_made_is_kept_too(root: Path, kept: bool, rule: Callable[[str], list[str]]) -> None:
    rule("D3 rebased")
    writer = Paused.at("entry.publish.before", ["write", root, "a.txt", "a", "rebase"], every=True)
    repo = unswept(root)
    with repo.transaction("main", actor="other") as tx:
        tx.write("b.txt", b"b")
    writer.on_to_the_next()  # it lost its first write, and has staged the same content on the new head
    repo.gc(grace=0)
    assert writer.wake()["outcome"] == "applied"
    assert broken(root) is not kept


def test_d4_a_verdict_outlives_its_intent(root: Path, kept: bool, rule: Callable[[str], list[str]]) -> None:
    rule("D4")
    writer = Paused.at("verdict.seal.before", ["write", root, "a.txt", "a"])
    outlived(unswept(root))
    assert list(unswept(root).intents()) == []
    told = writer.wake()
    if kept:
        assert told["outcome"] == "not_applied"
        assert_sound(fl.open_repository(root))
    else:
        assert told["outcome"] == "applied"
        assert broken(root), "it sealed and published what was deleted"


def test_r1_a_branch_created_again_goes_on_with_its_numbers(
    root: Path, kept: bool, rule: Callable[[str], list[str]]
) -> None:
    rule("R1")
    writer = Paused.at("entry.publish.before", ["write", root, "a.txt", "a", "fail", "", "dev"])
    repo = unswept(root)
    repo.delete_branch("dev")
    repo.create_branch("dev", "main")
    told = writer.wake()
    shown = fl.open_repository(root, mode="r")
    if kept:
        assert told["outcome"] == "not_applied"
        assert "a.txt" not in content(shown, "dev")
        assert [e.op for e in shown.entries("dev")][:4] == ["fence", "create", "reserve", "delete"]
    else:
        assert told["outcome"] == "applied"
        assert broken(root), "acknowledged at a number above a hole, where nobody finds it"


def test_row_0_nothing_is_published_on_a_branch_that_was_deleted_meanwhile(
    root: Path, kept: bool, rule: Callable[[str], list[str]]
) -> None:
    without = rule("row 0")
    writer = Paused.at("entry.publish.before", ["write", root, "a.txt", "a", "fail", "", "dev", *without])
    repo = unswept(root)
    head = repo.head("dev").commit.id
    repo.delete_branch("dev")
    repo.create_branch("dev", head)
    told = writer.wake()
    assert told["outcome"] == ("not_applied" if kept else "applied")
    assert ("a.txt" in content(fl.open_repository(root), "dev")) is not kept


def test_row_2_the_same_key_is_applied_once_by_two_processes(
    root: Path, kept: bool, rule: Callable[[str], list[str]]
) -> None:
    without = rule("row 2")
    writer = Paused.at("entry.publish.before", ["write", root, "one.txt", "1", "rebase", "nightly", *without])
    first = run(["write", root, "two.txt", "2", "rebase", "nightly", *without])
    told = writer.wake()
    shown = content(fl.open_repository(root))
    assert first["outcome"] == told["outcome"] == "applied"
    if kept:
        assert told["op"] == "adopt"
        assert told["commit"] == first["commit"]
        assert "one.txt" not in shown
    else:
        assert {"one.txt", "two.txt"} <= shown.keys(), "one key, applied twice"


def test_row_2b_an_execution_is_published_once_even_if_it_was_moved_away(
    root: Path, kept: bool, rule: Callable[[str], list[str]]
) -> None:
    """R5: rolled forward by a sweep, moved away by an operator, and then its owner wakes."""
    without = rule("row 2b")
    repo = unswept(root)
    start = repo.head("main").commit.id
    writer = Paused.at("entry.publish.before", ["write", root, "a.txt", "a", *without])
    outlived(repo)
    assert "a.txt" in content(repo)
    repo.relocate_branch("main", start)
    writer.wake()
    shown = fl.open_repository(root)
    moves = [e.execution for e in shown.entries("main") if e.op == "publish"]
    assert ("a.txt" in content(shown)) is not kept
    assert (len(moves) == len(set(moves))) is kept


def test_inv3_a_lost_answer_is_settled_by_reading_back(root: Path) -> None:
    told = run(["write", root, "a.txt", "a"], "entry.publish.after=error")
    assert told["outcome"] == "applied"
    repo = fl.open_repository(root)
    assert content(repo)["a.txt"] == b"a"
    assert_sound(repo)


def test_inv3_a_lost_answer_whose_entry_is_another_s_is_a_loss(root: Path) -> None:
    writer = Paused.at("entry.publish.before", ["write", root, "a.txt", "a"])
    with unswept(root).transaction("main", actor="other") as tx:
        tx.write("b.txt", b"b")
    told = writer.wake()
    assert told["error"] == "conflict.publish"
    assert told["outcome"] == "not_applied"
    assert json.dumps(told).count("main moved from") == 1
    assert "a.txt" not in content(fl.open_repository(root))


def test_inv12_what_was_only_staged_cannot_be_built_on(root: Path) -> None:
    writer = Paused.at("verdict.seal.before", ["write", root, "a.txt", "a"])
    repo = unswept(root)
    published = {i.commit.id for h in repo.branches() for i in repo.log(h.name)}
    staged = next(
        i.key.removeprefix("commits/")
        for i in repo.native.objects.list("commits/")
        if i.key.removeprefix("commits/") not in published
    )
    attempts: list[Callable[[], Any]] = [
        lambda: repo.create_branch("x", staged),
        lambda: repo.create_tag("x", staged),
        lambda: repo.merge(staged, into="main"),
        lambda: repo.relocate_branch("main", staged),
    ]
    for attempt in attempts:
        with pytest.raises(fl.RecoveryError, match="never published"):
            attempt()
    assert content(repo, staged)["a.txt"] == b"a", "but it can be inspected"
    writer.kill()

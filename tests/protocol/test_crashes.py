"""Kill a real process at every failpoint, and look at what the next ones find."""

from __future__ import annotations

from collections import Counter
from pathlib import Path

import pytest
from harness import assert_sound, content, copy, hits, killed, occurrences, prepared, run, state, to_kill_at
from stage import Stage

import fenceline as fl
from fenceline import failpoints

pytestmark = pytest.mark.slow


@pytest.fixture(scope="module")
def template(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return prepared(tmp_path_factory.mktemp("template") / "repo")


def check_twice(root: Path, allowed: list[dict[str, bytes]]) -> fl.Repository:
    """Open twice: wholly there or wholly absent, one record each, the second open changes nothing (INV-7, 9, 10)."""
    first = fl.open_repository(root)
    assert content(first) in allowed
    before = state(first)
    assert before["intents"] == []
    assert len(before["records"]) == len({r[0] for r in before["records"]})
    again = fl.open_repository(root)
    assert state(again) == before
    assert_sound(again)
    return again


def check_no_leftovers(repo: fl.Repository) -> None:
    """After recovery and gc, only what the branches reach is left."""
    repo.gc(grace=0)
    assert_sound(repo)
    assert repo.plan_gc().objects == ()


@pytest.mark.slow
@pytest.mark.parametrize("scenario", ["everything", "cancelled", "merge"])
def test_a_writer_killed_anywhere_is_wholly_visible_or_wholly_absent(
    scenario: str, template: Path, tmp_path: Path
) -> None:
    before = content(fl.open_repository(template, mode="r"))
    whole = copy(template, tmp_path / "whole")
    points = occurrences(hits([scenario, whole], tmp_path / "log"))
    after = content(fl.open_repository(whole, mode="r"))
    assert (before == after) == (scenario == "cancelled")
    for number, point in to_kill_at(points):
        root = copy(template, tmp_path / f"{number}")
        assert killed([scenario, root], f"{point}=crash"), f"{point} was not reached"
        repo = check_twice(root, [before, after])
        sealed = points.index("verdict.seal.after@1") if "verdict.seal.after@1" in points else len(points)
        if scenario != "cancelled" and number >= sealed:
            assert content(repo) == after, f"sealed before the kill at {point}, so it is rolled forward"
        check_no_leftovers(repo)


@pytest.mark.slow
def test_the_same_key_after_a_kill_anywhere_applies_exactly_once(template: Path, tmp_path: Path) -> None:
    whole = copy(template, tmp_path / "whole")
    points = occurrences(list(dict.fromkeys(hits(["everything", whole], tmp_path / "log"))))
    after = content(fl.open_repository(whole, mode="r"))
    for number, point in to_kill_at(points):
        root = copy(template, tmp_path / f"{number}")
        assert killed(["everything", root], f"{point}=crash")
        told = run(["everything", root])  # the retry does not even recover first
        assert told["outcome"] == "applied"
        repo = check_twice(root, [after])
        assert sum(item.commit.message == "everything" for item in repo.log("main")) == 1


@pytest.fixture(scope="module")
def wreck(template: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A repository in which writers died in every way there is."""
    root = copy(template, tmp_path_factory.mktemp("wreck") / "repo")
    # sealed on an old head, overlapping what is published next: must be rolled back
    assert killed(["write", root, "old/changed.txt", "lost", "fail"], "verdict.seal.after=crash")
    repo = fl.open_repository(root, sweep=False)
    with repo.transaction("main", actor="test") as tx:
        tx.write("old/changed.txt", b"overtaken")
    assert killed(["write", root, "open.txt", "x"], "stage.file.after=crash")  # open: aborted
    assert killed(["everything", root], "entry.publish.after=crash")  # published, not finished
    assert killed(
        ["write", root, "sealed.txt", "sealed", "rebase"], "verdict.seal.after=crash"
    )  # sealed: rolled forward
    assert killed(["write", root, "recorded.txt", "x", "rebase"], "record.create.after=crash")  # recorded, intent left
    assert len(list(repo.intents())) == 5
    return root


@pytest.mark.slow
def test_a_sweep_killed_anywhere_is_finished_by_the_next_one(wreck: Path, tmp_path: Path) -> None:
    whole = copy(wreck, tmp_path / "whole")
    points = occurrences(hits(["recover", whole], tmp_path / "log"))
    undisturbed = fl.open_repository(whole)
    after = content(undisturbed)
    kinds = Counter(r.kind for r in undisturbed.recoveries())
    assert kinds["rolled_forward"] == 1
    assert kinds["rolled_back"] == 1
    assert kinds["aborted"] == 1
    for number, point in to_kill_at(points):
        root = copy(wreck, tmp_path / f"{number}")
        assert killed(["recover", root], f"{point}=crash"), f"{point} was not reached"
        repo = check_twice(root, [after])
        assert Counter(r.kind for r in repo.recoveries()) == kinds, point
        check_no_leftovers(repo)


@pytest.fixture(scope="module")
def littered(template: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A repository with history to expire."""
    root = copy(template, tmp_path_factory.mktemp("littered") / "repo")
    repo = fl.open_repository(root)
    for n in range(5):
        with repo.transaction("main", actor="test") as tx:
            tx.write("counter.txt", str(n).encode())
    return root


@pytest.mark.slow
def test_a_collection_killed_anywhere_breaks_nothing(littered: Path, tmp_path: Path) -> None:
    before = content(fl.open_repository(littered, mode="r"))
    collect: list[str] = ["3", "expire"]
    whole = copy(littered, tmp_path / "whole")
    points = occurrences(hits(["collect", whole, *collect], tmp_path / "log"))
    assert any(p.startswith("gc.delete.after") for p in points)
    for number, point in to_kill_at(points):
        root = copy(littered, tmp_path / f"{number}")
        assert killed(["collect", root, *collect], f"{point}=crash"), f"{point} was not reached"
        repo = check_twice(root, [before])
        run(["collect", root, *collect])
        assert_sound(fl.open_repository(root))
        assert not list(repo.native.objects.children("condemned/")), "the dead collection's list is withdrawn"


def test_creating_a_repository_can_be_killed_anywhere(tmp_path: Path) -> None:
    points = occurrences(hits(["init", tmp_path / "whole"], tmp_path / "log"))
    for number, point in to_kill_at(points):
        root = tmp_path / f"{number}"
        assert killed(["init", root], f"{point}=crash"), f"{point} was not reached"
        repo = fl.open_repository(root, create=True)
        assert content(repo) == {}
        assert_sound(repo)


def test_ref_operations_killed_anywhere_are_done_or_not(template: Path, tmp_path: Path) -> None:
    whole = copy(template, tmp_path / "whole")
    points = [p for p in occurrences(hits(["branches", whole], tmp_path / "log")) if p.startswith("entry.")]
    before = content(fl.open_repository(template, mode="r"))
    for number, point in to_kill_at(points):
        root = copy(template, tmp_path / f"{number}")
        assert killed(["branches", root], f"{point}=crash")
        check_twice(root, [before])


def test_census_every_failpoint_is_hit(template: Path, wreck: Path, littered: Path, tmp_path: Path) -> None:
    """A durable effect that no scenario reaches would be a crash point nobody has tried."""
    seen: set[str] = set()
    runs: list[tuple[Path | None, list[str], str]] = [
        (None, ["init"], ""),
        (template, ["everything"], ""),
        (template, ["conflicting"], "entry.publish.before=error"),
        (template, ["cancelled"], ""),
        (template, ["slow"], ""),
        (template, ["merge"], ""),
        (template, ["branches"], ""),
        (template, ["tables"], ""),
        (wreck, ["recover"], ""),
        (littered, ["collect", "3", "expire"], ""),
        (template, ["graph_init"], ""),
    ]
    for number, (source, (name, *rest), points) in enumerate(runs):
        root = copy(source, tmp_path / f"{number}") if source else tmp_path / "fresh"
        log = tmp_path / f"log{number}"
        run([name, root, *rest], points, log)
        seen.update(log.read_text().split())
    run(["graph_statement", root, "person cy"], log=tmp_path / "log-graph")  # into the graph that the last one made
    seen.update((tmp_path / "log-graph").read_text().split())
    quarantined = copy(template, tmp_path / "quarantined")
    assert killed(["write", quarantined, "a.txt", "a"], "verdict.seal.after=crash")
    for staged in (quarantined / "files").glob("*/a.txt"):
        staged.unlink()
    run(["recover", quarantined], log=tmp_path / "log-quarantine")
    seen.update((tmp_path / "log-quarantine").read_text().split())
    for number, (first, second) in enumerate((("out", "out"), ("", ""))):  # an adopted outcome, and a no-op
        stage = Stage(tmp_path / f"stage{number}")
        log = tmp_path / f"log-stage{number}"
        run(stage.child(first), log=log)
        stage.orchestrator.retry()
        run(stage.child(second), log=log)
        seen.update(log.read_text().split())
    ours = (e for e in failpoints.effects().values() if not e.name.startswith("lakefs."))  # tests/lakefs counts those
    declared = {p for e in ours for p in (e.before, e.after)}
    assert declared - seen == set()

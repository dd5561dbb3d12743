"""Attempts on lakeFS, with the outcomes of the native store: the Confirm table, on the stand-in and a real server."""

from __future__ import annotations

import os
import threading
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from pathlib import Path
from typing import Any

import pytest
from lake_world import Body, Params, World, make_world, nothing, ref_of, writes
from pydantic import BaseModel

from fenceline.errors import OutcomeUnknown
from fenceline.repo.lakefs import hook
from fenceline.repo.lakefs.client import Client
from fenceline.repo.lakefs.values import MergeEnd, MergeOutcome
from fenceline.task.contract import task
from fenceline.task.orchestrator import HandedOut
from fenceline.task.result import Phase
from fenceline.task.spec import WorkspaceSpec

FULL = os.environ.get("FENCELINE_KILLS") == "full"
ROUNDS = 12 if FULL else 3
FILES = 1000 if FULL else 40


@pytest.fixture
def world(client: Client, tmp_path: Path) -> World:
    return make_world(client, tmp_path / "work")


def test_row_3_the_head_is_the_input_publish(world: World) -> None:
    step = world.schedule()
    result = world.run(world.task(writes()), step)
    assert ref_of(result) == world.head
    assert result.output["result"] == {"rows": 1}
    assert world.content() == {"raw/a.txt": b"a", "out.txt": b"out"}
    published = world.repo.commit(world.head)
    assert published.parents == (step.handed_out.input["workspace"]["ref"],), "a squash merge has one parent"
    assert (published.step, published.attempt) == ("w1/build/0", step.handed_out.identity.attempt)
    assert published.result == {"rows": 1}
    assert world.staging() == []


def test_row_3_no_op_makes_no_commit_and_no_branch(world: World) -> None:
    before = world.head
    assert ref_of(world.run(world.task(nothing), world.schedule())) == before == world.head
    assert world.staging() == []


def test_read_only_writes_nothing_and_asks_nobody(world: World) -> None:
    def ask(attempt: HandedOut) -> None:
        raise AssertionError("a read-only attempt has no fence")

    world.orchestrator.on_current = ask
    step = world.schedule()
    head = world.foreign("other.txt")
    result = world.run(world.task(writes(), read_only=True), step)
    assert ref_of(result) == step.handed_out.input["workspace"]["ref"]
    assert world.head == head


def test_row_1_the_same_attempt_twice_reports_its_outcome(world: World) -> None:
    step = world.schedule()
    first = world.run(world.task(writes()), step, report=False)
    again = world.run(world.task(writes()), step)
    assert again.output == first.output
    assert world.runs == 1
    assert len(world.publications()) == 1


def test_row_2_a_retry_adopts_what_its_step_already_published(world: World) -> None:
    step = world.schedule()
    first = world.run(world.task(writes()), step, report=False)
    again = world.run(world.task(writes()), world.orchestrator.retry(step))
    assert again.output == first.output
    assert world.runs == 1, "the body did not run again"
    assert len(world.publications()) == 1


@pytest.mark.parametrize("body", [writes("new"), nothing], ids=["changed", "no-op"])
def test_row_4_changed_code_is_refused_before_its_body_runs(world: World, body: Body) -> None:
    """Strict: a hard reset runs no hook, so nothing can fence it. The error says the ways out."""
    step = world.schedule()
    world.run(world.task(writes("old"), version="1"), step, report=False)
    head = world.head
    result = world.run(world.task(body, version="2"), world.orchestrator.retry(step))
    assert (result.status, result.code) == ("FAILED", "fence.replace")
    assert "restart-from" in (result.reason or "")
    assert world.head == head
    assert world.runs == 1


@pytest.mark.parametrize("changed", [True, False], ids=["changed", "no-op"])
def test_row_4_serial_replaces_by_a_hard_reset(world: World, changed: bool) -> None:
    step = world.schedule()
    start = step.handed_out.input["workspace"]["ref"]
    world.run(world.task(writes("old"), version="1", fence="serial"), step, report=False)
    body = writes("new") if changed else lambda path: None
    result = world.run(world.task(body, version="2", fence="serial"), world.orchestrator.retry(step))
    assert ref_of(result) == world.head
    if changed:
        assert world.repo.commit(world.head).parents == (start,), "history reads input → staged"
        assert world.content()["out.txt"] == b"new"
    else:
        assert world.head == start
    assert world.staging() == []


@pytest.mark.parametrize("changed", [True, False], ids=["changed", "no-op"])
def test_row_5_rebase_goes_on_over_what_does_not_overlap(world: World, changed: bool) -> None:
    step = world.schedule()
    foreign = world.foreign("other/file.txt")
    body = writes() if changed else lambda path: None
    result = world.run(world.task(body, prefix="raw", on_conflict="rebase"), step)
    assert world.content()["other/file.txt"] == b"foreign"
    if changed:
        assert ref_of(result) == world.head
        assert world.repo.commit(world.head).parents == (foreign,)
        assert world.content()["raw/out.txt"] == b"out"
    else:
        assert ref_of(result) == step.handed_out.input["workspace"]["ref"], "a no-op reports its input"
        assert world.head == foreign


@pytest.mark.parametrize("on_conflict", ["fail", "rebase"])
@pytest.mark.parametrize("body", [writes(), nothing], ids=["changed", "no-op"])
def test_row_6_the_colleague_is_never_dropped(world: World, body: Body, on_conflict: str) -> None:
    """INV-5: a foreign commit between input and publish stays; the attempt fails closed naming it."""
    step = world.schedule()
    foreign = world.foreign("raw/theirs.txt")
    result = world.run(world.task(body, on_conflict=on_conflict), step)
    assert (result.status, result.code) == ("FAILED", "fence.publish")
    assert foreign[:12] in (result.reason or "")
    assert world.head == foreign
    assert "out.txt" not in world.content()


def test_the_colleague_comes_right_before_the_merge(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    """The server refuses: what was decided on another head is not merged."""
    merge, seen = world.client.merge, list[MergeOutcome]()

    def after_a_colleague(source: str, target: str, *given: Any, **more: Any) -> MergeOutcome:
        if not seen:
            world.foreign("raw/theirs.txt")
        seen.append(merge(source, target, *given, **more))
        return seen[-1]

    monkeypatch.setattr(world.client, "merge", after_a_colleague)
    result = world.run(world.task(writes()), world.schedule())
    assert [outcome.end for outcome in seen] == [MergeEnd.REFUSED]
    assert (result.status, result.code) == ("FAILED", "fence.publish")
    assert world.content()["raw/theirs.txt"] == b"foreign"
    assert "out.txt" not in world.content()


def test_the_colleague_elsewhere_right_before_the_merge_is_rebased_upon(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    merge, seen = world.client.merge, list[MergeOutcome]()

    def after_a_colleague(source: str, target: str, *given: Any, **more: Any) -> MergeOutcome:
        if not seen:
            world.foreign("elsewhere.txt")
        seen.append(merge(source, target, *given, **more))
        return seen[-1]

    monkeypatch.setattr(world.client, "merge", after_a_colleague)
    result = world.run(world.task(writes(), prefix="raw", on_conflict="rebase"), world.schedule())
    assert [outcome.end for outcome in seen] == [MergeEnd.REFUSED, MergeEnd.MERGED]
    assert ref_of(result) == world.head
    assert world.content() == {"raw/a.txt": b"a", "raw/out.txt": b"out", "elsewhere.txt": b"foreign"}


@pytest.mark.parametrize("landed", [True, False])
def test_a_lost_answer_of_the_merge_is_settled_by_the_log(
    world: World, monkeypatch: pytest.MonkeyPatch, landed: bool
) -> None:
    """INV-3: found in the branch's log, it was published; absent, the same merge goes out again."""
    merge, seen = world.client.merge, list[str]()

    def lost_once(source: str, target: str, *given: Any, **more: Any) -> Any:
        seen.append(source)
        if len(seen) > 1:
            return merge(source, target, *given, **more)
        if landed:
            merge(source, target, *given, **more)
        return MergeOutcome(MergeEnd.UNKNOWN, why="the connection was lost")

    monkeypatch.setattr(world.client, "merge", lost_once)
    result = world.run(world.task(writes()), world.schedule())
    assert ref_of(result) == world.head
    assert result.output["result"] == {"rows": 1}
    assert len(seen) == (1 if landed else 2)
    assert len(world.publications()) == 1
    assert world.staging() == []


@pytest.mark.parametrize("landed", [True, False])
def test_a_lost_answer_of_the_seal_is_settled_by_the_branch(
    world: World, monkeypatch: pytest.MonkeyPatch, landed: bool
) -> None:
    commit, seen = world.client.commit, list[str]()

    def lost_once(branch: str, *given: Any, **more: Any) -> Any:
        seen.append(branch)
        if len(seen) > 1:
            return commit(branch, *given, **more)
        if landed:
            commit(branch, *given, **more)
        raise OutcomeUnknown("the connection was lost")

    monkeypatch.setattr(world.client, "commit", lost_once)
    result = world.run(world.task(writes()), world.schedule())
    assert ref_of(result) == world.head
    assert len(seen) == (1 if landed else 2)
    assert len(world.publications()) == 1


def sealed_and_stopped(world: World, step: Any, version: str = "1", **spec: Any) -> None:
    """An attempt that sealed, and whose orchestrator did not answer at the second fence."""
    asked = []

    def away(current: HandedOut) -> None:
        asked.append(current)
        if len(asked) == 3:  # after the body, before the first byte, and now after the seal
            raise ConnectionError("the orchestrator is away")

    world.orchestrator.on_current = away
    result = world.attempt(
        world.task(writes("old"), version=version, **spec), world.orchestrator.take(step), report=False
    )
    assert result.code == "fence.stale_attempt"
    assert len(world.staging()) == 1
    world.orchestrator.on_current = lambda current: None


def test_a_sealed_attempt_is_resumed_and_its_body_does_not_run_again(world: World) -> None:
    step = world.schedule()
    sealed_and_stopped(world, step)
    again = world.run(world.task(writes("old")), world.orchestrator.retry(step))
    assert ref_of(again) == world.head
    assert again.output["result"] == {"rows": 1}
    assert world.runs == 1
    assert world.staging() == []
    assert world.content()["out.txt"] == b"old"


def test_a_no_op_fences_what_its_step_left(world: World) -> None:
    """R3: an outcome that moves nothing cannot stop a zombie, so the zombie's branch goes first."""
    step = world.schedule()
    sealed_and_stopped(world, step)
    result = world.run(world.task(nothing, version="2"), world.orchestrator.retry(step))
    assert ref_of(result) == step.handed_out.input["workspace"]["ref"]
    assert world.staging() == []
    assert "out.txt" not in world.content()


def test_two_pipelines_on_one_branch_end_with_one_winner(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    """Both have decided on the same head before either merges: the server lets one through, every time."""
    merge = world.client.merge
    both = threading.Barrier(2)
    met = threading.local()

    def together(source: str, target: str, *given: Any, **more: Any) -> MergeOutcome:
        if not getattr(met, "once", False):
            met.once = True
            both.wait(60)
        return merge(source, target, *given, **more)

    monkeypatch.setattr(world.client, "merge", together)
    for n in range(ROUNDS):
        steps = [world.schedule(workflow=f"{name}{n}") for name in "ab"]
        with ThreadPoolExecutor(2) as pool:
            tasks = [world.task(writes(f"{name}{n}")) for name in "ab"]
            results = list(pool.map(world.run, tasks, steps))
        assert sorted(result.status for result in results) == ["COMPLETED", "FAILED"]
        assert [result.code for result in results if result.status == "FAILED"] == ["fence.publish"]
        winner = "a" if results[0].status == "COMPLETED" else "b"
        assert world.content()["out.txt"] == f"{winner}{n}".encode()
        assert len(world.publications(f"{winner}{n}/build/0")) == 1


def test_a_lost_lease_publishes_nothing(world: World) -> None:
    step = world.schedule()

    def lose(path: Path) -> None:
        writes()(path)
        world.orchestrator.retry(step)

    result = world.run(world.task(lose), step)
    assert (result.status, result.code) == ("FAILED", "fence.stale_attempt")
    assert "out.txt" not in world.content()
    assert world.staging() == []


def test_without_the_hook_nothing_is_staged(client: Client, tmp_path: Path) -> None:
    client.put("main", "raw/a.txt", b"a")
    client.commit("main", "start")
    from fenceline.repo.lakefs.repository import LakeRepository
    from fenceline.testing.orchestrator import MemoryOrchestrator

    world = World(LakeRepository(client), MemoryOrchestrator(), tmp_path / "work")
    step = world.schedule()
    result = world.run(world.task(writes()), step)
    assert (result.status, result.code) == ("FAILED", "lakefs.hook_missing")
    assert "fenceline lakefs setup" in (result.reason or "")
    assert world.staging() == []
    again = world.run(world.task(writes(), fence="serial"), world.orchestrator.retry(step))
    assert ref_of(again) == world.head, "the seeds' soft fence needs no hook"


def test_a_task_sees_no_hooks_and_may_not_write_them(world: World) -> None:
    def look(path: Path) -> None:
        assert sorted(p.name for p in path.iterdir()) == ["raw"]
        (path / hook.HOOK_PATH).parent.mkdir()
        (path / hook.HOOK_PATH).write_text("name: mine")

    result = world.run(world.task(look), world.schedule())
    assert (result.status, result.code) == ("FAILED", "contract")
    assert hook.installed(world.client, world.head)


def test_deletes_and_modes_are_staged(world: World) -> None:
    def body(path: Path) -> None:
        (path / "raw/a.txt").unlink()
        (path / "run.sh").write_text("true")
        (path / "run.sh").chmod(0o755)

    first = ref_of(world.run(world.task(body), world.schedule()))
    assert world.content() == {"run.sh": b"true"}

    def executable(path: Path) -> None:
        assert (path / "run.sh").stat().st_mode & 0o777 == 0o755
        (path / "run.sh").write_text("true")  # the same content again

    again = world.run(world.task(executable), world.schedule(workflow="w2"))
    assert ref_of(again) == first, "the same content is no change"


def test_one_changed_file_among_many_is_one_upload(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    put = partial(world.client.put, "main", data=b"x")
    list(world.repo.seams.threads.map(lambda n: put(f"many/{n}.txt"), range(FILES), 16))
    world.client.commit("main", "many")
    uploaded: list[str] = []
    upload = world.client.upload

    def count(branch: str, path: str, *given: Any, **more: Any) -> Any:
        uploaded.append(path)
        return upload(branch, path, *given, **more)

    monkeypatch.setattr(world.client, "upload", count)

    def body(path: Path) -> None:
        (path / "7.txt").write_text("changed")

    assert ref_of(world.run(world.task(body, prefix="many"), world.schedule())) == world.head
    assert uploaded == ["many/7.txt"]


def test_phases_are_told_as_they_pass(world: World) -> None:
    phases: list[Phase] = []
    world.runner(on_phase=phases.append).run(world.task(writes()), world.orchestrator.take(world.schedule()))
    assert phases[-3:] == [Phase.FENCE, Phase.STAGE, Phase.PUBLISH]


def test_a_rehearsal_touches_no_branch(world: World) -> None:
    before = [ref.name for ref in world.client.branches()]
    rehearsal = world.runner().rehearse(world.task(writes()), world.orchestrator.take(world.schedule()))
    assert [(unit.path, unit.status) for unit in rehearsal.changes] == [("out.txt", "added")]
    assert [ref.name for ref in world.client.branches()] == before


def test_names_of_all_kinds_and_empty_files_go_there_and_back(world: World) -> None:
    names = ["plain", "with space", "ünï/cödé", "a#b?c&d=e%20f+g", "day=2026-01-01/part-0.parquet", "empty"]

    def body(path: Path) -> None:
        for name in names:
            (path / name).parent.mkdir(parents=True, exist_ok=True)
            (path / name).write_text("" if name == "empty" else name)

    assert ref_of(world.run(world.task(body, prefix="odd"), world.schedule())) == world.head
    assert world.content() == {"raw/a.txt": b"a"} | {
        f"odd/{name}": b"" if name == "empty" else name.encode() for name in names
    }

    def back(path: Path) -> None:
        found = {str(each.relative_to(path)) for each in path.rglob("*") if each.is_file()}
        assert found == set(names)
        assert (path / "a#b?c&d=e%20f+g").read_text() == "a#b?c&d=e%20f+g"
        for name in names[:3]:
            (path / name).unlink()

    assert ref_of(world.run(world.task(back, prefix="odd"), world.schedule(workflow="w2"))) == world.head
    assert len(world.content()) == 4


def test_directory_markers_of_s3_tools_are_left_alone(world: World) -> None:
    world.client.put("main", "raw/marked/", b"")
    world.client.put("main", "raw/marked/file", b"x")
    world.client.commit("main", "as an S3 tool leaves it")

    def body(path: Path) -> None:
        assert [each.name for each in (path / "marked").iterdir()] == ["file"]
        (path / "marked/file").unlink()

    assert ref_of(world.run(world.task(body, prefix="raw"), world.schedule())) == world.head
    assert {o.path for o in world.client.objects("main", "raw/")} == {"raw/a.txt", "raw/marked/"}


def test_only_what_a_task_says_it_reads_is_brought(world: World) -> None:
    world.client.put("main", "other/b.txt", b"b")
    world.client.commit("main", "more")
    step = world.schedule()
    foreign = world.foreign("other/c.txt")

    def body(path: Path) -> None:
        assert sorted(str(p.relative_to(path)) for p in path.rglob("*") if p.is_file()) == ["raw/a.txt"]
        (path / "raw/new.txt").write_text("new")

    result = world.run(world.task(body, reads=["raw"], on_conflict="rebase"), step)
    assert ref_of(result) == world.head
    assert world.repo.commit(world.head).parents == (foreign,), "what it did not read may change meanwhile"


def test_a_result_too_large_for_the_metadata_is_refused_before_the_seal(world: World) -> None:
    class Large(BaseModel):
        text: str

    @task(name="large", owner="data@example.com", version="1", workspace=WorkspaceSpec())
    def large(workspace: Path, params: Params) -> Large:
        (workspace / "out.txt").write_text("out")
        return Large(text="x" * 300_000)

    result = world.run(large, world.schedule("large"))
    assert (result.status, result.code) == ("FAILED", "contract"), result.reason
    assert world.staging() == []
    assert "out.txt" not in world.content()

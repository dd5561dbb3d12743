"""One attempt of a task, published exactly once: the Confirm table and the failure table, on path workspaces."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import pytest
from harness import assert_sound, content
from pydantic import BaseModel, ConfigDict

import fenceline as fl
from fenceline.errors import OutcomeUnknown, StoreError
from fenceline.repo.native.refs import RefLog
from fenceline.task.attempt import AttemptRunner
from fenceline.task.contract import TaskDefinition, task
from fenceline.task.guard import require_file
from fenceline.task.orchestrator import HandedOut
from fenceline.task.result import Phase, TaskFailed, TaskResult, TaskTerminalError
from fenceline.task.spec import WorkspaceSpec
from fenceline.testing import HandClock
from fenceline.testing.orchestrator import MemoryOrchestrator, ScheduledStep
from fenceline.txn.trying import Try

Body = Callable[[Path], None]


class Params(BaseModel):
    model_config = ConfigDict(extra="forbid")
    day: str = "monday"


class Result(BaseModel):
    rows: int


@dataclass
class World:
    """A repository, an orchestrator, and tasks whose bodies are counted."""

    repo: fl.Repository
    orchestrator: MemoryOrchestrator
    root: Path
    runs: int = 0

    def task(self, body: Body, name: str = "build", version: str = "1", **spec: Any) -> TaskDefinition[Any, Any]:
        @task(name=name, owner="data@example.com", version=version, workspace=WorkspaceSpec(**spec))
        def build(workspace: Path, params: Params) -> Result:
            self.runs += 1
            body(workspace)
            return Result(rows=self.runs)

        return build

    def schedule(self, name: str = "build", workflow: str = "w1", ref: str | None = None) -> ScheduledStep:
        head = ref or self.repo.head("main").commit.id
        place = {"repository": self.repo.url, "branch": "main", "ref_type": "commit", "ref": head}
        return self.orchestrator.schedule(name, {"workspace": place, "params": {}}, workflow=workflow)

    def run(self, definition: TaskDefinition[Any, Any], step: ScheduledStep, report: bool = True) -> TaskResult:
        return self.attempt(definition, self.orchestrator.take(step), report)

    def attempt(self, definition: TaskDefinition[Any, Any], attempt: HandedOut, report: bool = True) -> TaskResult:
        result = self.runner().run(definition, attempt)
        if report:
            self.orchestrator.complete(attempt, result)
        return result

    def runner(self, **more: Any) -> AttemptRunner:
        return AttemptRunner(lambda url: self.repo.native, self.orchestrator, self.root, actor="worker", **more)

    def foreign(self, path: str, text: str = "foreign") -> str:
        with self.repo.transaction("main", actor="colleague") as tx:
            tx.write(path, text)
        return tx.result.commit

    def ops(self) -> list[str]:
        return [str(e.op) for e in self.repo.entries("main")][::-1]


@pytest.fixture
def world(tmp_path: Path) -> World:
    repo = fl.open_repository(tmp_path / "repo", create=True)
    with repo.transaction("main", actor="test") as tx:
        tx.write("raw/a.txt", b"a")
    return World(repo, MemoryOrchestrator(), tmp_path / "work")


def writes(text: str = "out") -> Body:
    def body(path: Path) -> None:
        (path / "out.txt").write_text(text)

    return body


def nothing(path: Path) -> None:
    assert (path / "raw/a.txt").read_text() == "a"


def ref_of(result: TaskResult) -> str:
    assert result.status == "COMPLETED", result.reason
    return str(result.output["workspace"]["ref"])


def test_row_3_the_head_is_the_input_publish(world: World) -> None:
    result = world.run(world.task(writes()), world.schedule())
    assert ref_of(result) == world.repo.head("main").commit.id
    assert result.output["result"] == {"rows": 1}
    assert content(world.repo)["out.txt"] == b"out"
    assert world.ops()[-1] == "publish"
    assert_sound(world.repo)


def test_row_3_no_op_takes_a_number_and_makes_no_commit(world: World) -> None:
    before = world.repo.head("main").commit.id
    result = world.run(world.task(nothing), world.schedule())
    assert ref_of(result) == before == world.repo.head("main").commit.id
    assert world.ops()[-1] == "noop"
    assert list(world.repo.recoveries())[-1].recovered_for == "test", "a no-op opens no intent"


def test_read_only_writes_nothing_and_asks_nobody(world: World) -> None:
    def ask(attempt: HandedOut) -> None:
        raise AssertionError("a read-only attempt has no fence")

    world.orchestrator.on_current = ask
    step = world.schedule()
    world.foreign("other.txt")
    before = world.ops()
    result = world.run(world.task(writes(), read_only=True), step)
    assert ref_of(result) == step.handed_out.input["workspace"]["ref"]
    assert world.ops() == before
    assert "out.txt" not in content(world.repo)


@pytest.mark.parametrize("body", [writes(), nothing], ids=["changed", "no-op"])
def test_row_1_the_same_attempt_twice_reports_its_outcome(world: World, body: Body) -> None:
    step = world.schedule()
    first = world.run(world.task(body), step, report=False)
    entries = world.ops()
    again = world.run(world.task(body), step)
    assert ref_of(again) == ref_of(first)
    assert again.output == first.output
    assert world.ops() == entries, "nothing to write"
    assert world.runs == 1


@pytest.mark.parametrize("body", [writes(), nothing], ids=["changed", "no-op"])
def test_row_2_a_retry_adopts_what_its_step_already_published(world: World, body: Body) -> None:
    step = world.schedule()
    first = world.run(world.task(body), step, report=False)
    again = world.run(world.task(body), world.orchestrator.retry(step))
    assert again.output == first.output
    assert world.ops()[-1] == "adopt"
    assert world.runs == 1, "the body did not run again"


def test_row_4_changed_code_replaces_its_own_abandoned_publication(world: World) -> None:
    step = world.schedule()
    input_ref = step.handed_out.input["workspace"]["ref"]
    world.run(world.task(writes("old"), version="1"), step, report=False)
    result = world.run(world.task(writes("new"), version="2"), world.orchestrator.retry(step))
    head = world.repo.head("main").commit
    assert ref_of(result) == head.id
    assert head.parents == (input_ref,), "history reads input → staged"
    assert content(world.repo)["out.txt"] == b"new"
    assert world.ops()[-1] == "relocate"
    assert_sound(world.repo)


def test_row_4_a_no_op_of_changed_code_goes_back_to_the_input(world: World) -> None:
    step = world.schedule()
    input_ref = step.handed_out.input["workspace"]["ref"]
    world.run(world.task(writes("old"), version="1"), step, report=False)
    result = world.run(world.task(nothing, version="2"), world.orchestrator.retry(step))
    assert ref_of(result) == input_ref == world.repo.head("main").commit.id
    assert "out.txt" not in content(world.repo)


@pytest.mark.parametrize("changed", [True, False], ids=["changed", "no-op"])
def test_row_5_rebase_goes_on_over_what_does_not_overlap(world: World, changed: bool) -> None:
    step = world.schedule()
    foreign = world.foreign("other/file.txt")
    body = writes() if changed else lambda path: None
    result = world.run(world.task(body, prefix="raw", on_conflict="rebase"), step)
    head = world.repo.head("main").commit
    shown = content(world.repo)
    assert shown["other/file.txt"] == b"foreign"
    assert world.ops()[-1] == ("publish" if changed else "noop")
    if changed:
        assert ref_of(result) == head.id
        assert head.parents == (foreign,)
        assert shown["raw/out.txt"] == b"out"
    else:
        assert ref_of(result) == step.handed_out.input["workspace"]["ref"], "a no-op reports its input"
        assert head.id == foreign


@pytest.mark.parametrize("on_conflict", ["fail", "rebase"])
@pytest.mark.parametrize("body", [writes(), nothing], ids=["changed", "no-op"])
def test_row_6_the_colleague_is_never_dropped(world: World, body: Body, on_conflict: str) -> None:
    """INV-5: a foreign commit between input and publish stays; the attempt fails closed naming it."""
    step = world.schedule()
    foreign = world.foreign("raw/theirs.txt")
    result = world.run(world.task(body, on_conflict=on_conflict), step)
    assert result.status == "FAILED"
    assert result.code == "fence.publish"
    assert foreign[:12] in (result.reason or "")
    assert world.repo.head("main").commit.id == foreign
    assert "out.txt" not in content(world.repo)


def test_serial_replaces_any_single_commit_on_top_of_the_input(world: World) -> None:
    """The seeds' own rule, for histories written without transaction metadata."""
    step = world.schedule()
    world.foreign("raw/theirs.txt")
    result = world.run(world.task(writes(), fence="serial"), step)
    assert ref_of(result) == world.repo.head("main").commit.id
    assert "raw/theirs.txt" not in content(world.repo)
    assert content(world.repo)["out.txt"] == b"out"


def test_row_0_an_attempt_whose_outcome_was_moved_away_fails_closed(world: World) -> None:
    step = world.schedule()
    world.run(world.task(writes()), step, report=False)
    world.repo.relocate_branch("main", step.handed_out.input["workspace"]["ref"])
    result = world.run(world.task(writes()), step)
    assert result.status == "FAILED"
    assert "moved away" in (result.reason or "")


def test_row_0_nothing_is_published_on_a_deleted_branch(world: World) -> None:
    world.repo.create_branch("dev", "main")
    head = world.repo.head("dev").commit.id
    place = {"repository": world.repo.url, "branch": "dev", "ref_type": "commit", "ref": head}
    step = world.orchestrator.schedule("build", {"workspace": place, "params": {}})

    def delete(path: Path) -> None:
        writes()(path)
        world.repo.delete_branch("dev")
        world.repo.create_branch("dev", "main")

    result = world.run(world.task(delete), step)
    assert result.status == "FAILED"
    assert "out.txt" not in content(world.repo, "dev")


def test_a_sealed_attempt_is_resumed_and_its_body_does_not_run_again(world: World) -> None:
    step = world.schedule()
    attempt = world.orchestrator.take(step)
    asked = []

    def die_at_the_second_fence(current: HandedOut) -> None:
        asked.append(current)
        if len(asked) == 3:  # after the body, before the first byte, and now after the seal
            raise ConnectionError("the orchestrator is away")

    world.orchestrator.on_current = die_at_the_second_fence
    first = world.attempt(world.task(writes()), attempt, report=False)
    assert first.status == "FAILED"
    assert first.code == "fence.stale_attempt"
    assert [i.state for i in world.repo.intents()] == ["sealed"]
    world.orchestrator.on_current = lambda current: None
    again = world.run(world.task(writes()), world.orchestrator.retry(step))
    assert ref_of(again) == world.repo.head("main").commit.id
    assert again.output["result"] == {"rows": 1}
    assert world.runs == 1
    assert list(world.repo.intents()) == []
    assert_sound(world.repo)


def test_a_no_op_does_not_go_back_to_content_that_was_given_up(world: World) -> None:
    """Row 4 of a no-op points the branch at an old commit: its input, which an expiring collection may have taken."""
    step = world.schedule()
    first = ref_of(world.run(world.task(writes()), step, report=False))
    begin = list(world.repo.entries("main"))[-1].commit or ""
    for _ in range(2):  # the branch has been elsewhere since, so that its input is not among the last heads
        world.repo.relocate_branch("main", begin)
        world.repo.relocate_branch("main", first)
    world.orchestrator.retry(step)

    def expired(path: Path) -> None:
        assert world.repo.gc(fl.Retention(keep=3, expire=True), grace=0).expired

    result = world.run(world.task(expired, version="2"), step)
    assert result.status == "FAILED"
    assert "removed by garbage collection" in (result.reason or "")
    assert world.repo.head("main").commit.id == first
    assert content(world.repo)["out.txt"] == b"out"
    assert_sound(world.repo)


def test_forced_rerun_runs_again_and_replaces(world: World) -> None:
    step = world.schedule()
    first = world.run(world.task(writes("one")), step)
    again = world.run(world.task(writes("two")), world.orchestrator.force(step))
    assert ref_of(again) != ref_of(first)
    assert content(world.repo)["out.txt"] == b"two"
    assert world.runs == 2


def test_a_lost_lease_publishes_nothing(world: World) -> None:
    step = world.schedule()

    def lose(path: Path) -> None:
        writes()(path)
        world.orchestrator.retry(step)

    result = world.run(world.task(lose), step)
    assert result.status == "FAILED"
    assert result.code == "fence.stale_attempt"
    assert "out.txt" not in content(world.repo)
    assert list(world.repo.intents()) == []


@pytest.mark.parametrize("slow", [Phase.STAGE, Phase.PUBLISH])
def test_what_takes_longer_than_its_budget_publishes_nothing(world: World, slow: Phase) -> None:
    """Out of time before the seal: cancelled. After it: the next attempt resumes what was sealed."""
    clock = HandClock()
    budget = fl.PublishBudget(stage_timeout_seconds=30, confirm_timeout_seconds=20)

    @task(name="build", owner="data@example.com", version="1", workspace=WorkspaceSpec(), budget=budget)
    def build(workspace: Path, params: Params) -> Result:
        world.runs += 1
        (workspace / "out.txt").write_text("out")
        return Result(rows=world.runs)

    phases: list[Phase] = []
    step = world.schedule()
    attempt = world.orchestrator.take(step)
    ask = world.repo.native.branch_log.last

    def dawdle(name: str) -> Any:
        if phases and phases[-1] is slow:
            clock.sleep(31)
        return ask(name)

    original = Try.complete

    def complete(self: Try, *given: Any, **more: Any) -> Any:
        if slow is Phase.STAGE:
            clock.sleep(31)
        return original(self, *given, **more)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(world.repo.native.branch_log, "last", dawdle)
        patch.setattr(Try, "complete", complete)
        runner = world.runner(on_phase=phases.append, seams=replace(world.repo.native.seams, clock=clock))
        result = runner.run(build, attempt)
    assert (result.status, result.code) == ("FAILED", "task.publish_timeout")
    assert "out.txt" not in content(world.repo)
    world.orchestrator.retry(step)
    assert ref_of(world.run(build, step)) == world.repo.head("main").commit.id
    assert world.runs == (2 if slow is Phase.STAGE else 1)
    assert_sound(world.repo)


def test_two_pipelines_on_one_branch_end_with_one_winner(world: World) -> None:
    """12 of 12 races: one COMPLETED, one PublishFenceError."""
    for n in range(12):
        first, second = world.schedule(workflow=f"a{n}"), world.schedule(workflow=f"b{n}")
        results = [world.run(world.task(writes(f"{n}{k}")), step) for k, step in enumerate((first, second))]
        assert sorted(r.status for r in results) == ["COMPLETED", "FAILED"]
        assert [r.code for r in results if r.status == "FAILED"] == ["fence.publish"]


# --- the failure table --------------------------------------------------------------------------------------------


def raises(error: Exception) -> Body:
    def body(path: Path) -> None:
        raise error

    return body


@pytest.mark.parametrize(
    ("error", "status", "code"),
    [
        (TaskFailed("try again"), "FAILED", "task.failed"),
        (TaskTerminalError("never"), "FAILED_WITH_TERMINAL_ERROR", "task.terminal"),
        (ZeroDivisionError("oops"), "FAILED", "task.exception"),
    ],
)
def test_failures_of_the_body(world: World, error: Exception, status: str, code: str) -> None:
    result = world.run(world.task(raises(error)), world.schedule())
    assert (result.status, result.code) == (status, code)
    assert str(error.args[0]) in (result.reason or "")
    assert list(world.repo.intents()) == []
    assert not list(world.root.glob("*")), "the attempt's directory is gone"


def test_a_pre_guard_ends_the_step_and_a_post_guard_fails_the_attempt(world: World) -> None:
    missing = world.run(world.task(writes(), pre=(require_file("missing.txt"),)), world.schedule())
    assert missing.status == "FAILED_WITH_TERMINAL_ERROR"
    assert "missing.txt" in (missing.reason or "")
    assert world.runs == 0
    after = world.run(world.task(nothing, post=(require_file("out.txt"),)), world.schedule(workflow="w2"))
    assert after.status == "FAILED"
    assert world.runs == 1


def test_an_input_that_is_not_what_the_task_takes_fails(world: World) -> None:
    step = world.orchestrator.schedule("build", {"params": {}, "extra": 1})
    result = world.run(world.task(writes()), step)
    assert result.status == "FAILED"
    assert "workspace" in (result.reason or "")


def test_a_symbolic_link_is_refused(world: World) -> None:
    def link(path: Path) -> None:
        (path / "link").symlink_to("raw/a.txt")

    result = world.run(world.task(link), world.schedule())
    assert result.status == "FAILED"
    assert "link" in (result.reason or "")
    assert list(world.repo.intents()) == []


def test_an_unknown_outcome_is_told_as_such_and_settled_by_the_retry(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    step = world.schedule()
    original = RefLog.append

    def lose(self: RefLog, name: str, entry: Any) -> bool:
        original(self, name, entry)
        raise OutcomeUnknown("the answer was lost")

    monkeypatch.setattr(RefLog, "append", lose)
    first = world.run(world.task(writes()), step, report=False)
    assert first.code == "store.outcome_unknown"
    monkeypatch.undo()
    again = world.run(world.task(writes()), world.orchestrator.retry(step))
    assert ref_of(again) == world.repo.head("main").commit.id
    assert world.runs == 1
    assert sum(op == "publish" for op in world.ops()) == 2, "the start, and the step once"


def test_phases_are_told_as_they_pass(world: World) -> None:
    phases: list[Phase] = []
    step = world.schedule()
    world.runner(on_phase=phases.append).run(world.task(writes()), world.orchestrator.take(step))
    assert phases == [
        Phase.LOOK_BACK,
        Phase.MATERIALISE,
        Phase.PRE_GUARDS,
        Phase.BODY,
        Phase.RESULT_MODEL,
        Phase.POST_GUARDS,
        Phase.FENCE,
        Phase.STAGE,
        Phase.PUBLISH,
    ]


def test_a_store_that_fails_while_staging_leaves_nothing(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(*args: Any, **kwargs: Any) -> None:
        raise StoreError("the disk failed")

    from fenceline.repo.native.staging import Staging

    monkeypatch.setattr(Staging, "file", fail)
    result = world.run(world.task(writes()), world.schedule())
    assert result.status == "FAILED"
    assert result.code == "store"
    monkeypatch.undo()
    assert list(world.repo.intents()) == []
    assert "out.txt" not in content(world.repo)

"""Runs as people start, resume, cancel, publish and restart them; workers in threads of this process."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest
from pydantic import BaseModel, ConfigDict

import fenceline as fl
from fenceline.errors import ConfigError, ConflictError, NotFound
from fenceline.pipeline.definition.dsl import Run, pipeline
from fenceline.pipeline.embedded.runner import RunBusy, RunInterrupted, Runner, run
from fenceline.pipeline.embedded.runs import (
    RunFailed,
    RunResult,
    cancel_run,
    forget_run,
    list_runs,
    old_runs,
    open_store,
    publish_by_hand,
    restart_from,
    run_events,
    show_run,
)
from fenceline.pipeline.embedded.store import attempts

QUICK = fl.TaskControls(retry_count=1, retry_delay_seconds=0, response_timeout_seconds=30)


class Params(BaseModel):
    model_config = ConfigDict(extra="forbid")
    rows: int = 1


class Out(BaseModel):
    rows: int


@dataclass
class Bodies:
    """What bodies do, and which of them ran: tests change it."""

    ran: list[str] = field(default_factory=list)
    does: dict[str, Callable[[], None]] = field(default_factory=dict)
    text: dict[str, str] = field(default_factory=dict)

    def run(self, name: str, workspace: Path) -> None:
        self.ran.append(name)
        self.does.get(name, lambda: None)()
        (workspace / f"{name}.txt").write_text(self.text.get(name, name))


bodies = Bodies()


def made(name: str, prefix: str) -> Any:
    @fl.task(name=f"u.{name}", owner="t@example.com", controls=QUICK, workspace=fl.WorkspaceSpec(prefix=prefix))
    def body(workspace: Path, params: Params) -> Out:
        bodies.run(name, workspace)
        return Out(rows=params.rows + 1)

    return body


@fl.task(name="u.count", owner="t@example.com", controls=QUICK)
def count(params: Params) -> Out:
    bodies.ran.append("count")
    return Out(rows=params.rows * 10)


one, two, three, four = (made(name, name) for name in ("one", "two", "three", "four"))


@pipeline(name="chain", owner="t@example.com")
def chain(run: Run[Params]) -> None:
    a = run.step(one, name="one", rows=run.params.rows)
    b = run.step(count, name="count", rows=a.result.rows)
    c = run.step(two, name="two", after=a, rows=b.result.rows)
    run.step(three, name="three", after=c)


@pipeline(name="wide", owner="t@example.com")
def wide(run: Run[Params]) -> None:
    a = run.step(one, name="one")
    b = run.step(two, name="two", after=a)
    c = run.step(three, name="three", after=a)
    run.step(four, name="four", after=[b, c])


@pipeline(name="choice", owner="t@example.com")
def choice(run: Run[Params]) -> None:
    a = run.step(one, name="one", rows=run.params.rows)
    with run.when(a.result.rows > 5) as block:
        run.step(two, name="two")
    run.step(three, name="three", after=[a, block])


@pipeline(name="direct", owner="t@example.com", publish="step")
def direct(run: Run[Params]) -> None:
    a = run.step(one, name="one")
    run.step(two, name="two", after=a)


@pytest.fixture(autouse=True)
def fresh() -> Iterator[None]:
    yield
    bodies.ran.clear()
    bodies.does.clear()
    bodies.text.clear()


@pytest.fixture
def repo(disk_repo: fl.Repository) -> fl.Repository:
    with disk_repo.transaction("main", actor="test") as tx:
        tx.write("raw.txt", b"raw")
    return disk_repo


def files(repo: fl.Repository, ref: str = "main") -> dict[str, str]:
    return {entry.path: repo.native.read(entry).decode() for entry in repo.list(ref)}


def fails(name: str) -> None:
    def fail() -> None:
        raise fl.TaskTerminalError("no")

    bodies.does[name] = fail


def statuses(result: RunResult) -> dict[str, str]:
    return {step.reference: step.status for step in result.steps}


@contextmanager
def busy(repo: fl.Repository, *pipelines: Any) -> Iterator[Runner]:
    with Runner(repo, pipelines, slots=2, grace=1) as runner:
        yield runner


def go_on(repo: fl.Repository, which: Any, run_id: str) -> RunResult:
    with busy(repo, which) as runner:
        return runner.wait(runner.resume(run_id))


# --- running ------------------------------------------------------------------------------------------------------


def test_a_run_publishes_once_and_reports_results(repo: fl.Repository) -> None:
    result = run(chain, repo, params=Params(rows=3)).check()
    assert bodies.ran == ["one", "count", "two", "three"]
    assert result.output["results"] == {
        "one": {"rows": 4},
        "count": {"rows": 40},
        "two": {"rows": 41},
        "three": {"rows": 2},
    }
    assert result.output["workspace"]["ref"] == repo.head("main").commit.id
    assert files(repo) == {"raw.txt": "raw", "one/one.txt": "one", "two/two.txt": "two", "three/three.txt": "three"}
    assert next(iter(repo.entries("main"))).op == "merge"
    assert result.step("two").attempts == 1
    assert result.as_dict()["steps"][0]["reference"] == "begin"


@pytest.mark.parametrize(("rows", "ran"), [(1, ["one", "three"]), (9, ["one", "two", "three"])])
def test_a_condition_decides(repo: fl.Repository, rows: int, ran: list[str]) -> None:
    run(choice, repo, params={"rows": rows}).check()
    assert bodies.ran == ran


def test_steps_may_publish_themselves(repo: fl.Repository) -> None:
    run(direct, repo).check()
    assert [str(entry.op) for entry in repo.entries("main")][:2] == ["publish", "publish"]
    assert [head.name for head in repo.branches()] == ["main"]


def test_a_failed_run_says_why_and_shows_nothing(repo: fl.Repository) -> None:
    fails("two")
    result = run(chain, repo)
    assert result.status == "FAILED"
    assert "two: body: no" in (result.reason or "")
    assert list(files(repo)) == ["raw.txt"]
    with pytest.raises(RunFailed, match="two"):
        result.check()
    with pytest.raises(NotFound):
        result.step("three")


def test_a_failed_attempt_is_tried_again(repo: fl.Repository) -> None:
    def once() -> None:
        if bodies.ran.count("two") == 1:
            raise RuntimeError("flaky")

    bodies.does["two"] = once
    result = run(chain, repo).check()
    assert result.step("two").attempts == 2
    assert bodies.ran == ["one", "count", "two", "two", "three"]


def test_sys_exit_in_a_body_fails_the_attempt_and_not_the_worker(repo: fl.Repository) -> None:
    def leave() -> None:
        raise SystemExit(1)

    bodies.does["two"] = leave
    result = run(chain, repo)
    assert result.status == "FAILED"
    assert result.step("two").attempts == 2


def test_events_tell_phases_and_outcomes(repo: fl.Repository) -> None:
    result = run(direct, repo).check()
    events = [event for event in run_events(open_store(repo), result.id) if event.data.get("step") == "one"]
    assert [event.data["phase"] for event in events if event.kind == "phase"][-1] == "publish"
    (outcome,) = [event for event in events if event.kind == "outcome"]
    assert (outcome.data["outcome"], outcome.data["bytes"]) == ("published", 3)
    (reported,) = [event for event in events if event.kind == "reported"]
    assert reported.data["commit"] == result.step("one").commit


# --- keys ---------------------------------------------------------------------------------------------------------


def test_a_key_of_ones_own_is_applied_once(repo: fl.Repository) -> None:
    first = run(chain, repo, key="monday").check()
    again = run(chain, repo, key="monday").check()
    assert again.id == first.id
    assert bodies.ran.count("one") == 1


def test_without_a_key_a_completed_run_can_be_repeated(repo: fl.Repository) -> None:
    assert run(direct, repo).id != run(direct, repo).id


def test_a_run_that_is_being_run_is_not_run_twice(repo: fl.Repository) -> None:
    seen: list[str] = []

    def second() -> None:
        with pytest.raises(RunBusy, match="is being run by process"), busy(repo, chain) as runner:
            runner.submit(chain)
        seen.append("refused")

    bodies.does["two"] = second
    run(chain, repo).check()
    assert seen == ["refused"]


def test_a_drained_runner_lets_go_and_the_next_goes_on(repo: fl.Repository) -> None:
    with busy(repo, chain) as runner:
        bodies.does["two"] = runner.drain
        started = runner.submit(chain)
        with pytest.raises(RunInterrupted):
            runner.wait(started)
    assert show_run(open_store(repo), started).status == "RUNNING"
    result = run(chain, repo).check()
    assert result.id == started
    assert bodies.ran == ["one", "count", "two", "three"], "two was published within the grace"


# --- cancel, publish, restart -------------------------------------------------------------------------------------


def test_a_cancelled_run_publishes_nothing_more(repo: fl.Repository) -> None:
    store = open_store(repo)
    with busy(repo, direct) as runner:

        def cancel() -> None:
            cancel_run(store, started)

        bodies.does["two"] = cancel
        started = runner.submit(direct)
        result = runner.wait(started)
    assert result.status == "CANCELED"
    assert "two/two.txt" not in files(repo)
    with pytest.raises(ConflictError, match="already"):
        cancel_run(store, started)


def test_a_conflict_is_published_by_hand(repo: fl.Repository) -> None:
    def collide() -> None:
        with repo.transaction("main", actor="colleague") as tx:
            tx.write("one/one.txt", b"theirs")

    bodies.does["two"] = collide
    result = run(chain, repo)
    assert result.status == "FAILED"
    assert f"fenceline runs publish {result.id}" in (result.reason or "")
    branch = f"run/{result.id}"
    repo.merge("main", into=branch, strategy="ours")
    commit = publish_by_hand(open_store(repo), repo, result.id)
    assert repo.head("main").commit.id == commit
    assert files(repo)["one/one.txt"] == "one"
    assert show_run(open_store(repo), result.id).status == "COMPLETED"
    assert repo.native.find_head(branch) is None
    with pytest.raises(NotFound):
        publish_by_hand(open_store(repo), repo, result.id)


def test_restart_from_a_step_runs_it_and_what_follows(repo: fl.Repository) -> None:
    fails("three")
    failed = run(chain, repo)
    bodies.does.clear()
    bodies.text["two"] = "better"
    again = restart_from(open_store(repo), repo, failed.id, "two")
    assert again == ("two", "three")
    result = go_on(repo, chain, failed.id).check()
    assert bodies.ran == ["one", "count", "two", "three", "two", "three"]
    assert result.step("two").epoch == 1
    assert result.step("one").epoch == 0
    assert files(repo)["two/two.txt"] == "better"
    line = [item.commit.message for item in repo.log("main")]
    assert sum("u.two" in message for message in line) <= 1, "the first one is not in the history"


def test_restart_from_a_step_without_a_workspace(repo: fl.Repository) -> None:
    fails("three")
    failed = run(chain, repo)
    bodies.does.clear()
    assert restart_from(open_store(repo), repo, failed.id, "count") == ("count", "two", "three")
    go_on(repo, chain, failed.id).check()
    assert bodies.ran == ["one", "count", "two", "three", "count", "two", "three"]


def test_restart_also_runs_steps_beside_whose_commits_are_gone(repo: fl.Repository) -> None:
    fails("four")
    failed = run(wide, repo, slots=1)
    bodies.does.clear()
    order = [name for name in bodies.ran if name in ("two", "three")]
    first, second = order
    before = len(bodies.ran)
    again = set(restart_from(open_store(repo), repo, failed.id, first))
    assert again == {first, second, "four"}, "the second was published on top of the first"
    go_on(repo, wide, failed.id).check()
    assert sorted(bodies.ran[before:]) == sorted([first, second, "four"])
    assert set(files(repo)) == {"raw.txt", *(f"{name}/{name}.txt" for name in ("one", "two", "three", "four"))}


def test_a_restart_needs_a_run_that_ended_and_a_step_it_came_to(repo: fl.Repository) -> None:
    store = open_store(repo)
    result = run(chain, repo).check()
    with pytest.raises(ConflictError, match="published"):
        restart_from(store, repo, result.id, "two")
    fails("two")
    failed = run(chain, repo, params=Params(rows=5))
    with pytest.raises(NotFound, match="three"):
        restart_from(store, repo, failed.id, "three")


def test_a_restart_never_drops_what_others_published(repo: fl.Repository) -> None:
    fails("two")
    failed = run(direct, repo)
    with repo.transaction("main", actor="colleague") as tx:
        tx.write("theirs.txt", b"theirs")
    with pytest.raises(ConflictError, match="colleague"):
        restart_from(open_store(repo), repo, failed.id, "one")
    assert "theirs.txt" in files(repo)


def test_attempts_of_a_restart_are_numbered_on(repo: fl.Repository) -> None:
    fails("three")
    failed = run(chain, repo)
    bodies.does.clear()
    store = open_store(repo)
    restart_from(store, repo, failed.id, "three")
    go_on(repo, chain, failed.id).check()
    with store.read() as db:
        tried = [
            (row.retry_count, row.epoch, row.dropped) for row in attempts(db, failed.id) if row.reference == "three"
        ]
    assert tried == [(0, 0, True), (1, 1, False)]


def test_tasks_that_no_other_process_finds_are_refused(repo: fl.Repository) -> None:
    with pytest.raises(ConfigError, match="workers=0"):
        run(chain, repo, workers=1)


def test_old_runs_are_forgotten_with_their_branches_and_what_they_published_stays(repo: fl.Repository) -> None:
    done = run(chain, repo).check()
    fails("two")
    failed = run(chain, repo)
    assert not failed.completed
    before = {entry.path for entry in repo.list("main")}
    store = open_store(repo)
    assert [each.id for each in old_runs(store, 3600)] == []
    assert [each.id for each in old_runs(store, 0)] == [done.id, failed.id]
    for each in old_runs(store, 0):
        forget_run(store, repo, each.id)
    assert list_runs(store) == []
    with pytest.raises(NotFound):
        show_run(store, done.id)
    assert [head.name for head in repo.branches()] == ["main"]
    assert {entry.path for entry in repo.list("main")} == before

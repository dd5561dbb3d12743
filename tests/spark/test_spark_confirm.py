"""The Confirm table on Spark workspaces: what tests/protocol/test_attempts.py shows of directories, of datasets."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from pydantic import BaseModel, ConfigDict
from pyspark.sql import SparkSession

import fenceline as fl
from fenceline.spark.progress import StageProgress
from fenceline.spark.reader import at_commit
from fenceline.task.attempt import AttemptRunner
from fenceline.task.contract import TaskDefinition
from fenceline.task.orchestrator import HandedOut
from fenceline.task.result import TaskResult
from fenceline.testing.orchestrator import MemoryOrchestrator, ScheduledStep

if TYPE_CHECKING:
    from tests.spark.conftest import Lab

Body = Callable[[fl.SparkWorkspace], None]


class Params(BaseModel):
    model_config = ConfigDict(extra="forbid")


class Result(BaseModel):
    runs: int


@dataclass
class World:
    """A repository with one dataset, an orchestrator, and Spark tasks whose bodies are counted."""

    repo: fl.Repository
    session: SparkSession
    root: Path
    orchestrator: MemoryOrchestrator = field(default_factory=MemoryOrchestrator)
    runs: int = 0

    def task(self, body: Body, version: str = "1", **spec: Any) -> TaskDefinition[Any, Any]:
        controls = fl.TaskControls(response_timeout_seconds=3)  # a heartbeat every second
        space = fl.WorkspaceSpec(**spec)

        @fl.task(name="build", owner="data@example.com", version=version, workspace=space, controls=controls)
        def build(workspace: fl.SparkWorkspace, params: Params) -> Result:
            self.runs += 1
            body(workspace)
            return Result(runs=self.runs)

        return build

    def schedule(self, workflow: str = "w1") -> ScheduledStep:
        head = self.repo.head("main").commit.id
        place = {"repository": self.repo.url, "branch": "main", "ref_type": "commit", "ref": head}
        return self.orchestrator.schedule("build", {"workspace": place, "params": {}}, workflow=workflow)

    def run(self, definition: TaskDefinition[Any, Any], step: ScheduledStep, **more: Any) -> TaskResult:
        runner = AttemptRunner(lambda url: self.repo.native, self.orchestrator, self.root, actor="worker", **more)
        return runner.run(definition, self.orchestrator.take(step))

    def rows(self, path: str = "out") -> list[int]:
        read = at_commit(self.session, self.repo.native, self.repo.commit("main")).dataset(path)
        return sorted(row[0] for row in read.collect())

    def has(self, path: str) -> bool:
        return any(True for _ in self.repo.list("main", path))

    def ops(self) -> list[str]:
        return [str(e.op) for e in self.repo.entries("main")][::-1]


@pytest.fixture
def world(lab: Lab, tmp_path: Path) -> World:
    lab.put(lab.session.range(3), "raw")
    return World(lab.repo, lab.session, tmp_path / "work")


def writes(count: int, path: str = "out", mode: Any = "error") -> Body:
    def body(workspace: fl.SparkWorkspace) -> None:
        workspace.write(workspace.spark.range(0, count, 1, 1), path, mode=mode)

    return body


def nothing(workspace: fl.SparkWorkspace) -> None:
    assert workspace.read.dataset("raw").count() == 3


def ref_of(result: TaskResult) -> str:
    assert result.status == "COMPLETED", result.reason
    return str(result.output["workspace"]["ref"])


def input_of(step: ScheduledStep) -> str:
    return str(step.handed_out.input["workspace"]["ref"])


def sound(world: World) -> None:
    """Nothing is broken, no intent is open, and no part file is left that nothing reaches."""
    assert list(world.repo.intents()) == []
    world.repo.gc(grace=0)
    assert world.repo.fsck().problems == ()
    assert world.repo.plan_gc().objects == ()


def test_publish_then_adopt(world: World) -> None:
    step = world.schedule()
    first = world.run(world.task(writes(5)), step)
    assert ref_of(first) == world.repo.head("main").commit.id
    again = world.run(world.task(writes(5)), world.orchestrator.retry(step))
    assert again.output == first.output
    assert world.ops()[-2:] == ["publish", "adopt"]
    assert (world.rows(), world.runs) == ([0, 1, 2, 3, 4], 1)
    sound(world)


def test_a_sealed_write_is_resumed_and_spark_does_not_run_again(world: World) -> None:
    step = world.schedule()
    asked: list[HandedOut] = []

    def away_after_the_seal(attempt: HandedOut) -> None:
        asked.append(attempt)
        if len(asked) == 3:  # before the first byte, after the body, and now after the seal
            raise ConnectionError("the orchestrator is away")

    world.orchestrator.on_current = away_after_the_seal
    first = world.run(world.task(writes(5)), step)
    assert (first.status, first.code) == ("FAILED", "fence.stale_attempt")
    assert [intent.state for intent in world.repo.intents()] == ["sealed"]
    world.orchestrator.on_current = lambda attempt: None
    again = world.run(world.task(writes(5)), world.orchestrator.retry(step))
    assert ref_of(again) == world.repo.head("main").commit.id
    assert (world.rows(), world.runs) == ([0, 1, 2, 3, 4], 1)
    sound(world)


def test_changed_code_replaces_what_it_published_before(world: World) -> None:
    step = world.schedule()
    world.run(world.task(writes(5), version="1"), step)
    result = world.run(world.task(writes(2), version="2"), world.orchestrator.retry(step))
    assert ref_of(result) == world.repo.head("main").commit.id
    assert world.repo.head("main").commit.parents == (input_of(step),)
    assert (world.ops()[-1], world.rows()) == ("relocate", [0, 1])
    sound(world)


def test_a_no_op_of_changed_code_goes_back_to_the_input(world: World) -> None:
    step = world.schedule()
    world.run(world.task(writes(5), version="1"), step)
    result = world.run(world.task(nothing, version="2"), world.orchestrator.retry(step))
    assert ref_of(result) == input_of(step) == world.repo.head("main").commit.id
    assert not world.has("out")
    sound(world)


def test_a_no_op_takes_a_number_and_makes_no_commit(world: World) -> None:
    step = world.schedule()
    result = world.run(world.task(nothing), step)
    assert ref_of(result) == input_of(step) == world.repo.head("main").commit.id
    assert world.ops()[-1] == "noop"
    sound(world)


def test_read_only_writes_nothing_and_may_not(world: World) -> None:
    step = world.schedule()
    before = world.ops()
    assert ref_of(world.run(world.task(nothing, read_only=True), step)) == input_of(step)
    refused = world.run(world.task(writes(1), read_only=True), world.schedule("w2"))
    assert "read-only" in (refused.reason or "")
    assert world.ops() == before
    sound(world)


def test_rebase_over_another_dataset(world: World) -> None:
    """What counts as read is what the body read: nobody else's dataset."""
    step = world.schedule()
    other = world.run(world.task(writes(4, "other")), world.schedule("w2"))
    result = world.run(world.task(writes(2), on_conflict="rebase"), step)
    assert ref_of(result) == world.repo.head("main").commit.id
    assert world.repo.head("main").commit.parents == (ref_of(other),)
    assert (world.rows("other"), world.rows()) == ([0, 1, 2, 3], [0, 1])
    sound(world)


def test_two_appends_to_one_dataset_rebase(world: World) -> None:
    step = world.schedule()
    world.run(world.task(writes(2, "raw", "append")), world.schedule("w2"))
    ref_of(world.run(world.task(writes(1, "raw", "append"), on_conflict="rebase"), step))
    assert world.rows("raw") == [0, 0, 0, 1, 1, 2]
    sound(world)


@pytest.mark.parametrize(
    ("mode", "on_conflict"), [("overwrite", "rebase"), ("append", "fail")], ids=["overlap", "strict"]
)
def test_the_same_dataset_fails_closed_and_drops_nobody(world: World, mode: str, on_conflict: str) -> None:
    step = world.schedule()
    colleague = ref_of(world.run(world.task(writes(2, "raw", "append")), world.schedule("w2")))
    result = world.run(world.task(writes(1, "raw", mode), on_conflict=on_conflict), step)
    assert (result.status, result.code) == ("FAILED", "fence.publish")
    assert colleague[:12] in (result.reason or "")
    assert on_conflict == "fail" or "raw" in (result.reason or "")
    assert world.rows("raw") == [0, 0, 1, 1, 2]


def test_a_read_of_what_a_colleague_changed_is_a_conflict(world: World) -> None:
    def derived(workspace: fl.SparkWorkspace) -> None:
        workspace.write(workspace.read.dataset("raw").selectExpr("id * 10 as id"), "out")

    step = world.schedule()
    world.run(world.task(writes(2, "raw", "append")), world.schedule("w2"))
    result = world.run(world.task(derived, on_conflict="rebase"), step)
    assert (result.status, result.code) == ("FAILED", "fence.publish")
    assert not world.has("out")


def test_serial_replaces_the_one_commit_on_top_of_its_input(world: World) -> None:
    step = world.schedule()
    world.run(world.task(writes(4, "other")), world.schedule("w2"))
    result = world.run(world.task(writes(2), fence="serial"), step)
    assert ref_of(result) == world.repo.head("main").commit.id
    assert (world.has("other"), world.rows()) == (False, [0, 1])


def test_a_lost_lease_stops_the_job_and_publishes_nothing(world: World) -> None:
    """The heartbeat fails while Spark works: its jobs are cancelled, within seconds of a minute's sleep."""

    def slowly(workspace: fl.SparkWorkspace) -> None:
        def sleeping(batches: Any) -> Any:
            import time

            for batch in batches:
                time.sleep(120)
                yield batch

        workspace.write(workspace.spark.range(0, 2, 1, 2).mapInArrow(sleeping, "id bigint"), "out")

    step = world.schedule()
    seen: list[StageProgress] = []

    def lost(attempt: HandedOut) -> None:
        if any(progress.total for progress in seen):  # the job runs
            raise ConnectionError("the orchestrator is away")

    world.orchestrator.on_heartbeat = lost
    result = world.run(world.task(slowly), step, on_progress=seen.append)
    assert (result.status, result.code) == ("FAILED", "fence.stale_attempt")
    assert not world.has("out")
    sound(world)


def test_stages_and_metrics_are_told(world: World) -> None:
    def measured(workspace: fl.SparkWorkspace) -> None:
        workspace.metrics.counter("rows.bad", 2)
        frame = workspace.spark.range(0, 100, 1, 3).repartition(2)
        workspace.metrics.gauge("rows", workspace.write(frame, "out").rows)

    seen: list[StageProgress] = []
    facts: dict[str, Any] = {}
    told = {"on_progress": seen.append, "on_fact": lambda kind, data: facts.update({kind: data})}
    ref_of(world.run(world.task(measured), world.schedule(), **told))
    assert {(p.done, p.total, p.failed) for p in seen} >= {(3, 3, 0), (2, 2, 0)}
    assert facts["metrics"] == {"metrics": {"rows.bad": 2, "rows": 100}}
    assert facts["outcome"]["outcome"] == "published"
    assert facts["outcome"]["bytes"] > 0

"""A run as people watch it: one line for each of its steps, in the order of the pipeline."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal, TypeAlias

from fenceline.pipeline.builtin import BEGIN, PUBLISH, Builtins
from fenceline.pipeline.embedded.rows import CANCELED, COMPLETED, LOST, RUNNING, SCHEDULED, TIMED_OUT, RunRow, TaskRow
from fenceline.pipeline.embedded.runs import RunEvent, run_events
from fenceline.pipeline.embedded.store import Store, attempts, get_run, latest
from fenceline.pipeline.form.workflow import Simple, read_workflow
from fenceline.task.orchestrator import IN_PROGRESS

StepState: TypeAlias = Literal[
    "waiting",
    "ready",
    "running",
    "retrying",
    "done",
    "failed",
    "timed out",
    "cancelled",
    "given back",
    "skipped",
    "not run",
]
FAILURES: tuple[StepState, ...] = ("failed", "timed out")

_STATES: Mapping[str, StepState] = {
    SCHEDULED: "ready",
    IN_PROGRESS: "running",
    COMPLETED: "done",
    TIMED_OUT: "timed out",
    CANCELED: "cancelled",
    LOST: "given back",
}


@dataclass(frozen=True, slots=True)
class Line:
    """A step, as far as it has come."""

    step: str
    task: str
    state: StepState
    attempt: int = 0
    """Its newest attempt, counted from 1; 0 if it has had none."""
    phase: str = ""
    spark: tuple[int, int, int] = (0, 0, 0)
    """Stages seen, and of their tasks those done and all."""
    bytes: int = 0
    verdicts: tuple[Mapping[str, Any], ...] = ()
    started: float | None = None
    ended: float | None = None
    again: float | None = None
    """When it is tried again."""
    commit: str | None = None
    reason: str | None = None
    code: str | None = None

    @property
    def violations(self) -> list[Mapping[str, Any]]:
        return [violation for verdict in self.verdicts for violation in verdict["violations"]]

    @property
    def guards(self) -> str:
        """`3` if all of them passed, else `1 of 3`."""
        passed = sum(verdict["status"] == "passed" for verdict in self.verdicts)
        if not self.verdicts:
            return ""
        return f"{passed} passed" if passed == len(self.verdicts) else f"{passed} of {len(self.verdicts)} passed"

    def took(self, now: float) -> float | None:
        return None if self.started is None else (self.ended or now) - self.started


@dataclass(slots=True)
class _Facts:
    """What an attempt's worker has told about it."""

    attempt: int
    phase: str = ""
    bytes: int = 0
    verdicts: tuple[Mapping[str, Any], ...] = ()
    stages: dict[int, tuple[int, int]] = field(default_factory=dict)

    def learn(self, kind: str, data: Mapping[str, Any]) -> None:
        if kind == "phase":
            self.phase = data["phase"]
        elif kind == "spark":
            self.stages[data["stage"]] = data["done"], data["total"]
        elif kind == "guards":
            self.verdicts = tuple(data["verdicts"])
        elif kind == "outcome":
            self.bytes = data["bytes"]

    @property
    def spark(self) -> tuple[int, int, int]:
        """Stages that never begin, because their output is there already, do not count."""
        newest = max(self.stages, default=None)
        counted = [tasks for stage, tasks in self.stages.items() if tasks[0] or stage == newest]
        return len(counted), sum(done for done, _ in counted), sum(total for _, total in counted)


class Board:
    """What is known of a run. `look` again to know more."""

    def __init__(self, store: Store, run: str) -> None:
        self._store, self.run = store, run
        self._facts: dict[str, _Facts] = {}
        self._seen = 0
        self.row: RunRow
        self.lines: tuple[Line, ...] = ()
        self.start: str | None = None
        """The commit from which the run began."""
        self.now = 0.0
        with store.read() as db:
            workflow = read_workflow(get_run(db, run).workflow)
        self._nodes = [node for node in workflow.walk() if isinstance(node, Simple)]

    def look(self) -> list[RunEvent]:
        """Bring it up to date; returns the events that are new."""
        events = run_events(self._store, self.run, self._seen)
        for event in events:
            self._seen = event.seq
            step, attempt = event.data.get("step"), event.data.get("attempt")
            if isinstance(step, str) and isinstance(attempt, int):
                known = self._facts.get(step)
                if known is None or known.attempt != attempt:
                    known = self._facts[step] = _Facts(attempt)
                known.learn(event.kind, event.data)
        with self._store.read() as db:
            self.row, rows = get_run(db, self.run), latest(attempts(db, self.run))
        self.now = self._store.seams.clock.now()
        lines = [self._line(node, rows.get(node.reference)) for node in self._nodes]
        self.lines = tuple(line for line in lines if _shown(line))
        self.start = next((line.commit for line in lines if line.task == BEGIN), None)
        return events

    @property
    def running(self) -> bool:
        return self.row.status == RUNNING

    @property
    def completed(self) -> bool:
        return self.row.status == COMPLETED

    @property
    def target(self) -> str:
        return str(self.row.input["branch"])

    @property
    def seconds(self) -> float:
        return (self.row.ended or self.now) - self.row.created

    @property
    def steps(self) -> Sequence[Line]:
        """Those of the pipeline's author."""
        return [line for line in self.lines if line.task not in Builtins.NAMES]

    @property
    def progress(self) -> str:
        """`2/3` steps; skipped ones do not count."""
        wanted = [line for line in self.steps if line.state != "skipped"]
        return f"{sum(line.state == 'done' for line in wanted)}/{len(wanted)}"

    @property
    def failed(self) -> Line | None:
        return next((line for line in self.lines if line.state in FAILURES), None)

    @property
    def published(self) -> str | None:
        """The target's commit that the run made: that of its last step on the target."""
        on_target = [line for line in self.lines if line.commit and line.state == "done"]
        own = any(line.task == PUBLISH for line in self.lines)
        done = [line for line in on_target if (line.task == PUBLISH) is own]
        return max(done, key=lambda line: line.ended or 0.0).commit if done else None

    def line(self, step: str) -> Line | None:
        return next((line for line in self.lines if line.step == step), None)

    def _line(self, node: Simple, row: TaskRow | None) -> Line:
        if row is None:
            missing: StepState = "waiting" if self.running else "skipped" if self.completed else "not run"
            return Line(node.reference, node.task, missing)
        facts = self._facts.get(node.reference)
        if facts is None or facts.attempt != row.retry_count:
            facts = _Facts(row.retry_count)
        state = _STATES.get(row.status, "failed")
        waits = state == "ready" and row.retry_count > 0 and row.not_before > self.now
        place = row.output.get("workspace") if isinstance(row.output, Mapping) else None
        return Line(
            node.reference,
            node.task,
            "retrying" if waits else state,
            row.retry_count + (row.started is not None),
            facts.phase if state == "running" else "",
            facts.spark,
            facts.bytes,
            facts.verdicts,
            row.started,
            row.ended,
            row.not_before if waits else None,
            place.get("ref") if isinstance(place, Mapping) else None,
            row.reason,
            row.code,
        )


def _shown(line: Line) -> bool:
    """Of what every pipeline has, only the publication is of interest, and what failed."""
    return line.task not in Builtins.NAMES or line.task == PUBLISH or line.state in FAILURES

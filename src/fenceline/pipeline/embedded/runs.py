"""Runs as people see them: list, show, cancel, publish by hand, restart from a step."""

from __future__ import annotations

import json
import os
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any
from urllib.parse import unquote, urlsplit

from fenceline.api import Repository
from fenceline.errors import ConfigError, ConflictError, FencelineError, NotFound
from fenceline.pipeline.builtin import publish_run, run_branch
from fenceline.pipeline.embedded.engine import State, advance
from fenceline.pipeline.embedded.port import Embedded
from fenceline.pipeline.embedded.rows import CANCELED, COMPLETED, OPEN, RUNNING, RunRow, TaskRow
from fenceline.pipeline.embedded.store import Store, add_event, attempts, get_run, latest, update
from fenceline.pipeline.form.workflow import read_workflow
from fenceline.repo.merge import Strategy
from fenceline.repo.model import Commit
from fenceline.seams import Seams
from fenceline.task.given import chosen, read_place
from fenceline.task.step import AnyRepository

RUNS_ENV = "FENCELINE_RUNS"


class RunFailed(FencelineError):
    """A run that ended without completing."""

    code = "run.failed"


@dataclass(frozen=True, slots=True)
class StepResult:
    """A step of a run: its newest attempt, and how many there were."""

    reference: str
    task: str
    status: str
    attempts: int
    """How often it was tried, this one included."""
    epoch: int
    output: Any
    reason: str | None
    code: str | None
    scheduled: float
    started: float | None
    ended: float | None

    @property
    def commit(self) -> str | None:
        place = self.output.get("workspace") if isinstance(self.output, Mapping) else None
        return place.get("ref") if isinstance(place, Mapping) else None


@dataclass(frozen=True, slots=True)
class RunResult:
    """A run, as far as it has come."""

    id: str
    key: str
    name: str
    status: str
    reason: str | None
    output: Any
    created: float
    ended: float | None
    steps: tuple[StepResult, ...]

    @property
    def completed(self) -> bool:
        return self.status == COMPLETED

    def check(self) -> RunResult:
        """The same, if it completed; raises otherwise."""
        if not self.completed:
            raise RunFailed(
                f"run {self.id} of {self.name} is {self.status}: {self.reason}",
                hint=f"fenceline runs show {self.id}; fenceline runs restart-from {self.id} STEP goes on from there",
                run=self.id,
            )
        return self

    def step(self, reference: str) -> StepResult:
        for each in self.steps:
            if each.reference == reference:
                return each
        raise NotFound(f"run {self.id} has no step {reference!r} yet", hint="fenceline runs show lists them")

    def as_dict(self) -> dict[str, Any]:
        return {**asdict(self), "steps": [{**asdict(step), "commit": step.commit} for step in self.steps]}


@dataclass(frozen=True, slots=True)
class RunEvent:
    """Something that happened in a run."""

    seq: int
    time: float
    kind: str
    data: dict[str, Any]


def store_path(repo: Repository) -> Path:
    """Where the runs of a repository are kept: beside its data, on the same disk; else where the environment says."""
    parts = urlsplit(repo.url)
    if parts.scheme != "file":
        if RUNS_ENV in os.environ:
            return Path(os.environ[RUNS_ENV])
        raise ConfigError(
            f"{repo.url} is no directory in which runs could be kept",
            hint=f"say where with store= or {RUNS_ENV}: a file on a local disk",
        )
    return Path(unquote(parts.path)) / "runner" / "runs.sqlite"


def open_store(repo: Repository, path: Path | None = None, seams: Seams | None = None) -> Store:
    return Store(path or store_path(repo), seams or repo.store.seams)


# --- looking ------------------------------------------------------------------------------------------------------


def list_runs(store: Store, *, name: str | None = None, status: str | None = None, limit: int = 50) -> list[RunResult]:
    """The newest runs first, without their steps."""
    wanted = {column: value for column, value in (("name", name), ("status", status)) if value is not None}
    where = " AND ".join(f"{column} = ?" for column in wanted) or "1"
    query = f"SELECT * FROM runs WHERE {where} ORDER BY created DESC, rowid DESC LIMIT ?"  # noqa: S608
    with store.read() as db:
        rows = db.execute(query, [*wanted.values(), limit]).fetchall()
    return [_result(RunRow.of(row), []) for row in rows]


def show_run(store: Store, run: str) -> RunResult:
    with store.read() as db:
        return _result(get_run(db, run), attempts(db, run))


def run_events(store: Store, run: str, after: int = 0) -> list[RunEvent]:
    """What happened in a run behind a number, oldest first."""
    query = "SELECT seq, time, kind, data FROM events WHERE run = ? AND seq > ? ORDER BY seq"
    with store.read() as db:
        get_run(db, run)
        found = db.execute(query, [run, after]).fetchall()
    return [RunEvent(row["seq"], row["time"], row["kind"], json.loads(row["data"])) for row in found]


def _result(run: RunRow, rows: list[TaskRow]) -> RunResult:
    tried = {row.reference: 0 for row in rows}
    for row in rows:
        tried[row.reference] += 1
    steps = sorted(latest(rows).values(), key=lambda row: rows.index(row))
    return RunResult(
        run.id,
        run.key,
        run.name,
        run.status,
        run.reason,
        run.output,
        run.created,
        run.ended,
        tuple(_step(row, tried[row.reference]) for row in steps),
    )


def _step(row: TaskRow, tried: int) -> StepResult:
    return StepResult(
        row.reference,
        row.task,
        row.status,
        tried,
        row.epoch,
        row.output,
        row.reason,
        row.code,
        row.scheduled,
        row.started,
        row.ended,
    )


# --- acting -------------------------------------------------------------------------------------------------------


def cancel_run(store: Store, run: str, reason: str = "cancelled by hand") -> RunResult:
    """End a run. Its attempts learn it at their next heartbeat or fence, and publish nothing. Its branch stays."""
    with store.write() as db:
        row = get_run(db, run)
        if row.status != RUNNING:
            raise ConflictError(f"run {run} is {row.status} already", hint="fenceline runs show says how it ended")
        Embedded(store, row.runner or "").end_run(db, row, CANCELED, reason)
    return show_run(store, run)


def publish_by_hand(
    store: Store, repo: Repository, run: str, actor: str | None = None, strategy: Strategy | None = None
) -> str:
    """Bring a run's branch, as it is now, to its target; returns the target's commit.

    The strategy decides conflicts: `ours` keeps the target's side, `theirs` takes the run's.
    """
    with store.read() as db:
        row = get_run(db, run)
    branch, target = run_branch(run, repo.url), str(row.input["branch"])
    if row.status == RUNNING:
        raise ConflictError(f"run {run} is still running", hint="it publishes itself when it is done; or cancel it")
    head = repo.store.find_head(branch)
    if head is None:
        raise NotFound(f"run {run} has no branch {branch}", hint="it was published, or it publishes step by step")
    commit = publish_run(repo, run, head.commit.id, branch, target, actor or repo.store.seams.actor(), strategy)
    with store.write() as db:
        reason = f"{row.reason or row.status}; published by hand as {commit[:12]}"
        update(db, "runs", run, status=COMPLETED, reason=reason)
        add_event(db, run, store.seams.clock.now(), "run.published", {"commit": commit, "by": actor})
    return commit


def old_runs(store: Store, older_than: float) -> list[RunResult]:
    """The runs that ended at least so many seconds ago, oldest first."""
    query = "SELECT * FROM runs WHERE status != ? AND ended <= ? ORDER BY ended"
    with store.read() as db:
        rows = db.execute(query, [RUNNING, store.seams.clock.now() - older_than]).fetchall()
    return [_result(RunRow.of(row), []) for row in rows]


def forget_run(store: Store, repo: Repository, run: str) -> None:
    """Forget a run that ended: its record, its events, and the branch it may have kept. What it published stays."""
    with store.read() as db:
        row = get_run(db, run)
    if row.status == RUNNING:
        raise ConflictError(f"run {run} is still running", hint=f"fenceline runs cancel {run}, then forget it")
    if repo.store.find_head(run_branch(run, repo.url)) is not None:
        repo.delete_branch(run_branch(run, repo.url))
    with store.write() as db:  # the branch first: a run that is listed can still be forgotten
        for table, column in (("events", "run"), ("tasks", "run"), ("runs", "id")):
            db.execute(f"DELETE FROM {table} WHERE {column} = ?", [run])  # noqa: S608


def restart_from(store: Store, repo: Repository, run: str, step: str) -> tuple[str, ...]:
    """Make a run that ended ready to go on from a step; returns the steps that will run again.

    The branch goes back to the step's input. Everything after the step runs again, and so does every step beside it
    whose commit is no longer on the branch. `run` or `resume` then goes on with it.
    """
    row, rows = _ended(store, run, step)
    again, back = _plan(repo, row, rows, step)
    if back is not None:
        _relocate(repo, row, *back, step)
    with store.write() as db:
        if get_run(db, run).status != row.status:
            raise ConflictError(f"run {run} is being restarted by someone else", hint="fenceline runs show tells")
        for name in again:
            db.execute("UPDATE tasks SET dropped = 1 WHERE run = ? AND reference = ?", [run, name])
        # what was cancelled or failed beside it is tried again too; its attempts are history now
        kept = {name: each for name, each in latest(attempts(db, run)).items() if each.status != COMPLETED}
        for name in kept:
            db.execute("UPDATE tasks SET dropped = 1 WHERE run = ? AND reference = ?", [run, name])
        add_event(db, run, store.seams.clock.now(), "run.restarted", {"from": step, "again": sorted(again)})
        Embedded(store, "").reopen(db, run)
    return tuple(name for name in rows if name in again | kept.keys())


def plan_restart(store: Store, repo: Repository, run: str, step: str) -> tuple[str, ...]:
    """The steps that `restart_from` would run again; changes nothing."""
    row, rows = _ended(store, run, step)
    again, _ = _plan(repo, row, rows, step)
    return tuple(name for name, each in rows.items() if name in again or each.status != COMPLETED)


def _ended(store: Store, run: str, step: str) -> tuple[RunRow, dict[str, TaskRow]]:
    with store.read() as db:
        row, rows = get_run(db, run), latest(attempts(db, run))
    if row.status == RUNNING:
        raise ConflictError(f"run {run} is still running", hint=f"fenceline runs cancel {run}, then restart it")
    if step not in rows:
        known = ", ".join(rows)
        raise NotFound(f"run {run} has not come to a step {step!r}", hint=f"it has {known}", run=run)
    return row, rows


def _plan(
    repo: Repository, row: RunRow, rows: Mapping[str, TaskRow], step: str
) -> tuple[set[str], tuple[str, Commit] | None]:
    """What runs again, and the branch with the commit that it has to go back to; None where no branch is concerned."""
    again = _again(row, rows, {step})
    places = [read_place(rows[name].input["workspace"], name) for name in again if "workspace" in rows[name].input]
    if not places:
        return again, None
    branch, start = min(((p.branch, chosen(repo.store, p.refs)) for p in places), key=lambda each: each[1].depth)
    return _until_stable(row, rows, again, repo.store, start), (branch, start)


def _again(run: RunRow, rows: Mapping[str, TaskRow], dropped: set[str]) -> set[str]:
    """Those dropped, and every step that the run would not have come to without them."""
    workflow = read_workflow(run.workflow)
    states = {
        name: State(row.status if row.status == COMPLETED else OPEN[0], row.output)
        for name, row in rows.items()
        if name not in dropped
    }
    reached = advance(workflow, run.id, run.input, states).reached
    return dropped | {name for name in rows if name not in reached}


def _until_stable(
    run: RunRow, rows: Mapping[str, TaskRow], again: set[str], native: AnyRepository, start: Commit
) -> set[str]:
    while True:
        gone = {
            name
            for name, row in rows.items()
            if name not in again and row.status == COMPLETED and not _stands(native, row, start)
        }
        if not gone:
            return again
        again = _again(run, rows, again | gone)


def _stands(native: AnyRepository, row: TaskRow, start: Commit) -> bool:
    """Whether what the step put on the run's branch is on it up to `start`; of other steps there is nothing to ask."""
    place = row.output.get("workspace") if isinstance(row.output, Mapping) else None
    return place is None or "workspace" not in row.input or native.stands(place["ref"], start)


def _relocate(repo: Repository, run: RunRow, branch: str, start: Commit, step: str) -> None:
    """The branch back to the step's input, unless that would drop what others put on it (INV-5)."""
    head = repo.store.find_head(branch)
    if head is None:
        raise ConflictError(f"{branch} is gone: run {run.id} was published", hint="start a new run")
    if head.commit.id == start.id:
        return
    after = repo.store.line_since(head.commit, start)
    foreign = [c for c in after or () if not (c.step or "").startswith(f"{run.id}/")]
    if after is None or foreign:
        names = ", ".join(f"{c.id[:12]} by {c.actor}" for c in foreign[:3]) or "the input is not on it any more"
        raise ConflictError(
            f"{branch} cannot go back to {start.id[:12]}, the input of {step}: {names}",
            hint="start a new run on the branch as it is",
        )
    repo.relocate_branch(branch, start.id, expected=head.commit.id, note=f"run {run.id} restarts from {step}")

"""The orchestrator port on the runner's store: attempts handed out, timed out, retried, and runs carried on.

There is no scheduler process. Whoever completes an attempt also schedules, in the same transaction, what that made
ready; whoever polls also gives up what is overdue. So runs go on for as long as any worker of theirs lives.
"""

from __future__ import annotations

import logging
import sqlite3
from dataclasses import dataclass
from typing import Any

from fenceline.errors import NotFound, StaleAttemptError
from fenceline.pipeline.embedded.engine import Scheduled, State, advance
from fenceline.pipeline.embedded.rows import (
    CANCELED,
    FAILED,
    LOST,
    OPEN,
    RUNNING,
    SCHEDULED,
    TIMED_OUT,
    Controls,
    RunRow,
    TaskRow,
)
from fenceline.pipeline.embedded.store import Store, add_event, attempts, find_task, get_run, insert, latest, update
from fenceline.pipeline.form.workflow import read_workflow
from fenceline.task.orchestrator import IN_PROGRESS, HandedOut, Standing
from fenceline.task.result import TaskResult

log = logging.getLogger(__name__)

TAKE_OVER = 10.0
"""How long a new runner waits for the workers of the one before it to be gone; after that they are zombies."""


@dataclass(frozen=True, slots=True)
class Embedded:
    """The port for the workers of one runner."""

    store: Store
    runner: str

    # --- the port -----------------------------------------------------------------------------------------------

    def poll(self, task: str) -> HandedOut | None:
        """The oldest ready attempt of a task, within its limits. Looks first, and locks only if there is one."""
        with self.store.read() as db:
            if self._ready(db, task, self._now()) is None:
                return None
        with self.store.write() as db:
            now = self._now()
            row = self._ready(db, task, now)
            if row is None:
                return None
            controls = get_run(db, row.run).controls(task)
            update(
                db,
                "tasks",
                row.id,
                status=IN_PROGRESS,
                started=now,
                lease_until=now + controls.response_timeout,
                deadline=now + controls.timeout if controls.timeout else None,
                owner=self.store.seams.owner().as_dict(),
                runner=self.runner,
            )
            self._event(db, row, "started")
            return row.handed_out

    def current(self, attempt: HandedOut) -> Standing:
        with self.store.read() as db:
            row = _known(db, attempt)
            running = get_run(db, row.run).status == RUNNING
        return Standing(row.status if running or row.status != IN_PROGRESS else CANCELED, row.identity)

    def heartbeat(self, attempt: HandedOut) -> None:
        with self.store.write(durable=False) as db:
            row = _known(db, attempt)
            run = get_run(db, row.run)
            if not _wanted(row, attempt) or run.status != RUNNING:
                raise StaleAttemptError(
                    f"attempt {attempt.identity.attempt} of {attempt.identity.step} is {row.status} in a run that is "
                    f"{run.status}",
                    hint="nothing it does counts any more",
                )
            update(db, "tasks", row.id, lease_until=self._now() + run.controls(row.task).response_timeout)

    def complete(self, attempt: HandedOut, result: TaskResult) -> bool:
        with self.store.write() as db:
            row = _known(db, attempt)
            run = get_run(db, row.run)
            if not _wanted(row, attempt) or run.status != RUNNING:
                return False
            self._end(db, row, result.status, result.output, result.reason, result.code)
            if result.status == FAILED:
                self._retry(db, run, row, counted=True)
            self._carry_on(db, run)
            return True

    def release(self, attempt: HandedOut, reason: str) -> None:
        """Take an attempt back from a worker that must go: its step is tried again, and nothing is counted."""
        with self.store.write() as db:
            row = _known(db, attempt)
            run = get_run(db, row.run)
            if _wanted(row, attempt) and run.status == RUNNING:
                self._end(db, row, LOST, None, reason, None)
                self._retry(db, run, row, counted=False)

    # --- runs ---------------------------------------------------------------------------------------------------

    def begin(self, db: sqlite3.Connection, row: dict[str, Any]) -> None:
        """A new run, with its first steps ready."""
        now = self._now()
        deadline = _deadline(row["workflow"], now)
        insert(db, "runs", {**row, "status": RUNNING, "runner": self.runner, "created": now, "deadline": deadline})
        add_event(db, row["id"], now, "run.started", {"name": row["name"], "runner": self.runner})
        self._carry_on(db, get_run(db, row["id"]))

    def take_over(self, db: sqlite3.Connection, run: RunRow) -> None:
        """From here on the run is this runner's. The attempts of its old workers are given up by `look_after`."""
        now = self._now()
        update(db, "runs", run.id, status=RUNNING, reason=None, output=None, ended=None, runner=self.runner)
        waiting = "UPDATE tasks SET poll_until = ? + poll_until - scheduled WHERE run = ? AND status = ?"
        db.execute(waiting, [now, run.id, SCHEDULED])  # nobody could have polled it meanwhile
        add_event(db, run.id, now, "run.resumed", {"runner": self.runner, "before": run.runner})

    def reopen(self, db: sqlite3.Connection, run: str) -> None:
        """A run that ended goes on with the steps whose attempts were dropped; some runner must take it over."""
        deadline = _deadline(get_run(db, run).workflow, self._now())
        update(db, "runs", run, status=RUNNING, reason=None, output=None, ended=None, runner=None, deadline=deadline)
        self._carry_on(db, get_run(db, run))

    def end_run(self, db: sqlite3.Connection, run: RunRow, status: str, reason: str | None, output: Any = None) -> None:
        """The run is over; what is still open of it is cancelled, and learns it at its next heartbeat or fence."""
        now = self._now()
        for row in latest(attempts(db, run.id)).values():
            if row.status in OPEN:
                self._end(db, row, CANCELED, None, f"the run is {status}", None)
        update(db, "runs", run.id, status=status, reason=reason, output=output, ended=now)
        add_event(db, run.id, now, f"run.{status.lower()}", {"reason": reason})

    # --- time ---------------------------------------------------------------------------------------------------

    def look_after(self) -> None:
        """Give up what is overdue or whose worker is proven dead, and schedule its next attempt."""
        with self.store.read() as db:
            if not self._overdue(db) and not self._too_long(db):
                return
        with self.store.write() as db:
            for run in self._too_long(db):
                seconds = read_workflow(run.workflow).timeout_seconds
                self.end_run(db, run, TIMED_OUT, f"the run took longer than {seconds} s (timeoutSeconds)")
            for row, why in self._overdue(db):
                run = get_run(db, row.run)
                if run.status == RUNNING:
                    self._give_up(db, run, row, why)

    def _too_long(self, db: sqlite3.Connection) -> list[RunRow]:
        query = "SELECT * FROM runs WHERE status = ? AND runner = ? AND deadline < ?"
        return [RunRow.of(row) for row in db.execute(query, [RUNNING, self.runner, self._now()])]

    def _overdue(self, db: sqlite3.Connection) -> list[tuple[TaskRow, str]]:
        now = self._now()
        rows = db.execute(
            "SELECT t.* FROM tasks t JOIN runs r ON r.id = t.run WHERE t.status IN ('SCHEDULED', 'IN_PROGRESS') "
            "AND NOT t.dropped AND r.status = ? AND r.runner = ? ORDER BY t.rowid",
            [RUNNING, self.runner],
        )
        found = ((row, self._why(db, row, now)) for row in map(TaskRow.of, rows))
        return [(row, why) for row, why in found if why]

    def _why(self, db: sqlite3.Connection, row: TaskRow, now: float) -> str:
        if row.status == SCHEDULED:
            return "poll" if row.poll_until is not None and row.poll_until < now else ""
        if row.owner is not None and self.store.seams.proven_dead(row.owner):
            return "dead"
        if row.runner != self.runner and now > self._taken_over(db, row.run) + TAKE_OVER:
            return "zombie"
        if row.lease_until is not None and row.lease_until < now:
            return "lease"
        return "deadline" if row.deadline is not None and row.deadline < now else ""

    def _taken_over(self, db: sqlite3.Connection, run: str) -> float:
        query = "SELECT max(time) FROM events WHERE run = ? AND kind = 'run.resumed'"
        return float(db.execute(query, [run]).fetchone()[0] or 0)

    def _give_up(self, db: sqlite3.Connection, run: RunRow, row: TaskRow, why: str) -> None:
        controls = run.controls(row.task)
        counted = row.runner == self.runner or row.status == SCHEDULED
        pid = row.owner.pid if row.owner else 0
        reason = {
            "dead": f"its worker, process {pid}, died",
            "zombie": f"its runner died, and its worker, process {pid}, did not stop",
            "lease": f"nothing was heard of it for {controls.response_timeout:g} s (responseTimeoutSeconds)",
            "deadline": f"it took longer than {controls.timeout:g} s (timeoutSeconds)",
            "poll": f"no worker took it for {controls.poll_timeout:g} s (pollTimeoutSeconds)",
        }[why]
        if why in ("deadline", "poll") and controls.timeout_policy == "ALERT_ONLY":
            update(db, "tasks", row.id, **{"deadline" if why == "deadline" else "poll_until": None})
            self._event(db, row, "overdue", reason=reason)
            log.warning("%s, task %s: %s", run.id, row.reference, reason)
            return
        self._end(db, row, TIMED_OUT if counted and why != "dead" else FAILED if counted else LOST, None, reason, None)
        if why in ("deadline", "poll") and controls.timeout_policy == "TIME_OUT_WF":
            self.end_run(db, run, TIMED_OUT, f"{row.reference}: {reason}")
            return
        self._retry(db, run, row, counted)
        self._carry_on(db, run)

    # --- parts --------------------------------------------------------------------------------------------------

    def _ready(self, db: sqlite3.Connection, task: str, now: float) -> TaskRow | None:
        row = db.execute(
            "SELECT t.* FROM tasks t JOIN runs r ON r.id = t.run WHERE t.status = 'SCHEDULED' AND t.task = ? "
            "AND t.not_before <= ? AND NOT t.dropped AND r.status = ? AND r.runner = ? "
            "ORDER BY t.not_before, t.rowid LIMIT 1",
            [task, now, RUNNING, self.runner],
        ).fetchone()
        if row is None:
            return None
        found = TaskRow.of(row)
        controls = get_run(db, found.run).controls(task)
        return found if self._allowed(db, task, controls, now) else None

    def _allowed(self, db: sqlite3.Connection, task: str, controls: Controls, now: float) -> bool:
        """Whether the task's limits, which count all runs of this store together, leave room for one more."""
        if controls.concurrent:
            query = "SELECT count(*) FROM tasks WHERE status = 'IN_PROGRESS' AND task = ?"
            if db.execute(query, [task]).fetchone()[0] >= controls.concurrent:
                return False
        if controls.rate:
            query = "SELECT count(*) FROM tasks WHERE task = ? AND started > ?"
            if db.execute(query, [task, now - controls.rate_window]).fetchone()[0] >= controls.rate:
                return False
        return True

    def _end(
        self, db: sqlite3.Connection, row: TaskRow, status: str, output: Any, reason: str | None, code: str | None
    ) -> None:
        update(db, "tasks", row.id, status=status, output=output, reason=reason, code=code, ended=self._now())
        self._event(db, row, status.lower(), reason=reason, code=code)

    def _retry(self, db: sqlite3.Connection, run: RunRow, row: TaskRow, counted: bool) -> None:
        failures = row.failures + counted
        controls = run.controls(row.task)
        delay = controls.delay(failures) if counted else 0
        if delay is not None:
            wanted = Scheduled(row.reference, row.task, row.input)
            self._schedule(db, run, wanted, row.retry_count + 1, failures, row.epoch, delay)

    def _schedule(
        self,
        db: sqlite3.Connection,
        run: RunRow,
        wanted: Scheduled,
        retry_count: int = 0,
        failures: int = 0,
        epoch: int = 0,
        delay: float = 0,
    ) -> None:
        now = self._now()
        wait = run.controls(wanted.task).poll_timeout
        insert(
            db,
            "tasks",
            {
                "id": self.store.seams.ids.execution(),
                "run": run.id,
                "reference": wanted.reference,
                "iteration": 0,
                "retry_count": retry_count,
                "failures": failures,
                "epoch": epoch,
                "status": SCHEDULED,
                "task": wanted.task,
                "input": wanted.input,
                "scheduled": now,
                "not_before": now + delay,
                "poll_until": now + delay + wait if wait else None,
            },
        )

    def _carry_on(self, db: sqlite3.Connection, run: RunRow) -> None:
        """Ask the engine what is next, and write that down."""
        rows = attempts(db, run.id)
        states = {name: State(row.status, row.output, row.reason) for name, row in latest(rows).items()}
        plan = advance(read_workflow(run.workflow), run.id, run.input, states)
        for wanted in plan.schedule:
            before = [row for row in rows if row.reference == wanted.reference]
            number = max((row.retry_count + 1 for row in before), default=0)
            epoch = max((row.epoch + 1 for row in before), default=0)  # only a restart schedules a step again
            self._schedule(db, run, wanted, number, epoch=epoch)
        if plan.ended is not None:
            self.end_run(db, run, plan.ended.status, plan.ended.reason, plan.ended.output)

    def _event(self, db: sqlite3.Connection, row: TaskRow, kind: str, **data: Any) -> None:
        told = {"step": row.reference, "attempt": row.retry_count, "task": row.task}
        add_event(db, row.run, self._now(), f"task.{kind}", {**told, **{k: v for k, v in data.items() if v}})

    def _now(self) -> float:
        return self.store.seams.clock.now()


def _deadline(workflow: dict[str, Any], now: float) -> float | None:
    found = read_workflow(workflow)
    limited = found.timeout_seconds and found.timeout_policy == "TIME_OUT_WF"
    return now + found.timeout_seconds if limited else None


def _known(db: sqlite3.Connection, attempt: HandedOut) -> TaskRow:
    row = find_task(db, attempt.identity.task_id)
    if row is None:
        raise NotFound(f"there is no attempt {attempt.identity.task_id}", hint="was the runner's store removed?")
    return row


def _wanted(row: TaskRow, attempt: HandedOut) -> bool:
    return row.status == IN_PROGRESS and not row.dropped and row.identity == attempt.identity

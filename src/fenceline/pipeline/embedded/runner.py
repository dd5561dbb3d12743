"""The embedded runner: one process that owns runs, with workers in threads or in processes of its own."""

from __future__ import annotations

import logging
import signal
import sqlite3
import sys
import threading
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from pathlib import Path
from types import TracebackType
from typing import Any, Self

from fenceline.api import Repository, hold
from fenceline.errors import ConflictError, ContractError, FencelineError
from fenceline.pipeline.builtin import Builtins
from fenceline.pipeline.definition.model import PipelineDefinition
from fenceline.pipeline.embedded import worker_process as embedded_worker
from fenceline.pipeline.embedded.port import Embedded
from fenceline.pipeline.embedded.rows import COMPLETED, RUNNING, RunRow, read_owner
from fenceline.pipeline.embedded.runs import RunResult, open_store, show_run
from fenceline.pipeline.embedded.store import Store, get_run, insert, update
from fenceline.pipeline.embedded.worker_process import WorkerSettings, build, opener, reference_of
from fenceline.pipeline.form.compiling import workflow_def
from fenceline.pipeline.form.taskdefs import task_defs
from fenceline.pipeline.form.workflow import Simple, read_workflow
from fenceline.pipeline.pool import Pool
from fenceline.pipeline.worker import Worker
from fenceline.repo.model import canonical, digest
from fenceline.spark.settings import SparkSettings
from fenceline.task.orphans import sweep_orphans
from fenceline.task.step import AnyRepository

log = logging.getLogger(__name__)

ROUND = 0.1
BEAT, RUNNER_LEASE = 5.0, 60.0
"""How often a runner shows that it lives, and how long it may be silent. On its own host its process tells at once."""
GRACE = 30.0
MOST_DEATHS = 6


class RunBusy(ConflictError):
    """A run that another process is working on."""

    code = "run.busy"


class RunInterrupted(FencelineError):
    """The runner was asked to stop before the run was over. Nothing is lost: the same call goes on with it."""

    code = "run.interrupted"
    retryable = True


@dataclass(eq=False)
class Runner:
    """Runs pipelines on one repository. Use it as a context manager."""

    repo: Repository
    pipelines: Sequence[PipelineDefinition[Any]]
    workers: int = 0
    """Worker processes; 0 works in threads of this one, as in a notebook."""
    slots: int = 4
    """How many attempts each of them runs at once."""
    store_path: Path | None = None
    workspace_root: Path | None = None
    grace: float = GRACE
    actor: str | None = None
    spark: SparkSettings | None = None

    def __post_init__(self) -> None:
        tasks = {id(task): task for pipeline in self.pipelines for task in pipeline.tasks}.values()
        names = [task.name for task in tasks]
        twice = sorted({name for name in names if names.count(name) > 1})
        if twice:
            raise ContractError(f"two tasks are named {twice[0]}", hint="give one of them another name=")
        self._tasks = list(tasks)
        self._seams = self.repo.store.seams
        self.store: Store = open_store(self.repo, self.store_path)
        self.id = self._seams.ids.execution()
        self._port = Embedded(self.store, self.id)
        self._over = threading.Event()
        self._asked = False  # no Event: a signal handler could meet the main thread holding its lock
        self._hurry = False
        self._failure: BaseException | None = None
        self._pool: Pool | None = None
        self._worker: Worker | None = None
        self._care: threading.Thread | None = None
        self._sweeping = hold(self.repo.store)

    # --- its life -----------------------------------------------------------------------------------------------

    def __enter__(self) -> Self:
        now = self._seams.clock.now()
        with self.store.write() as db:
            owner = self._seams.owner().as_dict()
            insert(db, "runners", {"id": self.id, "owner": owner, "started": now, "beat": now})
        settings = self._settings()
        sweep_orphans(settings.workspace_root, self._seams)
        if self.workers:
            self._pool = Pool(
                embedded_worker.COMMAND, self.workers, self._seams, settings.line(), most_deaths=MOST_DEATHS
            )
            self._pool.start()
        else:
            self._worker = build(settings, self._tasks, self.store, self._repositories())
            self._worker.start()
        self._sweeping.start_sweeper()
        self._care = threading.Thread(target=self._look_after, name=f"runner-{self.id}", daemon=True)
        self._care.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def drain(self, hurry: bool = False) -> None:
        """Start no more attempts. Safe to call from a signal handler; `wait` then raises, and `close` does the rest."""
        self._hurry = self._hurry or hurry
        self._asked = True
        if self._worker is not None:
            self._worker.enough()

    def drained(self) -> bool:
        """Ask the workers to take nothing more; whether all that they had is done. For those who wait themselves."""
        if self._pool is not None:
            self._pool.drain()
            return not self._pool.pids
        if self._worker is not None:
            self._worker.drain()
            return self._worker.drained
        return True

    def close(self) -> None:
        """Stop the workers within the grace, and let go of the runs that are not over."""
        self._asked = True
        grace = 0.0 if self._hurry else self.grace
        if self._pool is not None:
            self._pool.stop(grace)
        if self._worker is not None:
            self._worker.stop(grace)
        self._over.set()
        if self._care is not None:
            self._care.join(RUNNER_LEASE)
        self._sweeping.close()
        sweep_orphans(self._settings().workspace_root, self._seams)
        with self.store.write() as db:
            update(db, "runners", self.id, ended=self._seams.clock.now())
        self.store.close()

    def _settings(self) -> WorkerSettings:
        root = self.workspace_root or self.store.path.parent / "work"
        return WorkerSettings(
            store=str(self.store.path.resolve()),
            runner=self.id,
            workspace_root=str(root),
            tasks=tuple(reference_of(task) for task in self._tasks) if self.workers else (),
            path=tuple(sys.path),
            actor=self.actor,
            slots=self.slots,
            grace=self.grace,
            spark=asdict(self.spark) if self.spark else None,
        )

    def _repositories(self) -> Any:
        other = opener(self._seams)

        def find(url: str) -> AnyRepository:
            return self.repo.store if url == self.repo.url else other(url)

        return find

    def _look_after(self) -> None:
        """What needs a clock: time-outs, dead workers, and the sign that this runner lives."""
        beat = self._seams.clock.monotonic()
        while not self._over.wait(ROUND):
            try:
                if not self._asked:  # who dies from here on was asked to: that is no failure of its attempt
                    self._port.look_after()
                if self._pool is not None:
                    self._pool.look_after()
                if self._seams.clock.monotonic() - beat > BEAT:
                    beat = self._seams.clock.monotonic()
                    with self.store.write(durable=False) as db:
                        update(db, "runners", self.id, beat=self._seams.clock.now())
            except Exception as error:
                if not isinstance(error, FencelineError) or not error.retryable:
                    log.exception("the runner cannot look after its runs any more")
                    self._failure = error
                    self._asked = True  # whoever waits is told
                    break
                log.warning("the runner could not look after its runs: %s", error)
        self.store.close()

    # --- runs ---------------------------------------------------------------------------------------------------

    def submit(
        self, pipeline: PipelineDefinition[Any], branch: str = "main", params: Any = None, key: str | None = None
    ) -> str:
        """Start a run, or go on with the unfinished one of the same key; returns its id.

        With a key of your own a run that completed is not repeated: its id is returned.
        """
        given = pipeline.workflow_input(self.repo.url, branch, params)
        name = key or f"{pipeline.name}:{branch}:{digest(canonical([self.repo.id, given['params']]))[:16]}"
        with self.store.write() as db:
            row = _newest(db, name, COMPLETED if key else RUNNING)
            if row is not None and row.status == RUNNING:
                self._claim(db, row)
                return row.id
            if row is not None:
                return row.id
            self._check_known(workflow := workflow_def(pipeline))
            run = self._seams.ids.execution()
            self._port.begin(
                db,
                {
                    "id": run,
                    "key": name,
                    "name": pipeline.name,
                    "reference": f"{pipeline.__module__}:{vars(pipeline)['__qualname__']}",
                    "repository": self.repo.url,
                    "workflow": workflow,
                    "taskdefs": {each["name"]: each for each in task_defs(pipeline)},
                    "input": given,
                },
            )
            return run

    def resume(self, run: str) -> str:
        """Go on with an unfinished run by its id."""
        with self.store.write() as db:
            row = get_run(db, run)
            if row.status == RUNNING:
                self._claim(db, row)
        return run

    def wait(self, run: str) -> RunResult:
        """Until the run is over. Raises `RunInterrupted` if the runner is drained before."""
        while True:
            with self.store.read() as db:
                status = get_run(db, run).status
            if status != RUNNING:
                return show_run(self.store, run)
            self._over.wait(ROUND / 2)
            if self._asked:
                if self._failure is not None:
                    raise self._failure
                raise RunInterrupted(
                    f"the runner of run {run} was asked to stop",
                    hint="nothing is lost: the same call goes on with it",
                    run=run,
                )

    def _claim(self, db: sqlite3.Connection, row: RunRow) -> None:
        if row.runner == self.id:
            return
        if row.runner is not None and (alive := self._alive(db, row.runner)):
            raise RunBusy(
                f"run {row.id} of {row.name} is being run by {alive}",
                hint=f"wait for it, or end it with fenceline runs cancel {row.id}; another key= starts another run",
                run=row.id,
            )
        self._check_known(row.workflow)
        self._port.take_over(db, row)

    def _alive(self, db: sqlite3.Connection, runner: str) -> str:
        """Who a living runner is; '' for one that has ended."""
        row = db.execute("SELECT * FROM runners WHERE id = ?", [runner]).fetchone()
        owner = read_owner(row["owner"]) if row is not None else None
        if row is None or owner is None or row["ended"] is not None or self._seams.proven_dead(owner):
            return ""
        silent = self._seams.clock.now() - row["beat"]
        return "" if silent > RUNNER_LEASE else f"process {owner.pid} on {owner.host}"

    def _check_known(self, workflow: dict[str, Any]) -> None:
        known = {*(task.name for task in self._tasks), *Builtins.NAMES}
        wanted = {node.task for node in read_workflow(workflow).walk() if isinstance(node, Simple)}
        if missing := sorted(wanted - known):
            raise ContractError(
                f"the run needs the task {missing[0]}, which the pipeline no longer has",
                hint="bring it back to finish the run, or cancel the run and start a new one",
            )


def _newest(db: sqlite3.Connection, key: str, also: str) -> RunRow | None:
    """The unfinished run of a key, or else the newest with the other status."""
    query = "SELECT * FROM runs WHERE key = ? AND status IN (?, ?) ORDER BY status = ? DESC, created DESC LIMIT 1"
    row = db.execute(query, [key, RUNNING, also, RUNNING]).fetchone()
    return RunRow.of(row) if row else None


def run(
    pipeline: PipelineDefinition[Any],
    repo: Repository,
    branch: str = "main",
    params: Any = None,
    *,
    key: str | None = None,
    workers: int = 0,
    slots: int = 4,
    grace: float = GRACE,
    spark: SparkSettings | None = None,
    store: Path | None = None,
    workspace_root: Path | None = None,
) -> RunResult:
    """Run a pipeline to its end on this machine; an unfinished run of the same key is gone on with.

    The key is by default made of the pipeline's name, the branch and the params. A key of your own is applied once: a
    run of it that completed is reported and not repeated.
    """
    runner = Runner(repo, [pipeline], workers, slots, store, workspace_root, grace, spark=spark)
    with _drained_by_signals(runner), runner:
        return runner.wait(runner.submit(pipeline, branch, params, key))


@contextmanager
def _drained_by_signals(runner: Runner) -> Iterator[None]:
    """SIGTERM and Ctrl-C drain; a second one does not wait. Only the main thread can be asked."""
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    asked = 0

    def ask(_number: int, _frame: object) -> None:
        nonlocal asked
        asked += 1
        runner.drain(hurry=asked > 1)

    before = {each: signal.signal(each, ask) for each in (signal.SIGTERM, signal.SIGINT)}
    try:
        yield
    finally:
        for each, handler in before.items():
            signal.signal(each, handler)

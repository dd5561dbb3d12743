"""A worker process of the embedded runner: `python -m fenceline.pipeline.embedded`, its settings on stdin."""

from __future__ import annotations

import json
import logging
import sys
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any, cast

from fenceline.api import open_repository
from fenceline.errors import ConfigError
from fenceline.pipeline.builtin import Builtins
from fenceline.pipeline.child import first_line, serve
from fenceline.pipeline.embedded.events import StoredEvents
from fenceline.pipeline.embedded.port import Embedded
from fenceline.pipeline.embedded.store import Store
from fenceline.pipeline.worker import Worker
from fenceline.seams import Seams
from fenceline.spark.settings import SparkSettings
from fenceline.task.attempt import AttemptRunner
from fenceline.task.contract import TaskDefinition
from fenceline.task.loading import load
from fenceline.task.step import AnyRepository

LONGEST_IDLE = 0.1
COMMAND = (sys.executable, "-m", "fenceline.pipeline.embedded")


@dataclass(frozen=True, slots=True)
class WorkerSettings:
    """All that a worker process must know. Not on its command line: Spark's settings may hold passwords."""

    store: str
    runner: str
    workspace_root: str
    tasks: tuple[str, ...]
    """`module:task`, or `path/to/file.py:task` for those of a script."""
    path: tuple[str, ...] = ()
    """The parent's `sys.path`: what it could import, its workers can."""
    actor: str | None = None
    slots: int = 1
    grace: float = 30.0
    spark: dict[str, Any] | None = field(default=None)

    def line(self) -> bytes:
        return json.dumps(asdict(self)).encode() + b"\n"

    @classmethod
    def parsed(cls, text: bytes) -> WorkerSettings:
        given = json.loads(text)
        return cls(**{**given, "tasks": tuple(given["tasks"]), "path": tuple(given["path"])})


def reference_of(task: TaskDefinition[Any, Any]) -> str:
    """How a new process finds a task; refused where it cannot."""
    if task.__qualname__ != task.__name__:
        raise ConfigError(
            f"task {task.name} is defined inside {task.__qualname__.rpartition('.')[0]}: no other process finds it",
            hint="move it to the top of its module, or run with workers=0",
        )
    if task.__module__ != "__main__":
        return f"{task.__module__}:{task.name}"
    file = getattr(sys.modules["__main__"], "__file__", None)
    if not file:
        raise ConfigError(
            f"task {task.name} is defined in a notebook or prompt, where no other process finds it",
            hint="move it to a module, or run with workers=0",
        )
    return f"{Path(file).resolve()}:{task.name}"


def opener(seams: Seams) -> Callable[[str], AnyRepository]:
    """Repositories by their URL, each opened once."""
    known: dict[str, AnyRepository] = {}

    def opened(url: str) -> AnyRepository:
        if url not in known:
            known[url] = open_repository(url, sweep=False, seams=seams).store
        return known[url]

    return opened


def build(
    settings: WorkerSettings,
    definitions: Sequence[TaskDefinition[Any, Any]],
    store: Store,
    repositories: Callable[[str], AnyRepository],
) -> Worker:
    """The worker that the settings describe: in a process of its own, or in the runner's."""
    seams = store.seams
    orchestrator = Embedded(store, settings.runner)
    runner = AttemptRunner(
        repositories,
        orchestrator,
        Path(settings.workspace_root),
        actor=settings.actor,
        seams=seams,
        spark=SparkSettings(**settings.spark) if settings.spark else None,
    )
    return Worker(
        definitions,
        orchestrator,
        runner,
        Builtins(repositories, orchestrator, settings.actor, seams),
        slots=settings.slots,
        events=StoredEvents(store),
        longest_idle=LONGEST_IDLE,
    )


def main() -> int:
    settings = WorkerSettings.parsed(first_line())
    logging.basicConfig(level=logging.WARNING, format="%(asctime)s %(levelname)s %(name)s: %(message)s")
    sys.path.extend(each for each in settings.path if each not in sys.path)
    seams = Seams()
    definitions = [task for reference in settings.tasks for task in load(reference)]
    worker = build(settings, cast(Any, definitions), Store(settings.store, seams), opener(seams))
    return serve(worker, settings.grace)

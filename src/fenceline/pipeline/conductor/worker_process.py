"""A worker process for a Conductor server: `python -m fenceline.pipeline.conductor.worker_process SETTINGS`."""

from __future__ import annotations

import json
import logging
import sys
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from fenceline.api import open_repository
from fenceline.pipeline.builtin import Builtins
from fenceline.pipeline.child import serve
from fenceline.pipeline.conductor.api import ConductorApi
from fenceline.pipeline.conductor.claims import Claims
from fenceline.pipeline.conductor.port import Conductor
from fenceline.pipeline.worker import Worker
from fenceline.seams import Seams
from fenceline.spark.settings import SparkSettings
from fenceline.task.attempt import AttemptRunner
from fenceline.task.loading import load
from fenceline.task.observe import log_json
from fenceline.task.orchestrator import HandedOut
from fenceline.task.step import AnyRepository

log = logging.getLogger("fenceline.pipeline.conductor.worker_process")  # its own name is __main__ when it runs

LOG_FORMAT = "%(asctime)s %(process)d %(levelname)s %(message)s"


@dataclass(frozen=True, slots=True)
class WorkerSettings:
    """All that a worker process must know, as its command line carries it. Keys and secrets stay in the environment."""

    server: str
    tasks: tuple[str, ...]
    """`module:task` or `path/to/file.py:task`."""
    workspace_root: str
    path: tuple[str, ...] = ()
    """The parent's `sys.path`: what it could import, its workers can."""
    actor: str | None = None
    slots: int = 1
    grace: float = 60.0
    domain: str | None = None
    json_log: bool = False
    master: str | None = None
    """Where Spark runs; None for this machine."""

    def command(self) -> list[str]:
        return [sys.executable, "-m", "fenceline.pipeline.conductor.worker_process", json.dumps(asdict(self))]

    @classmethod
    def parsed(cls, text: str) -> WorkerSettings:
        given = json.loads(text)
        return cls(**{**given, "tasks": tuple(given["tasks"]), "path": tuple(given["path"])})


@dataclass(frozen=True, slots=True)
class LoggedEvents:
    """One line in the log for each attempt that ended."""

    def tell(self, attempt: HandedOut, kind: str, data: Mapping[str, Any]) -> None:
        if kind == "reported":
            status = data.get("status") if data.get("accepted") else "superseded"
            what = data.get("commit") or data.get("code") or ""
            log.info("%s %s %s", attempt.identity.step, status, what[:12] if data.get("commit") else what)


def repositories(seams: Seams) -> Callable[[str], AnyRepository]:
    """Repositories by the URL in an attempt's input; opened once, and swept for as long as the worker lives."""
    known: dict[str, AnyRepository] = {}

    def opened(url: str) -> AnyRepository:
        if url not in known:
            repository = open_repository(url, sweep=False, seams=seams)
            repository.start_sweeper()
            known[url] = repository.store
        return known[url]

    return opened


def build(settings: WorkerSettings, seams: Seams) -> Worker:
    """The worker that the settings describe."""
    owner = seams.owner()
    api, root = ConductorApi.at(settings.server), Path(settings.workspace_root)
    conductor = Conductor(
        api,
        f"{owner.host}:{owner.pid}",
        domain=settings.domain,
        claims=Claims.below(root, api.url, seams),
        seams=seams,
    )
    found = repositories(seams)
    spark = SparkSettings(master=settings.master) if settings.master else None
    return Worker(
        [task for reference in settings.tasks for task in load(reference)],
        conductor,
        AttemptRunner(found, conductor, root, actor=settings.actor, seams=seams, spark=spark),
        Builtins(found, conductor, settings.actor, seams),
        slots=settings.slots,
        events=LoggedEvents(),
    )


def start_log(as_json: bool) -> None:
    """What this package does, for the operator; of other packages only warnings."""
    if as_json:
        log_json()
        logging.getLogger("fenceline").propagate = False  # else the command's own handler prints it once more
        return
    logging.basicConfig(level=logging.WARNING, format=LOG_FORMAT, force=True)
    logging.getLogger("fenceline").setLevel(logging.INFO)


def main(arguments: Sequence[str]) -> int:
    settings = WorkerSettings.parsed(arguments[0])
    start_log(settings.json_log)
    sys.path.extend(each for each in settings.path if each not in sys.path)
    return serve(build(settings, Seams()), settings.grace)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))

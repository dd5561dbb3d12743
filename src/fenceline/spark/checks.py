"""Whether all that writes for one job writes to one disk: asked before the first write."""

from __future__ import annotations

import shutil
import threading
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, Any, NamedTuple, cast
from weakref import WeakKeyDictionary

from fenceline.errors import ConfigError
from fenceline.repo.native.local import LocalObjects
from fenceline.seams import Seams
from fenceline.spark.session import is_connect, runs_locally

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

_PATIENCE = 90.0  # seconds for every executor to answer: a cold one under load takes some of them
_LATE = 5.0  # seconds for a shared disk to show what an executor wrote
_PAUSE = 0.05
_STAND_BACK = 20.0  # seconds that a second try of a task waits for the first one to answer for its own executor
_TASKS_EACH = 2

_lock = threading.Lock()
_checked: WeakKeyDictionary[object, dict[str, frozenset[str]]] = WeakKeyDictionary()


class _Answer(NamedTuple):
    executor: str
    saw: bool
    wrote: str


def ensure_shared(session: SparkSession, objects: LocalObjects, seams: Seams) -> None:
    """Refuse to write unless the driver and every executor see each other's files below the repository.

    Executors with a disk of their own report success, and the driver finds an empty table. Asked again when executors
    were added since.
    """
    if runs_locally(session):
        return
    owner: object = session if is_connect(session) else session.sparkContext
    root = objects.path("")
    with _lock:
        known = _checked.setdefault(owner, {})
        executors = _executors(session)
        if root not in known or not executors <= known[root]:
            _check(session, objects, seams)
            known[root] = executors | _executors(session)


def _executors(session: SparkSession) -> frozenset[str]:
    """The ids of the executors there are now; none are known behind Connect."""
    if is_connect(session):
        return frozenset()
    ids = cast(Any, session.sparkContext)._jsc.sc().getExecutorIds().mkString(",")
    return frozenset(filter(None, ids.split(",")))


def _check(session: SparkSession, objects: LocalObjects, seams: Seams) -> None:
    name = f"tmp/spark-check-{seams.ids.execution()}"
    token = seams.ids.execution()
    objects.put(f"{name}/driver", token.encode())
    try:
        _until_all_answered(session, objects, seams, name, token)
    finally:
        shutil.rmtree(objects.path(name), ignore_errors=True)


def _until_all_answered(session: SparkSession, objects: LocalObjects, seams: Seams, name: str, token: str) -> None:
    until = seams.clock.monotonic() + _PATIENCE
    answered: set[str] = set()
    while True:
        for answer in _ask(session, objects.path(name), token):
            if not answer.saw or not _appears(objects, f"{name}/{answer.wrote}", token, seams):
                raise _not_shared(objects, answer)
            answered.add(answer.executor)
        wanted = len(_executors(session))
        if answered and len(answered) >= wanted:
            return
        if seams.clock.monotonic() > until:
            raise ConfigError(
                f"{wanted - len(answered)} of {wanted} Spark executors did not answer within {_PATIENCE:.0f} s, so "
                f"it is not known whether they share {objects.path('')} with the driver",
                hint="wait for other jobs of this application, then run it again",
            )


def _appears(objects: LocalObjects, key: str, token: str, seams: Seams) -> bool:
    """A network disk may show a new file late; one that is not shared never does."""
    until = seams.clock.monotonic() + _LATE
    while objects.stat(key) is None or objects.get(key) != token.encode():
        if seams.clock.monotonic() > until:
            return False
        seams.clock.sleep(_PAUSE)
    return True


def _not_shared(objects: LocalObjects, answer: _Answer) -> ConfigError:
    what = "does not see what the driver wrote" if not answer.saw else "wrote what the driver does not see"
    return ConfigError(
        f"Spark executor {answer.executor} {what} below {objects.path('')}: they do not share that directory",
        hint="mount the same disk (NFS or the like) at that path on the driver and on every worker, "
        "or use a local master",
    )


def _ask(session: SparkSession, directory: str, token: str) -> list[_Answer]:
    """Tasks on every executor look for the driver's file, and write one of their own."""
    slots = 8 if is_connect(session) else max(session.sparkContext.defaultParallelism, 1)
    tasks = slots * _TASKS_EACH
    frame = session.range(0, tasks, 1, tasks)
    rows = frame.mapInArrow(
        _asking(directory, token, _PAUSE, _STAND_BACK), "executor string, saw boolean, wrote string"
    ).collect()
    return [_Answer(row["executor"], row["saw"], row["wrote"]) for row in rows]


def _asking(directory: str, token: str, pause: float, stand_back: float) -> Callable[[Iterator[Any]], Iterator[Any]]:
    # Defined here to be shipped by value: executors need not have this package.
    def ask(batches: Iterator[Any]) -> Iterator[Any]:
        import os
        import socket
        import time
        import uuid

        import pyarrow  # type: ignore[import-untyped]
        from pyspark import TaskContext

        for _ in batches:
            pass
        task = TaskContext.get()
        if task is not None and task.attemptNumber() > 0:
            time.sleep(stand_back)  # speculation would else let a warm executor answer for a cold one, every time
        try:
            with open(f"/proc/{os.getppid()}/stat", encoding="ascii", errors="replace") as file:
                parent = (
                    file.read().rpartition(")")[2].split()[1]
                )  # the worker's parent is a daemon, its parent the JVM
        except OSError:  # not on Linux: the working directory tells executors apart
            parent = ""
        try:
            with open(f"{directory}/driver", encoding="ascii") as file:
                saw = file.read() == token
        except OSError:
            saw = False
        wrote = uuid.uuid4().hex
        try:
            os.makedirs(directory, exist_ok=True)
            with open(f"{directory}/{wrote}", "w", encoding="ascii") as file:
                file.write(token)
        except OSError:
            saw = False
        time.sleep(pause)  # so that one executor cannot answer for all
        executor = f"{socket.gethostname()} {os.getcwd()} {parent}".strip()
        yield pyarrow.RecordBatch.from_pydict({"executor": [executor], "saw": [saw], "wrote": [wrote]})

    return ask

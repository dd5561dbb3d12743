"""How far Spark is: stages and tasks as events, for whoever shows them."""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from fenceline.seams import Running, Seams, Signal
from fenceline.spark.session import is_connect

if TYPE_CHECKING:
    from pyspark import SparkContext
    from pyspark.sql import SparkSession

log = logging.getLogger(__name__)

INTERVAL = 0.5


@dataclass(frozen=True, slots=True)
class StageProgress:
    """A stage, and how many of its tasks are done."""

    stage: int
    name: str
    done: int
    total: int
    failed: int


OnProgress = Callable[[StageProgress], None]


class Watch:
    """A running watch; `stop` it, or use it as a context manager."""

    def __init__(self, end: Callable[[], None]) -> None:
        self._end = end

    def stop(self) -> None:
        self._end()

    def __enter__(self) -> Watch:
        return self

    def __exit__(self, *_: object) -> None:
        self.stop()


def watch(
    session: SparkSession, report: OnProgress, seams: Seams, group: str | None = None, interval: float = INTERVAL
) -> Watch:
    """Report stages as they go on, of one job group or of all; each change once, the last state of each included.

    Behind Connect the server sends progress of this session's own queries; there are no groups, and no failures.
    """
    if is_connect(session):
        return _of_connect(session, report)
    poller = _Poller(session.sparkContext, report, group)
    stop = seams.threads.signal()
    running = seams.threads.start("spark-progress", lambda: _poll(poller, stop, interval))
    return Watch(lambda: _end(stop, running))


def _poll(poller: _Poller, stop: Signal, interval: float) -> None:
    from py4j.protocol import Py4JError  # type: ignore[import-untyped]

    ended = False
    while not ended:
        ended = stop.wait(interval)  # once more after the end: short stages are seen too
        try:
            poller.look()
        except (Py4JError, OSError, AttributeError) as error:  # the JVM is gone, or its context stopped
            log.debug("Spark's progress is not known any more: %s", error)
            return


def _end(stop: Signal, running: Running) -> None:
    stop.set()
    running.join(10)


class _Poller:
    def __init__(self, context: SparkContext, report: OnProgress, group: str | None) -> None:
        self._tracker = context.statusTracker()
        self._report, self._group = report, group
        self._open: dict[int, StageProgress] = {}
        self._done: set[int] = set()

    def look(self) -> None:
        for stage in sorted({*self._stages(), *self._open}):
            info = self._tracker.getStageInfo(stage)
            if info is None:  # Spark has forgotten it
                self._open.pop(stage, None)
                continue
            now = StageProgress(stage, info.name, info.numCompletedTasks, info.numTasks, info.numFailedTasks)
            if self._open.get(stage) != now and stage not in self._done:
                self._report(now)
            self._open[stage] = now
            if now.done >= now.total:
                self._done.add(stage)
                del self._open[stage]

    def _stages(self) -> Iterable[int]:
        if self._group is None:
            return set(self._tracker.getActiveStageIds()) - self._done
        jobs = (self._tracker.getJobInfo(job) for job in self._tracker.getJobIdsForGroup(self._group))
        return {stage for job in jobs if job is not None for stage in job.stageIds} - self._done


def _of_connect(session: SparkSession, report: OnProgress) -> Watch:
    seen: dict[int, StageProgress] = {}

    def handler(stages: Iterable[Any] | None, **_: object) -> None:
        for stage in stages or ():
            now = StageProgress(stage.stage_id, "", stage.num_completed_tasks, stage.num_tasks, 0)
            if seen.get(now.stage) != now:
                seen[now.stage] = now
                report(now)

    anything: Any = handler  # its type is in a module that needs grpc
    session.registerProgressHandler(anything)
    return Watch(lambda: session.removeProgressHandler(anything))

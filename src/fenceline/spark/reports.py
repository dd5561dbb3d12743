"""What Spark says a write did: rows and files, as its committed tasks counted them.

Counting with `DataFrame.observe` instead cost a fifth of a write: it is a step outside of the generated code.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple, cast

from fenceline.errors import StoreError
from fenceline.seams import Seams

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

_PATIENCE = 60.0  # seconds for events to arrive: they queue behind those of everything else that runs
_PAUSE = 0.002
_MOST_PAUSE = 0.1


class Report(NamedTuple):
    """Rows and files of the tasks that were committed: failed and speculative ones do not count."""

    rows: int
    files: int


def written(session: SparkSession, job: str, seams: Seams) -> Report:
    """The report of the one write into this job's directory; for classic sessions only."""
    store = cast(Any, session)._jsparkSession.sharedState().statusStore()
    until, pause = seams.clock.monotonic() + _PATIENCE, _PAUSE
    while (found := _ended(store, job)) is None:
        if seams.clock.monotonic() > until:
            raise StoreError(
                f"Spark does not say what the job {job} wrote",
                hint="nothing was registered. Raise spark.sql.ui.retainedExecutions or "
                "spark.scheduler.listenerbus.eventqueue.capacity, and run it again",
            )
        seams.clock.sleep(pause)
        pause = min(pause * 2, _MOST_PAUSE)
    return found


def _ended(store: Any, job: str) -> Report | None:
    executions = store.executionsList()
    for at in range(executions.size() - 1, -1, -1):
        execution = executions.apply(at)
        # its description may be cut short by Spark's settings; its plan names the directory
        if job in execution.description() or job in execution.physicalPlanDescription():
            number = execution.executionId()
            return _counted(store, number) if execution.completionTime().isDefined() else None
    return None


def _counted(store: Any, number: int) -> Report | None:
    nodes, values = store.planGraph(number).allNodes(), store.executionMetrics(number)
    for at in range(nodes.size()):
        node = nodes.apply(at)
        if node.name().startswith("Execute InsertInto"):
            metrics = node.metrics()
            found = {m.name(): values.get(m.accumulatorId()) for m in (metrics.apply(n) for n in range(metrics.size()))}
            rows, files = (found.get(name) for name in ("number of output rows", "number of written files"))
            if rows is not None and files is not None and rows.isDefined() and files.isDefined():
                return Report(_number(rows.get()), _number(files.get()))
    return None


def _number(text: str) -> int:
    return int(text.replace(",", ""))

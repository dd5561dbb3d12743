"""Jobs that fail, tasks that are tried again, jobs that are cancelled: only whole, finished jobs are registered."""

from __future__ import annotations

import os
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from py4j.protocol import Py4JError  # type: ignore[import-untyped]
from pyspark.errors import PySparkException
from pyspark.sql import functions as F  # noqa: N812

from fenceline.errors import StoreError
from fenceline.spark import cancel
from fenceline.spark.session import job_group

if TYPE_CHECKING:
    from tests.spark.conftest import Lab

DAYS = "day string, n int"


def stored(lab: Lab) -> list[str]:
    return [info.key for info in lab.repo.native.objects.list("datasets/")]


def test_a_failing_job_registers_nothing_and_the_attempt_goes_on(lab: Lab) -> None:
    @F.udf("int")
    def breaks(n):  # type: ignore[no-untyped-def] # hints would be read as those of a pandas function
        if n == 7:
            raise ValueError("seven")
        return n

    attempt = lab.attempt()
    frame = lab.session.range(0, 8, 1, 4).select(breaks("id").alias("n"))
    with pytest.raises(PySparkException, match="seven"):
        attempt.workspace.write(frame, "t")
    assert attempt.workspace.files() == []
    attempt.workspace.write(lab.session.range(5), "t")
    attempt.publish()
    assert lab.rows("t") == [(n,) for n in range(5)]
    assert lab.repo.fsck().problems == ()


def test_an_attempt_that_is_given_up_leaves_no_files(lab: Lab) -> None:
    attempt = lab.attempt()
    attempt.workspace.write(lab.frame([("a", 1)], DAYS), "t")
    assert stored(lab) != []
    attempt.trying.cancel(RuntimeError("given up"))
    attempt.trying.close()
    assert stored(lab) == []
    assert [r.kind for r in lab.repo.recoveries()] == ["aborted"]


def test_files_are_durable_before_the_seal(lab: Lab, monkeypatch: pytest.MonkeyPatch) -> None:
    persisted: list[str] = []
    objects = lab.repo.native.objects
    persist = objects.persist

    def spy(keys: Any) -> None:
        keys = list(keys)
        persisted.extend(keys)
        persist(keys)

    attempt = lab.attempt()
    attempt.workspace.write(lab.frame([("a", 1)], DAYS), "t")
    monkeypatch.setattr(objects, "persist", spy)
    attempt.trying.complete()
    written = [e.address for e in attempt.trying.tree.parts("t")]
    assert written
    assert set(written) <= set(persisted)
    attempt.trying.cancel(RuntimeError("done"))


def test_checksum_files_and_markers_never_stay_or_count(lab: Lab) -> None:
    lab.put(lab.frame([("a", 1), ("b", 2)], DAYS), "t", partition_by=["day"])
    assert all(Path(key).name.startswith("part-") for key in stored(lab))
    assert sorted(stored(lab)) == sorted(e.address for e in lab.repo.list("main", "t") if e.kind == "file")


def test_rows_that_are_not_in_the_files_stop_the_write(lab: Lab, monkeypatch: pytest.MonkeyPatch) -> None:
    """As on a cluster whose executors write to disks of their own: the job succeeds, and files are missing."""
    from fenceline.spark import parts

    settle = parts.settle
    monkeypatch.setattr(parts, "settle", lambda directory: settle(directory)[1:])
    attempt = lab.attempt()
    with pytest.raises(StoreError, match="the job wrote 2 rows, but there are 1 files with 1 rows"):
        attempt.workspace.write(lab.frame([("a", 1), ("b", 2)], DAYS), "t", partition_by=["day"])
    with pytest.raises(StoreError, match="the job wrote 1 rows, but there are 0 files"):
        attempt.workspace.write(lab.frame([("a", 1)], DAYS), "u", format="json")
    assert attempt.workspace.files() == []


def test_a_job_that_spark_does_not_report_on_stops_the_write(lab: Lab, monkeypatch: pytest.MonkeyPatch) -> None:
    """Its events were dropped, or forgotten: what it wrote cannot be compared with anything."""
    from fenceline.spark import reports

    monkeypatch.setattr(reports, "_PATIENCE", 0.1)
    monkeypatch.setattr(reports, "_counted", lambda store, number: None)
    attempt = lab.attempt()
    with pytest.raises(StoreError, match="Spark does not say what the job"):
        attempt.workspace.write(lab.frame([("a", 1)], DAYS), "t")
    assert attempt.workspace.files() == []


def test_rows_are_counted_where_descriptions_are_cut_off(lab: Lab, monkeypatch: pytest.MonkeyPatch) -> None:
    """As with spark.sql.event.truncate.length, which cannot be set on a running session."""
    from fenceline.spark import writer

    monkeypatch.setattr(writer, "job_group", lambda session, group, text: job_group(session, group, text[:5]))
    assert lab.attempt().workspace.write(lab.session.range(7), "t").rows == 7


@pytest.mark.slow
def test_a_running_job_is_cancelled_by_its_group(lab: Lab) -> None:
    def slowly(batches: Iterator[Any]) -> Iterator[Any]:
        import time

        for batch in batches:
            time.sleep(60)
            yield batch

    attempt = lab.attempt()
    frame = lab.session.range(0, 2, 1, 2).mapInArrow(slowly, "id bigint")
    ended: list[BaseException] = []

    def body() -> None:
        try:
            attempt.workspace.write(frame, "t")
        except (PySparkException, Py4JError) as error:
            ended.append(error)

    started = time.monotonic()
    thread = threading.Thread(target=body)
    thread.start()
    group = attempt.workspace.job_group
    tracker = lab.session.sparkContext.statusTracker()
    while not any(_running(tracker, job) for job in tracker.getJobIdsForGroup(group)):
        time.sleep(0.05)
        assert time.monotonic() - started < 30
    cancel(lab.session, group)
    thread.join(30)
    assert not thread.is_alive()
    assert "cancelled" in str(ended[0])
    assert time.monotonic() - started < 50
    assert attempt.workspace.files() == []
    with job_group(lab.session, group, "later"), pytest.raises((PySparkException, Py4JError), match="cancelled"):
        lab.session.range(10).count()  # a body that goes on after the cancel starts nothing new
    assert lab.session.range(10).count() == 10


def _running(tracker: Any, job: int) -> bool:
    found = tracker.getJobInfo(job)
    stages = [tracker.getStageInfo(stage) for stage in found.stageIds] if found else []
    return any(stage is not None and stage.numActiveTasks > 0 for stage in stages)


def fails_once(marker: str) -> Callable[[Iterator[Any]], Iterator[Any]]:
    def once(batches: Iterator[Any]) -> Iterator[Any]:
        import os

        for batch in batches:
            yield batch
            try:
                os.close(os.open(marker, os.O_CREAT | os.O_EXCL))
            except FileExistsError:
                continue
            raise RuntimeError("the first try fails, after it has written")

    return once


def test_a_task_that_fails_and_then_succeeds_writes_its_rows_once(lab: Lab, tmp_path: Path) -> None:
    if lab.session.sparkContext.master == "local[2]":
        pytest.skip("Spark tries tasks again on clusters only; test_spark_cluster.py runs this there")
    frame = lab.session.range(0, 1000, 1, 4).mapInArrow(fails_once(str(tmp_path / "marker")), "id bigint")
    lab.put(frame, "t")
    assert os.path.exists(tmp_path / "marker")
    assert lab.rows("t") == lab.collect(lab.session.range(1000))
    assert lab.dataset("t").rows == 1000


def test_speculative_tasks_leave_nothing(lab: Lab, tmp_path: Path) -> None:
    if lab.session.conf.get("spark.speculation", "false") != "true":
        pytest.skip("Spark speculates on clusters only; test_spark_cluster.py runs this there")
    tries = str(tmp_path)

    def lags(batches: Iterator[Any]) -> Iterator[Any]:
        import os
        import time

        from pyspark import TaskContext

        context = TaskContext.get()
        assert context is not None
        name = f"{tries}/{context.partitionId()}-{context.attemptNumber()}"
        for batch in batches:
            os.close(os.open(name, os.O_CREAT))
            yield batch
        if context.partitionId() == 0 and context.attemptNumber() == 0:
            time.sleep(15)

    lab.put(lab.session.range(0, 1000, 1, 8).mapInArrow(lags, "id bigint"), "t")
    assert os.path.exists(f"{tries}/0-1"), "no second try of the slow task was started"
    assert lab.rows("t") == lab.collect(lab.session.range(1000))
    assert lab.dataset("t").rows == 1000

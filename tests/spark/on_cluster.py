"""What only a cluster shows. Run by test_spark_cluster.py, in a process whose session is on one."""

from __future__ import annotations

import os
import time
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from pyspark.errors import PySparkException
from pyspark.sql import functions as F  # noqa: N812 - as everyone writes it

from fenceline.errors import ConfigError, StoreError
from fenceline.seams import Seams
from fenceline.spark import SparkSettings, places
from fenceline.spark.shipping import ship_module
from fenceline.task.attempt import AttemptRunner
from fenceline.task.by_hand import ByHand, handed_out
from fenceline.task.loading import load

if TYPE_CHECKING:
    from tests.spark import cluster
    from tests.spark.conftest import Lab
else:
    import cluster

TASK = """
import fenceline as fl
from pydantic import BaseModel, ConfigDict
from pyspark.sql import functions as F


class Params(BaseModel):
    model_config = ConfigDict(extra="forbid")
    rows: int


class Built(BaseModel):
    total: int


def twice(n):
    return n * 2


@fl.task(name="doubled", owner="data@example.com", version="1", workspace=fl.WorkspaceSpec())
def doubled(workspace: fl.SparkWorkspace, params: Params) -> Built:
    frame = workspace.spark.range(0, params.rows, 1, 4).select(F.udf(twice, "long")("id").alias("n"))
    workspace.write(frame, "doubled")
    return Built(total=workspace.read.dataset("doubled").agg(F.sum("n")).first()[0])
"""

assert "FENCELINE_TEST_MASTER" in os.environ, "this file is run by test_spark_cluster.py"


def test_functions_of_a_task_file_reach_the_executors(lab: Lab, settings: SparkSettings, tmp_path: Path) -> None:
    """The driver can import the file that was named; executors cannot, until it is shipped."""
    file = tmp_path / "only_here" / "doubling.py"
    file.parent.mkdir()
    file.write_text(TASK)
    (definition,) = load(f"{file}:doubled")
    head = lab.repo.head("main").commit.id
    lab.repo.create_branch("again", head)
    runner = AttemptRunner(lambda url: lab.repo.native, ByHand(), tmp_path / "work", spark=settings)
    for branch in ("main", "again"):  # shipped once
        place = {"repository": lab.repo.url, "branch": branch, "ref_type": "commit", "ref": head}
        given = {"workspace": place, "params": {"rows": 10}}
        result = runner.run(definition, handed_out("doubled", given, Seams()))
        assert result.status == "COMPLETED", result.reason
        assert result.output["result"] == {"total": 90}
        assert sorted(lab.rows("doubled", branch)) == [(n * 2,) for n in range(10)]


def test_a_module_takes_its_package_along(lab: Lab, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    inner = tmp_path / "modules" / "pack" / "inner"
    inner.mkdir(parents=True)
    for name in (inner.parent / "__init__.py", inner / "__init__.py"):
        name.touch()
    (inner / "tools.py").write_text("def thrice(n): return n * 3")
    monkeypatch.syspath_prepend(str(inner.parents[1]))
    import pack.inner.tools as tools  # type: ignore[import-not-found]

    def thrice() -> list[tuple[int, ...]]:
        return lab.collect(lab.session.range(3).select(F.udf(tools.thrice, "long")("id")))

    with pytest.raises(PySparkException, match="ModuleNotFoundError"):
        thrice()
    shipped = ship_module(lab.session, tools)
    assert shipped is not None
    assert Path(shipped).name == "pack.zip"
    assert thrice() == [(0,), (3,), (6,)]
    assert ship_module(lab.session, "pack.inner") == shipped, "once"
    assert ship_module(lab.session, "__main__") is None


def test_a_worker_with_a_disk_of_its_own_stops_the_attempt(
    lab: Lab, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It joins a cluster that was found to be sound; the next write asks again, and before its first byte."""
    if not cluster.can_mount():
        pytest.skip("NOT TESTED: this system refuses `unshare -m`, so no worker can have a disk of its own")
    lab.put(lab.session.range(10), "sound")
    root = Path(lab.repo.url.removeprefix("file://"))
    master = str(lab.session.sparkContext.master)
    with cluster.worker(tmp_path, 3, master, hidden=root):
        until_executors(lab, 3)
        attempt = lab.attempt()
        with pytest.raises(ConfigError, match=r"executor .* does not see what the driver wrote .*mount the same disk"):
            attempt.workspace.write(lab.session.range(0, 100, 1, 8), "t")
        assert not attempt.trying.started
        assert os.listdir(root / "tmp") == []

        monkeypatch.setattr(places, "ensure_shared", lambda *_: None)  # an executor that joined after the check
        frame = lab.session.range(0, 120, 1, 12).mapInArrow(slowly, "id bigint")
        with pytest.raises(StoreError, match=r"t: the job wrote 120 rows, but there are \d+ files with \d+ rows"):
            attempt.workspace.write(frame, "t")
        with pytest.raises(StoreError, match=r"t: the job wrote 120 rows, but there are \d+ files in"):
            attempt.workspace.write(frame, "t", format="json")
        assert attempt.workspace.files() == ["sound/" + name for name in parts_of(lab, "sound")]


def slowly(batches: Iterator[Any]) -> Iterator[Any]:
    """Slow enough that no executor is done with all tasks before another begins."""
    import time

    for batch in batches:
        time.sleep(0.5)
        yield batch


# Executors have no module of this name.
slowly.__module__ = "__main__"


def until_executors(lab: Lab, count: int) -> None:
    until = time.monotonic() + cluster.PATIENCE
    context: Any = lab.session.sparkContext
    while context._jsc.sc().getExecutorIds().size() < count:
        assert time.monotonic() < until, "the new worker got no executor"
        time.sleep(0.1)


def parts_of(lab: Lab, path: str) -> list[str]:
    return [e.path.removeprefix(f"{path}/") for e in lab.repo.list("main", path) if e.address]

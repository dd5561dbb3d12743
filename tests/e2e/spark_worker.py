"""A worker process of the Spark attempt tests: `python spark_worker.py ROOT ORCHESTRATOR [VERSION]`, one attempt.

FENCELINE_TEST_HANG=FILE: the first job writes the id of its Python process there, and hangs.
"""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

from pydantic import BaseModel, ConfigDict
from pyspark.sql import functions as F  # noqa: N812 - as everyone writes it

import fenceline as fl
from fenceline.task.attempt import AttemptRunner

sys.path.insert(0, str(Path(__file__).parents[1] / "protocol"))

from file_orchestrator import FileOrchestrator
from spark_jvm import attach

HANG = "FENCELINE_TEST_HANG"


class Params(BaseModel):
    model_config = ConfigDict(extra="forbid")
    rows: int = 1000


class Built(BaseModel):
    rows: int


@fl.task(
    name="build",
    owner="data@example.com",
    version=sys.argv[3] if len(sys.argv) > 3 else "1",
    workspace=fl.WorkspaceSpec(post=(fl.require_rows("features/plays", min=1),)),
)
def build(workspace: fl.SparkWorkspace, params: Params) -> Built:
    with (Path(sys.argv[2]).parent / "runs").open("a") as runs:
        runs.write("run\n")
    plays = workspace.spark.range(params.rows).withColumn("day", F.col("id") % 2)
    if HANG in os.environ:
        plays = plays.mapInArrow(hanging(os.environ[HANG]), plays.schema)
    written = workspace.write(plays, "features/plays", partition_by=["day"])
    workspace.write(plays.groupBy("day").count(), "features/days")
    return Built(rows=written.rows)


def hanging(marker: str) -> Callable[[Iterator[Any]], Iterator[Any]]:
    def hang(batches: Iterator[Any]) -> Iterator[Any]:
        import os
        import time

        for batch in batches:
            yield batch
            with open(f"{marker}.new", "w") as file:
                file.write(str(os.getpid()))
            os.rename(f"{marker}.new", marker)
            time.sleep(600)

    return hang


def main(root: str, orchestrator: str) -> None:
    attach()
    repo = fl.open_repository(root, sweep=False)
    port = FileOrchestrator(Path(orchestrator))
    work = Path(orchestrator).parent / "work"
    attempt = port.poll("build")
    result = AttemptRunner(lambda url: repo.native, port, work, actor="child").run(build, attempt)
    accepted = port.complete(attempt, result)
    told = {
        "status": result.status,
        "code": result.code,
        "output": result.output,
        "reason": result.reason,
        "accepted": accepted,
    }
    print(json.dumps(told), flush=True)


if __name__ == "__main__":
    main(*sys.argv[1:3])

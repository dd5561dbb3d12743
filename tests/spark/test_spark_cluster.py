"""A real standalone cluster on loopback: the same tests, tasks tried again, speculation, disks that are not shared.

One cluster, and one driver process that runs them all: JVMs are most of the cost. `make test` takes the tests in which
it matters where tasks run; FENCELINE_CLUSTER=full takes all of them.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from tests.spark import cluster
else:
    import cluster

pytestmark = [pytest.mark.slow, pytest.mark.timeout(1200)]

ROOT = Path(__file__).parents[2]
HERE = Path(__file__).parent
PYTEST = (sys.executable, "-m", "pytest", "-x", "-p", "no:cacheprovider", "--durations=10", "-rs")
CONF = {
    "spark.executor.memory": "512m",
    "spark.executor.extraJavaOptions": cluster.QUICK,
    "spark.speculation": "true",
    "spark.speculation.interval": "100ms",
    "spark.speculation.quantile": "0.5",
    "spark.speculation.minTaskRuntime": "3s",
}
# The rest of the write and read tests differ from these in what the driver does, not in where tasks run.
WHERE_IT_MATTERS = "on_cluster or speculative or failing_job or create_append or computed_from or read_your_writes"


def test_the_same_tests_on_a_cluster_with_speculation(tmp_path: Path) -> None:
    names = ["test_spark_failures.py", "test_spark_writes.py", "test_spark_reads.py", "on_cluster.py"]
    chosen = [] if os.environ.get("FENCELINE_CLUSTER") == "full" else ["-k", WHERE_IT_MATTERS]
    with cluster.cluster(tmp_path) as master:
        done = subprocess.run(
            [*PYTEST, f"--basetemp={tmp_path / 'base'}", *chosen, *(str(HERE / name) for name in names)],
            env={**os.environ, "FENCELINE_TEST_MASTER": master, "FENCELINE_TEST_SPARK_CONF": json.dumps(CONF)},
            cwd=ROOT,
            capture_output=True,
            text=True,
            timeout=1100,
        )
    assert done.returncode == 0, done.stdout[-8000:] + done.stderr[-1000:]
    skipped = [line for line in done.stdout.splitlines() if line.startswith("SKIPPED")]
    assert all("NOT TESTED" in line for line in skipped), "what local mode skips runs here"
    if skipped:
        pytest.skip("; ".join(skipped))

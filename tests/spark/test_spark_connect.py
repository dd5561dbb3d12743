"""A real Spark Connect server on loopback, and one client process: the write tests, and what is different there."""

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

pytestmark = [pytest.mark.slow, pytest.mark.timeout(900)]

ROOT = Path(__file__).parents[2]
HERE = Path(__file__).parent
PYTEST = (sys.executable, "-m", "pytest", "-x", "-p", "no:cacheprovider", "--durations=5", "-rs")
WHERE_IT_MATTERS = "on_connect or create_append or concurrent"


def test_a_connect_server(tmp_path: Path) -> None:
    names = ["on_connect.py", "test_spark_writes.py"]
    chosen = [] if os.environ.get("FENCELINE_CLUSTER") == "full" else ["-k", WHERE_IT_MATTERS]
    with cluster.connect_server(tmp_path) as remote:
        done = subprocess.run(
            [*PYTEST, f"--basetemp={tmp_path / 'base'}", *chosen, *(str(HERE / name) for name in names)],
            env={**os.environ, "FENCELINE_TEST_MASTER": remote, "FENCELINE_TEST_SPARK_CONF": json.dumps({})},
            cwd=ROOT,
            capture_output=True,
            text=True,
            timeout=800,
        )
    assert done.returncode == 0, done.stdout[-8000:] + done.stderr[-1000:]
    assert "skipped" not in done.stdout

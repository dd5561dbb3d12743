"""One evaluator, two engines: everything that the tests of constraints ask DuckDB, Spark answers alike."""

from __future__ import annotations

import importlib.util
import sys
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import SparkSession

from fenceline.graph.engine import SparkEngine, _for_spark

pytestmark = pytest.mark.slow

CASES = Path(__file__).parents[1] / "unit" / "graph" / "test_constraints.py"
TOGETHER = 6
"""Checks in one job: planning a query takes longer than running it, and grows faster than it does."""

PLAIN = {
    "spark.sql.adaptive.enabled": "false",
    "spark.sql.autoBroadcastJoinThreshold": "-1",
    "spark.sql.shuffle.partitions": "1",
}
"""Every broadcast is a job of its own, and there are hundreds of joins of a few rows."""


def every_check() -> list[Any]:
    spec = importlib.util.spec_from_file_location("constraints_on_duckdb", CASES)
    assert spec is not None
    assert spec.loader is not None
    module = sys.modules[spec.name] = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    checks: list[Any] = module.every_check()
    return checks


def test_spark_finds_what_duckdb_finds(spark: SparkSession) -> None:
    checks, engine = every_check(), SparkEngine(spark)
    assert len(checks) >= 35
    assert sum(bool(check.found) for check in checks) >= 20
    for name, value in PLAIN.items():
        spark.conf.set(name, value)
    for start in range(0, len(checks), TOGETHER):
        selects, wanted = [], []
        for n, check in enumerate(checks[start : start + TOGETHER], start):
            names = {name: f"c{n}_{name}" for name in check.relations}
            for name, relation in check.relations.items():
                engine._frame(relation).createOrReplaceTempView(names[name])
            selects.append(f"SELECT {n} AS c, q.* FROM ({_for_spark(check.sql, names)}) AS q")
            wanted += [(n, row["n"], row["id"], row["value"], row["other"]) for row in check.found]
        found = [tuple(row) for row in spark.sql(" UNION ALL ".join(selects)).collect()]
        assert sorted(found, key=repr) == sorted(wanted, key=repr)

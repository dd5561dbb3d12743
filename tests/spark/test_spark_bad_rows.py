"""The wrong rows of `tests/unit/graph/test_load_bad_rows.py` on Spark: the same files and lines, in two loads."""

from __future__ import annotations

import importlib.util
import sys
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import SparkSession

from fenceline import Repository
from fenceline.graph.loading.bad_rows import LoadRefused

pytestmark = pytest.mark.slow

CASES = Path(__file__).parents[1] / "unit" / "graph" / "test_load_bad_rows.py"


def in_process() -> Any:
    spec = importlib.util.spec_from_file_location("bad_rows_in_process", CASES)
    assert spec is not None
    assert spec.loader is not None
    module = sys.modules[spec.name] = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


@pytest.mark.parametrize("readable", [False, True])
def test_a_wrong_row_is_named_by_file_and_line(
    disk_repo: Repository, tmp_path: Path, spark: SparkSession, readable: bool
) -> None:
    known, graph = in_process(), disk_repo.graph()
    graph.init(known.SCHEMA)
    before = disk_repo.head("main").commit.id
    sources, wanted = [], {}
    for form in known.FORMATS:
        for kind, case in known.cases(form).items():
            if case.readable == readable:
                case = known.cases(f"{form}-{kind}")[kind]  # names of its own: all are loaded together
                sources += known.written(tmp_path / form / kind, case, form)
                file = str(tmp_path / form / kind / f"{case.table}.{form}")
                wanted[file, case.at + known.FIRST[form]] = case
    told = []
    for engine in ("spark", "local"):
        with pytest.raises(LoadRefused) as caught:
            graph.load(sources, engine=engine, session=spark, on_error="report")
        told.append(sorted((row.file or "", row.line or 0, row.property or "") for row in caught.value.rows))
        found = {(row.file, row.line): row for row in caught.value.rows}
        for place, case in wanted.items():
            assert found[place].property == case.property
            assert case.says in str(found[place])
    assert told[0] == told[1]
    assert disk_repo.head("main").commit.id == before
    assert list(disk_repo.intents()) == []

"""The same pipeline has the same outcome embedded and on Conductor: both run one WorkflowDef (decision 0013)."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from blocks_pipeline import blocks
from workers import HERE, Workers

import fenceline as fl
from fenceline.pipeline.conductor.api import ConductorApi
from fenceline.pipeline.conductor.deploy import apply, plan
from fenceline.pipeline.conductor.submit import follow, submit
from fenceline.pipeline.embedded.runner import run
from fenceline.pipeline.form.compiling import workflow_def
from fenceline.pipeline.form.taskdefs import task_defs
from fenceline.seams import Seams

pytestmark = [pytest.mark.slow, pytest.mark.timeout(900)]  # the first test may download the server


@pytest.fixture(scope="module")
def workers(server: str, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Workers]:
    made = Workers(server, tmp_path_factory.mktemp("workers"))
    made.start(str(HERE / "blocks_pipeline.py"), "-j", "1", "--slots", "4")
    yield made
    made.stop()


def files(repo: fl.Repository) -> dict[str, bytes]:
    return {entry.path: repo.read("main", entry.path) for entry in repo.list("main")}


def on_conductor(api: ConductorApi, repo: fl.Repository, rows: int) -> tuple[str, dict[str, Any]]:
    given = blocks.workflow_input(repo.url, "main", {"rows": rows})
    started = submit(api, blocks.name, blocks.version, given)
    *_, state = follow(api, started, Seams())
    output = api.get(f"/workflow/{started}", {"includeTasks": False}).get("output") or {}
    return state.status, output.get("results") or {}


@pytest.mark.parametrize("rows", [2, 0])
def test_both_runners_leave_the_same(api: ConductorApi, workers: Workers, tmp_path: Path, rows: int) -> None:
    apply(api, plan(api, workflow_def(blocks), task_defs(blocks)))
    there = fl.open_repository(tmp_path / "there", create=True)
    status, results = on_conductor(api, there, rows)
    assert status == "COMPLETED", workers.log

    here = fl.open_repository(tmp_path / "here", create=True)
    embedded = run(blocks, here, params={"rows": rows})
    assert embedded.status == "COMPLETED"
    assert results == embedded.output["results"]
    assert files(there) == files(here)
    assert "first/${first} $${x}.txt" in files(here)
    ran = {name for name, result in results.items() if result is not None}
    always = {"first", "beside", "last"}
    expected = {"inside", "known_0", "known_1", "each_0", "each_1"} if rows else {"few"}
    assert ran == always | expected


def test_more_items_than_were_expected_fail_both(api: ConductorApi, workers: Workers, tmp_path: Path) -> None:
    apply(api, plan(api, workflow_def(blocks), task_defs(blocks)))
    there = fl.open_repository(tmp_path / "there", create=True)
    status, _ = on_conductor(api, there, 3)
    here = fl.open_repository(tmp_path / "here", create=True)
    embedded = run(blocks, here, params={"rows": 3})
    assert "there are 3 items, and the pipeline allows 2" in (embedded.reason or "")
    assert embedded.status == status == "FAILED"
    assert files(there) == files(here) == {}, "nothing of the run is visible"

"""Conductor and lakeFS together: workers killed in a body and between seal and merge cost nothing.

On the real lakeFS that FENCELINE_TEST_LAKEFS_ENDPOINT names, or else on the stand-in.
"""

from __future__ import annotations

import json
import os
import signal
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import pytest
from songs_pipeline import DIE_AFTER_ENV, DIE_IN_ENV, RUNS_ENV, songs
from typer.testing import CliRunner
from workers import HERE, Workers

import fenceline as fl
from fenceline.cli.main import app
from fenceline.pipeline.conductor.api import ConductorApi
from fenceline.pipeline.conductor.deploy import apply, plan
from fenceline.pipeline.form.compiling import workflow_def
from fenceline.pipeline.form.taskdefs import task_defs
from fenceline.repo.lakefs import hook
from fenceline.repo.lakefs.client import Client
from fenceline.repo.lakefs.notes import STAGING
from fenceline.repo.lakefs.sdk import Access
from fenceline.seams import Seams
from fenceline.testing.lakefs_standin import lakefs_standin

pytestmark = [pytest.mark.slow, pytest.mark.timeout(900)]

STORAGE = os.environ.get("FENCELINE_TEST_LAKEFS_STORAGE", "local://fenceline-tests")


@pytest.fixture
def access() -> Iterator[Access]:
    endpoint = os.environ.get("FENCELINE_TEST_LAKEFS_ENDPOINT")
    if endpoint is not None:
        yield Access(endpoint, os.environ["FENCELINE_TEST_LAKEFS_KEY"], os.environ["FENCELINE_TEST_LAKEFS_SECRET"])
        return
    with lakefs_standin() as server:
        yield server.access


@pytest.fixture
def client(access: Access, monkeypatch: pytest.MonkeyPatch) -> Iterator[Client]:
    monkeypatch.setenv("LAKECTL_SERVER_ENDPOINT_URL", access.endpoint or "")
    monkeypatch.setenv("LAKECTL_CREDENTIALS_ACCESS_KEY_ID", access.key or "")
    monkeypatch.setenv("LAKECTL_CREDENTIALS_SECRET_ACCESS_KEY", access.secret or "")
    made = Client(f"fl-{Seams().ids.execution()}", access)
    made.create(f"{STORAGE}/{made.repository}")
    made.put("main", hook.HOOK_PATH, hook.ACTION.encode())
    made.commit("main", "start")
    yield made
    made.close()


@pytest.fixture
def workers(server: str, client: Client, tmp_path: Path) -> Iterator[Workers]:
    made = Workers(server, tmp_path, {RUNS_ENV: str(tmp_path / "runs")})
    yield made
    made.stop()


def test_killed_workers_cost_nothing_on_lakefs(
    api: ConductorApi, server: str, client: Client, workers: Workers, tmp_path: Path
) -> None:
    apply(api, plan(api, workflow_def(songs), task_defs(songs)))
    start = client.head("main")
    repo = fl.open_repository(f"lakefs://{client.repository}")
    tree = workers.start("-j", "2", **{DIE_IN_ENV: "people", DIE_AFTER_ENV: "charts"})
    command = ["submit", f"{HERE}/songs_pipeline.py:songs", "--server", server, "--repo", repo.url]
    answer = CliRunner().invoke(app, [*command, "--params", '{"day": "2026-02-01"}', "--wait", "--json"])
    assert answer.exit_code == 0, (answer.output, workers.log)
    state = json.loads(answer.stdout)
    assert state["status"] == "COMPLETED", workers.log
    assert {step["reference"]: step["attempts"] for step in state["steps"]} == {
        "begin": 1,
        "ingest": 1,
        "people": 2,
        "charts": 2,
        "report": 1,
        "publish": 1,
    }
    ran = dict(Counter((tmp_path / "runs").read_text().split()))
    assert ran == {"ingest": 1, "people": 2, "charts": 1, "report": 1}, "a sealed step is not run again"
    head = repo.head("main").commit
    assert head.parents[0] == start, "the run became visible as one merge"
    assert repo.read("main", "report.txt") == b"2026-02-01 Borealis\nAda\nAda\n"
    assert [branch.name for branch in repo.branches()] == ["main"]
    tree.send_signal(signal.SIGTERM)
    assert tree.wait(30) == 0
    repo.recover()
    assert [ref.name for ref in client.branches(STAGING)] == []

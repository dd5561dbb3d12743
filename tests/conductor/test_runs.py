"""Runs on a real server with real workers: killed, stopped, orphaned; each step is published once."""

from __future__ import annotations

import json
import signal
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from songs_pipeline import DIE_AFTER_ENV, DIE_IN_ENV, GATE_ENV, RUNS_ENV, songs, waiting
from typer.testing import CliRunner
from workers import HERE, Workers, alive, until

import fenceline as fl
from fenceline.cli.main import app
from fenceline.pipeline.conductor.api import ConductorApi
from fenceline.pipeline.conductor.deploy import apply, plan
from fenceline.pipeline.conductor.submit import follow, look, submit
from fenceline.pipeline.form.compiling import workflow_def
from fenceline.pipeline.form.taskdefs import task_defs
from fenceline.seams import Seams

pytestmark = [pytest.mark.slow, pytest.mark.timeout(900)]  # the first test may download the server


@pytest.fixture(scope="session")
def deployed(api: ConductorApi) -> ConductorApi:
    for pipeline in (songs, waiting):
        apply(api, plan(api, workflow_def(pipeline), task_defs(pipeline)))
    return api


@pytest.fixture
def repo(tmp_path: Path) -> fl.Repository:
    return fl.open_repository(tmp_path / "repo", create=True)


@pytest.fixture
def gate(tmp_path: Path) -> Path:
    made = tmp_path / "gate"
    made.mkdir()
    return made


@pytest.fixture
def workers(server: str, tmp_path: Path, gate: Path) -> Iterator[Workers]:
    made = Workers(server, tmp_path, {RUNS_ENV: str(tmp_path / "runs"), GATE_ENV: str(gate)})
    yield made
    made.stop()


def bodies(tmp_path: Path) -> dict[str, int]:
    return dict(Counter((tmp_path / "runs").read_text().split()))


def ended(api: ConductorApi, run: str) -> Any:
    *_, state = follow(api, run, Seams())
    return state


def submit_waiting(api: ConductorApi, repo: fl.Repository) -> str:
    return submit(api, waiting.name, waiting.version, waiting.workflow_input(repo.url, "main"))


def commits_of(repo: fl.Repository, run: str) -> list[str]:
    """The steps of a run that are on main, oldest first: behind its merge, on the line of its own branch."""
    merge = repo.head("main").commit
    at = repo.native.commit(merge.parents[-1])
    found = []
    while at.step:
        found.append(at.step.split("/")[1])
        assert at.step.startswith(run)
        at = repo.native.commit(at.parents[0])
    return found[::-1]


def assert_no_leftovers(repo: fl.Repository, tmp_path: Path) -> None:
    repo.recover()
    assert [intent.execution for intent in repo.intents()] == []
    repo.gc(grace=0)
    assert repo.fsck().clean
    left = [path.name for path in (tmp_path / "workspaces").iterdir() if path.name != "claims"]
    assert left == []
    assert list((tmp_path / "workspaces").rglob("*.claim")) == []


def test_workers_killed_in_a_body_and_between_seal_and_publish_cost_nothing(
    deployed: ConductorApi, server: str, repo: fl.Repository, workers: Workers, tmp_path: Path
) -> None:
    tree = workers.start("-j", "2", **{DIE_IN_ENV: "people", DIE_AFTER_ENV: "charts"})
    command = ["submit", f"{HERE}/songs_pipeline.py:songs", "--server", server, "--repo", repo.url]
    answer = CliRunner().invoke(app, [*command, "--params", '{"day": "2026-02-01"}', "--wait", "--json"])
    assert answer.exit_code == 0, (answer.output, workers.log)
    state = json.loads(answer.stdout)
    assert state["status"] == "COMPLETED"
    attempts = {step["reference"]: step["attempts"] for step in state["steps"]}
    assert attempts == {"begin": 1, "ingest": 1, "people": 2, "charts": 2, "report": 1, "publish": 1}

    assert (tmp_path / "runs.people-died").exists()
    assert (tmp_path / "runs.charts-died").exists()
    assert bodies(tmp_path) == {"ingest": 1, "people": 2, "charts": 1, "report": 1}, "a sealed step is not run again"
    assert sorted(commits_of(repo, state["id"])) == ["charts", "ingest", "people", "report"]
    assert repo.read("main", "report.txt") == b"2026-02-01 Borealis\nAda\nAda\n"
    assert [branch.name for branch in repo.branches()] == ["main"]

    tree.send_signal(signal.SIGTERM)
    assert tree.wait(30) == 0
    assert_no_leftovers(repo, tmp_path)


def test_a_stopping_worker_finishes_what_it_has(
    deployed: ConductorApi, repo: fl.Repository, workers: Workers, gate: Path
) -> None:
    tree = workers.start("-j", "1")
    run = submit_waiting(deployed, repo)
    until("the body runs", (gate / "started").exists)
    tree.send_signal(signal.SIGTERM)
    until("the worker was told", lambda: "stopping: the workers have" in workers.log)
    assert tree.poll() is None
    (gate / "go").touch()
    assert tree.wait(30) == 0
    assert ended(deployed, run).steps[-1].attempts == 1
    assert repo.read("main", "waited/done.txt") == b"done"


def test_what_does_not_finish_within_the_grace_goes_back_to_the_queue(
    deployed: ConductorApi, repo: fl.Repository, workers: Workers, gate: Path, tmp_path: Path
) -> None:
    tree = workers.start("-j", "1", "--grace", "0")
    run = submit_waiting(deployed, repo)
    until("the body runs", (gate / "started").exists)
    tree.send_signal(signal.SIGINT)
    assert tree.wait(30) == 0
    assert look(deployed, run).steps[-1].status == "SCHEDULED"
    (gate / "go").touch()
    workers.start("-j", "1")
    state = ended(deployed, run)
    assert (state.status, state.steps[-1].attempts) == ("COMPLETED", 1), "no failure was counted"
    assert bodies(tmp_path) == {"wait": 2}


def test_a_killed_supervisor_leaves_no_orphans_and_its_successor_goes_on_at_once(
    deployed: ConductorApi, repo: fl.Repository, workers: Workers, gate: Path, tmp_path: Path
) -> None:
    tree = workers.start("-j", "2")
    run = submit_waiting(deployed, repo)
    until("the body runs", (gate / "started").exists)
    children = workers.children(tree)
    assert len(children) == 2
    tree.kill()
    tree.wait()
    until("its workers have left", lambda: not any(map(alive, children)), 10)
    (gate / "go").touch()
    workers.start("-j", "1")
    state = ended(deployed, run)
    assert (state.status, state.steps[-1].attempts) == ("COMPLETED", 2)
    workers.stop()
    assert_no_leftovers(repo, tmp_path)


def test_a_key_starts_one_run(deployed: ConductorApi, repo: fl.Repository) -> None:
    started: set[str] = set()

    def start(key: str) -> str:
        given = waiting.workflow_input(repo.url, "main")
        run = submit(deployed, waiting.name, waiting.version, given, key=f"{key} {repo.id}")
        started.add(run)
        return run

    first = start("2026-02-02")
    assert start("2026-02-02") == first
    assert start("2026-02-03") != first
    deployed.delete(f"/workflow/{first}", {"reason": "only a test"})
    assert start("2026-02-02") != first
    for run in started - {first}:
        deployed.delete(f"/workflow/{run}", {"reason": "only a test"})


def test_a_pipeline_that_is_not_the_deployed_one_is_not_submitted(
    server: str, repo: fl.Repository, api: ConductorApi
) -> None:
    changed = {**workflow_def(songs), "description": "something else"}
    apply(api, plan(api, changed, ()))
    try:
        command = ["submit", f"{HERE}/songs_pipeline.py:songs", "--server", server, "--repo", repo.url]
        answer = CliRunner().invoke(app, command)
        assert answer.exit_code == 3
        assert "fenceline deploy" in answer.output
    finally:
        apply(api, plan(api, workflow_def(songs), ()))

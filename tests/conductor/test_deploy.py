"""Deploying to a real server: what differs is shown, and only that changes."""

from __future__ import annotations

import json
from copy import deepcopy
from pathlib import Path
from typing import Any

import pytest
from songs_pipeline import songs
from typer.testing import CliRunner

from fenceline.cli.main import app
from fenceline.pipeline.conductor.api import ConductorApi
from fenceline.pipeline.conductor.deploy import Change, apply, plan
from fenceline.pipeline.form.compiling import workflow_def
from fenceline.pipeline.form.expressions import WorkflowError
from fenceline.pipeline.form.taskdefs import task_defs

pytestmark = [pytest.mark.slow, pytest.mark.timeout(900)]  # the first test may download the server
HERE = Path(__file__).parent


@pytest.fixture
def workflow() -> dict[str, Any]:
    """A copy of the pipeline under a name of its own, so that tests do not deploy over one another."""
    return {**deepcopy(workflow_def(songs)), "name": "deployed"}


@pytest.fixture
def tasks() -> list[dict[str, Any]]:
    return deepcopy(task_defs(songs))


def differing(changes: tuple[Change, ...]) -> dict[str, list[tuple[str, Any, Any]]]:
    return {c.name: [(d.path, d.before, d.after) for d in c.differences] for c in changes if c.needed}


def test_a_second_deploy_has_nothing_to_change(
    api: ConductorApi, workflow: dict[str, Any], tasks: list[dict[str, Any]]
) -> None:
    apply(api, plan(api, workflow, tasks))
    assert differing(plan(api, workflow, tasks)) == {}


def test_what_was_changed_on_the_server_is_found_and_set_back(
    api: ConductorApi, workflow: dict[str, Any], tasks: list[dict[str, Any]]
) -> None:
    apply(api, plan(api, workflow, tasks))
    (ingest,) = (task for task in tasks if task["name"] == "songs.ingest")
    api.put("/metadata/taskdefs", {**ingest, "retryCount": 7, "concurrentExecLimit": 2})
    found = plan(api, workflow, tasks)
    assert differing(found) == {"songs.ingest": [("concurrentExecLimit", 2, None), ("retryCount", 7, 3)]}
    apply(api, found)
    assert differing(plan(api, workflow, tasks)) == {}


def test_a_changed_step_is_shown_by_its_name(api: ConductorApi, workflow: dict[str, Any]) -> None:
    apply(api, plan(api, workflow, ()))
    changed = deepcopy(workflow)
    fork = next(task for task in changed["tasks"] if task["type"] == "FORK_JOIN")
    (step,) = (task for branch in fork["forkTasks"] for task in branch if task["taskReferenceName"] == "charts")
    step["inputParameters"]["params"]["rows"] = 0
    ((path, before, after),) = differing(plan(api, changed, ()))["deployed"]
    assert path.endswith("charts.inputParameters.params.rows")
    assert (before, after) == ("${ingest.output.result.rows}", 0)
    del step["inputParameters"]["params"]["rows"]
    assert differing(plan(api, changed, ()))["deployed"][0][2] is None


def test_a_workflow_that_could_not_run_is_not_deployed(api: ConductorApi, workflow: dict[str, Any]) -> None:
    broken = {**workflow, "name": "broken", "tasks": [{**workflow["tasks"][0], "type": "INLINE"}]}
    with pytest.raises(WorkflowError, match="INLINE"):
        plan(api, broken, ())


def test_the_owner_of_built_in_tasks_stays(
    api: ConductorApi, workflow: dict[str, Any], tasks: list[dict[str, Any]]
) -> None:
    apply(api, plan(api, workflow, tasks))
    others = [{**task, "ownerEmail": "others@example.com"} for task in tasks]
    assert set(differing(plan(api, workflow, others))) == {
        "songs.ingest",
        "songs.people",
        "songs.charts",
        "songs.report",
    }


def test_the_command_asks_and_says_when_there_is_nothing_to_do(server: str) -> None:
    def run(*more: str) -> tuple[int, str]:
        answer = CliRunner().invoke(app, ["deploy", f"{HERE}/songs_pipeline.py:songs", "--server", server, *more])
        return answer.exit_code, answer.output

    run("--yes")
    assert run() == (0, f"nothing to change on {server}\n")
    code, told = run("--json")
    assert (code, json.loads(told)["changes"]) == (0, [])

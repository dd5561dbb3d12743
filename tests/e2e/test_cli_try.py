"""`fenceline try` and `check`: one attempt by hand, and what a module declares."""

from __future__ import annotations

import json
from pathlib import Path
from uuid import uuid4

import pytest
from typer.testing import CliRunner

import fenceline as fl
from fenceline.cli.main import app

TASKS = """
from pathlib import Path
from pydantic import BaseModel, ConfigDict
from fenceline.task.contract import task
from fenceline.task.guard import require_file
from fenceline.task.spec import WorkspaceSpec

class Params(BaseModel):
    model_config = ConfigDict(extra="forbid")
    text: str = "hello"

class Result(BaseModel):
    length: int

@task(name="demo.write", owner="data@example.com", workspace=WorkspaceSpec(post=(require_file("out.txt"),)))
def write(workspace: Path, params: Params) -> Result:
    if params.text:
        (workspace / "out.txt").write_text(params.text)
    return Result(length=len(params.text))

@task(name="demo.count", owner="data@example.com")
def count(params: Params) -> Result:
    return Result(length=len(params.text))
"""


@pytest.fixture
def module(tmp_path: Path) -> Path:
    file = tmp_path / f"tasks_{uuid4().hex}.py"  # modules of one name cannot be loaded twice in a process
    file.write_text(TASKS)
    return file


@pytest.fixture
def root(tmp_path: Path) -> Path:
    fl.open_repository(tmp_path / "repo", create=True)
    return tmp_path / "repo"


def invoke(*arguments: str | Path, code: int = 0) -> str:
    result = CliRunner().invoke(app, [str(a) for a in arguments])
    assert result.exit_code == code, result.output
    return result.stdout


def test_try_publishes_one_attempt(module: Path, root: Path) -> None:
    told = json.loads(invoke("try", f"{module}:write", "--repo", root, "--params", '{"text": "hi"}', "--json"))
    assert told["status"] == "COMPLETED"
    assert told["output"]["result"] == {"length": 2}
    repo = fl.open_repository(root)
    assert repo.read("main", "out.txt") == b"hi"
    assert repo.head("main").commit.id == told["output"]["workspace"]["ref"]
    assert repo.head("main").commit.kind == "step"


def test_try_shows_the_phases_as_they_pass(module: Path, root: Path) -> None:
    result = CliRunner().invoke(app, ["try", f"{module}:write", "--repo", str(root)])
    phases = [line.strip() for line in result.stderr.splitlines()]
    assert phases[:3] == ["look back", "materialise", "pre guards"]
    assert phases[-1] == "publish"


def test_a_dry_run_shows_the_changes_and_leaves_nothing(module: Path, root: Path) -> None:
    before = fl.open_repository(root).head("main").seq
    told = json.loads(invoke("try", f"{module}:write", "--repo", root, "--dry-run", "--json"))
    assert told["changes"] == [{"status": "added", "path": "out.txt", "dataset": False}]
    assert [guard["status"] for guard in told["guards"]] == ["passed"]
    repo = fl.open_repository(root)
    assert repo.head("main").seq == before
    assert list(repo.intents()) == []
    repo.gc(grace=0)
    assert repo.plan_gc().objects == ()
    shown = invoke("try", f"{module}:write", "--repo", root, "--dry-run")
    assert "out.txt" in shown
    assert "nothing was published" in shown


def test_a_failing_attempt_says_why_and_exits_with_9(module: Path, root: Path) -> None:
    shown = invoke("try", f"{module}:write", "--repo", root, "--params", '{"text": ""}', code=9)
    assert "FAILED" in shown
    assert "out.txt" in shown


def test_a_task_without_a_workspace_runs_too(module: Path, root: Path) -> None:
    told = json.loads(invoke("try", f"{module}:count", "--repo", root, "--json"))
    assert told["output"] == {"result": {"length": 5}}


@pytest.mark.parametrize(
    "arguments", [("--params", "{"), ("--params", "@missing.json"), ("--params", '{"nope": 1}', "--dry-run")]
)
def test_params_that_cannot_be_used_are_refused(module: Path, root: Path, arguments: tuple[str, ...]) -> None:
    invoke("try", f"{module}:write", "--repo", root, *arguments, code=3)


def test_several_tasks_need_a_name(module: Path, root: Path) -> None:
    invoke("try", module, "--repo", root, code=3)


def test_check_lists_the_tasks_of_a_module(module: Path) -> None:
    told = json.loads(invoke("check", module, "--json"))
    assert [task["name"] for task in told["tasks"]] == ["demo.write", "demo.count"]


FAILING = """
from pathlib import Path
from pydantic import BaseModel
import fenceline as fl

class Params(BaseModel, extra="forbid"):
    how: str

class Result(BaseModel):
    pass

def only_input(view):
    if view.is_dir("unreadable"):
        raise OSError("the disk failed")

SPEC = fl.WorkspaceSpec(pre=[only_input], post=[fl.require_file("o")])

@fl.task(name="demo.fail", owner="data@example.com", workspace=SPEC)
def fail(workspace: Path, params: Params) -> Result:
    if params.how == "failed":
        raise fl.TaskFailed("no rows today")
    if params.how == "terminal":
        raise fl.TaskTerminalError("there will never be rows")
    return Result()
"""


@pytest.mark.parametrize(
    ("how", "status", "code"),
    [
        ("failed", "FAILED", "task.failed"),
        ("terminal", "FAILED_WITH_TERMINAL_ERROR", "task.terminal"),
        ("guard", "FAILED", "guard.violations"),
    ],
)
def test_an_attempt_that_fails_exits_alike_dry_or_not(
    tmp_path: Path, root: Path, how: str, status: str, code: str
) -> None:
    module = tmp_path / f"tasks_{uuid4().hex}.py"
    module.write_text(FAILING)
    given = ("try", f"{module}:fail", "--repo", root, "--json", "--params", json.dumps({"how": how}))
    told = json.loads(invoke(*given, code=9))
    assert (told["status"], told["code"]) == (status, code)
    dry = CliRunner().invoke(app, [*map(str, given), "--dry-run"])
    assert (dry.exit_code, json.loads(dry.stderr)["code"]) == (9, code)


def test_a_pre_guard_that_could_not_run_is_retried_and_one_that_is_violated_is_not(tmp_path: Path, root: Path) -> None:
    module = tmp_path / f"tasks_{uuid4().hex}.py"
    module.write_text(FAILING.replace("pre=[only_input]", 'pre=[only_input, fl.forbid_glob("unwanted")]'))
    given = ("try", f"{module}:fail", "--repo", root, "--json", "--params", '{"how": "failed"}')
    repo = fl.open_repository(root)
    with repo.transaction() as tx:
        tx.write("unreadable/a", "1")
    told = json.loads(invoke(*given, code=9))
    assert (told["status"], told["code"]) == ("FAILED", "guard.did_not_run")
    with repo.transaction() as tx:
        tx.write("unwanted", "1")
    told = json.loads(invoke(*given, code=9))
    assert (told["status"], told["code"]) == ("FAILED_WITH_TERMINAL_ERROR", "guard.violations")

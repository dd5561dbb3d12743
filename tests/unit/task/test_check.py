"""`fenceline check`: every task of a module, for people and as JSON, and exit code 3 for what is wrong."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

import pytest
import typer
from typer.testing import CliRunner, Result

from fenceline.cli.failure import CommandGroup
from fenceline.cli.tasks import check

Writer = Callable[..., str]

SOURCE = '''
class Login(BaseModel):
    token: SecretStr

class Build(BaseModel, extra="forbid"):
    day: str
    rows: list[int] | None = None
    login: Login = Login(token="hunter2")

def tidy(workspace): ...

@task(name="features.build", owner="data@example.com", version="7",
      workspace=WorkspaceSpec(prefix="/raw", pre=[tidy], on_conflict="rebase"),
      controls=TaskControls(response_timeout_seconds=100, timeout_seconds=200), budget=PublishBudget())
def build(workspace: Spark, params: Build) -> Out:
    """Counts plays."""

@task(name="ping", owner="data@example.com")
def ping(params: Params) -> Out: ...
'''

app = typer.Typer(cls=CommandGroup, add_completion=False, pretty_exceptions_enable=False)
app.command()(check)


@app.callback()
def commands() -> None:
    """So that `check` stays a command of a group."""


def run(*arguments: str, code: int = 0) -> Result:
    plain: dict[str, str | None] = {"FORCE_COLOR": None, "TTY_COMPATIBLE": None}
    result = CliRunner().invoke(app, ["check", *arguments], env=plain, catch_exceptions=False)
    assert result.exit_code == code, result.stdout + result.stderr
    return result


def test_every_task_is_shown(module: Writer) -> None:
    result = run(module(SOURCE))
    assert result.stderr == ""
    shown = result.stdout.splitlines()
    assert shown[:10] == [
        "features.build",
        "  kind       spark",
        "  owner      data@example.com",
        "  version    7",
        "  function   tasks_of_a_test:build",
        "  params     Build(day: string, rows?: array of integer | null, login?: Login)",
        "  result     Out(rows?: integer)",
        "  workspace  prefix=/raw, read_only=False, pre=[tasks_of_a_test.tidy], fence=strict, on_conflict=rebase",
        "  controls   retryCount=3, retryLogic=FIXED, retryDelaySeconds=60, backoffScaleFactor=1, "
        "responseTimeoutSeconds=100, timeoutSeconds=200, timeoutPolicy=TIME_OUT_WF",
        "  budget     observed_p99_seconds=1, safety_margin=3, stage_timeout_seconds=600, confirm_timeout_seconds=30, "
        "completion_reserve_seconds=15, shutdown_grace_seconds=60, heartbeat_interval_seconds=10, total_seconds=655",
    ]
    assert shown[10].startswith("  warning    response_timeout_seconds=100 is smaller than the publish budget of 655 s")
    assert shown[12:14] == ["ping", "  kind      no workspace"]
    assert shown[-1] == "2 tasks, 1 warning"


def test_one_task_can_be_chosen(module: Writer) -> None:
    printed = run(f"{module(SOURCE)}:ping").stdout
    assert "features.build" not in printed
    assert printed.endswith("1 task, no warnings\n")


def test_as_json(module: Writer) -> None:
    tasks: list[dict[str, Any]] = json.loads(run(module(SOURCE), "--json").stdout)["tasks"]
    assert [(each["name"], each["kind"], each["description"]) for each in tasks] == [
        ("features.build", "spark", "Counts plays."),
        ("ping", "none", None),
    ]
    assert tasks[0]["params"]["required"] == ["day"]
    assert len(tasks[0]["warnings"]) == 1
    assert tasks[1]["warnings"] == []


@pytest.mark.parametrize("form", [(), ("--json",)])
def test_secrets_are_not_shown(form: tuple[str, ...], module: Writer) -> None:
    printed = run(module(SOURCE), *form).stdout
    assert "token" in printed or not form
    assert "hunter2" not in printed


def test_a_broken_contract_is_reported_with_its_fix_and_exit_code_3(module: Writer) -> None:
    path = module("@task(name='t', owner='o')\ndef build(params: dict) -> Out: ...\n")
    result = run(path, code=3)
    assert result.stdout == ""
    assert "error: task 't', build in tasks_of_a_test.py:20: the params is annotated with dict" in result.stderr
    assert "hint: declare `class Params(BaseModel)` with pydantic" in result.stderr


def test_a_broken_contract_as_json(module: Writer) -> None:
    path = module("@task(name='t', owner='o')\ndef build(params: dict) -> Out: ...\n")
    error = json.loads(run(path, "--json", code=3).stderr)
    assert (error["code"], error["exit_code"], error["retryable"]) == ("contract.task", 3, False)
    assert error["context"] == {"task": "t", "function": "build", "file": "tasks_of_a_test.py", "line": 20}


def test_a_spec_that_contradicts_itself_is_a_contract_error_too(module: Writer) -> None:
    path = module("WorkspaceSpec(read_only=True, fence='serial')\n")
    assert "error: WorkspaceSpec: read_only=True publishes nothing: remove fence" in run(path, code=3).stderr


def test_a_module_that_cannot_be_imported_exits_with_3(module: Writer) -> None:
    assert "ZeroDivisionError" in run(module("1 / 0\n"), code=3).stderr
    assert "there is no module 'absent_of_a_test'" in run("absent_of_a_test", code=3).stderr

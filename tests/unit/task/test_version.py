"""The version of a task's code: what changes it, what does not, and when it must be given."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from types import FunctionType
from typing import Any

import pytest

from fenceline.errors import ContractError
from fenceline.task.contract import TaskContractError
from fenceline.task.loading import load
from fenceline.task.version import NoSource, code_version, location

Writer = Callable[..., str]

ONE = """
@task(name="one", owner="o")
def one(params: Params) -> Out:
    return Out(rows=LIMIT)
"""
TWO = """
@task(name="two", owner="o")
def two(params: Params) -> Out:
    return Out(rows=LIMIT)
"""


def versions(module: Writer, source: str, path: str = "tasks_of_a_test.py") -> dict[str, str]:
    sys.modules.pop("tasks_of_a_test", None)
    return {each.name: each.version for each in load(module(source, path))}


THIS: Any = versions


def test_an_explicit_version_is_kept_as_it_is() -> None:
    assert code_version(THIS, "2026-01 β") == "2026-01 β"


@pytest.mark.parametrize("version", ["", "  ", "x" * 101, "a\nb", "\x1b[0m", 7])
def test_a_version_that_cannot_be_shown_is_refused(version: Any) -> None:
    with pytest.raises(ContractError, match="version"):
        code_version(THIS, version)


def test_the_same_source_has_the_same_version_wherever_it_lies(module: Writer) -> None:
    first = versions(module, f"LIMIT = 1\n{ONE}")
    assert versions(module, f"LIMIT = 1\n{ONE}") == first
    assert versions(module, f"LIMIT = 1\n{ONE}", "elsewhere/tasks_of_a_test.py") == first


def test_two_tasks_of_one_module_have_two_versions(module: Writer) -> None:
    found = versions(module, f"LIMIT = 1\n{ONE}{TWO}")
    assert found["one"] != found["two"]


@pytest.mark.parametrize(
    ("before", "after"),
    [
        (f"LIMIT = 1\n{ONE}", f"LIMIT = 1\n{ONE.replace('rows=LIMIT', 'rows=LIMIT + 1')}"),
        (f"LIMIT = 1\n{ONE}", f"LIMIT = 2\n{ONE}"),
        (f"LIMIT = 1\n{ONE}", f"LIMIT = 1  # for now\n{ONE}"),
        (f"LIMIT = 1\n{ONE}", f"LIMIT = 1\n{ONE}\n"),
    ],
    ids=["the body", "the module", "a comment", "a blank line"],
)
def test_what_changes_the_version(before: str, after: str, module: Writer) -> None:
    assert versions(module, before)["one"] != versions(module, after)["one"]


def test_a_helper_of_another_module_does_not_change_the_version(module: Writer) -> None:
    """The documented limit: such a change needs `version=`."""
    module("LIMIT = 1\n", "helper_of_a_test.py", head="")
    first = versions(module, f"from helper_of_a_test import LIMIT\n{ONE}")
    module("LIMIT = 2\n", "helper_of_a_test.py", head="")
    del sys.modules["helper_of_a_test"]
    assert versions(module, f"from helper_of_a_test import LIMIT\n{ONE}") == first


def test_line_ends_do_not_change_the_version(module: Writer) -> None:
    first = versions(module, f"LIMIT = 1\n{ONE}")
    text = Path("tasks_of_a_test.py").read_bytes()
    Path("tasks_of_a_test.py").write_bytes(text.replace(b"\n", b"\r\n"))
    del sys.modules["tasks_of_a_test"]
    assert {each.name: each.version for each in load("tasks_of_a_test")} == first


def test_every_process_finds_the_same_version(module: Writer) -> None:
    here = versions(module, f"LIMIT = 1\n{ONE}")
    script = "from fenceline.task.loading import load; print(load('tasks_of_a_test.py')[0].version)"
    for seed in ("1", "2"):
        environment = {**os.environ, "PYTHONHASHSEED": seed, "PYTHONDONTWRITEBYTECODE": "1"}
        found = subprocess.run(
            [sys.executable, "-c", script], env=environment, capture_output=True, text=True, check=True
        )
        assert found.stdout.strip() == here["one"]


def test_code_without_source_must_be_given_a_version() -> None:
    names: dict[str, Any] = {"__name__": "made"}
    exec("def body(): ...", names)
    body: FunctionType = names["body"]
    with pytest.raises(NoSource, match=r"<string> cannot be read \(give one: @task\(…, version='1'\)"):
        code_version(body)
    assert code_version(body, "1") == "1"


INTERACTIVE = """
from pydantic import BaseModel
from fenceline.task.contract import task

class Params(BaseModel, extra="forbid"): ...

@task(name="t", owner="o"{version})
def build(params: Params) -> Params:
    return params

print(build.version)
"""


def test_interactive_code_must_be_given_a_version() -> None:
    refused = subprocess.run(
        [sys.executable, "-c", INTERACTIVE.format(version="")], capture_output=True, text=True, check=False
    )
    assert refused.returncode == 1
    assert "task 't', build in <string>:7: the code version of build cannot be derived: " in refused.stderr
    assert "it was defined interactively" in refused.stderr
    assert "version='1'" in refused.stderr
    accepted = subprocess.run(
        [sys.executable, "-c", INTERACTIVE.format(version=", version='3'")], capture_output=True, text=True, check=True
    )
    assert accepted.stdout == "3\n"


def test_a_script_run_as_a_file_has_a_version(module: Writer) -> None:
    path = module(f"LIMIT = 1\n{ONE}\nprint(one.version)\n")
    found = subprocess.run([sys.executable, path], capture_output=True, text=True, check=True)
    assert found.stdout.startswith("source:")


def test_a_file_that_went_away_while_it_was_imported_is_told(module: Writer) -> None:
    path = module(f"import os\nLIMIT = 1\nos.unlink(__file__)\n{ONE}")
    with pytest.raises(TaskContractError, match=r"tasks_of_a_test.py cannot be read .*version='1'"):
        load(path)


def test_a_location_is_seen_from_the_working_directory(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.chdir(Path(__file__).parent)
    assert location(THIS) == ("test_version.py", THIS.__code__.co_firstlineno)
    monkeypatch.chdir(tmp_path)
    assert location(THIS)[0] == __file__

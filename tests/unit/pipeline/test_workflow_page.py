"""The JSON on the page about interchange is what travels, and `extract` writes what the page says."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

from fenceline.cli.main import app
from fenceline.pipeline.definition.loading import load_pipeline, load_pipelines
from fenceline.pipeline.form.compiling import canonical, workflow_def
from fenceline.pipeline.form.taskdefs import WORKSPACE_IN, WORKSPACE_OUT, task_def, task_defs
from fenceline.pipeline.form.workflow import read_workflow
from fenceline.task.contract import LoadError
from fenceline.task.given import validate

PAGE = (Path(__file__).parents[3] / "docs" / "reference" / "interchange.md").read_text()
INPUT, OUTPUT, STEP = (json.loads(block) for block in re.findall(r"```json\n(.*?)```", PAGE, re.DOTALL))
MODULE = re.findall(r"<<'END'\n(.*?)\nEND\n", PAGE, re.DOTALL)[0]


@pytest.fixture
def module(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.delitem(__import__("sys").modules, "page_pipelines", raising=False)
    file = tmp_path / "page_pipelines.py"
    file.write_text(MODULE)
    return file


def test_the_input_on_the_page_is_accepted(module: Path) -> None:
    tasks = {task.name: task for task in load_pipeline(str(module)).tasks}
    place, params = validate(tasks["songs.build"], INPUT)
    assert place is not None
    assert (place.refs, place.on_conflict) == (("5f0c3b9e",), "rebase")
    assert params.model_dump(mode="json") == INPUT["params"]
    assert place.output("c2a47d10") == OUTPUT["workspace"]


def test_the_schemas_say_what_the_page_says(module: Path) -> None:
    assert set(INPUT["workspace"]) <= set(WORKSPACE_IN["properties"])
    assert set(WORKSPACE_OUT["required"]) == set(OUTPUT["workspace"])
    (build,) = (task for task in load_pipeline(str(module)).tasks if task.name == "songs.build")
    found = task_def(build)
    assert set(found["inputKeys"]) == set(INPUT)
    assert set(found["outputKeys"]) == set(OUTPUT)
    assert set(found["inputSchema"]["data"]["properties"]["params"]["properties"]) == set(INPUT["params"])
    assert set(found["outputSchema"]["data"]["properties"]["result"]["properties"]) == set(OUTPUT["result"])


def test_the_step_on_the_page_is_the_compiled_one(module: Path) -> None:
    document = workflow_def(load_pipeline(str(module)))
    (switch,) = (each for each in document["tasks"] if each["type"] == "SWITCH")
    assert switch["decisionCases"]["true"] == [STEP]


def test_the_tables_have_every_built_in_task_and_its_fields(module: Path) -> None:
    for definition in task_defs(load_pipeline(str(module))):
        if definition["name"].startswith("fenceline."):
            (row,) = re.findall(rf"^\| `{definition['name']}` \|.*$", PAGE, re.MULTILINE)
            assert [key for key in (*definition["inputKeys"], *definition["outputKeys"]) if f"`{key}`" not in row] == []


# --- extract ------------------------------------------------------------------------------------------------------


def extracted(*arguments: str) -> str:
    done = CliRunner().invoke(app, ["extract", *arguments])
    assert done.exit_code == 0, done.output
    return done.stdout


def test_extract_writes_files_that_can_be_run(module: Path, tmp_path: Path) -> None:
    said = extracted(str(module), "--out", str(tmp_path / "out"))
    files = {file.name: json.loads(file.read_text()) for file in (tmp_path / "out").iterdir()}
    assert all(str(tmp_path / "out" / name) in said for name in files)
    assert "workflow.daily.json" in files
    assert read_workflow(files["workflow.daily.json"]).name == "daily"
    used = {node["name"] for node in files["workflow.daily.json"]["tasks"] if node["type"] == "SIMPLE"}
    assert {f"task.{name}.json" for name in used} <= set(files)
    text = (tmp_path / "out" / "workflow.daily.json").read_text()
    assert text == canonical(workflow_def(load_pipeline(str(module))))


def test_extract_prints_one_document(module: Path) -> None:
    found: Any = json.loads(extracted(f"{module}:daily", "--json"))
    assert set(found) == {"workflows", "tasks"}
    assert found["workflows"]["daily"]["name"] == "daily"
    assert "songs.build" in found["tasks"]


def test_extract_prints_definitions(module: Path) -> None:
    assert '"taskReferenceName": "build"' in extracted("page_pipelines")


@pytest.mark.parametrize(
    ("reference", "said"),
    [
        ("page_pipelines:dialy", "did you mean page_pipelines:daily?"),
        ("page_pipelines:build", "build in page_pipelines is not a pipeline"),
        ("page_pipelines:", "names no pipelines"),
        ("json", "json has no pipelines"),
        ("nowhere.at_all", "there is no module"),
    ],
)
def test_references_that_lead_nowhere(module: Path, reference: str, said: str) -> None:
    with pytest.raises(LoadError) as found:
        load_pipelines(reference)
    assert said in str(found.value)


def test_a_broken_pipeline_is_told_in_one_line(module: Path) -> None:
    module.write_text(MODULE.replace("min_rows=raw.result.rows", "min_rows=raw.result.row"))
    done = CliRunner().invoke(app, ["extract", str(module)])
    assert done.exit_code == 3
    assert "Ingested has no field 'row'" in done.stderr
    assert re.search(r"page_pipelines\.py:\d+", done.stderr)

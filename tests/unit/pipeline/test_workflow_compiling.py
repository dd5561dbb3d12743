"""What pipelines compile to: decision 0013, and that it runs in the order that was declared."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from pydantic import BaseModel, SecretStr

from fenceline.pipeline.definition.dsl import Block, Run, Step, pipeline
from fenceline.pipeline.embedded.engine import Ended, State, advance
from fenceline.pipeline.form.compiling import canonical, workflow_def
from fenceline.pipeline.form.taskdefs import task_defs
from fenceline.pipeline.form.workflow import Simple, Workflow, read_workflow
from fenceline.task.contract import task
from fenceline.task.spec import TaskControls, WorkspaceSpec

OWNER = "data@example.com"
Json = dict[str, Any]


class Params(BaseModel, extra="forbid"):
    rows: int = 0
    day: str = ""


class Inner(BaseModel):
    rows: int


class Out(BaseModel):
    rows: int
    days: list[str]
    inner: Inner


class Login(BaseModel, extra="forbid"):
    token: SecretStr = SecretStr("hidden")


@task(name="write", owner=OWNER, workspace=WorkspaceSpec(reads=[]), controls=TaskControls(retry_count=1))
def write(workspace: Path, params: Params) -> Out:
    """Writes.

    At length.
    """
    raise AssertionError


@task(name="look", owner=OWNER, workspace=WorkspaceSpec(read_only=True))
def look(workspace: Path, params: Params) -> Out:
    raise AssertionError


@task(name="free", owner=OWNER)
def free(params: Params) -> Out:
    raise AssertionError


@task(name="login", owner=OWNER)
def login(params: Login) -> Out:
    raise AssertionError


def tasks_of(document: Json) -> dict[str, Json]:
    """Every task by its reference, however deep."""
    found: dict[str, Json] = {}

    def walk(tasks: list[Json]) -> None:
        for each in tasks:
            found[each["taskReferenceName"]] = each
            for branch in (*each.get("forkTasks", ()), *each.get("decisionCases", {}).values()):
                walk(branch)

    walk(document["tasks"])
    return found


def place_of(document: Json, step: str) -> Json:
    place: Json = tasks_of(document)[step]["inputParameters"]["workspace"]
    return place


def ref(step: str) -> str:
    return f"${{{step}.output.workspace.ref}}"


# --- shapes -------------------------------------------------------------------------------------------------------


def test_a_chain_is_a_plain_list() -> None:
    @pipeline(name="chain", timeout_seconds=60)
    def chain(run: Run[Params]) -> None:
        """One after the other."""
        first = run.step(write, name="first", day=run.params.day)
        run.step(write, name="second", rows=first.result.rows)

    document = workflow_def(chain)
    assert [each["taskReferenceName"] for each in document["tasks"]] == ["begin", "first", "second", "publish"]
    assert {each["type"] for each in document["tasks"]} == {"SIMPLE"}
    begin, first, _, publish = document["tasks"]
    assert begin == {
        "name": "fenceline.begin",
        "taskReferenceName": "begin",
        "type": "SIMPLE",
        "inputParameters": {
            "repository": "${workflow.input.repository}",
            "branch": "${workflow.input.branch}",
            "publish": "run",
        },
    }
    workspace = {
        "repository": "${workflow.input.repository}",
        "branch": "${begin.output.workspace.branch}",
        "ref_type": "commit",
        "refs": ["${begin.output.workspace.ref}"],
    }
    assert first["inputParameters"] == {"workspace": workspace, "params": {"day": "${workflow.input.params.day}"}}
    assert place_of(document, "second") == {**workspace, "refs": [ref("first")]}
    assert publish["inputParameters"] == {
        "workspace": {**workspace, "refs": [ref("second")]},
        "target": "${begin.output.target}",
    }
    assert document["outputParameters"] == {
        "workspace": "${publish.output.workspace}",
        "results": {"first": "${first.output.result}", "second": "${second.output.result}"},
    }
    expected = {
        "name": "chain",
        "version": 1,
        "schemaVersion": 2,
        "ownerEmail": OWNER,
        "description": "One after the other.",
        "inputParameters": ["repository", "branch", "params"],
        "timeoutSeconds": 60,
        "timeoutPolicy": "TIME_OUT_WF",
    }
    assert {name: document[name] for name in expected} == expected


def test_anything_else_is_one_fork_whose_branches_wait_for_what_they_need() -> None:
    @pipeline(name="diamond")
    def diamond(run: Run[Params]) -> None:
        top = run.step(write, name="top")
        left = run.step(write, name="left", rows=top.result.rows)
        right = run.step(free, name="right", rows=top.result.rows)
        run.step(write, name="bottom", after=[top, left], rows=right.result.rows)

    document = workflow_def(diamond)
    begin, fork, join, publish = document["tasks"]
    assert [fork["type"], join["type"]] == ["FORK_JOIN", "JOIN"]
    branches = [[each["taskReferenceName"] for each in branch] for branch in fork["forkTasks"]]
    assert branches == [
        ["top", "top__end"],
        ["left__after", "left", "left__end"],
        ["right__after", "right", "right__end"],
        ["bottom__after", "bottom", "bottom__end"],
    ], "a JOIN names no worker's task: Conductor's would see its failure before its retry"
    found = tasks_of(document)
    assert found["bottom__after"]["joinOn"] == ["left__end", "right__end"], "top stands before both"
    assert join["joinOn"] == ["bottom__end"]
    assert {each["joinMode"] for each in found.values() if each["type"] == "JOIN"} == {"SYNC"}
    assert place_of(document, "bottom")["refs"] == [ref("left"), ref("top")], "through the one without a workspace"
    assert "workspace" not in found["right"]["inputParameters"]
    assert (begin["name"], publish["name"]) == ("fenceline.begin", "fenceline.publish")


def test_blocks_end_with_a_noop_and_have_no_scripts() -> None:
    @pipeline(name="blocks")
    def blocks(run: Run[Params]) -> None:
        top = run.step(write, name="top")
        with run.when(top.result.rows > 3, name="many") as many:
            run.foreach(top.result.days, write, lambda day: {"day": day}, most=2, name="each")
        with run.otherwise(many):
            run.step(free, name="few")
        run.step(write, name="last", after=many)

    document = workflow_def(blocks)
    found = tasks_of(document)
    assert [each["taskReferenceName"] for each in document["tasks"]] == [
        "begin",
        "top",
        "many__test",
        "many__switch",
        "many",
        "last",
        "publish",
    ]
    assert found["many__test"]["inputParameters"] == {"left": "${top.output.result.rows}", "op": ">", "right": 3}
    switch = found["many__switch"]
    assert (switch["evaluatorType"], switch["inputParameters"]) == (
        "value-param",
        {"holds": "${many__test.output.holds}"},
    )
    assert [each["taskReferenceName"] for each in switch["decisionCases"]["true"]] == [
        "each__fan",
        "each__fork",
        "each__join",
        "each",
    ]
    assert [each["taskReferenceName"] for each in switch["decisionCases"]["false"]] == ["few"]
    assert found["each__fan"]["inputParameters"] == {"items": "${top.output.result.days}", "most": 2}
    assert found["each_1__switch"]["inputParameters"] == {"holds": "${each__fan.output.has[1]}"}
    assert found["each_1"]["inputParameters"]["params"] == {"day": "${top.output.result.days[1]}"}
    assert found["each__join"]["joinOn"] == ["each_0__end", "each_1__end"]
    assert found["many"]["type"] == found["each"]["type"] == "NOOP"
    assert place_of(document, "last")["refs"] == [ref("top"), ref("each_0"), ref("each_1")]


def test_only_writers_that_are_not_ordered_rebase() -> None:
    @pipeline(name="beside")
    def beside(run: Run[Params]) -> None:
        top = run.step(write, name="top")
        left = run.step(write, name="left", after=top)
        with run.when(top.result.rows > 0) as block:
            run.step(write, name="inside")
        run.step(look, name="looking", after=top)
        run.step(write, name="bottom", after=[left, block])
        with run.when(top.result.rows > 1, after=block, name="choice") as choice:
            run.step(write, name="one")
        with run.otherwise(choice):
            run.step(write, name="other")

    document = workflow_def(beside)
    steps = ("top", "left", "inside", "looking", "bottom", "one", "other")
    rebasing = {step for step in steps if place_of(document, step).get("on_conflict") == "rebase"}
    assert rebasing == {"left", "inside", "bottom", "one", "other"}
    assert all(place_of(document, step).get("on_conflict") in (None, "rebase") for step in steps)


def test_cases_of_one_block_never_run_beside_each_other() -> None:
    @pipeline(name="choice")
    def choice(run: Run[Params]) -> None:
        with run.when(run.params.rows > 0) as block:
            run.step(write, name="one")
        with run.otherwise(block):
            run.step(write, name="other")

    assert "on_conflict" not in canonical(workflow_def(choice))


def test_items_of_a_foreach_rebase() -> None:
    @pipeline(name="items")
    def items(run: Run[Params]) -> None:
        run.foreach(["a", "b"], write, lambda day: {"day": day})

    document = workflow_def(items)
    assert [place_of(document, f"write_{n}")["on_conflict"] for n in (0, 1)] == ["rebase", "rebase"]
    assert "fenceline.fan" not in canonical(document), "the items are known"


def test_publish_by_step_has_no_last_move() -> None:
    @pipeline(name="by_step", publish="step")
    def by_step(run: Run[Params]) -> None:
        run.step(write, name="a")
        run.step(write, name="b")

    document = workflow_def(by_step)
    assert document["tasks"][0]["inputParameters"]["publish"] == "step"
    assert "fenceline.publish" not in canonical(document)
    assert document["outputParameters"]["workspace"]["refs"] == [ref("a"), ref("b")]

    @pipeline(name="one", publish="step")
    def one(run: Run[Params]) -> None:
        run.step(write, name="a")

    assert workflow_def(one)["outputParameters"]["workspace"] == "${a.output.workspace}"


def test_a_pipeline_without_workspaces_needs_no_repository() -> None:
    @pipeline(name="free_only")
    def free_only(run: Run[None]) -> None:
        run.step(free)

    document = workflow_def(free_only)
    assert [each["name"] for each in document["tasks"]] == ["free"]
    assert document["outputParameters"] == {"results": {"free": "${free.output.result}"}}


# --- task definitions ---------------------------------------------------------------------------------------------


def test_task_defs_carry_controls_and_schemas() -> None:
    @pipeline(name="both")
    def both(run: Run[Params]) -> None:
        run.step(write)
        run.step(login)

    found = {each["name"]: each for each in task_defs(both)}
    assert list(found) == sorted(found)
    assert set(found) == {
        "write",
        "login",
        "fenceline.begin",
        "fenceline.fan",
        "fenceline.publish",
        "fenceline.test",
    }
    writing = found["write"]
    assert (writing["retryCount"], writing["ownerEmail"], writing["description"]) == (1, OWNER, "Writes.")
    assert (writing["inputKeys"], writing["outputKeys"]) == (["params", "workspace"], ["result", "workspace"])
    schema = writing["inputSchema"]
    assert (schema["name"], schema["version"], schema["type"]) == ("write.input", 1, "JSON")
    assert schema["data"]["properties"]["params"]["properties"]["rows"]["type"] == "integer"
    assert schema["data"]["required"] == ["params", "workspace"]
    result = writing["outputSchema"]["data"]
    assert result["properties"]["result"]["properties"]["inner"] == {"$ref": "#/$defs/Inner"}
    assert result["$defs"]["Inner"]["properties"]["rows"]["type"] == "integer"
    assert found["login"]["inputKeys"] == ["params"]
    assert "hidden" not in json.dumps(found)


# --- the version --------------------------------------------------------------------------------------------------


def test_the_version_changes_with_what_runs_and_with_nothing_else() -> None:
    def version(rows: int, **settings: Any) -> str:
        @pipeline(name="versioned", **settings)
        def versioned(run: Run[Params]) -> None:
            run.step(write, rows=rows)

        found: str = workflow_def(versioned)["metadata"]["fenceline"]["version"]
        return found

    assert version(1) == version(1)
    assert len({version(1), version(2), version(1, publish="step"), version(1, timeout_seconds=5)}) == 4


MODULE = """
from pathlib import Path
from pydantic import BaseModel, ConfigDict
from fenceline.pipeline.form.compiling import canonical, workflow_def
from fenceline.pipeline.definition.dsl import Run, pipeline
from fenceline.task.contract import task
from fenceline.task.spec import WorkspaceSpec

class Params(BaseModel):
    model_config = ConfigDict(extra="forbid")
    rows: int = 0

@task(name="write", owner="a@example.com", workspace=WorkspaceSpec(reads=[]), version="1")
def write(workspace: Path, params: Params) -> Params: ...

@pipeline(name="wide")
def wide(run: Run[Params]) -> None:
    tops = [run.step(write, name=f"top_{n}") for n in range(5)]
    with run.when(run.params.rows > 0, after=tops) as block:
        run.step(write)
    run.step(write, name="bottom", after=[*reversed(tops), block])

print(canonical(workflow_def(wide)), end="")
"""


def test_the_text_is_the_same_in_every_process(tmp_path: Path) -> None:
    module = tmp_path / "wide.py"
    module.write_text(MODULE)
    texts = [
        subprocess.run(
            [sys.executable, str(module)], env={"PYTHONHASHSEED": seed}, capture_output=True, text=True, check=True
        ).stdout
        for seed in ("1", "2")
    ]
    assert texts[0] == texts[1]
    assert read_workflow(texts[0]).name == "wide"


# --- it runs in the declared order --------------------------------------------------------------------------------


def output_of(node: Simple, given: Json) -> Json:
    """What a worker would report."""
    if node.task == "fenceline.begin":
        return {"workspace": {"branch": "run/1", "ref": "c0"}, "target": "main"}
    if node.task == "fenceline.test":
        return {"holds": "true" if given["left"] > given["right"] else "false"}
    if node.task == "fenceline.fan":
        return {"has": ["true" if n < len(given["items"]) else "false" for n in range(given["most"])]}
    return {"workspace": {"ref": f"c-{node.reference}"}, "result": {"rows": 1, "days": ["x"], "inner": {"rows": 1}}}


def played(workflow: Workflow, rows: int, pick: Any) -> tuple[list[str], Ended, dict[str, Json]]:
    """Complete one scheduled step after the other, in any order the engine allows."""
    nodes = {node.reference: node for node in workflow.walk() if isinstance(node, Simple)}
    states: dict[str, State] = {}
    line: list[str] = []
    inputs: dict[str, Json] = {}
    while True:
        plan = advance(workflow, "w", {"repository": "r", "branch": "main", "params": {"rows": rows}}, states)
        if plan.ended:
            return line, plan.ended, inputs
        ready = pick(plan.schedule)
        inputs[ready.reference] = ready.input
        states[ready.reference] = State("COMPLETED", output_of(nodes[ready.reference], ready.input))
        line.append(ready.reference)


@st.composite
def shapes(draw: st.DrawFn) -> list[tuple[str, list[int]]]:
    """Elements in order, each with the numbers of earlier ones that it comes after."""
    kinds = draw(st.lists(st.sampled_from(["write", "free", "when", "each", "list"]), min_size=1, max_size=7))
    return [(kind, draw(st.lists(st.integers(0, n - 1), unique=True)) if n else []) for n, kind in enumerate(kinds)]


@settings(deadline=None, max_examples=150)
@given(shapes(), st.integers(0, 1), st.randoms())
def test_every_pipeline_runs_to_its_end_in_order(shape: list[tuple[str, list[int]]], rows: int, random: Any) -> None:
    @pipeline(name="any")
    def anything(run: Run[Params]) -> None:
        made: list[Step[Out] | Block] = []
        for number, (kind, earlier) in enumerate(shape):
            after, name = [made[n] for n in earlier], f"e{number}"
            if kind in ("write", "free"):
                made.append(run.step(write if kind == "write" else free, name=name, after=after))
            elif kind == "when":
                with run.when(run.params.rows > 0, name=name, after=after) as block:
                    run.step(write, name=f"{name}-in")
                    run.step(free, name=f"{name}-beside")
                made.append(block)
            else:
                source = run.step(free, name=f"{name}-source", after=after)
                items: list[str] = source.result.days if kind == "each" else ["a", "b"]
                each = run.foreach(items, write, lambda day: {"day": day}, most=2, name=name, after=source)
                made.append(each)

    document = workflow_def(anything)
    workflow = read_workflow(canonical(document))
    line, ended, inputs = played(workflow, rows, random.choice)
    assert ended.status == "COMPLETED", ended
    at = {name: number for number, name in enumerate(line)}

    def first_and_last(number: int) -> tuple[int, int]:
        mine = [place for name, place in at.items() if name.partition("-")[0].partition("_")[0] == f"e{number}"]
        return min(mine), max(mine)

    for number, (kind, earlier) in enumerate(shape):
        for other in earlier:
            assert first_and_last(other)[1] < first_and_last(number)[0], (line, shape)
        if kind == "when":
            assert (f"e{number}-in" in at) == (rows > 0)
        if kind == "each":
            assert f"e{number}_0" in at
            assert f"e{number}_1" not in at
    for name, given_input in inputs.items():
        place = given_input.get("workspace") if isinstance(given_input, dict) else None
        if isinstance(place, dict) and "refs" in place:
            refs = [each for each in place["refs"] if each is not None]
            assert refs, (name, place)
            assert all(each == "c0" or at[each.removeprefix("c-")] < at[name] for each in refs)


def test_a_hundred_steps_compile_fast() -> None:
    @pipeline(name="many")
    def many(run: Run[Params]) -> None:
        before: list[Step[Out]] = []
        for number in range(200):
            before.append(run.step(write, name=f"s{number}", after=before[-3:]))

    assert len(tasks_of(workflow_def(many))) > 200


@pytest.mark.parametrize("nested", [1, 3])
def test_blocks_within_blocks(nested: int) -> None:
    @pipeline(name="nested")
    def deep(run: Run[Params]) -> None:
        def inner(level: int) -> None:
            with run.when(run.params.rows > level, name=f"level{level}"):
                run.step(write, name=f"step{level}")
                if level + 1 < nested:
                    inner(level + 1)

        inner(0)

    workflow = read_workflow(workflow_def(deep))
    line, ended, _ = played(workflow, nested - 1, lambda ready: ready[0])
    assert ended.status == "COMPLETED"
    assert [name for name in line if name.startswith("step")] == [f"step{n}" for n in range(max(nested - 1, 0))]

"""A WorkflowDef is read as it will be run, or refused by name."""

from __future__ import annotations

import contextlib
import json
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from fenceline.pipeline.form.expressions import escaped, written
from fenceline.pipeline.form.workflow import (
    Fork,
    Join,
    Noop,
    Simple,
    Switch,
    WorkflowError,
    read_workflow,
    resolve,
)

Json = dict[str, Any]


def simple(reference: str, **given: Any) -> Json:
    return {"name": "songs.build", "taskReferenceName": reference, "type": "SIMPLE", "inputParameters": given}


def join(reference: str, *on: str) -> Json:
    return {"name": "join", "taskReferenceName": reference, "type": "JOIN", "joinOn": list(on)}


def fork(reference: str, *branches: list[Json]) -> Json:
    return {"name": "fork", "taskReferenceName": reference, "type": "FORK_JOIN", "forkTasks": list(branches)}


def switch(reference: str, value: Any, cases: dict[str, list[Json]], **more: Any) -> Json:
    return {
        "name": "switch",
        "taskReferenceName": reference,
        "type": "SWITCH",
        "evaluatorType": "value-param",
        "expression": "case",
        "inputParameters": {"case": value},
        "decisionCases": cases,
        **more,
    }


def noop(reference: str) -> Json:
    return {"name": "noop", "taskReferenceName": reference, "type": "NOOP"}


def workflow(*tasks: Json, **more: Any) -> Json:
    return {"name": "daily", "version": 3, "schemaVersion": 2, "tasks": list(tasks), **more}


def test_every_kind_of_task_is_read() -> None:
    a, b = simple("a", day="${workflow.input.params.day}"), simple("b")
    chosen = switch("s", "${a.output.holds}", {"true": [b]}, defaultCase=[noop("n")])
    document = workflow(a, fork("f", [chosen, noop("e")], [simple("c")]), join("j", "e", "c"), timeoutSeconds=9)
    read = read_workflow(json.dumps(document))
    assert (read.name, read.version, read.timeout_seconds, read.timeout_policy) == ("daily", 3, 9, "ALERT_ONLY")
    first, forked, joined = read.nodes
    assert first == Simple("a", "songs.build", {"day": "${workflow.input.params.day}"})
    assert isinstance(forked, Fork)
    assert forked.branches[1] == (Simple("c", "songs.build", {}),)
    assert forked.branches[0] == (
        Switch("s", "${a.output.holds}", {"true": (Simple("b", "songs.build", {}),)}, (Noop("n"),)),
        Noop("e"),
    )
    assert joined == Join("j", ("e", "c"))
    assert [node.reference for node in read.walk()] == ["a", "f", "s", "b", "n", "e", "c", "j"]


def test_the_fields_that_a_server_adds_are_no_obstacle() -> None:
    task = simple("a") | {"optional": False, "startDelay": 0, "joinOn": [], "asyncComplete": False, "loopOver": []}
    read_workflow(workflow(task, createTime=1, updateTime=2, ownerEmail="a@example.com", variables={}))


def test_a_switch_goes_on_with_the_case_of_that_name_or_with_the_default() -> None:
    (node,) = read_workflow(
        workflow(switch("s", "${workflow.input.x}", {"true": [noop("t")], "1": [noop("one")]}))
    ).nodes
    assert isinstance(node, Switch)
    assert node.chosen("true") == node.chosen(True) == (Noop("t"),)
    assert node.chosen(1) == (Noop("one"),)
    assert node.chosen(None) == node.chosen("other") == ()


@pytest.mark.parametrize(
    ("document", "said"),
    [
        (workflow(simple("a") | {"type": "HTTP"}), "a is a HTTP task"),
        (workflow(simple("a") | {"type": "DO_WHILE"}), "DO_WHILE"),
        (workflow(simple("a") | {"type": "INLINE"}), "INLINE"),
        (workflow(fork("f", [simple("a") | {"type": "SUB_WORKFLOW"}]), join("j", "a")), "SUB_WORKFLOW"),
        (workflow(simple("a") | {"optional": True}), "optional"),
        (workflow(simple("a") | {"retryCount": 2}), "retryCount"),
        (workflow(simple("a") | {"startDelay": 5}), "startDelay"),
        (workflow(simple("a"), simple("a")), "a stands in it twice"),
        (workflow(simple("workflow")), "'workflow'"),
        (workflow(simple("a b")), "'a b'"),
        (workflow(simple("a") | {"name": ""}), "a has no name"),
        (workflow(simple("a", x="${b.output.result}")), "a refers to b, which is not in it"),
        (workflow(simple("a", x="${a..b}")), "cannot be read"),
        (workflow(simple("a"), outputParameters={"x": "${z.output}"}), "outputParameters refers to z"),
        (workflow(simple("a"), join("j", "b")), "j refers to b"),
        (workflow(fork("f", [simple("a")])), "not followed by a JOIN"),
        (workflow(fork("f", [simple("a")], []), join("j", "a")), "empty branch"),
        (workflow(switch("s", "x", {}) | {"evaluatorType": "javascript"}), "'javascript'"),
        (workflow(switch("s", "x", {}) | {"expression": "y"}), "'y', which is none"),
        (workflow(switch("s", "x", {"t": [simple("a")]}), join("j", "a")), "j waits for a, which may never run"),
        (workflow(switch("s", "x", {"t": [simple("a")]}), join("j", "s")), "waits for the SWITCH s"),
        (workflow(fork("f", [join("k", "b"), simple("a")], [join("l", "a"), simple("b")]), join("j")), "each other"),
        (workflow(join("j", "a"), simple("a")), "each other"),
        (workflow(simple("a"), schemaVersion=1), "schemaVersion 1"),
        (workflow(simple("a"), failureWorkflow="b"), "failureWorkflow"),
        ({"tasks": []}, "no name"),
        ({"name": "x", "tasks": "a"}, "not a list"),
    ],
)
def test_what_could_not_be_run_as_conductor_would_is_refused(document: Json, said: str) -> None:
    with pytest.raises(WorkflowError) as refused:
        read_workflow(document)
    assert said in str(refused.value)
    assert refused.value.hint


@pytest.mark.parametrize("text", ["{", "[]", "1"])
def test_what_is_no_json_object_is_refused(text: str) -> None:
    with pytest.raises(WorkflowError):
        read_workflow(text)


def test_joins_within_one_case_are_fine() -> None:
    case = [fork("f", [simple("a")], [join("k", "a"), simple("b")]), join("j", "b")]
    read_workflow(workflow(switch("s", "x", {"true": case}), noop("end"), join("last", "end")))


CONTEXT: Json = {
    "workflow": {"input": {"params": {"day": "monday", "rows": 3}}, "workflowId": "w1"},
    "a": {"output": {"result": {"rows": [1, {"x y": None, "deep": {"z": True}}], "text": "${workflow.workflowId}"}}},
    "my-step": {"output": {}},
}


@pytest.mark.parametrize(
    ("template", "value"),
    [
        ("${workflow.input.params.day}", "monday"),
        ("${workflow.input.params}", {"day": "monday", "rows": 3}),
        ("${workflow.input.params.rows}", 3),
        ("${a.output.result.rows[0]}", 1),
        ("${a.output.result.rows[1].deep.z}", True),
        ("${a.output.result.rows[1]['x y']}", None),
        ("${a.output.result.rows[9]}", None),
        ("${a.output.nothing.at.all}", None),
        ("${later.output.result}", None),
        ("${my-step.output}", {}),
        ("on ${workflow.input.params.day}: ${workflow.input.params.rows}!", "on monday: 3!"),
        ("${a.output.result.rows[1].deep.z} ${later.x}", "true null"),
        ("$${workflow.workflowId}", "${workflow.workflowId}"),
        ("a $${b} ${workflow.workflowId}", "a ${b} w1"),
        ("$ { } $x {a}", "$ { } $x {a}"),
        ({"x": ["${workflow.workflowId}", 1, None]}, {"x": ["w1", 1, None]}),
        (4.5, 4.5),
    ],
)
def test_expressions(template: Any, value: Any) -> None:
    assert resolve(template, CONTEXT) == value


def test_a_value_that_is_put_in_is_not_looked_at_again() -> None:
    assert resolve("${a.output.result.text}", CONTEXT) == "${workflow.workflowId}"


@given(
    st.recursive(
        st.text("a${}. '") | st.integers() | st.none(),
        lambda inner: st.lists(inner) | st.dictionaries(st.text(), inner),
    )
)
def test_a_constant_comes_back_as_it_was(value: Any) -> None:
    assert resolve(escaped(value), CONTEXT) == value


@given(st.lists(st.sampled_from(["a", "b c", "x-1", 0, 7]), max_size=5))
def test_what_is_written_is_found(path: list[str | int]) -> None:
    value: Any = "found"
    for part in reversed(path):
        value = {part: value} if isinstance(part, str) else [None] * part + [value]
    assert resolve(f"${{{written(('root', *path))}}}", {"root": value}) == "found"


PIECES = st.sampled_from(
    [
        "name",
        "tasks",
        "type",
        "taskReferenceName",
        "inputParameters",
        "joinOn",
        "forkTasks",
        "decisionCases",
        "version",
        "defaultCase",
        "expression",
        "evaluatorType",
        "schemaVersion",
        "outputParameters",
        "timeoutSeconds",
        "metadata",
    ]
)
VALUES = st.sampled_from(["a", "b", "SIMPLE", "FORK_JOIN", "JOIN", "SWITCH", "NOOP", "${a.output}", "${", 2, None])
ANY_JSON = st.recursive(VALUES, lambda inner: st.lists(inner, max_size=3) | st.dictionaries(PIECES, inner, max_size=5))


@settings(max_examples=150)
@given(st.dictionaries(PIECES, ANY_JSON), st.lists(st.dictionaries(PIECES, ANY_JSON)))
def test_whatever_it_is_given_it_is_read_or_refused(document: Json, tasks: list[Json]) -> None:
    for given_tasks in (document.get("tasks"), tasks):
        with contextlib.suppress(WorkflowError):
            read_workflow({"name": "daily", **document, "tasks": given_tasks})

"""What a run does next, for every kind of node and every state of its steps."""

from __future__ import annotations

import itertools
from typing import Any

import pytest

from fenceline.pipeline.embedded.engine import Plan, State, advance
from fenceline.pipeline.form.workflow import read_workflow

Json = dict[str, Any]


def simple(name: str, **given: Any) -> Json:
    return {"name": f"t.{name}", "taskReferenceName": name, "type": "SIMPLE", "inputParameters": given}


def join(name: str, *on: str) -> Json:
    return {"name": "join", "taskReferenceName": name, "type": "JOIN", "joinOn": list(on)}


def fork(name: str, *branches: list[Json]) -> Json:
    return {"name": "fork", "taskReferenceName": name, "type": "FORK_JOIN", "forkTasks": list(branches)}


def noop(name: str) -> Json:
    return {"name": "noop", "taskReferenceName": name, "type": "NOOP"}


def switch(name: str, value: str, cases: dict[str, list[Json]], otherwise: list[Json] | None = None) -> Json:
    return {
        "name": "switch",
        "taskReferenceName": name,
        "type": "SWITCH",
        "evaluatorType": "value-param",
        "expression": "value",
        "inputParameters": {"value": value},
        "decisionCases": cases,
        "defaultCase": otherwise or [],
    }


def workflow(*tasks: Json, **output: Any) -> Json:
    return {"name": "w", "version": 1, "schemaVersion": 2, "tasks": list(tasks), "outputParameters": output}


def plan(document: Json, given: Any = None, **states: State | str | Json) -> Plan:
    """States as a status, an output (then COMPLETED), or in full."""
    known = {
        name: each if isinstance(each, State) else State(each) if isinstance(each, str) else State("COMPLETED", each)
        for name, each in states.items()
    }
    return advance(read_workflow(document), "run-1", given or {}, known)


def wanted(found: Plan) -> list[str]:
    return [each.reference for each in found.schedule]


CHAIN = workflow(simple("a"), simple("b", x="${a.output.n}"), simple("c"), last="${c.output.n}")


def test_a_chain_goes_step_by_step() -> None:
    assert wanted(plan(CHAIN)) == ["a"]
    assert wanted(plan(CHAIN, a="SCHEDULED")) == []
    assert wanted(plan(CHAIN, a="IN_PROGRESS")) == []
    found = plan(CHAIN, a={"n": 7})
    assert [(each.reference, each.task, each.input) for each in found.schedule] == [("b", "t.b", {"x": 7})]
    assert found.ended is None


def test_the_end_has_the_output() -> None:
    found = plan(CHAIN, a={}, b={}, c={"n": [1, 2]})
    assert found.schedule == ()
    assert found.ended is not None
    assert (found.ended.status, found.ended.output) == ("COMPLETED", {"last": [1, 2]})


@pytest.mark.parametrize("status", ["FAILED", "FAILED_WITH_TERMINAL_ERROR", "TIMED_OUT", "CANCELED"])
def test_a_step_that_failed_for_good_fails_the_run(status: str) -> None:
    found = plan(CHAIN, a={}, b=State(status, None, "no luck"))
    assert found.schedule == ()
    assert found.ended is not None
    assert (found.ended.status, found.ended.reason) == ("FAILED", "b: no luck")


def test_inputs_know_the_run() -> None:
    document = workflow(
        simple("a", run="${workflow.workflowId}", day="${workflow.input.day}", no="${workflow.input.x}")
    )
    (first,) = plan(document, {"day": "monday"}).schedule
    assert first.input == {"run": "run-1", "day": "monday", "no": None}


DIAMOND = workflow(
    simple("a"),
    fork("f", [join("f_b", "a"), simple("b")], [join("f_d", "b", "c"), simple("d")], [simple("c")]),
    join("j", "d"),
    simple("e"),
)


def test_a_join_waits_for_steps_of_other_branches_in_any_order() -> None:
    assert wanted(plan(DIAMOND, a={})) == ["b", "c"]
    assert wanted(plan(DIAMOND, a={}, b={}, c="IN_PROGRESS")) == []
    assert wanted(plan(DIAMOND, a={}, b={}, c={})) == ["d"], "c stands behind the join that waits for it"
    assert wanted(plan(DIAMOND, a={}, b={}, c={}, d={})) == ["e"]


def test_a_failure_beside_others_ends_the_run_at_once() -> None:
    found = plan(DIAMOND, a={}, b="FAILED", c="IN_PROGRESS")
    assert found.ended is not None
    assert found.ended.status == "FAILED"


def test_a_branch_that_nobody_joins_is_waited_for() -> None:
    document = workflow(fork("f", [simple("a")], [simple("b")]), join("j", "a"))
    assert plan(document, a={}, b="IN_PROGRESS").ended is None
    ended = plan(document, a={}, b={}).ended
    assert ended is not None
    assert ended.status == "COMPLETED"


CHOICE = workflow(
    simple("a"),
    switch("s", "${a.output.way}", {"left": [simple("l"), simple("m")], "right": [simple("r")]}, [simple("o")]),
    noop("end"),
    simple("z", l="${l.output.n}"),
)


@pytest.mark.parametrize(
    ("way", "first"), [("left", "l"), ("right", "r"), ("up", "o"), (None, "o"), (True, "o"), (7, "o")]
)
def test_a_switch_goes_one_way(way: object, first: str) -> None:
    assert wanted(plan(CHOICE, a={"way": way})) == [first]


def test_what_stands_behind_a_switch_waits_for_its_case() -> None:
    assert wanted(plan(CHOICE, a={"way": "left"}, l={})) == ["m"]
    (last,) = plan(CHOICE, a={"way": "left"}, l={"n": 3}, m={}).schedule
    assert (last.reference, last.input) == ("z", {"l": 3})
    (last,) = plan(CHOICE, a={"way": "right"}, r={}).schedule
    assert (last.reference, last.input) == ("z", {"l": None}), "a step that did not run is null"


def test_a_switch_without_a_case_is_done() -> None:
    document = workflow(simple("a"), switch("s", "${a.output.way}", {"left": [simple("l")]}), simple("z"))
    assert wanted(plan(document, a={"way": "right"})) == ["z"]


def test_a_join_may_wait_for_a_noop_behind_a_switch() -> None:
    document = workflow(
        fork(
            "f",
            [simple("t"), switch("s", "${t.output.go}", {"yes": [simple("a")]}), noop("block")],
            [join("b_after", "block"), simple("b")],
        ),
        join("j", "b"),
    )
    assert wanted(plan(document)) == ["t"]
    assert wanted(plan(document, t={"go": "no"})) == ["b"]
    assert wanted(plan(document, t={"go": "yes"})) == ["a"]
    assert wanted(plan(document, t={"go": "yes"}, a={})) == ["b"]


def test_forks_within_forks() -> None:
    inner = [fork("g", [simple("b")], [simple("c")]), join("k", "b", "c"), simple("d")]
    document = workflow(fork("f", [simple("a")], inner), join("j", "a", "d"))
    assert wanted(plan(document)) == ["a", "b", "c"]
    assert wanted(plan(document, a={}, b={}, c={})) == ["d"]


def test_a_workflow_of_nothing_is_done() -> None:
    ended = plan(workflow(noop("n"))).ended
    assert ended is not None
    assert ended.status == "COMPLETED"


STATUSES = ("", "SCHEDULED", "IN_PROGRESS", "COMPLETED", "FAILED", "CANCELED")


@pytest.mark.parametrize("document", [CHAIN, DIAMOND], ids=["chain", "diamond"])
def test_every_state_has_an_answer(document: Json) -> None:
    """Never nothing to do with nothing under way; never a step twice; never both an end and something to start."""
    names = [node.reference for node in read_workflow(document).walk() if node.reference in "abcde"]
    for chosen in itertools.product(STATUSES, repeat=len(names)):
        states = {name: State(status) for name, status in zip(names, chosen, strict=True) if status}
        found = advance(read_workflow(document), "run-1", {}, states)
        assert not set(wanted(found)) & states.keys()
        assert found.done <= found.reached
        under_way = any(states[n].status in ("SCHEDULED", "IN_PROGRESS") for n in found.reached & states.keys())
        assert (found.ended is not None) != bool(found.schedule or under_way) or (
            found.ended is not None and found.ended.status == "FAILED" and not found.schedule
        )


def test_running_it_reaches_the_end_whatever_order_steps_end_in() -> None:
    """Every interleaving of completions schedules each step once, after what it waits for."""

    def go_on(states: dict[str, State], open_steps: frozenset[str], order: tuple[str, ...]) -> int:
        found = advance(read_workflow(DIAMOND), "run-1", {}, states)
        new = set(wanted(found))
        assert not new & open_steps
        if found.ended is not None:
            assert found.ended.status == "COMPLETED"
            assert order.index("a") < order.index("b") < order.index("d") < order.index("e")
            assert order.index("c") < order.index("d")
            return 1
        now = open_steps | new
        scheduled = {**states, **{name: State("IN_PROGRESS") for name in new}}
        return sum(
            go_on({**scheduled, name: State("COMPLETED", {})}, now - {name}, (*order, name)) for name in sorted(now)
        )

    assert go_on({}, frozenset(), ()) == 2, "b before c, and c before b"

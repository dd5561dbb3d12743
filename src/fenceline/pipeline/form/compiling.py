"""From a pipeline to Conductor's WorkflowDef JSON, as decision 0013 says."""

from __future__ import annotations

import hashlib
import json
from typing import Any, TypeAlias

from fenceline.pipeline.builtin import BEGIN as BEGIN_TASK
from fenceline.pipeline.builtin import FAN as FAN_TASK
from fenceline.pipeline.builtin import PUBLISH as PUBLISH_TASK
from fenceline.pipeline.builtin import TEST as TEST_TASK
from fenceline.pipeline.definition.building import BEGIN_STEP, OURS, PUBLISH_STEP
from fenceline.pipeline.definition.flow import Flow, ancestors, is_chain, last, nearest, ordered, takes_workspace
from fenceline.pipeline.definition.model import (
    EachElement,
    Element,
    Elements,
    PipelineDefinition,
    StepElement,
    WhenElement,
)
from fenceline.pipeline.form.workflow import SCHEMA_VERSION
from fenceline.task.result import schema_of

Json: TypeAlias = dict[str, Any]


def workflow_def(definition: PipelineDefinition[Any]) -> Json:
    """The WorkflowDef of a pipeline: the same for the same pipeline, in every process."""
    compiler = _Compiler(definition)
    document: Json = {
        "name": definition.name,
        "description": definition.description,
        "version": definition.version,
        "schemaVersion": SCHEMA_VERSION,
        "ownerEmail": definition.owner,
        "inputParameters": ["repository", "branch", "params"],
        "tasks": compiler.tasks(),
        "outputParameters": compiler.outputs(),
        "timeoutSeconds": definition.timeout_seconds,
        "timeoutPolicy": "TIME_OUT_WF" if definition.timeout_seconds else "ALERT_ONLY",
        "restartable": True,
    }
    model = definition.params_model
    about: Json = {
        "pipeline": f"{definition.__module__}:{vars(definition)['__qualname__']}",
        "publish": definition.publish,
        "params": schema_of(model, "validation") if model is not None else None,
        "tasks": {task.name: task.version for task in definition.tasks},
    }
    digest = hashlib.sha256(canonical({**document, "metadata": about}).encode()).hexdigest()
    return {**document, "metadata": {"fenceline": {**about, "version": f"compiled:{digest[:32]}"}}}


def canonical(document: Json) -> str:
    """The one text of a definition: what is compared, digested and written to files."""
    return json.dumps(document, indent=2, sort_keys=True, ensure_ascii=False) + "\n"


class _Compiler:
    def __init__(self, definition: PipelineDefinition[Any]) -> None:
        self._definition = definition
        self._flow = Flow(definition.elements)
        self._works = any(takes_workspace(step.task) for step in definition.steps)
        self._ends_with_publish = self._works and definition.publish == "run"

    def tasks(self) -> list[Json]:
        tasks = self._line(self._definition.elements, "pipeline")
        if self._works:
            tasks.insert(0, _simple(BEGIN_TASK, BEGIN_STEP, self._begin()))
        if self._ends_with_publish:
            tasks.append(_simple(PUBLISH_TASK, PUBLISH_STEP, self._publish()))
        return tasks

    def outputs(self) -> Json:
        """The workspace that the run leaves, and what each step returned; null for those that did not run."""
        results: Json = {step.name: f"${{{step.name}.output.result}}" for step in self._definition.steps}
        if not self._works:
            return {"results": results}
        return {"workspace": self._left(), "results": results}

    def _left(self) -> Any:
        if self._ends_with_publish:
            return f"${{{PUBLISH_STEP}.output.workspace}}"
        ends = self._flow.ends
        return ends[0].replace(".ref}", "}") if len(ends) == 1 else self._place(ends)

    def _begin(self) -> Json:
        return {
            "repository": "${workflow.input.repository}",
            "branch": "${workflow.input.branch}",
            "publish": self._definition.publish,
        }

    def _publish(self) -> Json:
        return {"workspace": self._place(self._flow.ends), "target": f"${{{BEGIN_STEP}.output.target}}"}

    def _place(self, refs: tuple[str, ...]) -> Json:
        return {
            "repository": "${workflow.input.repository}",
            "branch": f"${{{BEGIN_STEP}.output.workspace.branch}}",
            "ref_type": "commit",
            "refs": list(refs),
        }

    # --- elements ---

    def _line(self, elements: Elements, name: str) -> list[Json]:
        """A chain one after the other; anything else all at once, each waiting for what it comes after."""
        if is_chain(elements):
            return [task for each in ordered(elements) for task in self._element(each)]
        before = ancestors(elements)
        branches: list[list[Json]] = []
        ends: dict[str, str] = {}
        for each in ordered(elements):
            waits = [_join(f"{each.name}{OURS}after", [ends[on] for on in nearest(each, before)])] if each.after else []
            branch = [*waits, *self._element(each)]
            branches.append(branch if isinstance(each, WhenElement | EachElement) else _ended(branch, each.name))
            ends[each.name] = _reference(branches[-1][-1])
        return _fork(name, branches, [ends[each.name] for each in last(elements)])

    def _element(self, element: Element) -> list[Json]:
        if isinstance(element, StepElement):
            return [self._step(element)]
        return self._when(element) if isinstance(element, WhenElement) else self._each(element)

    def _step(self, step: StepElement) -> Json:
        given: Json = {"params": dict(step.params)}
        if takes_workspace(step.task):
            place = self._place(self._flow.refs[step.name])
            if step.name in self._flow.rebasing:
                place["on_conflict"] = "rebase"
            given = {"workspace": place, **given}
        return _simple(step.task.name, step.name, given)

    def _when(self, block: WhenElement) -> list[Json]:
        test = f"{block.name}{OURS}test"
        cases = {"true": self._line(block.then, f"{block.name}{OURS}then")}
        if block.otherwise:
            cases["false"] = self._line(block.otherwise, f"{block.name}{OURS}otherwise")
        return [
            _simple(TEST_TASK, test, {"left": block.left, "op": block.operator, "right": block.right}),
            _switch(f"{block.name}{OURS}switch", f"${{{test}.output.holds}}", cases),
            _noop(block.name),
        ]

    def _each(self, block: EachElement) -> list[Json]:
        fan = f"{block.name}{OURS}fan"
        branches: list[list[Json]] = []
        for number, step in enumerate(block.steps):
            compiled = self._step(step)
            if block.items is None:
                branches.append(_ended([compiled], step.name))
                continue
            has = f"${{{fan}.output.has[{number}]}}"
            switch = _switch(f"{step.name}{OURS}switch", has, {"true": [compiled]})
            branches.append(_ended([switch], step.name))
        first = []
        if block.items is not None:
            first = [_simple(FAN_TASK, fan, {"items": block.items.expression, "most": len(block.steps)})]
        middle = (
            branches[0] if len(branches) == 1 else _fork(block.name, branches, [_reference(b[-1]) for b in branches])
        )
        return [*first, *middle, _noop(block.name)]


# --- single tasks -------------------------------------------------------------------------------------------------


def _task(kind: str, name: str, reference: str, **more: Any) -> Json:
    return {"name": name, "taskReferenceName": reference, "type": kind, **more}


def _reference(task: Json) -> str:
    return str(task["taskReferenceName"])


def _simple(task: str, reference: str, given: Json) -> Json:
    return _task("SIMPLE", task, reference, inputParameters=given)


def _noop(reference: str) -> Json:
    return _task("NOOP", "noop", reference)


def _ended(branch: list[Json], name: str) -> list[Json]:
    """With a NOOP to join on: a JOIN on the step itself may see a failure before its retry, and end the run."""
    return [*branch, _noop(f"{name}{OURS}end")]


def _join(reference: str, on: list[str]) -> Json:
    """`SYNC`, because Conductor looks at other JOINs less and less often the longer they wait."""
    return _task("JOIN", "join", reference, joinOn=on, joinMode="SYNC")


def _fork(name: str, branches: list[list[Json]], ends: list[str]) -> list[Json]:
    fork = _task("FORK_JOIN", "fork", f"{name}{OURS}fork", forkTasks=branches)
    return [fork, _join(f"{name}{OURS}join", ends)]


def _switch(reference: str, value: str, cases: dict[str, list[Json]]) -> Json:
    return _task(
        "SWITCH",
        "switch",
        reference,
        evaluatorType="value-param",
        expression="holds",
        inputParameters={"holds": value},
        decisionCases=cases,
        defaultCase=[],
    )

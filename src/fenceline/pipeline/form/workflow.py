"""The WorkflowDef JSON as it is executed: read and checked.

Only what decision 0013 names is read. Anything else would run here in another way than on Conductor, so it is refused.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from graphlib import CycleError, TopologicalSorter
from typing import Any, TypeAlias, TypeVar

from fenceline.pipeline.form.expressions import WorkflowError as WorkflowError
from fenceline.pipeline.form.expressions import as_text, roots
from fenceline.pipeline.form.expressions import resolve as resolve

REFERENCE = re.compile(r"[A-Za-z_][A-Za-z0-9_-]*")
SCHEMA_VERSION = 2
NEVER_A_STEP = "workflow"
"""What `${workflow.…}` refers to: the run itself."""


# --- what there is to run -----------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Simple:
    """A task that a worker runs."""

    reference: str
    task: str
    input: Mapping[str, Any]
    """A template: see `resolve`."""


@dataclass(frozen=True, slots=True)
class Fork:
    """Starts all branches, and is done. What waits for them is the JOIN behind it, or any other."""

    reference: str
    branches: tuple[Nodes, ...]


@dataclass(frozen=True, slots=True)
class Join:
    """Done when all of `on` are; they may stand anywhere in the workflow."""

    reference: str
    on: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Switch:
    """Goes on with the case that the value names, or with `otherwise`. What stands behind it waits for that case."""

    reference: str
    value: Any
    """A template. What it gives is compared as text."""
    cases: Mapping[str, Nodes]
    otherwise: Nodes

    def chosen(self, value: Any) -> Nodes:
        """The nodes to go on with; those of `otherwise` if no case, or an empty one, has the name."""
        return self.cases.get(as_text(value)) or self.otherwise


@dataclass(frozen=True, slots=True)
class Noop:
    """Done at once: a place to wait for."""

    reference: str


Node: TypeAlias = Simple | Fork | Join | Switch | Noop
Nodes: TypeAlias = tuple[Node, ...]


@dataclass(frozen=True, slots=True)
class Workflow:
    """A WorkflowDef that can be run."""

    name: str
    version: int
    nodes: Nodes
    inputs: tuple[str, ...]
    """The names of what a run is given."""
    output: Mapping[str, Any]
    """A template for what a run that completed gives."""
    timeout_seconds: int
    """0 is no limit."""
    timeout_policy: str
    """What happens then: `TIME_OUT_WF` ends the run, `ALERT_ONLY` does not."""
    description: str
    metadata: Mapping[str, Any]

    def walk(self) -> Iterator[Node]:
        """Every node, outer ones first."""
        return _walk(self.nodes)


def _walk(nodes: Nodes) -> Iterator[Node]:
    for node in nodes:
        yield node
        for inner in _inner(node):
            yield from _walk(inner)


def _inner(node: Node) -> tuple[Nodes, ...]:
    if isinstance(node, Fork):
        return node.branches
    if isinstance(node, Switch):
        return (*node.cases.values(), node.otherwise)
    return ()


# --- reading it ---------------------------------------------------------------------------------------------------


def read_workflow(document: str | bytes | Mapping[str, Any]) -> Workflow:
    """The workflow that a WorkflowDef describes; refuses, naming it, whatever could not be run as Conductor would."""
    given = _parsed(document)
    name = given.get("name")
    if not isinstance(name, str) or not name:
        raise WorkflowError("the WorkflowDef has no name", hint='give it "name"')
    if given.get("schemaVersion", SCHEMA_VERSION) != SCHEMA_VERSION:
        raise WorkflowError(f"workflow {name} has schemaVersion {given['schemaVersion']}", hint="only 2 can be run")
    if given.get("failureWorkflow"):
        raise WorkflowError(f"workflow {name} has a failureWorkflow", hint="remove it: it would not be started here")
    reader = _Reader(name)
    workflow = Workflow(
        name=name,
        version=reader.field(given, "version", int) or 1,
        nodes=reader.nodes(given.get("tasks"), "tasks"),
        inputs=reader.texts(given, "inputParameters"),
        output=reader.field(given, "outputParameters", dict),
        timeout_seconds=reader.field(given, "timeoutSeconds", int),
        timeout_policy=reader.field(given, "timeoutPolicy", str) or "ALERT_ONLY",
        description=reader.field(given, "description", str),
        metadata=reader.field(given, "metadata", dict),
    )
    _check(workflow)
    return workflow


def _parsed(document: str | bytes | Mapping[str, Any]) -> Mapping[str, Any]:
    if isinstance(document, Mapping):
        return document
    try:
        given = json.loads(document)
    except ValueError as error:
        raise WorkflowError(f"the WorkflowDef is not JSON: {error}", hint="correct it there") from error
    if not isinstance(given, dict):
        raise WorkflowError("the WorkflowDef is not a JSON object", hint='it begins with {"name": …}')
    return given


_T = TypeVar("_T", int, str, list[Any], dict[str, Any])

_CHANGES_MEANING = ("asyncComplete", "cacheConfig", "loopCondition", "loopOver", "optional", "retryCount", "sink")
_ALSO = ("startDelay", "subWorkflowParam", "scriptExpression", "dynamicTaskNameParam", "joinStatus", "rateLimited")


class _Reader:
    """Reads the tasks of one workflow."""

    def __init__(self, workflow: str) -> None:
        self._workflow = workflow
        self._readers: dict[str, Callable[[str, Mapping[str, Any]], Node]] = {
            "SIMPLE": self._simple,
            "FORK_JOIN": self._fork,
            "JOIN": self._join,
            "SWITCH": self._switch,
            "NOOP": self._noop,
        }

    def field(self, given: Mapping[str, Any], name: str, kind: type[_T]) -> _T:
        """A field of that type; one that is left out, or null, is an empty value."""
        value = given.get(name)
        if value is None:
            return kind()
        if not isinstance(value, kind) or isinstance(value, bool):
            raise self._refuse(f"{name} is {value!r}", f"give it as {kind.__name__}")
        return value

    def texts(self, given: Mapping[str, Any], name: str) -> tuple[str, ...]:
        values = self.field(given, name, list)
        if not all(isinstance(value, str) for value in values):
            raise self._refuse(f"{name} is {values!r}", "give a list of names")
        return tuple(values)

    def nodes(self, given: Any, where: str) -> Nodes:
        if not isinstance(given, Sequence) or isinstance(given, str):
            raise self._refuse(f"{where} is not a list of tasks", 'write "tasks": [{"taskReferenceName": …}, …]')
        nodes = tuple(self._node(each, f"{where}[{number}]") for number, each in enumerate(given))
        for number, node in enumerate(nodes):
            if isinstance(node, Fork) and not any(
                isinstance(behind, Join) for behind in nodes[number + 1 : number + 2]
            ):
                raise self._refuse(f"the FORK_JOIN {node.reference} is not followed by a JOIN", "put one behind it")
        return nodes

    def _node(self, given: Any, where: str) -> Node:
        reference = given.get("taskReferenceName") if isinstance(given, Mapping) else None
        if not isinstance(reference, str) or not REFERENCE.fullmatch(reference) or reference == NEVER_A_STEP:
            raise self._refuse(
                f"{where} has the reference {reference!r}",
                "give it a taskReferenceName of letters, digits, '_' and '-', but not 'workflow'",
            )
        kind = given.get("type", "SIMPLE")
        if not isinstance(kind, str) or kind not in self._readers:
            raise self._refuse(f"{reference} is a {kind} task", f"what can be run is {', '.join(self._readers)}")
        unknown = sorted(name for name in (*_CHANGES_MEANING, *_ALSO) if given.get(name))
        if unknown:
            raise self._refuse(f"{reference} has {', '.join(unknown)}", "remove it: it would be ignored here")
        return self._readers[kind](reference, given)

    def _simple(self, reference: str, given: Mapping[str, Any]) -> Simple:
        task = given.get("name")
        if not isinstance(task, str) or not task:
            raise self._refuse(f"{reference} has no name", 'say with "name" which task it is')
        return Simple(reference, task, self.field(given, "inputParameters", dict))

    def _fork(self, reference: str, given: Mapping[str, Any]) -> Fork:
        branches = self.field(given, "forkTasks", list)
        if not branches or not all(branches):
            raise self._refuse(f"the FORK_JOIN {reference} has an empty branch", "remove it")
        read = (self.nodes(branch, f"{reference}.forkTasks[{number}]") for number, branch in enumerate(branches))
        return Fork(reference, tuple(read))

    def _join(self, reference: str, given: Mapping[str, Any]) -> Join:
        return Join(reference, self.texts(given, "joinOn"))

    def _switch(self, reference: str, given: Mapping[str, Any]) -> Switch:
        evaluator = given.get("evaluatorType", "value-param")
        if evaluator != "value-param":
            raise self._refuse(f"the SWITCH {reference} is evaluated by {evaluator!r}", "only value-param can be run")
        parameter, inputs = self.field(given, "expression", str), self.field(given, "inputParameters", dict)
        if parameter not in inputs:
            raise self._refuse(
                f"the SWITCH {reference} looks at {parameter!r}, which is none of its inputParameters", "add it there"
            )
        cases = self.field(given, "decisionCases", dict)
        read = {name: self.nodes(case, f"{reference}.decisionCases.{name}") for name, case in cases.items()}
        otherwise = self.nodes(given.get("defaultCase") or (), f"{reference}.defaultCase")
        return Switch(reference, inputs[parameter], read, otherwise)

    def _noop(self, reference: str, given: Mapping[str, Any]) -> Noop:
        return Noop(reference)

    def _refuse(self, wrong: str, fix: str) -> WorkflowError:
        return WorkflowError(f"workflow {self._workflow}: {wrong}", hint=fix)


# --- checking it --------------------------------------------------------------------------------------------------


def _check(workflow: Workflow) -> None:
    names = [node.reference for node in workflow.walk()]
    twice = sorted({name for name in names if names.count(name) > 1})
    if twice:
        raise WorkflowError(f"workflow {workflow.name}: {twice[0]} stands in it twice", hint="rename one of them")
    known = {*names, NEVER_A_STEP}
    for node in workflow.walk():
        wanted = {*node.on} if isinstance(node, Join) else set(roots(_template_of(node)))
        _check_known(workflow, node.reference, wanted, known)
    _check_known(workflow, "outputParameters", set(roots(workflow.output)), known)
    _check_reachable(workflow)
    _check_order(workflow)


def _template_of(node: Node) -> Any:
    if isinstance(node, Simple):
        return node.input
    return node.value if isinstance(node, Switch) else None


def _check_known(workflow: Workflow, where: str, wanted: set[str], known: set[str]) -> None:
    if missing := sorted(wanted - known):
        raise WorkflowError(
            f"workflow {workflow.name}: {where} refers to {missing[0]}, which is not in it",
            hint=f"it has {', '.join(sorted(known))}",
        )


def _check_reachable(workflow: Workflow) -> None:
    """A JOIN on something inside a case that was not chosen would wait for ever."""
    inside = dict(_cases(workflow.nodes, ()))
    switches = {node.reference for node in workflow.walk() if isinstance(node, Switch)}
    for node in workflow.walk():
        for name in node.on if isinstance(node, Join) else ():
            if name in switches:  # Conductor's are done before their case is
                raise WorkflowError(
                    f"workflow {workflow.name}: {node.reference} waits for the SWITCH {name}",
                    hint="put a NOOP behind it, and wait for that",
                )
            theirs, mine = inside[name], inside[node.reference]
            if mine[: len(theirs)] != theirs:
                raise WorkflowError(
                    f"workflow {workflow.name}: {node.reference} waits for {name}, which may never run",
                    hint=f"put a NOOP behind the SWITCH {theirs[-1][0]}, and wait for that",
                )


def _cases(nodes: Nodes, path: tuple[tuple[str, str | None], ...]) -> Iterator[tuple[str, tuple[Any, ...]]]:
    """Every reference, and the cases it stands in."""
    for node in nodes:
        yield node.reference, path
        if isinstance(node, Switch):
            for name, case in node.cases.items():
                yield from _cases(case, (*path, (node.reference, name)))
            yield from _cases(node.otherwise, (*path, (node.reference, None)))
        else:
            for inner in _inner(node):
                yield from _cases(inner, path)


def _check_order(workflow: Workflow) -> None:
    before: dict[str, set[str]] = {}
    _order(workflow.nodes, set(), before)
    try:
        TopologicalSorter(before).prepare()
    except CycleError as error:
        circle = " → ".join(error.args[1])
        raise WorkflowError(
            f"workflow {workflow.name}: these wait for each other: {circle}", hint="remove one of the joinOn"
        ) from None


def _order(nodes: Nodes, after: set[str], before: dict[str, set[str]]) -> set[str]:
    """Fill in what each node waits for; returns what waits for the last of them must wait for."""
    for node in nodes:
        before[node.reference] = after | (set(node.on) if isinstance(node, Join) else set())
        after = {node.reference}
        ends = [_order(inner, after, before) for inner in _inner(node)]
        if isinstance(node, Switch):
            after = after.union(*ends)
    return after

"""What a run does next: a pure function from the workflow, the run's input and its steps' states.

Only SIMPLE tasks have a state of their own. Forks, joins, switches and noops follow from those states, and because
outputs never change once they are there, looking again gives the same answer.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from fenceline.pipeline.embedded.rows import CANCELED, COMPLETED, FAILED, LOST, OPEN, TERMINAL, TIMED_OUT
from fenceline.pipeline.form.expressions import resolve
from fenceline.pipeline.form.workflow import Fork, Join, Node, Nodes, Noop, Simple, Switch, Workflow

_BROKEN = (FAILED, TERMINAL, TIMED_OUT, CANCELED, LOST)


@dataclass(frozen=True, slots=True)
class State:
    """The newest attempt of a step."""

    status: str
    output: Any = None
    reason: str | None = None


@dataclass(frozen=True, slots=True)
class Scheduled:
    """A step whose turn has come."""

    reference: str
    task: str
    input: Any


@dataclass(frozen=True, slots=True)
class Ended:
    """The run is over; what is still open of it is to be cancelled."""

    status: str
    reason: str | None = None
    output: Any = None


@dataclass(frozen=True, slots=True)
class Plan:
    """What to do next."""

    schedule: tuple[Scheduled, ...] = ()
    ended: Ended | None = None
    reached: frozenset[str] = frozenset()
    """Every node whose turn has come, done or not."""
    done: frozenset[str] = frozenset()


def advance(workflow: Workflow, run: str, given: Any, states: Mapping[str, State]) -> Plan:
    """One look at a run. A step that failed and has no newer attempt has failed for good, and the run with it."""
    look = _Look({"workflow": {"input": given, "workflowId": run, "workflowType": workflow.name}}, states)
    while look.pass_over(workflow.nodes):
        pass
    reached, done = frozenset(look.reached), frozenset(look.done)
    for name in look.reached:
        state = states.get(name)
        if state is not None and state.status in _BROKEN:
            reason = f"{name}: {state.reason or state.status}"
            return Plan((), Ended(FAILED, reason), reached, done)
    wanted = tuple(
        Scheduled(node.reference, node.task, resolve(node.input, look.context))
        for node in look.reached.values()
        if isinstance(node, Simple) and node.reference not in states
    )
    ended = None
    if reached == done:
        ended = Ended(COMPLETED, None, resolve(workflow.output, look.context))
    elif not wanted and not any(states[name].status in OPEN for name in reached & states.keys()):
        waiting = ", ".join(sorted(reached - done))
        ended = Ended(FAILED, f"nothing can run any more, and these are not done: {waiting}")
    return Plan(wanted, ended, reached, done)


@dataclass(slots=True)
class _Look:
    """What is known so far. A pass adds to it; a join may need what a later branch shows, so passes are repeated."""

    context: dict[str, Any]
    states: Mapping[str, State]
    reached: dict[str, Node] = field(default_factory=dict)
    done: set[str] = field(default_factory=set)

    def pass_over(self, nodes: Nodes) -> bool:
        """Whether this pass showed anything new."""
        before = len(self.reached), len(self.done)
        self._line(nodes)
        return (len(self.reached), len(self.done)) != before

    def _line(self, nodes: Nodes) -> bool:
        """Nodes one after the other, as far as they are done; whether all of them are."""
        for node in nodes:
            self.reached.setdefault(node.reference, node)
            if not self._is_done(node):
                return False
            self.done.add(node.reference)
        return True

    def _is_done(self, node: Node) -> bool:
        match node:
            case Simple(reference):
                state = self.states.get(reference)
                if state is None or state.status != COMPLETED:
                    return False
                self.context[reference] = {"output": state.output, "status": state.status}
                return True
            case Fork(_, branches):
                for branch in branches:
                    self._line(branch)
                return True
            case Join(_, on):
                return self.done.issuperset(on)
            case Switch(_, value):
                return self._line(node.chosen(resolve(value, self.context)))
            case Noop():
                return True

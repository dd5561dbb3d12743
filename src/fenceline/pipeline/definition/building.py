"""What is drawn while a pipeline's function is traced, and the checks of it: names, references, order."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from graphlib import CycleError, TopologicalSorter
from typing import Any, Literal, TypeAlias

from fenceline.pipeline.definition.filling import Unfit, compared, filled
from fenceline.pipeline.definition.fitting import comparable, fits, holds_secret
from fenceline.pipeline.definition.model import (
    EachElement,
    Element,
    Elements,
    Operator,
    PipelineError,
    Source,
    StepElement,
    Value,
    WhenElement,
    called_from,
)
from fenceline.pipeline.definition.references import Condition, Reference, found_in
from fenceline.pipeline.form.workflow import NEVER_A_STEP, REFERENCE
from fenceline.task.contract import TaskDefinition

BEGIN_STEP, PUBLISH_STEP = "begin", "publish"
OURS = "__"
"""What stands between a step's name and what we add to it: `build__after`."""
TASK_PREFIX = "fenceline."
"""How the names of the built-in tasks begin."""
MOST = 1000

Case: TypeAlias = Literal["then", "otherwise"]
Place: TypeAlias = tuple[tuple[str, Case], ...]
"""The blocks that an element stands in, outermost first."""


@dataclass(eq=False, slots=True)
class Drawn:
    """An element that is still being drawn."""

    name: str
    place: Place
    where: str
    kind: Literal["step", "when", "each"]
    task: Any = None
    params: Mapping[str, Value] = field(default_factory=dict)
    condition: tuple[Value, Operator, Value] = (None, "==", None)
    items: Source | None = None
    steps: tuple[StepElement, ...] = ()
    cases: dict[Case, list[Drawn]] = field(default_factory=lambda: {"then": [], "otherwise": []})
    after: set[str] = field(default_factory=set)


class Drawing:
    """One trace of a pipeline's function."""

    def __init__(self, pipeline: str) -> None:
        self._pipeline = pipeline
        self._place: Place = ()
        self._top: list[Drawn] = []
        self._by_name: dict[str, Drawn] = {}
        self._taken: dict[str, str] = {}
        self._tasks: dict[str, TaskDefinition[Any, Any]] = {}

    def refuse(self, wrong: str, fix: str) -> PipelineError:
        """An error that points at the line of the pipeline's function."""
        return PipelineError(
            f"pipeline {self._pipeline!r}, {called_from()}: {wrong}", hint=fix, pipeline=self._pipeline
        )

    @property
    def first_owner(self) -> str:
        return next(iter(self._tasks.values())).owner

    # --- adding elements ---

    def step(self, task: Any, name: str | None, after: tuple[Drawn, ...], given: Mapping[str, object]) -> Drawn:
        self._check_task(task)
        drawn = Drawn(self._named(name, task), self._place, called_from(), "step", task)
        drawn.params = self._filled(task, drawn, given)
        return self._add(drawn, after)

    def when(self, condition: object, name: str | None, after: tuple[Drawn, ...]) -> Drawn:
        number = sum(drawn.kind == "when" for drawn in self._by_name.values()) + 1
        drawn = Drawn(self._named(name or f"when_{number}"), self._place, called_from(), "when")
        drawn.condition = self._condition(condition, drawn)
        return self._add(drawn, after)

    def otherwise(self, drawn: Drawn | None) -> Drawn:
        if drawn is None or drawn.kind != "when" or self._by_name.get(drawn.name) is not drawn:
            raise self.refuse("run.otherwise is not given a block of run.when", "write `with run.otherwise(block):`")
        if drawn.place != self._place:
            raise self.refuse(f"run.otherwise does not stand beside {drawn.name}", "indent it as far as its run.when")
        if drawn.cases["otherwise"]:
            raise self.refuse(f"{drawn.name} has an otherwise already", "add the steps there")
        return drawn

    def foreach(
        self,
        items: Any,
        task: Any,
        params: Callable[[Any], Mapping[str, object]],
        most: int | None,
        name: str | None,
        after: tuple[Drawn, ...],
    ) -> Drawn:
        self._check_task(task)
        if not callable(params):
            raise self.refuse(
                "run.foreach is not told each item's params", "write run.foreach(items, task, lambda item: {…})"
            )
        drawn = Drawn(self._named(name, task), self._place, called_from(), "each", task)
        values = self._items(items, most, drawn)
        drawn.steps = tuple(self._each(drawn, number, params(value)) for number, value in enumerate(values))
        return self._add(drawn, after)

    def _each(self, drawn: Drawn, number: int, given: object) -> StepElement:
        if not isinstance(given, Mapping):
            raise self.refuse("the params of run.foreach are no dict", 'write lambda item: {"field": item}')
        name = f"{drawn.name}_{number}"
        self._take(name)
        params = self._filled(drawn.task, drawn, given, name)
        return StepElement(name, drawn.task, params, frozenset(), drawn.where)

    def _items(self, items: Any, most: int | None, drawn: Drawn) -> list[object]:
        if isinstance(items, Reference):
            drawn.items = self._visible(items, drawn)
            if not fits(drawn.items.annotation, list[Any]):
                raise self.refuse(f"{drawn.name}: {items!r} is not a list", "refer to a list")
            if not isinstance(most, int) or isinstance(most, bool) or not 1 <= most <= MOST:
                raise self.refuse(f"{drawn.name}: most is {most!r}", f"say how many items there can be: 1 to {MOST}")
            return [items[number] for number in range(most)]
        if not isinstance(items, list | tuple) or not items:
            raise self.refuse(
                f"{drawn.name}: the items are {items!r}", "give a list with something in it, or a reference"
            )
        if len(items) > (MOST if most is None else most):
            raise self.refuse(f"{drawn.name}: there are {len(items)} items", f"at most {most or MOST} were expected")
        return list(items)

    def enter(self, drawn: Drawn, case: Case) -> Place:
        """What is added from now on stands in this block; gives the place to go back to."""
        outer = self._place
        self._place = (*drawn.place, (drawn.name, case))
        return outer

    def leave(self, drawn: Drawn, case: Case, outer: Place) -> None:
        self._place = outer
        if not drawn.cases[case]:
            raise self.refuse(f"the block {drawn.name} has no steps", "add a step to it, or remove it")

    def _add(self, drawn: Drawn, after: tuple[Drawn, ...]) -> Drawn:
        for each in after:
            self._comes_after(drawn, each, "after=")
        self._by_name[drawn.name] = drawn
        self._beside(self._place).append(drawn)
        return drawn

    def _beside(self, place: Place) -> list[Drawn]:
        return self._by_name[place[-1][0]].cases[place[-1][1]] if place else self._top

    # --- checking them ---

    def _check_task(self, task: Any) -> None:
        if not isinstance(task, TaskDefinition):
            raise self.refuse(f"{task!r} is not a task", "put @task(name='…', owner='…') on the function")
        if task.name.startswith(TASK_PREFIX):
            raise self.refuse(f"the task name {task.name} is one of ours", f"do not begin it with {TASK_PREFIX!r}")
        if self._tasks.setdefault(task.name, task) is not task:
            raise self.refuse(
                f"there are two tasks named {task.name}: {self._tasks[task.name]!r} and {task!r}",
                "give one of them another name= in @task",
            )

    def _named(self, name: str | None, task: TaskDefinition[Any, Any] | None = None) -> str:
        chosen = name if name is not None or task is None else task.name.rpartition(".")[2]
        if not isinstance(chosen, str) or not REFERENCE.fullmatch(chosen):
            raise self.refuse(
                f"{chosen!r} cannot be the name of a step",
                "give it one with name=: letters, digits, '_' and '-', not beginning with a digit",
            )
        if chosen in (NEVER_A_STEP, BEGIN_STEP, PUBLISH_STEP) or OURS in chosen:
            raise self.refuse(
                f"{chosen!r} cannot be the name of a step: it is one of ours",
                f"give it another with name=, without {OURS}",
            )
        self._take(chosen)
        return chosen

    def _take(self, name: str) -> None:
        if name in self._taken:
            raise self.refuse(f"there is a step {name} already, at {self._taken[name]}", "give this one another name=")
        self._taken[name] = called_from()

    def _filled(
        self, task: TaskDefinition[Any, Any], drawn: Drawn, given: Mapping[str, object], name: str = ""
    ) -> dict[str, Value]:
        try:
            return filled(task.params_model, given, lambda reference: self._visible(reference, drawn))
        except Unfit as error:
            hint = f"its params are a {task.params_model.__name__}"
            if hidden := [each for each in ("name", "after") if each in task.params_model.model_fields]:
                hint += (
                    f"; fields called {' or '.join(hidden)} are given in a dict: run.step(task, {{'{hidden[0]}': …}})"
                )
            raise self.refuse(f"step {name or drawn.name}: {error}", hint) from None

    def _condition(self, condition: object, drawn: Drawn) -> tuple[Value, Operator, Value]:
        def visible(reference: Reference) -> Source:
            return self._visible(reference, drawn)

        if isinstance(condition, Reference):
            source = visible(condition)
            if not fits(source.annotation, bool):
                raise self.refuse(f"{condition!r} is not a boolean", f"compare it: run.when({source} > …)")
            return source.expression, "==", True
        if not isinstance(condition, Condition):
            raise self.refuse(
                f"the condition is {condition!r}, which is known already",
                "compare a reference: run.when(step.result.rows > 0); for what is known now write `if`",
            )
        try:
            left, mine = compared(condition.left, visible)
            right, theirs = compared(condition.right, visible)
        except Unfit as error:
            raise self.refuse(f"run.when({condition!r}): {error}", "or compute it in a task") from None
        if not comparable(mine, theirs, ordered=condition.operator not in ("==", "!=")):
            raise self.refuse(f"run.when({condition!r}) compares what cannot be compared so", "compute it in a task")
        return left, condition.operator, right

    def _visible(self, reference: Reference, drawn: Drawn) -> Source:
        found = found_in(reference)
        assert found is not None
        if found.run is not self:
            raise self.refuse(f"{reference!r} belongs to another pipeline", "refer to this run's params and steps")
        if found.source.step is not None:
            if holds_secret(found.source.annotation):
                raise self.refuse(
                    f"{reference!r} is a secret, and results show only a mask of it", "give it as a param of the run"
                )
            self._comes_after(drawn, self._by_name[found.source.step], f"the reference {found.source}")
        return found.source

    def _comes_after(self, drawn: Drawn, other: Drawn, why: str) -> None:
        """Note the order where both, or the blocks they are in, stand beside each other."""
        if self._by_name.get(other.name) is not other:
            raise self.refuse(f"{why}: {other.name} belongs to another pipeline", "use the steps of this run")
        depth = len(other.place)
        if drawn.place[:depth] != other.place:
            block = other.place[-1][0]
            raise self.refuse(
                f"{why}: {other.name} stands in the block {block}, and does not run if that does not",
                f"move this into the block, or wait for all of it with after={block}",
            )
        waiting = self._by_name[drawn.place[depth][0]] if len(drawn.place) > depth else drawn
        if waiting is other:
            raise self.refuse(f"{why}: {drawn.name} would wait for the block that it stands in", "remove it")
        waiting.after.add(other.name)

    # --- the end ---

    def finished(self, refuse: Callable[[str, str], PipelineError]) -> Elements:
        """All that was drawn, if there is an order in which it can run."""
        if not self._top:
            raise refuse("it has no steps", "add some: run.step(task, field=value)")
        return self._frozen(self._top, refuse)

    def _frozen(self, drawn: list[Drawn], refuse: Callable[[str, str], PipelineError]) -> Elements:
        try:
            TopologicalSorter({each.name: each.after for each in drawn}).prepare()
        except CycleError as error:
            circle = " → ".join(f"{name} ({self._by_name[name].where})" for name in error.args[1])
            raise refuse(f"these wait for each other: {circle}", "remove one of the after= or references") from None
        return tuple(self._element(each, refuse) for each in drawn)

    def _element(self, drawn: Drawn, refuse: Callable[[str, str], PipelineError]) -> Element:
        after = frozenset(drawn.after)
        if drawn.kind == "step":
            return StepElement(drawn.name, drawn.task, drawn.params, after, drawn.where)
        if drawn.kind == "each":
            return EachElement(drawn.name, drawn.items, drawn.steps, after, drawn.where)
        if not drawn.cases["then"]:
            raise refuse(
                f"the run.when at {drawn.where} has no steps", "write `with run.when(…):` and the steps below it"
            )
        left, operator, right = drawn.condition
        then, otherwise = (self._frozen(drawn.cases[case], refuse) for case in ("then", "otherwise"))
        return WhenElement(drawn.name, left, operator, right, then, otherwise, after, drawn.where)

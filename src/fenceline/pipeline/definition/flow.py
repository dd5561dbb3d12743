"""The order of elements, and the way of the workspace through them: which commits each step gets to work on."""

from __future__ import annotations

from collections.abc import Iterable
from itertools import pairwise, product
from typing import Any

from fenceline.pipeline.definition.model import EachElement, Element, Elements, PipelineError, StepElement, steps_in
from fenceline.repo.pathset import PathSet
from fenceline.task.contract import TaskDefinition

BEGIN_REF = "${begin.output.workspace.ref}"


def ordered(elements: Elements) -> Elements:
    """Each after what it waits for; else as they were declared."""
    waiting, done, line = list(elements), set[str](), list[Element]()
    while waiting:
        following = next(each for each in waiting if each.after <= done)
        waiting.remove(following)
        done.add(following.name)
        line.append(following)
    return tuple(line)


def ancestors(elements: Elements) -> dict[str, frozenset[str]]:
    """All that stands before each, not only what it names."""
    found: dict[str, frozenset[str]] = {}
    for element in ordered(elements):
        found[element.name] = element.after.union(*(found[name] for name in element.after))
    return found


def is_chain(elements: Elements) -> bool:
    """Whether there is only one order in which they can run."""
    before, line = ancestors(elements), ordered(elements)
    return all(one.name in before[other.name] for one, other in pairwise(line))


def nearest(element: Element, before: dict[str, frozenset[str]]) -> list[str]:
    """What an element waits for, without what stands before another of these anyway."""
    further = frozenset[str]().union(*(before[name] for name in element.after))
    return sorted(element.after - further)


def last(elements: Elements) -> Elements:
    """Those that nothing waits for."""
    awaited = frozenset[str]().union(*(each.after for each in elements))
    return tuple(each for each in ordered(elements) if each.name not in awaited)


def takes_workspace(task: TaskDefinition[Any, Any]) -> bool:
    return task.kind != "none"


def writes(task: TaskDefinition[Any, Any]) -> bool:
    return task.spec is not None and not task.spec.read_only


def output_ref(step: str) -> str:
    return f"${{{step}.output.workspace.ref}}"


class Flow:
    """Which commits each step works on, and which steps write beside others."""

    def __init__(self, elements: Elements) -> None:
        self.refs: dict[str, tuple[str, ...]] = {}
        """By step: the expressions of its `refs`. Of steps that did not run they are null, and count for nothing."""
        self.ends = self._through(elements, (BEGIN_REF,))
        """The expressions of the commits that the pipeline ends with."""
        self._pairs: list[tuple[StepElement, StepElement]] = []
        self._beside(elements)
        self.rebasing = {step.name for pair in self._pairs for step in pair}
        """Steps that write while another may: they publish on what that one published."""
        self._check(elements)

    def _through(self, elements: Elements, entering: tuple[str, ...]) -> tuple[str, ...]:
        before = ancestors(elements)
        leaving: dict[str, tuple[str, ...]] = {}
        for element in ordered(elements):
            given = _union(leaving[name] for name in nearest(element, before)) or entering
            leaving[element.name] = self._element(element, given)
        return _union(leaving[each.name] for each in last(elements))

    def _element(self, element: Element, given: tuple[str, ...]) -> tuple[str, ...]:
        if isinstance(element, StepElement):
            self.refs[element.name] = given
            return (output_ref(element.name),) if takes_workspace(element.task) else given
        if isinstance(element, EachElement):
            self.refs.update({step.name: given for step in element.steps})
            made = tuple(output_ref(step.name) for step in element.steps if takes_workspace(step.task))
            return (*given, *made) if element.items is not None or not made else made
        cases = (self._through(case, given) for case in (element.then, element.otherwise) if case)
        return _union((given, *cases))

    def _beside(self, elements: Elements) -> None:
        before = ancestors(elements)
        writing = {each.name: [step for step in steps_in((each,)) if writes(step.task)] for each in elements}
        for number, one in enumerate(elements):
            for other in elements[:number]:
                if one.name in before[other.name] or other.name in before[one.name]:
                    continue
                self._pairs += product(writing[other.name], writing[one.name])
            if isinstance(one, EachElement):
                self._pairs += pairwise(writing[one.name])  # all of one task: neighbours stand for the rest
            elif not isinstance(one, StepElement):
                self._beside(one.then)
                self._beside(one.otherwise)

    def _check(self, elements: Elements) -> None:
        for one, other in self._pairs:
            _refuse_in_the_way(one, other)
            _refuse_in_the_way(other, one)
        for step in steps_in(elements):
            if step.name in self.rebasing and step.task.spec is not None and step.task.spec.fence == "serial":
                raise PipelineError(
                    f"{step.where}: step {step.name} has fence='serial', and another step may write beside it",
                    hint="order the two with after=, or remove fence='serial' from its task",
                )


def _refuse_in_the_way(reader: StepElement, writer: StepElement) -> None:
    """A task on a directory reads all that it is given. Whoever writes there at the same time is in its way."""
    mine, theirs = reader.task.spec, writer.task.spec
    if mine is None or theirs is None or reader.task.kind == "spark":  # Spark workspaces know what is read
        return
    if any(PathSet([path]).overlaps(theirs.prefix) for path in mine.given):
        raise PipelineError(
            f"{reader.where}: steps {reader.name} and {writer.name} run side by side, and {reader.name} is given files "
            f"of /{mine.prefix}, where {writer.name} may write: only the first to publish could succeed",
            hint="give their tasks different prefixes, say what they read with WorkspaceSpec(reads=[…]), or order them "
            "with after=",
        )


def _union(lists: Iterable[tuple[str, ...]]) -> tuple[str, ...]:
    return tuple(dict.fromkeys(each for some in lists for each in some))

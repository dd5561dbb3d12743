"""Breadth-first exploration of every state that a set of actors can reach, with the shortest way to each of them."""

from __future__ import annotations

import time
from collections import defaultdict
from collections.abc import Callable, Hashable, Iterable
from dataclasses import dataclass, field
from typing import Generic, NamedTuple, TypeVar

S = TypeVar("S", bound=Hashable)


class Step(NamedTuple, Generic[S]):
    """Something one actor can do next: one durable read or write."""

    actor: str
    does: str
    to: S


@dataclass
class Exploration(Generic[S]):
    """What was reached, what was violated, and how one gets there."""

    complete: bool = False
    seconds: float = 0.0
    violations: dict[str, list[str]] = field(default_factory=dict)
    """The first, so shortest, story for each kind of violation."""
    numbers: dict[S, int] = field(default_factory=dict)
    """Every state with its number, in the order of discovery."""
    came: list[tuple[int, str]] = field(default_factory=list)
    """For every state: the number of the one before it, and the line that leads here."""
    edges: list[tuple[int, str, int]] = field(default_factory=list)
    """From, actor, to; kept only for questions of liveness."""

    @property
    def states(self) -> int:
        return len(self.numbers)

    def story(self, number: int) -> list[str]:
        """The shortest way to a state, one line for each step."""
        lines: list[str] = []
        while number:
            number, line = self.came[number]
            lines.append(line)
        return lines[::-1]

    def stuck(self, goal: Callable[[S], bool], actors: Callable[[str], bool] = lambda actor: True) -> list[int]:
        """The states from which these actors cannot reach the goal, whatever they do."""
        before = defaultdict[int, list[int]](list)
        for origin, actor, target in self.edges:
            if actors(actor):
                before[target].append(origin)
        good = {number for state, number in self.numbers.items() if goal(state)}
        waiting = list(good)
        while waiting:
            for number in before[waiting.pop()]:
                if number not in good:
                    good.add(number)
                    waiting.append(number)
        return [number for number in self.numbers.values() if number not in good]


def explore(
    start: S,
    steps: Callable[[S], Iterable[Step[S]]],
    violated: Callable[[S, S], Iterable[str]],
    *,
    until: str | None = None,
    most: int = 2_000_000,
    keep_edges: bool = False,
) -> Exploration[S]:
    """Reach everything; or stop at the first violation of kind `until`. Nothing is explored behind a violation."""
    found = Exploration[S](numbers={start: 0}, came=[(0, "")])
    began = time.perf_counter()
    waiting = [start]
    numbers, came = found.numbers, found.came
    while waiting and until not in found.violations and len(numbers) < most:
        frontier, waiting = waiting, []
        for state in frontier:
            origin = numbers[state]
            for step in steps(state):
                number = numbers.get(step.to)
                fresh = number is None
                if number is None:
                    number = numbers[step.to] = len(numbers)
                    came.append((origin, f"{step.actor}: {step.does}"))
                if keep_edges:
                    found.edges.append((origin, step.actor, number))
                broken = list(violated(state, step.to))
                for kind in broken:
                    if kind not in found.violations:
                        found.violations[kind] = [*found.story(origin), f"{step.actor}: {step.does}"]
                if fresh and not broken:
                    waiting.append(step.to)
    found.complete = not waiting
    found.seconds = time.perf_counter() - began
    return found

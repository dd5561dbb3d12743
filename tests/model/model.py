"""The model as a whole: the actors of a configuration, explored together."""

from __future__ import annotations

from .collector import Collector
from .executions import DirectTransaction, TaskAttempt
from .explorer import Exploration, explore
from .invariants import Invariants
from .operators import Colleague, Operator, Orchestrator
from .rules import Rule
from .sweeper import Sweeper
from .world import OPERATOR, Configuration, Setup, Spec, Steps, World, content_of, line


class Model:
    """A configuration with all rules kept, or with one of them switched off."""

    def __init__(self, configuration: Configuration, off: Rule | None = None) -> None:
        self.setup = setup = Setup(configuration, off)
        self.invariants = Invariants(setup)
        self.actors = [
            *(TaskAttempt(setup, spec) if spec.step else DirectTransaction(setup, spec) for spec in setup.specs),
            *(Sweeper(setup, index) for index in range(configuration.sweepers)),
            *([Collector(setup)] if setup.collects else []),
            Orchestrator(setup),
            *([Colleague()] if configuration.foreign else []),
            *([Operator(setup)] if configuration.operator else []),
        ]

    def steps(self, world: World) -> Steps:
        for actor in self.actors:
            yield from actor.steps(world)

    def stuck(self, fresh: str) -> list[list[str]]:
        """The stories, shortest first, after which an attempt that has not begun cannot complete on its own.

        Left out is where others built on what an earlier txn of the step published: there the answer is fail closed.
        """
        index = self.setup.names[fresh]
        spec = self.setup.specs[index]
        step = self.setup.step_names.index(spec.step or "")
        found = self.explore(keep_edges=True)
        hopeless = set(
            found.stuck(
                lambda world: world.steps[step].reported is not None,
                actors=lambda actor: actor in (spec.who, "orchestrator", OPERATOR),
            )
        )
        return [
            found.story(number)
            for world, number in found.numbers.items()
            if number in hopeless and world.processes[index].at == "not begun" and not self._built_on(world, spec)
        ]

    def _built_on(self, world: World, spec: Spec) -> bool:
        authors = [self.setup.spec(content_of(commit)) for commit in line(world.head)]
        return any(author and author.step == spec.step and author.txn != spec.txn for author in authors[:-1])

    def explore(self, until: str | None = None, keep_edges: bool = False) -> Exploration[World]:
        return explore(self.setup.start(), self.steps, self.invariants.violated, until=until, keep_edges=keep_edges)

"""The model as a whole: the actors of a configuration, explored together."""

from __future__ import annotations

from .collector import Collector
from .executions import DirectTransaction, TaskAttempt
from .explorer import Exploration, explore
from .invariants import Invariants
from .operators import Colleague, Operator, Orchestrator
from .rules import Rule
from .sweeper import Sweeper
from .world import Configuration, Setup, Steps, World


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

    def explore(self, until: str | None = None, keep_edges: bool = False) -> Exploration[World]:
        return explore(self.setup.start(), self.steps, self.invariants.violated, until=until, keep_edges=keep_edges)

"""The state of a small world: everything durable, and what each process has in its memory. All of it is frozen."""

from __future__ import annotations

import functools
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Literal, NamedTuple, TypeVar

from fenceline.repo.model import MOVES, Op, RefEntry

from .explorer import Step
from .rules import Rule

T = TypeVar("T")
Body = Literal["changes", "no-op"]
Verdict = Literal["sealed", "aborted"]
Ending = Literal["published", "rolled_forward", "rolled_back", "aborted"]
Told = Literal["applied", "not_applied"]

OLD = "old"
INPUT = "old/input"
"""Commits are named by their first-parent line, so a commit's name tells its whole history."""

OPERATOR = "operator"
FOREIGN_CHANGES = {"F": frozenset("f"), "X": frozenset("a")}
"""What a colleague's commits change: F nothing that a step touches, X the path of step A."""


class Report(NamedTuple):
    """What the orchestrator was told of a step."""

    attempt: int
    epoch: int
    output: str


class StepState(NamedTuple):
    """A step as the orchestrator sees it: the attempt it waits for, and the last one that completed it."""

    attempt: int = 1
    epoch: int = 0
    reported: Report | None = None

    @property
    def waits(self) -> bool:
        done = self.reported
        return done is None or (done.attempt, done.epoch) < (self.attempt, self.epoch)


class Area(NamedTuple):
    """What is durable under one execution's id."""

    intent: Literal["", "open", "finished"] = ""
    input: str = ""
    base: int = 0
    verdict: Verdict | None = None
    data: bool = False
    """Whether all that it staged is there."""
    record: Ending | None = None
    era: int = 0
    """How often the branch had been deleted at the base. Only the invariants look at it."""


class Process(NamedTuple):
    """The memory of one execution. It may never be scheduled again (a crash), or much later (a zombie)."""

    at: str = "not begun"
    input: str = ""
    base: int = 0
    era: int = 0
    staged: str | None = None
    """The execution whose staged commit it wants to publish: its own, or one that it resumes."""
    body: Body | None = None
    """What the body did; None where it did not run."""
    entry: RefEntry | None = None
    """What it is about to write."""
    outcome: str | None = None
    """What it is about to report."""
    ending: Ending | None = None
    told: Told | None = None


class Sweep(NamedTuple):
    """The memory of one sweeper."""

    left: int
    at: str = "idle"
    target: str = ""
    entry: RefEntry | None = None
    ending: Ending | None = None


class Collection(NamedTuple):
    """The memory of the garbage collector."""

    left: int
    at: str = "idle"
    looks: int = 0
    doomed: frozenset[str] = frozenset()
    """Objects that were found unreached so far: executions, and commits that a rebase made."""
    protected: frozenset[str] = frozenset()
    """Commits that unfinished intents name."""
    expiring: frozenset[str] = frozenset()
    """Commits whose content retention gives up."""


class Operating(NamedTuple):
    """What the operator still wants to do."""

    script: tuple[str, ...]
    aim: str = ""
    """An old commit that a ref is to be pointed at."""
    ref: Literal["branch", "tag"] = "branch"
    number: int = 0
    """The ref's last number, as it was read before the look at the condemned list."""
    asked: bool = False


class World(NamedTuple):
    """One state."""

    steps: tuple[StepState, ...]
    log: tuple[RefEntry, ...]
    processes: tuple[Process, ...]
    areas: tuple[Area, ...]
    sweepers: tuple[Sweep, ...]
    collection: Collection
    operating: Operating
    foreign: str
    """The colleague's commits that are still to come."""
    rebased: frozenset[str] = frozenset()
    """Commit records that a rebase wrote."""
    condemned: frozenset[str] = frozenset()
    expired: frozenset[str] = frozenset()
    tags: frozenset[str] = frozenset()
    reserved: bool = False
    """The name of a tag that is about to be created: its log's last entry is a reservation."""
    era: int = 0

    @property
    def head(self) -> str | None:
        return self.log[-1].commit if self.log else None

    @property
    def last(self) -> int:
        return self.log[-1].seq if self.log else 0

    def append(self, entry: RefEntry) -> World | None:
        """The conditional write, on which everything rests: None if the entry's number is taken."""
        if entry.seq != self.last + 1:
            return None
        return self._replace(log=(*self.log, entry))

    def decided(self, execution: str, base: int) -> RefEntry | None:
        """The entry that decided an execution: the move that published it, or its fence."""
        for entry in self.log[base:]:
            if entry.execution == execution and (entry.op in MOVES or entry.op is Op.FENCE):
                return entry
        return None


@dataclass(frozen=True, slots=True)
class Spec:
    """One execution of a configuration."""

    name: str
    txn: str | None
    touches: frozenset[str]
    step: str | None = None
    attempt: int = 0
    epoch: int = 0
    bodies: tuple[Body, ...] = ("changes",)
    after: str | None = None
    """The step whose output is its input; else the input is the commit everything starts from."""
    rebase: bool = True
    serial: bool = False

    @property
    def who(self) -> str:
        epoch = f", epoch {self.epoch}" if self.epoch else ""
        task = f"step {self.step}, attempt {self.attempt}{epoch}" if self.step else "direct"
        return f"{self.name} ({task}{', txn ' + self.txn if self.txn else ''})"


@dataclass(frozen=True, slots=True)
class Configuration:
    """A small world worth exploring."""

    name: str
    executions: tuple[Spec, ...]
    sweepers: int = 0
    sweeps: int = 1
    """How many intents each of the sweepers looks at."""
    collections: int = 0
    expire: bool = False
    foreign: str = ""
    operator: tuple[str, ...] = ()
    unknown: bool = False
    """Whether answers of the store about a conditional write get lost."""
    full: bool = False
    """Too large for every test run."""


class Setup:
    """A configuration, and the rules that are switched off in it."""

    def __init__(self, configuration: Configuration, off: Rule | None = None) -> None:
        self.configuration = configuration
        self.off = off
        self.specs = configuration.executions
        self.names = {spec.name: index for index, spec in enumerate(self.specs)}
        self.step_names = tuple(sorted({spec.step for spec in self.specs if spec.step}))
        self.collects = configuration.collections > 0
        self.serial = any(spec.serial for spec in self.specs)

    def keeps(self, rule: Rule) -> bool:
        return rule is not self.off

    def start(self) -> World:
        config = self.configuration
        count = len(self.specs)
        return World(
            steps=(StepState(),) * len(self.step_names),
            log=(RefEntry(1, Op.CREATE, INPUT, OPERATOR, "", 0.0),),
            processes=(Process(),) * count,
            areas=(Area(),) * count,
            sweepers=(Sweep(config.sweeps),) * config.sweepers,
            collection=Collection(config.collections),
            operating=Operating(config.operator),
            foreign=config.foreign,
        )

    # --- looking things up --------------------------------------------------------------------------------------

    def spec(self, execution: str | None) -> Spec | None:
        index = self.names.get(execution or "")
        return None if index is None else self.specs[index]

    def area(self, world: World, execution: str) -> Area:
        return world.areas[self.names[execution]]

    def step(self, world: World, name: str) -> StepState:
        return world.steps[self.step_names.index(name)]

    def txn(self, world: World, execution: str) -> str | None:
        """The txn under which an execution staged: that of a step depends on its input."""
        spec = self.specs[self.names[execution]]
        return txn_on(spec, self.area(world, execution).input)

    def attempt(self, spec: Spec) -> str | None:
        if spec.step is None:
            return None
        return f"{spec.step}{spec.attempt}" + (f"/{spec.epoch}" if self.keeps(Rule.EPOCH) else "")

    def current(self, world: World, spec: Spec) -> bool:
        """The attempt fence: whether the orchestrator still waits for this attempt."""
        assert spec.step is not None
        step = self.step(world, spec.step)
        epoch = spec.epoch if self.keeps(Rule.EPOCH) else step.epoch
        return step.waits and (spec.attempt, epoch) == (step.attempt, step.epoch)

    # --- changing things ----------------------------------------------------------------------------------------

    def put_area(self, world: World, execution: str, **changes: object) -> World:
        index = self.names[execution]
        return world._replace(areas=put(world.areas, index, world.areas[index]._replace(**changes)))  # type: ignore[arg-type]


def txn_on(spec: Spec, start: str) -> str | None:
    return f"{spec.txn} on {start}" if spec.after else spec.txn


def put(values: tuple[T, ...], index: int, value: T) -> tuple[T, ...]:
    """The same tuple with another value at one place."""
    return (*values[:index], value, *values[index + 1 :])


def stands(commit: str | None, head: str | None) -> bool:
    """Whether a commit is on the head's first-parent line."""
    return commit is not None and head is not None and (head == commit or head.startswith(f"{commit}/"))


@functools.cache
def line(head: str | None) -> tuple[str, ...]:
    """The commits of the first-parent line, oldest first."""
    parts = head.split("/") if head else []
    return tuple("/".join(parts[:length]) for length in range(1, len(parts) + 1))


def parent_of(commit: str) -> str:
    return commit.rpartition("/")[0]


@functools.cache
def content_of(commit: str) -> str:
    """Whose content a commit added: an execution's, or a colleague's."""
    return commit.rpartition("/")[2]


Steps = Iterator[Step[World]]

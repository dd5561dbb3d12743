"""What must hold, whatever is retried, paused or killed: named predicates over a state, and over what just changed.

The actors know nothing of these. Each predicate says what is wrong; its name is the kind of the violation.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator

from fenceline.repo.model import MOVES, OUTCOMES, Op, RefEntry

from .world import OPERATOR, Area, Report, Setup, Spec, StepState, World, content_of, line, parent_of, stands

TWICE = "INV-4: two commits of one txn stand on the branch"
SPENT = "INV-4, R5: an execution is published by two entries"
KEY = "INV-4: a key is applied twice"
DROPPED = "INV-5: a move drops a commit of another step"
LEFT = "INV-6: a move drops an acknowledged output"
NOT_THERE = "INV-6: a reported output is not on the branch, and no entry says why"
MOVED_BEFORE = "INV-6: an outcome is reported that was moved away before"
UNWRITTEN = "INV-6, R3: a reported outcome has no entry of its attempt"
OTHER_OUTPUT = "INV-6: an adopt reports another output than the outcome it adopts"
PART = "INV-7: the head reaches staged data that was deleted"
BASELESS = "INV-7: something is published without the commit that it was built on"
STALE = "INV-8: a stale execution moves the branch after the step's outcome was reported"
REBORN = "INV-8: an execution from before the branch was deleted moves the new one"
NOOP_BESIDE = "INV-8: a no-op is reported while a publication of the step stands"
OLD_EPOCH = "INV-8: a zombie of the old epoch answers the forced rerun"
BODY = "INV-8: a no-op is written by an execution whose body did not run"
RECORD = "INV-10: a terminal record says other than log and verdict"
RESURRECTED = "INV-12: an execution is published that was aborted or fenced"
COLLECTED = "INV-13: garbage collection removed what a ref reaches"
APPLIED = "D2: not_applied was answered, and it was applied"
STUCK = "liveness: a fresh attempt can never complete"


class Invariants:
    """All of them, for one setup."""

    def __init__(self, setup: Setup) -> None:
        self.setup = setup

    def violated(self, before: World, after: World) -> Iterator[str]:
        """The kinds of what is wrong with the second state, or with the step that leads to it."""
        if after.log is not before.log and after.log:
            entry = after.log[-1]
            yield from (kind for kind, wrong in ENTRIES.items() if wrong(self.setup, before, entry))
        if after.steps is not before.steps:
            yield from self._reports(before, after)
        if after.processes is not before.processes:
            yield from self._readings(before, after)
        if any(getattr(after, part) is not getattr(before, part) for part in DURABLE):
            yield from (kind for kind, wrong in STATES.items() if wrong(self.setup, after))

    def _reports(self, before: World, after: World) -> Iterator[str]:
        for name, old, new in zip(self.setup.step_names, before.steps, after.steps, strict=True):
            if new.reported is not None and new.reported is not old.reported:
                who = next(
                    spec
                    for spec, then, now in zip(self.setup.specs, before.processes, after.processes, strict=True)
                    if then is not now and spec.step == name
                )
                yield from (k for k, wrong in REPORTS.items() if wrong(self.setup, before, who, old, new.reported))

    def _readings(self, before: World, after: World) -> Iterator[str]:
        """Who learns its outcome from the entry of another must read one that stands."""
        for spec, then, now in zip(self.setup.specs, before.processes, after.processes, strict=True):
            learns = now is not then and then.outcome is None and now.outcome is not None and then.entry is None
            if learns and not stands(now.outcome, before.head) and before.decided(spec.name, 0) is None:
                yield MOVED_BEFORE


# --- of a new entry -------------------------------------------------------------------------------------------------


def _spent(setup: Setup, world: World, entry: RefEntry) -> bool:
    return _publishes(entry) and any(e.op in MOVES and e.execution == entry.execution for e in world.log)


def _key_twice(setup: Setup, world: World, entry: RefEntry) -> bool:
    spec = setup.spec(entry.execution)
    if spec is None or spec.step is not None or spec.txn is None or entry.op not in MOVES:
        return False
    return any(e.op in MOVES and e.txn == spec.txn for e in world.log)


def _dropped(setup: Setup, world: World, entry: RefEntry) -> bool:
    """Strict mode: only a step's own abandoned publication may go, and only by a relocation."""
    if entry.op not in MOVES or _by_hand(world, entry) or setup.serial:
        return False
    gone = [commit for commit in line(world.head) if content_of(commit) not in (entry.commit or "").split("/")]
    authors = [setup.spec(content_of(commit)) for commit in gone]
    own = [author is not None and author.step is not None and author.step == entry.step for author in authors]
    return bool(own) and (entry.op is Op.PUBLISH or not all(own))


def _left(setup: Setup, world: World, entry: RefEntry) -> bool:
    """Only an operator, or a later attempt of the step, takes back what was acknowledged."""
    if entry.op not in MOVES or _by_hand(world, entry) or setup.serial:
        return False
    spec = setup.spec(entry.by)
    for name, step in zip(setup.step_names, world.steps, strict=True):
        done = step.reported
        if done and stands(done.output, world.head) and not stands(done.output, entry.commit):
            if _after_a_forced_one(setup, world, name):
                continue
            later = spec and spec.step == name and (spec.attempt, spec.epoch) > (done.attempt, done.epoch)
            if not later:
                return True
    return False


def _stale(setup: Setup, world: World, entry: RefEntry) -> bool:
    spec = setup.spec(entry.by)
    if spec is None or spec.step is None or entry.op not in MOVES:
        return False
    done = setup.step(world, spec.step).reported
    return done is not None and (spec.attempt, spec.epoch) <= (done.attempt, done.epoch)


def _reborn(setup: Setup, world: World, entry: RefEntry) -> bool:
    if not _publishes(entry):
        return False
    spec = setup.spec(entry.by)
    era = world.processes[setup.names[spec.name]].era if spec else setup.area(world, entry.execution or "").era
    return era != world.era


def _baseless(setup: Setup, world: World, entry: RefEntry) -> bool:
    return _publishes(entry) and not stands(setup.area(world, entry.execution or "").input, entry.commit)


def _resurrected(setup: Setup, world: World, entry: RefEntry) -> bool:
    if not _publishes(entry):
        return False
    fenced = any(e.op is Op.FENCE and e.execution == entry.execution for e in world.log)
    return fenced or setup.area(world, entry.execution or "").verdict == "aborted"


def _applied(setup: Setup, world: World, entry: RefEntry) -> bool:
    return _publishes(entry) and world.processes[setup.names[entry.execution or ""]].told == "not_applied"


def _adopts_what_is_gone(setup: Setup, world: World, entry: RefEntry) -> bool:
    return entry.op is Op.ADOPT and not stands(entry.output, world.head)


def _other_output(setup: Setup, world: World, entry: RefEntry) -> bool:
    """An adopt reports what the last outcome of its step and txn reported."""
    if entry.op is not Op.ADOPT:
        return False
    same = [e.output for e in world.log if e.op in OUTCOMES and e.step == entry.step and e.txn == entry.txn]
    return bool(same) and same[-1] != entry.output


def _bodyless(setup: Setup, world: World, entry: RefEntry) -> bool:
    """To change nothing, one must have looked."""
    spec = setup.spec(entry.by)
    reports_input = entry.op is Op.NOOP or (entry.op is Op.RELOCATE and entry.execution is None)
    return spec is not None and reports_input and world.processes[setup.names[spec.name]].body is None


def _by_hand(world: World, entry: RefEntry) -> bool:
    """An operator may drop what they like."""
    return entry.by == OPERATOR


def _publishes(entry: RefEntry) -> bool:
    return entry.op in MOVES and entry.execution is not None


def _after_a_forced_one(setup: Setup, world: World, step: str | None) -> bool:
    """A forced rerun takes back what the steps after it reported on top of its output: they are to run again, too."""
    before = {spec.after for spec in setup.specs if spec.step == step and spec.after}
    return any(setup.step(world, name).epoch > 0 for name in before)


# --- of a report to the orchestrator --------------------------------------------------------------------------------


def _unwritten(setup: Setup, world: World, who: Spec, step: StepState, report: Report) -> bool:
    mine = setup.attempt(who)
    return not any(e.op in OUTCOMES and e.attempt == mine and e.output == report.output for e in world.log)


def _not_there(setup: Setup, world: World, who: Spec, step: StepState, report: Report) -> bool:
    if stands(report.output, world.head) or setup.serial or _after_a_forced_one(setup, world, who.step):
        return False
    return not _moved_by_hand(world)


def _noop_beside(setup: Setup, world: World, who: Spec, step: StepState, report: Report) -> bool:
    start = world.processes[setup.names[who.name]].input
    if report.output != start or not stands(start, world.head) or _moved_by_hand(world):
        return False
    after = [setup.spec(content_of(c)) for c in line(world.head) if len(c) > len(start)]
    return any(author is not None and author.step == who.step for author in after)


def _moved_by_hand(world: World) -> bool:
    return any(e.by == OPERATOR for e in world.log[1:])


def _old_epoch(setup: Setup, world: World, who: Spec, step: StepState, report: Report) -> bool:
    return who.epoch != step.epoch


# --- of a state -----------------------------------------------------------------------------------------------------


def _twice(setup: Setup, world: World) -> bool:
    txns = [setup.txn(world, content_of(c)) for c in line(world.head) if content_of(c) in setup.names]
    known = [txn for txn in txns if txn is not None]
    return len(known) != len(set(known))


def _part(setup: Setup, world: World) -> bool:
    return not _all_there(setup, world, world.head)


def _collected(setup: Setup, world: World) -> bool:
    if not setup.collects:
        return False
    lost = any(
        commit not in world.rebased
        for commit in line(world.head)
        if content_of(commit) in setup.names and parent_of(commit) != setup.area(world, content_of(commit)).input
    )
    return lost or world.head in world.expired or not all(_all_there(setup, world, tag) for tag in world.tags)


def _all_there(setup: Setup, world: World, head: str | None) -> bool:
    authors = [content_of(commit) for commit in line(head)]
    return all(setup.area(world, author).data for author in authors if author in setup.names)


def _record(setup: Setup, world: World) -> bool:
    return any(
        area.record is not None and not _true(world, spec.name, area)
        for spec, area in zip(setup.specs, world.areas, strict=True)
    )


def _true(world: World, name: str, area: Area) -> bool:
    if area.record == "aborted":
        return area.verdict == "aborted" and not any(e.execution == name for e in world.log)
    moved = any(e.op in MOVES and e.execution == name for e in world.log)
    return moved == (area.record in ("published", "rolled_forward"))


ENTRIES: dict[str, Callable[[Setup, World, RefEntry], bool]] = {
    SPENT: _spent,
    KEY: _key_twice,
    DROPPED: _dropped,
    LEFT: _left,
    STALE: _stale,
    REBORN: _reborn,
    BASELESS: _baseless,
    RESURRECTED: _resurrected,
    APPLIED: _applied,
    MOVED_BEFORE: _adopts_what_is_gone,
    OTHER_OUTPUT: _other_output,
    BODY: _bodyless,
}
REPORTS: dict[str, Callable[[Setup, World, Spec, StepState, Report], bool]] = {
    UNWRITTEN: _unwritten,
    NOT_THERE: _not_there,
    NOOP_BESIDE: _noop_beside,
    OLD_EPOCH: _old_epoch,
}
DURABLE = ("log", "areas", "rebased", "expired", "tags", "operating")
"""The parts of the world that the predicates of a state look at."""
STATES: dict[str, Callable[[Setup, World], bool]] = {
    TWICE: _twice,
    PART: _part,
    COLLECTED: _collected,
    RECORD: _record,
}

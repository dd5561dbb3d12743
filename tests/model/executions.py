"""An execution: one process at work on a transaction, from its look-back to its answer.

Read `TaskAttempt.phases` and `DirectTransaction.phases` from the top: that is the order of the protocol. Each phase
yields what the process may do next, one durable read or write at a time. Between any two steps the process may sleep
for as long as it likes, or for ever: nobody can tell a zombie from a crash.
"""

from __future__ import annotations

from collections.abc import Callable

from fenceline.repo.model import MOVES, Op, RefEntry
from fenceline.txn.decide import Decision

from .deciding import judge
from .explorer import Step
from .rules import Rule
from .world import (
    INPUT,
    Ending,
    Process,
    Report,
    Setup,
    Spec,
    Steps,
    Told,
    World,
    parent_of,
    put,
    txn_on,
)

Phase = Callable[[World, Process], Steps]


class Execution:
    """What task attempts and direct transactions have in common: Try, Confirm, and the end of an intent."""

    def __init__(self, setup: Setup, spec: Spec) -> None:
        self.setup, self.spec, self.name = setup, spec, spec.name
        self.index = setup.names[spec.name]
        self.phases: dict[str, Phase] = {}
        self.to_confirm = "confirm"

    def steps(self, world: World) -> Steps:
        process = world.processes[self.index]
        phase = self.phases.get(process.at)
        if phase is not None:
            yield from phase(world, process)

    def goes(self, world: World, does: str, at: str, **changes: object) -> Step[World]:
        return self.becomes(world, does, world.processes[self.index]._replace(at=at, **changes))  # type: ignore[arg-type]

    def ends(self, world: World, does: str, told: Told | None = None) -> Step[World]:
        return self.becomes(world, does, Process("ended", told=told))

    def becomes(self, world: World, does: str, after: Process) -> Step[World]:
        return Step(self.spec.who, does, world._replace(processes=put(world.processes, self.index, after)))

    def decide(self, world: World, me: Process, staged: str | None, early: bool = False) -> Decision:
        return judge(self.setup, world, self.spec, me.input, me.base, staged, early)

    # --- Try: intent, staging, seal -----------------------------------------------------------------------------

    def open_intent(self, world: World, me: Process) -> Steps:
        """Phase A: before the first byte."""
        opened = self.setup.put_area(world, self.name, intent="open", input=me.input, base=me.base, era=me.era)
        yield self.goes(opened, "opens its intent", "check input" if self.setup.collects else "stage")

    def check_input(self, world: World, me: Process) -> Steps:
        """Intent first, then the look at the condemned list (D3)."""
        if me.input in world.condemned or me.input in world.expired:
            yield self.goes(world, "its input is condemned: gives up", "abort")
        else:
            yield self.goes(world, "its input is not condemned", "stage")

    def stage(self, world: World, me: Process) -> Steps:
        staged = self.setup.put_area(world, self.name, data=True)
        yield self.goes(staged, "stages what it changed", self.after_staging)

    after_staging = "seal"

    def seal(self, world: World, me: Process) -> Steps:
        """The verdict is created once: either this, or a sweep's `aborted` (D1)."""
        if world.areas[self.index].verdict is None:
            sealed = self.setup.put_area(world, self.name, verdict="sealed")
            yield self.goes(sealed, "seals", self.to_confirm, staged=self.name)
        else:
            yield self.goes(world, "finds itself aborted", "delete", ending="aborted")

    # --- Confirm: decide, write one entry -----------------------------------------------------------------------

    def planned(self, world: World, me: Process, decision: Decision) -> RefEntry:
        """The entry that a decision calls for, under the next number."""
        commit, output = world.head, decision.output
        if decision.answer == "relocate" and output is not None:
            commit = decision.parent
        elif decision.answer in ("publish", "relocate"):
            commit = output = f"{decision.parent}/{me.staged}"
        if not self.setup.keeps(Rule.OUTPUT):
            output = commit
        op = Op(decision.answer)
        return RefEntry(
            seq=world.last + 1,
            op=op,
            commit=commit,
            by=self.name,
            actor="",
            time=0.0,
            output=output,
            execution=me.staged if op in MOVES else None,
            step=self.spec.step,
            txn=txn_on(self.spec, me.input),
            attempt=self.setup.attempt(self.spec),
        )

    def rebase(self, world: World, me: Process) -> Steps:
        """The same content on a new head is a new commit record, under the staged execution's id."""
        assert me.entry is not None
        assert me.entry.commit is not None
        made = world._replace(rebased=world.rebased | {me.entry.commit})
        yield self.goes(made, f"writes the rebased commit {me.entry.commit}", "write")

    def write(self, world: World, me: Process) -> Steps:
        """The conditional write. With `unknown`, the answer may get lost, whether it was written or not."""
        entry = me.entry
        assert entry is not None
        written = world.append(entry)
        what = f"entry {entry.seq}, {entry.op} {entry.execution if entry.op is Op.FENCE else entry.output}"
        if written is None:
            yield self.goes(world, f"loses {what}: the number is taken", self.after_losing(entry), entry=None)
            return
        yield self.becomes(written, f"writes {what}", self.after_writing(me, entry))
        if self.setup.configuration.unknown and me.at == "write":
            yield self.goes(written, f"writes {what}; the answer gets lost", "settle")
            yield self.goes(world, f"does not get {what} through, and does not know it", "settle")

    def settle(self, world: World, me: Process) -> Steps:
        """INV-3: read the entry back. By this execution: won. Another: lost. Absent: the same write again."""
        entry = me.entry
        assert entry is not None
        if world.last < entry.seq:
            yield self.goes(world, f"finds no entry {entry.seq}: the same write again", "write again")
            return
        found = world.log[entry.seq - 1]
        same = not self.setup.keeps(Rule.INV_3) and found.execution is not None and found.execution == entry.execution
        if found.by == self.name or same:
            yield self.becomes(world, f"finds entry {entry.seq} by {found.by}: won", self.after_writing(me, entry))
        else:
            yield self.goes(world, f"finds entry {entry.seq} by {found.by}: lost", self.after_losing(entry), entry=None)

    def after_losing(self, entry: RefEntry) -> str:
        return "own fence" if entry.op is Op.FENCE else self.to_confirm

    def after_writing(self, me: Process, entry: RefEntry) -> Process:
        """Where it goes on, and with what in mind, once its entry stands."""
        if entry.op is Op.FENCE:
            return me._replace(at="delete", ending="rolled_back", entry=None)
        if entry.op in MOVES and entry.execution is not None:
            ending: Ending = "published" if entry.execution == self.name else "rolled_forward"
            return me._replace(at="record", outcome=entry.output, ending=ending, entry=None)
        return me._replace(at="answer", outcome=entry.output, entry=None)

    def own_fence(self, world: World, me: Process) -> Steps:
        """D2: make sure that it can never be published, or learn that a sweep rolled it forward."""
        decided = world.decided(self.name, me.base)
        if decided is None:
            entry = fence_entry(world, self.name, by=self.name)
            yield self.goes(world, f"wants its own fence entry {entry.seq}", "write", entry=entry)
        elif decided.op is Op.FENCE:
            yield self.goes(world, f"was fenced by entry {decided.seq}", "delete", ending="rolled_back")
        else:
            ending = "published" if decided.by == self.name else "rolled_forward"
            does = f"was published by entry {decided.seq}"
            yield self.goes(world, does, "record", outcome=me.outcome or decided.output, ending=ending)

    # --- the end of an intent: delete, record, remove -----------------------------------------------------------

    def abort(self, world: World, me: Process) -> Steps:
        """Before the seal was tried: win `aborted`, or find that a sweep did."""
        aborted = self.setup.put_area(world, self.name, verdict=world.areas[self.index].verdict or "aborted")
        yield self.goes(aborted, "aborts", "delete", ending="aborted")

    def delete(self, world: World, me: Process) -> Steps:
        yield self.goes(self.setup.put_area(world, self.name, data=False), "deletes what it staged", "record")

    def record(self, world: World, me: Process) -> Steps:
        """The one terminal record; whoever is first (INV-10)."""
        target = me.staged or self.name
        kind = self.setup.area(world, target).record or me.ending
        yield self.goes(self.setup.put_area(world, target, record=kind), f"records {target}: {kind}", "remove")

    def remove(self, world: World, me: Process) -> Steps:
        target = me.staged or self.name
        yield self.goes(finished(self.setup, world, target), f"removes the intent of {target}", "answer")


class TaskAttempt(Execution):
    """One process at work on an attempt of a step, as the orchestrator handed it out."""

    def __init__(self, setup: Setup, spec: Spec) -> None:
        super().__init__(setup, spec)
        self.to_confirm = "confirm" if setup.keeps(Rule.R2_ORDER) else "fence early"
        self.phases = {
            "not begun": self.hand_out,
            "look back": self.look_back,
            "fence 1": self.first_fence,
            "intent": self.open_intent,
            "check input": self.check_input,
            "stage": self.stage,
            "seal": self.seal,
            "fence early": self.early_fence,
            "confirm": self.confirm,
            "check target": self.check_target,
            "fence 2": self.second_fence,
            "rebase": self.rebase,
            "write": self.write,
            "settle": self.settle,
            "write again": self.write,
            "own fence": self.own_fence,
            "abort": self.abort,
            "delete": self.delete,
            "record": self.record,
            "remove": self.remove,
            "answer": self.complete,
        }

    def hand_out(self, world: World, me: Process) -> Steps:
        """A worker polls the attempt. The same attempt may be handed out twice: leases run out."""
        if not self.setup.current(world, self.spec):
            return
        start = INPUT
        if self.spec.after is not None:
            upstream = self.setup.step(world, self.spec.after)
            if upstream.waits or upstream.reported is None:
                return
            start = upstream.reported.output
        known = {"input": start, "base": world.last, "era": world.era}
        yield self.goes(world, f"is handed out on {start}", "look back", **known)

    def look_back(self, world: World, me: Process) -> Steps:
        """Section 3, step 2: decide with nothing staged. Perhaps the body need not run."""
        decision = self.decide(world, me, staged=None, early=True)
        if decision.answer in ("report", "adopt"):
            does = f"looks back: {decision.output} is to be {decision.answer}ed"
            yield self.goes(world, does, self.to_confirm)
        elif decision.answer == "fail":
            yield self.ends(world, f"looks back: fails closed, {decision.why}")
        else:
            resumable = [other for other in self.setup.names if self.is_resumable(world, me, other)]
            for other in resumable:
                base = me.base if self.setup.keeps(Rule.BASE) else self.setup.area(world, other).base
                yield self.goes(world, f"looks back: resumes sealed {other}", self.to_confirm, base=base, staged=other)
            if not resumable:
                yield from self.run_body(world, me)

    def is_resumable(self, world: World, me: Process, other: str) -> bool:
        """Sealed, unfenced, never published, readable, and of this txn. Its owner may be alive."""
        area = self.setup.area(world, other)
        return (
            area.intent == "open"
            and area.verdict == "sealed"
            and area.data
            and self.setup.txn(world, other) == txn_on(self.spec, me.input)
            and area.record is None
            and (world.decided(other, area.base) is None or not self.setup.keeps(Rule.R5))
        )

    def run_body(self, world: World, me: Process) -> Steps:
        """The body need not be deterministic: the same code may find nothing to change the second time."""
        if me.input in world.expired:
            yield self.ends(world, "fails: its input cannot be read any more")
            return
        for body in self.spec.bodies:
            if body == "changes":
                yield self.goes(world, "runs the body, which changes things", "fence 1", body=body)
            else:
                yield self.goes(world, "runs the body, which changes nothing", self.to_confirm, body=body)

    def first_fence(self, world: World, me: Process) -> Steps:
        if self.setup.current(world, self.spec):
            yield self.goes(world, "asks the attempt fence: go on", "intent")
        else:
            yield self.ends(world, "asks the attempt fence: stale")

    def early_fence(self, world: World, me: Process) -> Steps:
        """Only with `R2 order` off: the fence is asked before the log is read."""
        if self.setup.current(world, self.spec):
            yield self.goes(world, "asks the attempt fence too early: go on", "confirm")
        else:
            yield self.ends(world, "asks the attempt fence: stale")

    def confirm(self, world: World, me: Process) -> Steps:
        """Section 4: read the log, decide, and plan one entry."""
        decision = self.decide(world, me, me.staged)
        seen = f"decides after entry {world.last}"
        if decision.answer == "fail":
            yield self.gives_up(world, me, f"{seen}: fails closed, {decision.why}")
            return
        if decision.answer == "report":
            at = self.after_outcome(me, decision.entry)
            yield self.goes(world, f"{seen}: reports {decision.output}", at, outcome=decision.output)
            return
        skipped = me.body is None and me.staged is None
        if skipped and decision.answer != "adopt" and self.setup.keeps(Rule.ADOPT_ONLY):
            yield self.ends(world, f"{seen}: fails closed, what it wanted to adopt is gone")
            return
        if decision.answer in ("adopt", "noop") and not self.setup.keeps(Rule.R3):
            yield self.goes(world, f"{seen}: {decision.answer}, unwritten", "answer", outcome=decision.output)
            return
        entry = self.planned(world, me, decision)
        goes_back = entry.op is Op.RELOCATE and entry.execution is None
        check = goes_back and self.setup.collects and self.setup.keeps(Rule.D3_REFUSE)
        at = "check target" if check else self.after_deciding(me, entry)
        yield self.goes(world, f"{seen}: {entry.op} {entry.output}", at, entry=entry)

    def check_target(self, world: World, me: Process) -> Steps:
        """A no-op over its own abandoned publication points the branch at an older commit (D3)."""
        assert me.entry is not None
        if me.entry.commit in world.condemned | world.expired:
            yield self.ends(world, f"{me.entry.commit} is condemned: fails closed")
        else:
            yield self.goes(world, f"{me.entry.commit} is not condemned", self.after_deciding(me, me.entry))

    def after_outcome(self, me: Process, entry: RefEntry | None) -> str:
        """Its own sealed staging can never be needed where the outcome is another's: it is fenced, not just deleted."""
        return "own fence" if me.staged == self.name and (entry is None or entry.execution != self.name) else "answer"

    def after_writing(self, me: Process, entry: RefEntry) -> Process:
        if entry.op is Op.ADOPT:
            return me._replace(at=self.after_outcome(me, entry), outcome=entry.output, entry=None)
        return super().after_writing(me, entry)

    def after_deciding(self, me: Process, entry: RefEntry) -> str:
        if self.setup.keeps(Rule.R2) and self.setup.keeps(Rule.R2_ORDER):
            return "fence 2"
        return self.after_fence(me, entry)

    def after_fence(self, me: Process, entry: RefEntry) -> str:
        moved = entry.execution is not None and me.staged is not None and parent_of(entry.commit or "") != me.input
        return "rebase" if self.setup.collects and moved else "write"

    def second_fence(self, world: World, me: Process) -> Steps:
        """R2: after the decision, before every write."""
        assert me.entry is not None
        if self.setup.current(world, self.spec):
            yield self.goes(world, "asks the attempt fence: go on", self.after_fence(me, me.entry))
        else:
            yield self.gives_up(world, me, "asks the attempt fence: stale")

    def gives_up(self, world: World, me: Process, why: str) -> Step[World]:
        """What it sealed is left for the next attempt: only a fence entry lets anyone delete it (D1)."""
        if self.setup.keeps(Rule.D1_OWNER) or me.staged != self.name:
            return self.ends(world, why)
        return self.ends(self.setup.put_area(world, self.name, data=False), f"{why}; deletes what it sealed")

    def complete(self, world: World, me: Process) -> Steps:
        """The orchestrator takes a result only from the attempt that it waits for."""
        assert self.spec.step is not None
        if me.outcome is None:
            yield self.ends(world, "fails")
        elif self.setup.current(world, self.spec):
            number = self.setup.step_names.index(self.spec.step)
            step = world.steps[number]
            report = Report(self.spec.attempt, step.epoch, me.outcome)
            reported = world._replace(steps=put(world.steps, number, step._replace(reported=report)))
            yield self.ends(reported, f"COMPLETED with {me.outcome}")
        else:
            yield self.ends(world, f"reports {me.outcome}, and is ignored")


class DirectTransaction(Execution):
    """A program's own transaction, with or without a key; nobody retries it, and its caller wants an answer."""

    after_staging = "foresee"

    def __init__(self, setup: Setup, spec: Spec) -> None:
        super().__init__(setup, spec)
        self.phases = {
            "not begun": self.begin,
            "look back": self.look_back,
            "intent": self.open_intent,
            "check input": self.check_input,
            "stage": self.stage,
            "foresee": self.foresee,
            "seal": self.seal,
            "confirm": self.confirm,
            "rebase": self.rebase,
            "write": self.write,
            "settle": self.settle,
            "write again": self.write,
            "own fence": self.own_fence,
            "abort": self.abort,
            "delete": self.delete,
            "record": self.record,
            "remove": self.remove,
            "answer": self.answer,
        }

    def begin(self, world: World, me: Process) -> Steps:
        """Its input is the head as it finds it, its base that entry's number."""
        if world.head is not None:
            known = {"input": world.head, "base": world.last, "era": world.era}
            yield self.goes(world, f"begins on {world.head}", "look back" if self.spec.txn else "intent", **known)

    def look_back(self, world: World, me: Process) -> Steps:
        """With a key: was it applied before?"""
        decision = self.decide(world, me, staged=None, early=True)
        if decision.answer == "adopt":
            yield self.ends(world, f"looks back: its key was applied as {decision.output}", told="applied")
        elif decision.answer == "fail":
            yield self.ends(world, f"looks back: fails closed, {decision.why}", told="not_applied")
        else:
            yield self.goes(world, "looks back: its key is new", "intent")

    def foresee(self, world: World, me: Process) -> Steps:
        """Decide once before sealing: what is refused now can be aborted without a fence entry."""
        decision = self.decide(world, me, self.name)
        if decision.answer in ("adopt", "fail"):
            yield self.goes(world, f"foresees: {decision.answer}", "abort", outcome=decision.output)
        else:
            yield self.goes(world, f"foresees: {decision.answer}", "seal")

    def confirm(self, world: World, me: Process) -> Steps:
        """Sealed: from here only an entry decides (D1, D2)."""
        decision = self.decide(world, me, me.staged)
        seen = f"decides after entry {world.last}: {decision.answer}"
        if decision.answer == "publish":
            entry = self.planned(world, me, decision)
            rebases = self.setup.collects and decision.parent != me.input
            yield self.goes(world, f"{seen} {entry.commit}", "rebase" if rebases else "write", entry=entry)
        elif self.setup.keeps(Rule.D2):
            yield self.goes(world, seen, "own fence", outcome=decision.output)
        else:
            yield self.goes(world, seen, "answer", outcome=decision.output)

    def answer(self, world: World, me: Process) -> Steps:
        if me.outcome is None:
            yield self.ends(world, "answers not_applied", told="not_applied")
        else:
            yield self.ends(world, f"answers applied, {me.outcome}", told="applied")


def fence_entry(world: World, execution: str, by: str) -> RefEntry:
    """Keeps the commit and only takes a number; names nothing but the execution that it fences."""
    return RefEntry(world.last + 1, Op.FENCE, world.head, by, "", 0.0, execution=execution)


def finished(setup: Setup, world: World, execution: str) -> World:
    """The intent goes last. Its verdict stays for ever (D4)."""
    if setup.keeps(Rule.D4):
        return setup.put_area(world, execution, intent="finished")
    return setup.put_area(world, execution, intent="finished", verdict=None)

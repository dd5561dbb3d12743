"""A sweep: what becomes of an intent whose owner is gone, or only seems so.

It may pick any unfinished intent, a living owner's too. It goes through the same two gates as the owner: the verdict
and the entry.
"""

from __future__ import annotations

from fenceline.repo.model import Op, RefEntry

from .deciding import judge
from .executions import fence_entry, finished
from .explorer import Step
from .rules import Rule
from .world import Ending, Setup, Spec, Steps, Sweep, World, put


class Sweeper:
    """One sweeper; several may be at work, on the same intent too."""

    def __init__(self, setup: Setup, index: int) -> None:
        self.setup, self.index, self.name = setup, index, f"sweeper {index + 1}"
        self.phases = {
            "verdict": self.verdict,
            "settle": self.settle,
            "rebase": self.rebase,
            "fence": self.fence,
            "write": self.write,
            "delete": self.delete,
            "record": self.record,
            "remove": self.remove,
        }

    def steps(self, world: World) -> Steps:
        sweep = world.sweepers[self.index]
        if sweep.at == "idle":
            yield from self.pick(world, sweep)
        else:
            yield from self.phases[sweep.at](world, sweep)

    def goes(self, world: World, does: str, at: str, **changes: object) -> Step[World]:
        sweep = world.sweepers[self.index]
        after = sweep._replace(at=at, **changes) if at != "idle" else Sweep(sweep.left)  # type: ignore[arg-type]
        return Step(self.name, does, world._replace(sweepers=put(world.sweepers, self.index, after)))

    def pick(self, world: World, sweep: Sweep) -> Steps:
        """The lease of any intent may have run out, and a lease may be wrong about a paused owner."""
        if not sweep.left:
            return
        for spec, area in zip(self.setup.specs, world.areas, strict=True):
            if area.intent == "open":
                at = "remove" if area.record else "verdict"
                yield self.goes(world, f"takes up the intent of {spec.name}", at, target=spec.name, left=sweep.left - 1)

    def verdict(self, world: World, sweep: Sweep) -> Steps:
        """Win `aborted`, or learn which verdict stands (D1)."""
        area, target = self.setup.area(world, sweep.target), sweep.target
        if area.verdict == "sealed":
            at = "settle" if self.setup.keeps(Rule.D1_SEALED) else "delete"
            yield self.goes(world, f"finds {target} sealed", at, ending="rolled_back")
        elif area.verdict == "aborted":
            yield self.goes(world, f"finds {target} aborted", "delete", ending="aborted")
        else:
            aborted = (
                self.setup.put_area(world, target, verdict="aborted") if self.setup.keeps(Rule.D1_ABORT) else world
            )
            yield self.goes(aborted, f"aborts {target}", "delete", ending="aborted")

    def settle(self, world: World, sweep: Sweep) -> Steps:
        """Sealed: the log knows whether it was decided. If not, a direct writer's is confirmed for it."""
        spec = self.setup.specs[self.setup.names[sweep.target]]
        decided = self._decided(world, sweep.target)
        if decided is not None:
            yield self._decided_already(world, spec, decided)
        elif spec.step is not None:
            yield self.goes(world, f"gives up what {spec.name} sealed", "fence", entry=None)
        else:
            yield self._confirms(world, spec)

    def _decided(self, world: World, target: str) -> RefEntry | None:
        decided = world.decided(target, self.setup.area(world, target).base)
        if decided is None and not self.setup.keeps(Rule.SWEEP_MOVES):
            return next((e for e in world.log if e.by == target), None)
        return decided

    def _decided_already(self, world: World, spec: Spec, decided: RefEntry) -> Step[World]:
        if decided.op is Op.FENCE:
            return self.goes(world, f"finds {spec.name} fenced", "delete", ending="rolled_back", entry=None)
        ending: Ending = "published" if decided.by == spec.name else "rolled_forward"
        return self.goes(world, f"finds {spec.name} published", "record", ending=ending, entry=None)

    def _confirms(self, world: World, spec: Spec) -> Step[World]:
        """Run Confirm for a direct writer: *publish* rolls it forward, anything else fences it."""
        area = self.setup.area(world, spec.name)
        if not area.data:
            return self.goes(world, f"quarantines {spec.name}: what it staged is gone", "idle")
        decision = judge(self.setup, world, spec, area.input, area.base, spec.name, early=False)
        parent = decision.parent
        if not self.setup.keeps(Rule.SWEEP_CONFIRMS):
            parent = world.head
        if parent is None:
            return self.goes(world, f"confirms {spec.name}: {decision.answer}", "fence", entry=None)
        if not self.setup.keeps(Rule.SWEEP_REBASES):
            parent = area.input
        commit = f"{parent}/{spec.name}"
        entry = RefEntry(
            world.last + 1, Op.PUBLISH, commit, self.name, "", 0.0, output=commit, execution=spec.name, txn=spec.txn
        )
        at = "rebase" if self.setup.collects and parent != area.input else "write"
        return self.goes(world, f"confirms {spec.name}: publish {commit}", at, entry=entry)

    def rebase(self, world: World, sweep: Sweep) -> Steps:
        assert sweep.entry is not None
        assert sweep.entry.commit is not None
        made = world._replace(rebased=world.rebased | {sweep.entry.commit})
        yield self.goes(made, f"writes the rebased commit {sweep.entry.commit}", "write")

    def fence(self, world: World, sweep: Sweep) -> Steps:
        """The fence must follow the very entry up to which the log was read."""
        decided = self._decided(world, sweep.target)
        if decided is not None:
            yield self._decided_already(world, self.setup.specs[self.setup.names[sweep.target]], decided)
        else:
            entry = fence_entry(world, sweep.target, by=self.name)
            yield self.goes(world, f"wants to fence {sweep.target} with entry {entry.seq}", "write", entry=entry)

    def write(self, world: World, sweep: Sweep) -> Steps:
        entry = sweep.entry
        assert entry is not None
        written = world.append(entry)
        fences = entry.op is Op.FENCE
        if written is None:
            yield self.goes(world, f"loses entry {entry.seq}", "fence" if fences else "settle", entry=None)
        elif fences:
            yield self.goes(written, f"fences {sweep.target}, entry {entry.seq}", "delete", entry=None)
        else:
            does = f"rolls {sweep.target} forward, entry {entry.seq}, {entry.op} {entry.commit}"
            yield self.goes(written, does, "record", entry=None, ending="rolled_forward")

    # --- the end: delete, record, remove ------------------------------------------------------------------------

    def delete(self, world: World, sweep: Sweep) -> Steps:
        deleted = self.setup.put_area(world, sweep.target, data=False)
        yield self.goes(deleted, f"deletes what {sweep.target} staged", "record")

    def record(self, world: World, sweep: Sweep) -> Steps:
        kind = self.setup.area(world, sweep.target).record or sweep.ending
        recorded = self.setup.put_area(world, sweep.target, record=kind)
        yield self.goes(recorded, f"records {sweep.target}: {kind}", "remove")

    def remove(self, world: World, sweep: Sweep) -> Steps:
        gone = finished(self.setup, world, sweep.target)
        yield self.goes(gone, f"removes the intent of {sweep.target}", "idle")

"""Garbage collection in the order of D3: list, read intents, read refs, announce, read both again, delete.

Objects are named as in the world: an execution's name stands for all that it staged, a commit's for the record that a
rebase wrote. With `expire`, a collection also gives up the content of commits behind the last entry.
"""

from __future__ import annotations

from fenceline.repo.model import Op, RefEntry

from .explorer import Step
from .rules import Rule
from .world import Collection, Setup, Steps, World, content_of, line, stands


class Collector:
    """One process that collects, perhaps several times."""

    def __init__(self, setup: Setup) -> None:
        self.setup = setup
        ordered = setup.keeps(Rule.D3_ORDER)
        self.first, self.second = (
            (self.read_intents, self.read_refs) if ordered else (self.read_refs, self.read_intents)
        )

    def steps(self, world: World) -> Steps:
        run = world.collection
        if run.at == "idle" and run.left:
            yield self.list_candidates(world, run)
        elif run.at == "first":
            yield self.goes(self.first(world), "second")
        elif run.at == "second":
            yield self.goes(self.second(world), self.after_look(run), looks=run.looks + 1)
        elif run.at == "announce":
            yield self.announce(world, run)
        elif run.at == "number":
            yield self.take_number(world)
        elif run.at == "delete":
            yield self.delete(world, run)

    def goes(self, step: Step[World], at: str, **changes: object) -> Step[World]:
        run = step.to.collection._replace(at=at, **changes)  # type: ignore[arg-type]
        return step._replace(to=step.to._replace(collection=run))

    def does(self, does: str, world: World, **changes: object) -> Step[World]:
        run = world.collection._replace(**changes)  # type: ignore[arg-type]
        return Step("collector", does, world._replace(collection=run))

    def after_look(self, run: Collection) -> str:
        if run.looks or not self.setup.keeps(Rule.D3_ORDER):
            return "delete"
        return "announce"

    def list_candidates(self, world: World, run: Collection) -> Step[World]:
        """First of all: what is staged later is no candidate."""
        staged = {spec.name for spec, area in zip(self.setup.specs, world.areas, strict=True) if area.data}
        step = self.does("lists what is there", world, doomed=frozenset(staged) | world.rebased, left=run.left - 1)
        return self.goes(step, "first", looks=0)

    def read_intents(self, world: World) -> Step[World]:
        """What unfinished intents name is kept: heartbeat or not."""
        if not self.setup.keeps(Rule.D3_INTENTS):
            return self.does("does not read intents", world, protected=frozenset())
        unfinished = [
            (spec.name, area) for spec, area in zip(self.setup.specs, world.areas, strict=True) if area.intent == "open"
        ]
        owners = {name for name, _ in unfinished}
        kept = owners | {
            object_ for object_ in world.rebased if content_of(object_) in owners and self.setup.keeps(Rule.D3_REBASED)
        }
        named = {area.input for _, area in unfinished} | {f"{area.input}/{name}" for name, area in unfinished}
        return self.does("reads intents", world, doomed=world.collection.doomed - kept, protected=frozenset(named))

    def read_refs(self, world: World) -> Step[World]:
        """Heads, tags, and the content of what was kept so far; intents were read before (their entries are here)."""
        run = world.collection
        roots = {world.head or "", *world.tags, *run.protected}
        reached = {content_of(commit) for root in roots for commit in line(root)}
        doomed = frozenset(
            object_
            for object_ in run.doomed
            if (not any(stands(object_, root) for root in roots) if "/" in object_ else object_ not in reached)
        )
        expiring = self._expiring(world, roots)
        if run.looks:
            expiring &= run.expiring  # what was not announced goes another time
        return self.does("reads refs", world, doomed=doomed, expiring=expiring)

    def _expiring(self, world: World, roots: set[str]) -> frozenset[str]:
        """The content of commits that the branch has gone past; one kept entry stands for the floor of three."""
        if not self.setup.configuration.expire:
            return frozenset()
        return frozenset(commit for commit in line(world.head) if commit not in roots) - world.expired

    def announce(self, world: World, run: Collection) -> Step[World]:
        """Whoever points at one of these from now on is warned; whoever did before is seen by the second look."""
        doomed = {self._commit(world, object_) for object_ in run.doomed} | run.expiring
        announced = world._replace(condemned=frozenset(doomed))
        at = "first" if self.setup.keeps(Rule.D3_AGAIN) else "delete"
        if doomed and self.setup.keeps(Rule.D3_NUMBER):
            at = "number"
        return self.goes(self.does(f"condemns {', '.join(sorted(doomed)) or 'nothing'}", announced), at)

    def take_number(self, world: World) -> Step[World]:
        """Whoever asked before the announcement loses its write, asks again, and sees it.

        A deleted name has nothing to take: it is reserved before it is created again.
        """
        taken = world._replace(reserved=False)
        at = "first" if self.setup.keeps(Rule.D3_AGAIN) else "delete"
        if not world.log or world.log[-1].op is Op.DELETE:
            return self.goes(self.does("finds the branch deleted", taken), at)
        op = Op.DELETE if world.head is None else Op.RESERVE
        after = taken.append(RefEntry(world.last + 1, op, world.head, "collector", "", 0.0))
        assert after is not None
        return self.goes(self.does(f"takes number {after.last} of the branch", after), at)

    def _commit(self, world: World, object_: str) -> str:
        return object_ if "/" in object_ else f"{self.setup.area(world, object_).input}/{object_}"

    def delete(self, world: World, run: Collection) -> Step[World]:
        if run.expiring:
            given_up = world._replace(expired=world.expired | run.expiring)
            return self.does(
                f"gives up the content of {', '.join(sorted(run.expiring))}", given_up, expiring=frozenset()
            )
        if not run.doomed:
            withdrawn = world._replace(condemned=frozenset(), collection=Collection(run.left))
            return Step("collector", "withdraws its announcement", withdrawn)
        victim = min(run.doomed)
        if "/" in victim:
            gone = world._replace(rebased=world.rebased - {victim})
        else:
            gone = self.setup.put_area(world, victim, data=False)
        return self.does(f"deletes {victim}", gone, doomed=run.doomed - {victim})

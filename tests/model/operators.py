"""Everyone else: the orchestrator that retries, a colleague who publishes, an operator who moves branches by hand."""

from __future__ import annotations

from fenceline.repo.model import MOVES, Op, RefEntry

from .explorer import Step
from .rules import Rule
from .world import INPUT, OLD, OPERATOR, UNDO, Operating, Setup, Steps, World, put


class Orchestrator:
    """Gives an attempt up whenever it likes (a time-out, a lost lease) and schedules the next."""

    def __init__(self, setup: Setup) -> None:
        self.setup = setup
        self.most = {step: max(spec.attempt for spec in setup.specs if spec.step == step) for step in setup.step_names}

    def steps(self, world: World) -> Steps:
        for number, (name, step) in enumerate(zip(self.setup.step_names, world.steps, strict=True)):
            if step.attempt < self.most[name] and step.waits:
                retried = put(world.steps, number, step._replace(attempt=step.attempt + 1))
                does = f"gives up attempt {step.attempt} of step {name}, and retries"
                yield Step("orchestrator", does, world._replace(steps=retried))


class Colleague:
    """Publishes commits of their own, each in one go, as a transaction does that was opened early enough."""

    def steps(self, world: World) -> Steps:
        if world.foreign and world.head is not None:
            commit = f"{world.head}/{world.foreign[0]}"
            entry = RefEntry(world.last + 1, Op.PUBLISH, commit, "colleague", "", 0.0, output=commit)
            after = world.append(entry)
            assert after is not None
            yield Step("colleague", f"publishes {commit}, entry {entry.seq}", after._replace(foreign=world.foreign[1:]))


class Operator:
    """Follows a script, at any time: back, before, delete, create, tag, force."""

    def __init__(self, setup: Setup) -> None:
        self.setup = setup

    def steps(self, world: World) -> Steps:
        todo = world.operating
        if todo.doubts:
            yield self.check(world, todo)
        elif todo.script:
            action, *rest = todo.script
            after = getattr(self, action.split()[0])(world, *action.split()[1:])
            if after is not None:
                left = after.operating._replace(script=tuple(rest))
                yield Step(OPERATOR, _SAYS[action.split()[0]], after._replace(operating=left))

    # --- actions: the world after them, or None where they do not apply -----------------------------------------

    def back(self, world: World) -> World | None:
        """To the commit where everything began, if the branch is ahead of it."""
        return self._relocate(world, INPUT) if world.head is not None and len(world.head) > len(INPUT) else None

    def before(self, world: World) -> World | None:
        return self._relocate(world, OLD) if world.head is not None else None

    def again(self, world: World) -> World | None:
        """To the commit that was published last, if the branch is not there."""
        published = [e.commit for e in world.log if e.op in MOVES and e.execution]
        return self._relocate(world, published[-1]) if published and published[-1] != world.head else None

    def _relocate(self, world: World, commit: str | None) -> World | None:
        """Written first, then looked up in the condemned list (D3)."""
        after = world.append(RefEntry(world.last + 1, Op.RELOCATE, commit, OPERATOR, "", 0.0))
        if after is None or not self._doubts():
            return after
        return after._replace(
            operating=Operating(world.operating.script, doubts=commit or "", back_to=world.head or "")
        )

    def _doubts(self) -> bool:
        return self.setup.collects and self.setup.keeps(Rule.D3_REFUSE)

    def tag(self, world: World) -> World | None:
        """A tag on the commit that was published first."""
        first = next((e.commit for e in world.log if e.op in MOVES and e.execution), None)
        if first is None:
            return None
        tagged = world._replace(tags=world.tags | {first})
        return tagged._replace(operating=tagged.operating._replace(doubts=first)) if self._doubts() else tagged

    def check(self, world: World, todo: Operating) -> Step[World]:
        """The ref stands; undo it if its commit is condemned, or gone already."""
        done = world._replace(operating=Operating(todo.script))
        if todo.doubts not in world.condemned | world.expired and not self._unreadable(world, todo.doubts):
            return Step(OPERATOR, f"finds {todo.doubts} not condemned", done)
        if not todo.back_to:
            return Step(OPERATOR, "finds it condemned: removes the tag", done._replace(tags=frozenset()))
        if world.head != todo.doubts and self.setup.keeps(Rule.D3_UNDO):
            return Step(OPERATOR, "finds it condemned, but others have gone on from it", done)
        undone = done.append(RefEntry(world.last + 1, Op.RELOCATE, todo.back_to, UNDO, "", 0.0))
        assert undone is not None
        return Step(OPERATOR, f"finds it condemned: moves the branch back to {todo.back_to}", undone)

    def _unreadable(self, world: World, commit: str) -> bool:
        """A commit that is gone cannot be named at all; here the check stands for that, too."""
        spec = self.setup.spec(commit.rpartition("/")[2])
        return spec is not None and not self.setup.area(world, spec.name).data

    def delete(self, world: World) -> World | None:
        if world.head is None:
            return None
        gone = world.append(RefEntry(world.last + 1, Op.DELETE, None, OPERATOR, "", 0.0))
        assert gone is not None
        return (gone if self.setup.keeps(Rule.R1) else gone._replace(log=()))._replace(era=world.era + 1)

    def create(self, world: World) -> World | None:
        if world.head is not None:
            return None
        return world.append(RefEntry(world.last + 1, Op.CREATE, INPUT, OPERATOR, "", 0.0))

    def force(self, world: World, name: str) -> World | None:
        """A forced rerun of a completed step: task id and retry count stay, the epoch goes up."""
        number = self.setup.step_names.index(name)
        step = world.steps[number]
        if step.reported is None:
            return None
        return world._replace(steps=put(world.steps, number, step._replace(epoch=step.epoch + 1)))


_SAYS = {
    "back": f"relocates the branch back to {INPUT}",
    "before": f"relocates the branch to {OLD}",
    "again": "relocates the branch to the commit that was published last",
    "tag": "tags the commit that was published first",
    "delete": "deletes the branch",
    "create": f"creates the branch again, at {INPUT}",
    "force": "forces the step to run again: epoch + 1",
}

"""Everyone else: the orchestrator that retries, a colleague who publishes, an operator who moves branches by hand."""

from __future__ import annotations

from fenceline.repo.model import MOVES, Op, RefEntry

from .explorer import Step
from .rules import Rule
from .world import INPUT, OLD, OPERATOR, Operating, Setup, Steps, World, put


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
        if todo.aim:
            yield self.ask(world, todo) if not todo.asked else self.point(world, todo)
        elif todo.script:
            action, *rest = todo.script
            after = getattr(self, action.split()[0])(world, *action.split()[1:])
            if after is not None:
                left = after.operating._replace(script=tuple(rest))
                yield Step(OPERATOR, _SAYS[action.split()[0]], after._replace(operating=left))

    # --- pointing a ref at an old commit: read its number, ask, write the next number ----------------------------

    def _aim(self, world: World, commit: str | None, ref: str = "branch") -> World:
        """The number is read here; a new name is reserved."""
        asks = self.setup.collects and self.setup.keeps(Rule.D3_REFUSE)
        aiming = Operating(world.operating.script, commit or "", ref, world.last, asked=not asks)  # type: ignore[arg-type]
        if ref == "tag":
            return world._replace(operating=aiming, reserved=self.setup.keeps(Rule.D3_RESERVE))
        if not world.log or world.log[-1].op is Op.DELETE:
            reserved = world.append(RefEntry(world.last + 1, Op.RESERVE, None, OPERATOR, "", 0.0))
            assert reserved is not None
            return reserved._replace(operating=aiming._replace(number=reserved.last))
        return world._replace(operating=aiming)

    def ask(self, world: World, todo: Operating) -> Step[World]:
        if todo.aim in world.condemned | world.expired or self._unreadable(world, todo.aim):
            given_up = world._replace(operating=Operating(todo.script))
            return Step(OPERATOR, f"finds {todo.aim} condemned, or gone: gives up", given_up)
        asked = world._replace(operating=todo._replace(asked=True))
        return Step(OPERATOR, f"finds {todo.aim} not condemned", asked)

    def point(self, world: World, todo: Operating) -> Step[World]:
        done = world._replace(operating=Operating(todo.script))
        if todo.ref == "tag":
            if world.reserved or not self.setup.keeps(Rule.D3_RESERVE):
                return Step(OPERATOR, f"tags {todo.aim}", done._replace(tags=world.tags | {todo.aim}, reserved=False))
            return Step(OPERATOR, "finds its number taken: once more", self._aim(world, todo.aim, "tag"))
        if world.last != todo.number:
            return Step(OPERATOR, "finds its number taken: once more", self._aim(world, todo.aim))
        op = Op.RELOCATE if world.head is not None else Op.CREATE
        pointed = done.append(RefEntry(world.last + 1, op, todo.aim, OPERATOR, "", 0.0))
        assert pointed is not None
        return Step(OPERATOR, f"points the branch at {todo.aim}, entry {pointed.last}", pointed)

    # --- actions: the world after them, or None where they do not apply -----------------------------------------

    def back(self, world: World) -> World | None:
        """To the commit where everything began, if the branch is ahead of it."""
        return self._aim(world, INPUT) if world.head is not None and len(world.head) > len(INPUT) else None

    def before(self, world: World) -> World | None:
        return self._aim(world, OLD) if world.head is not None else None

    def again(self, world: World) -> World | None:
        """To the commit that was published last, if the branch is not there."""
        published = [e.commit for e in world.log if e.op in MOVES and e.execution]
        return self._aim(world, published[-1]) if published and published[-1] != world.head else None

    def tag(self, world: World) -> World | None:
        """A tag on the commit that was published first."""
        first = next((e.commit for e in world.log if e.op in MOVES and e.execution), None)
        if first is None:
            return None
        return self._aim(world, first, "tag")

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
        return self._aim(world, INPUT)

    def force(self, world: World, name: str) -> World | None:
        """A forced rerun of a completed step: task id and retry count stay, the epoch goes up."""
        number = self.setup.step_names.index(name)
        step = world.steps[number]
        if step.reported is None:
            return None
        return world._replace(steps=put(world.steps, number, step._replace(epoch=step.epoch + 1)))


_SAYS = {
    "back": f"wants the branch back at {INPUT}",
    "before": f"wants the branch at {OLD}",
    "again": "wants the branch at the commit that was published last",
    "tag": "wants a tag on the commit that was published first",
    "delete": "deletes the branch",
    "create": f"wants the branch again, at {INPUT}",
    "force": "forces the step to run again: epoch + 1",
}

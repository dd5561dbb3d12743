"""What an actor reads before it decides, and the real `decide`: switched-off rules change what it gets to see."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import NamedTuple

from fenceline.repo.model import MOVES, OUTCOMES, Op, RefEntry
from fenceline.txn.decide import Decision, Line, LineCommit, Me, decide

from .rules import Rule
from .world import FOREIGN_CHANGES, Setup, Spec, World, content_of, line, parent_of, stands, txn_on


class Seen(NamedTuple):
    """The arguments of `decide`."""

    log: list[RefEntry]
    line: Line
    me: Me


def judge(setup: Setup, world: World, spec: Spec, start: str, base: int, staged: str | None, early: bool) -> Decision:
    """Read the log once and decide. `early`: at look-back, where what will be touched is not known yet."""
    me = Me(
        input=start,
        base=base,
        step=spec.step,
        txn=txn_on(spec, start),
        attempt=setup.attempt(spec),
        staged=staged,
        rebase=spec.rebase,
        serial=spec.serial,
    )
    toucher = setup.spec(staged) or spec
    log = _log(setup, world, spec, me)
    seen = Seen(log, _line(setup, world, log, me, frozenset() if early else toucher.touches), me)
    if setup.off in BLIND:
        seen = BLIND[setup.off](setup, world, seen)
    decision = decide(seen.log, seen.line, seen.me)
    if decision.answer == "noop" and not setup.keeps(Rule.ROW_5_OUTPUT):
        return replace(decision, output=world.head)
    return decision


def _log(setup: Setup, world: World, spec: Spec, me: Me) -> list[RefEntry]:
    """Of a step: all since its input first became head. Of a key: all since the base, and the moves that carried it."""
    if spec.step is None:
        return [*_earlier_moves(setup, world, spec, me), *world.log[me.base :]]
    if not setup.keeps(Rule.LOG):
        return list(world.log[me.base :])
    became_head = next((e.seq for e in world.log[: me.base] if e.commit == me.input), 1)
    return list(world.log[became_head - 1 :])


def _earlier_moves(setup: Setup, world: World, spec: Spec, me: Me) -> list[RefEntry]:
    """Found as `publish.earlier_moves` does: by the verdicts under the key's txn, then record or log."""
    found = []
    for other, area in zip(setup.specs, world.areas, strict=True):
        if me.txn is None or other.txn != me.txn or other is spec or area.verdict != "sealed":
            continue
        decided = world.decided(other.name, area.base)
        if decided and decided.op in MOVES and area.record in (None, "published", "rolled_forward"):
            found.append(decided)
    return sorted((e for e in found if e.seq <= me.base), key=lambda e: e.seq)


def _line(setup: Setup, world: World, log: list[RefEntry], me: Me, touched: frozenset[str]) -> Line:
    head = world.head
    if head is None:
        return Line(False, None, frozenset())
    standing = frozenset(e.output for e in log if e.output is not None and stands(e.output, head))
    if stands(me.input, head):
        commits = [commit for commit in line(head) if len(commit) > len(me.input)]
    elif setup.keeps(Rule.ROW_5_LINE):
        return Line(True, None, standing)
    else:
        commits = [*line(head)][me.input.count("/") + 1 :]
    return Line(True, tuple(_line_commit(setup, world, commit, touched) for commit in commits), standing)


def _line_commit(setup: Setup, world: World, commit: str, touched: frozenset[str]) -> LineCommit:
    author = setup.spec(content_of(commit))
    if author is None:
        disjoint = not FOREIGN_CHANGES[content_of(commit)] & touched
        return LineCommit(commit, (parent_of(commit),), None, None, disjoint)
    txn = setup.txn(world, author.name)
    return LineCommit(commit, (parent_of(commit),), author.step, txn, not author.touches & touched)


# --- what is not seen when a rule is off ----------------------------------------------------------------------------


def _no_deletes(setup: Setup, world: World, seen: Seen) -> Seen:
    return seen._replace(log=[e for e in seen.log if e.op is not Op.DELETE])


def _not_of_my_attempt(setup: Setup, world: World, seen: Seen) -> Seen:
    """Row 1 off: an attempt does not know its own outcome."""
    me = seen.me
    return seen._replace(log=[e for e in seen.log if me.step is None or (e.attempt, e.txn) != (me.attempt, me.txn)])


def _not_of_my_other_code(setup: Setup, world: World, seen: Seen) -> Seen:
    """Row 0 off: what another txn did in the name of the same attempt goes unseen."""
    me = seen.me
    return seen._replace(
        log=[e for e in seen.log if me.step is None or e.attempt != me.attempt or e.txn == me.txn],
    )


def _all_stand(setup: Setup, world: World, seen: Seen) -> Seen:
    """Row 0 off: nobody asks whether an attempt's own outcome still stands."""
    mine = {e.output for e in seen.log if e.output and e.step == seen.me.step and e.attempt == seen.me.attempt}
    return seen._replace(line=replace(seen.line, standing=seen.line.standing | mine))


def _no_keys(setup: Setup, world: World, seen: Seen) -> Seen:
    return seen if seen.me.step else seen._replace(me=replace(seen.me, txn=None))


def _no_txn_of_earlier_attempts(setup: Setup, world: World, seen: Seen) -> Seen:
    me = seen.me
    if me.step is None:
        return seen
    log = [e if e.attempt == me.attempt else replace(e, txn=None) for e in seen.log]
    after = seen.line.after
    commits = None if after is None else tuple(replace(c, txn=None) for c in after)
    return Seen(log, replace(seen.line, after=commits), me)


def _not_spent(setup: Setup, world: World, seen: Seen) -> Seen:
    me = seen.me
    return seen._replace(log=[e for e in seen.log if me.staged is None or e.execution != me.staged])


def _attempt_of_the_commit(setup: Setup, world: World, seen: Seen) -> Seen:
    """R4 off: an outcome counts for the attempt that made its commit, not for the one that wrote the entry."""

    def by_commit(entry: RefEntry) -> RefEntry:
        author = setup.spec(content_of(entry.output or ""))
        return replace(entry, attempt=setup.attempt(author)) if author and entry.op in OUTCOMES else entry

    return seen._replace(log=[by_commit(e) for e in seen.log])


def _fences_are_outcomes(setup: Setup, world: World, seen: Seen) -> Seen:
    """Fence entries filled in with what they fence, and taken for an outcome of it."""

    def filled(entry: RefEntry) -> RefEntry:
        fenced = setup.spec(entry.execution)
        if entry.op is not Op.FENCE or fenced is None:
            return entry
        txn = setup.txn(world, fenced.name)
        return replace(entry, op=Op.NOOP, step=fenced.step, txn=txn, attempt=setup.attempt(fenced), output=entry.commit)

    log = [filled(e) for e in seen.log]
    standing = frozenset(e.output for e in log if e.output and stands(e.output, world.head))
    return Seen(log, replace(seen.line, standing=standing), seen.me)


BLIND: dict[Rule | None, Callable[[Setup, World, Seen], Seen]] = {
    Rule.ROW_0_DELETED: _no_deletes,
    Rule.ROW_0_TXN: _not_of_my_other_code,
    Rule.ROW_0_MOVED: _all_stand,
    Rule.ROW_1: _not_of_my_attempt,
    Rule.ROW_2_KEY: _no_keys,
    Rule.ROW_2_STEP: _no_txn_of_earlier_attempts,
    Rule.ROW_2B: _not_spent,
    Rule.R4: _attempt_of_the_commit,
    Rule.FENCE_BLANK: _fences_are_outcomes,
}

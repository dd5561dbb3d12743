"""The Confirm table as a pure function: from the branch's log to what may be written next.

Rows are tried from the top, in the order of `docs/how-it-commits.md`. I/O happens around it, in `publish.py`.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

from fenceline.repo.model import MOVES, OUTCOMES, Op, RefEntry

Answer = Literal["publish", "relocate", "adopt", "noop", "report", "fail"]


@dataclass(frozen=True, slots=True)
class LineCommit:
    """A commit after the input, as the decision sees it."""

    id: str
    parents: tuple[str, ...]
    step: str | None
    txn: str | None
    disjoint: bool
    """Nothing it changed was read or written here."""


@dataclass(frozen=True, slots=True)
class Line:
    """The head's first-parent line, as far as the decision needs it."""

    exists: bool
    after: tuple[LineCommit, ...] | None
    """The commits behind the input, oldest first; None if the input is not on the line."""
    standing: frozenset[str]
    """Those outputs named in the log that are on the line."""


@dataclass(frozen=True, slots=True)
class Me:
    """Who wants to publish, and what it was built on."""

    input: str
    base: int
    """The branch's last number at look-back (of a direct transaction: at begin)."""
    step: str | None
    """None for a direct transaction."""
    txn: str | None
    """None for a direct transaction without a key."""
    attempt: str | None
    staged: str | None
    """The execution whose staged commit this is, own or resumed; None for a no-op."""
    rebase: bool = False
    serial: bool = False


@dataclass(frozen=True, slots=True)
class Decision:
    answer: Answer
    parent: str | None = None
    """Publish, relocate: the parent of the commit to publish."""
    output: str | None = None
    """Adopt, noop, report, and the relocation of a no-op."""
    entry: RefEntry | None = None
    """Adopt, report: the entry whose outcome this is. Fail: the entry that stands in the way."""
    why: str = ""
    in_the_way: tuple[str, ...] = ()


def decide(log: Sequence[RefEntry], line: Line, me: Me) -> Decision:
    """`log`: all entries since the input became head; with a key, also every earlier move that carried it."""
    deleted = next((e for e in log if e.op is Op.DELETE and e.seq > me.base), None)
    if not line.exists or deleted:
        return Decision("fail", entry=deleted, why="the branch was deleted")  # row 0
    last = next((e for e in reversed(log) if me.step is not None and e.step == me.step and e.op in OUTCOMES), None)
    if last and last.attempt == me.attempt:
        if last.txn != me.txn:
            return Decision("fail", entry=last, why="this attempt has an outcome of another transaction")  # row 0
        if last.output not in line.standing:
            return Decision("fail", entry=last, why="this attempt's outcome was moved away")  # row 0
        return Decision("report", output=last.output, entry=last)  # row 1

    adopted = _adopt_by_key(log, line, me) if me.step is None else _adopt_by_step(last, line, me)  # row 2
    if adopted:
        return adopted
    if me.staged is not None:
        spent = next((e for e in log if e.execution == me.staged and e.op in MOVES | {Op.FENCE}), None)
        if spent:
            return Decision("fail", entry=spent, why="this execution was fenced, or published and moved away")  # row 2b
    if line.after is None:
        return Decision("fail", why="the commit this was built on is no longer on the branch")  # row 6

    after = line.after
    noop = me.staged is None
    here = (
        Decision("noop", output=me.input) if noop else Decision("publish", parent=after[-1].id if after else me.input)
    )
    if not after:
        return here  # row 3
    head = after[-1]
    own_head = head.step == me.step and (len(after) == 1 or _free(after[:-1], me))
    if me.step is not None and len(head.parents) == 1 and (own_head or (me.serial and len(after) == 1)):
        return Decision("relocate", parent=head.parents[0], output=me.input if noop else None)  # row 4
    if _free(after, me):
        return here  # row 5
    return Decision("fail", why="others published meanwhile", in_the_way=tuple(c.id for c in after))  # row 6


def _adopt_by_key(log: Sequence[RefEntry], line: Line, me: Me) -> Decision | None:
    done = next((e for e in log if me.txn is not None and e.txn == me.txn and e.op in MOVES), None)
    if done is None:
        return None
    if done.output in line.standing:
        return Decision("adopt", output=done.output, entry=done)
    moved = next((e for e in log if e.seq > done.seq and e.op in (Op.RELOCATE, Op.DELETE)), done)
    return Decision("fail", entry=moved, why="this key was applied, and then moved away")


def _adopt_by_step(last: RefEntry | None, line: Line, me: Me) -> Decision | None:
    if line.after is None:
        return None
    if last and last.txn == me.txn and last.output in line.standing:
        return Decision("adopt", output=last.output, entry=last)
    own = next((c for c in line.after if c.txn == me.txn), None)
    return Decision("adopt", output=own.id) if own else None


def _free(commits: Sequence[LineCommit], me: Me) -> bool:
    """Whether this may go on top of these: they are of other steps, and nothing they changed was touched here."""
    return me.rebase and all(c.disjoint and (me.step is None or c.step != me.step) for c in commits)

"""The Confirm table for direct transactions: every short history of a branch, against the table in plain words."""

from __future__ import annotations

import itertools
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field

import pytest

from fenceline.repo.model import Op, RefEntry
from fenceline.txn.decide import Decision, Line, LineCommit, Me, decide

KEY = "the key"
ME = "my execution"


@dataclass
class Branch:
    """A branch as it really is: its first-parent line, its log, and who did what."""

    line: list[LineCommit] = field(default_factory=list)
    log: list[RefEntry] = field(default_factory=list)
    exists: bool = True

    def commit(self, name: str, txn: str | None = None, disjoint: bool = True) -> None:
        parents = (self.line[-1].id,) if self.line else ()
        self.line.append(LineCommit(name, parents, None, txn, disjoint))

    def entry(self, op: Op, txn: str | None = None, execution: str | None = None) -> None:
        head = self.line[-1].id if self.exists else None
        output = head if op is Op.PUBLISH else None
        seq = len(self.log) + 1
        self.log.append(RefEntry(seq, op, head, by="x", actor="x", time=0, output=output, execution=execution, txn=txn))

    def publish(self, txn: str | None, execution: str, disjoint: bool) -> None:
        self.commit(f"c{len(self.log)}", txn, disjoint)
        self.entry(Op.PUBLISH, txn, execution)


def started() -> Branch:
    branch = Branch()
    branch.commit("root")
    branch.commit("input")
    branch.entry(Op.CREATE)
    return branch


def _other(branch: Branch, me: Me) -> None:
    branch.publish("another key", f"e{len(branch.log)}", disjoint=True)


def _clash(branch: Branch, me: Me) -> None:
    branch.publish(None, f"e{len(branch.log)}", disjoint=False)


def _same_key(branch: Branch, me: Me) -> None:
    branch.publish(KEY, f"e{len(branch.log)}", disjoint=True)


def _mine(branch: Branch, me: Me) -> None:
    branch.publish(me.txn, ME, disjoint=False)


def _fence_me(branch: Branch, me: Me) -> None:
    branch.entry(Op.FENCE, execution=ME)


def _fence_other(branch: Branch, me: Me) -> None:
    branch.entry(Op.FENCE, execution="somebody")


def _back(branch: Branch, me: Me) -> None:
    if len(branch.line) > 1:
        branch.line.pop()
    branch.entry(Op.RELOCATE)


def _delete(branch: Branch, me: Me) -> None:
    branch.exists = False
    branch.entry(Op.DELETE)


def _create(branch: Branch, me: Me) -> None:
    branch.exists = True
    branch.entry(Op.CREATE)


Event = Callable[[Branch, Me], None]
EVENTS: list[Event] = [_other, _clash, _same_key, _mine, _fence_me, _fence_other, _back, _delete, _create]


def possible(branch: Branch, event: Event) -> bool:
    return (event is _create) != branch.exists


def expected(branch: Branch, me: Me, before: int) -> tuple[str, str | None]:
    """The table in plain words, for a transaction that began after `before` entries: answer, commit it is about."""
    since = branch.log[before:]
    ids = [c.id for c in branch.line]
    if not branch.exists or any(e.op is Op.DELETE for e in since):
        return "fail: deleted", None
    if me.txn is not None:
        carried = [e for e in branch.log if e.txn == me.txn and e.op is Op.PUBLISH]
        if carried and carried[0].output in ids:
            return "adopt", carried[0].output
        if carried:
            return "fail: moved away", None
    if me.staged is not None and any(e.execution == me.staged for e in branch.log):
        return "fail: spent", None
    if me.input not in ids:
        return "fail: input gone", None
    behind = branch.line[ids.index(me.input) + 1 :]
    if behind and not (me.rebase and all(c.disjoint for c in behind)):
        return "fail: in the way", None
    return ("publish", ids[-1]) if me.staged else ("noop", me.input)


def decision(branch: Branch, me: Me, before: int) -> Decision:
    """As Confirm asks: the entries since the base, before them the moves that carried the key."""
    ids = [c.id for c in branch.line] if branch.exists else []
    earlier = [e for e in branch.log[:before] if me.txn is not None and e.txn == me.txn and e.op is Op.PUBLISH]
    log = [*earlier, *branch.log[before:]]
    after = tuple(branch.line[ids.index(me.input) + 1 :]) if me.input in ids else None
    standing = frozenset(e.output for e in log if e.txn and e.txn == me.txn and e.output in ids and e.output)
    return decide(log, Line(branch.exists, after if branch.exists else None, standing), me)


BEFORE: list[tuple[Event, ...]] = [(), (_same_key,), (_same_key, _back), (_other, _back)]


@pytest.mark.parametrize("rebase", [False, True])
@pytest.mark.parametrize("key", [None, KEY])
@pytest.mark.parametrize("staged", [ME, None])
def test_every_short_history_is_decided_as_the_table_says(staged: str | None, key: str | None, rebase: bool) -> None:
    """Section 4, all rows that apply to a direct transaction; INV-4 and INV-5 along the way."""
    seen = Counter[str]()
    for prefix, length in itertools.product(BEFORE, range(5)):
        for events in itertools.product(EVENTS, repeat=length):
            branch = started()
            draft = Me("input", 0, None, key, None, staged, rebase=rebase)
            for event in prefix:
                event(branch, draft)
            before = len(branch.log)
            me = Me(branch.line[-1].id, before, None, key, None, staged, rebase=rebase)
            if not all(_happens(branch, event, me) for event in events):
                continue
            answer, commit = expected(branch, me, before)
            found = decision(branch, me, before)
            story = [e.__name__ for e in (*prefix, *events)]
            seen[answer] += 1
            assert found.answer == answer.partition(":")[0], (story, answer, found)
            assert (found.parent if found.answer == "publish" else found.output) == commit, (story, answer, found)
            assert found.answer != "fail" or found.why, story
            if found.answer == "publish":
                assert branch.line[-1].id == found.parent, "INV-5: nothing is dropped"
                assert not any(e.execution == ME for e in branch.log), "INV-4: published once"
    rows = {"fail: deleted", "fail: in the way", "fail: input gone", "publish" if staged else "noop"}
    rows |= {"adopt", "fail: moved away"} if key else set()
    rows |= {"fail: spent"} if staged else set()
    assert set(seen) == rows, seen


def _happens(branch: Branch, event: Event, me: Me) -> bool:
    if not possible(branch, event):
        return False
    event(branch, me)
    return True


def test_a_refusal_names_the_commits_in_the_way() -> None:
    branch = started()
    me = Me("input", 1, None, None, None, ME)
    _other(branch, me)
    _clash(branch, me)
    assert decision(branch, me, 1).in_the_way == ("c1", "c2")


def test_a_direct_transaction_is_never_taken_for_a_step() -> None:
    """Section 2: its step and attempt are empty and equal nothing; so rows 1 and 4 never apply to it."""
    branch = started()
    me = Me("input", 1, None, KEY, None, ME, serial=True)
    _other(branch, me)
    assert decision(branch, me, 1).answer == "fail"

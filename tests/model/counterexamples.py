"""For every rule: the world in which leaving it out does damage, and the damage."""

from __future__ import annotations

from typing import NamedTuple

from . import invariants as inv
from .configurations import CONFIGURATIONS, LIVE
from .model import Model
from .rules import Rule


class Counterexample(NamedTuple):
    """What comes back when a rule is switched off."""

    configuration: str
    violation: str


COUNTEREXAMPLES = {
    Rule.ROW_0_DELETED: Counterexample("deleted and created again", inv.REBORN),
    Rule.ROW_0_TXN: Counterexample("the same attempt with two codes", inv.STALE),
    Rule.ROW_0_MOVED: Counterexample("moved back by hand", inv.MOVED_BEFORE),
    Rule.ROW_1: Counterexample("the same attempt twice", inv.STALE),
    Rule.ROW_2_KEY: Counterexample("one key, two programs", inv.KEY),
    Rule.ROW_2_STEP: Counterexample("a second attempt under a sibling", inv.STUCK),
    Rule.ROW_2B: Counterexample("a retry of the same txn", inv.RESURRECTED),
    Rule.ROW_5_LINE: Counterexample("a step and the one after it", inv.DROPPED),
    Rule.ROW_5_OUTPUT: Counterexample("siblings, one changes its code", inv.LEFT),
    Rule.LOG: Counterexample("the same attempt with two codes", inv.STALE),
    Rule.BASE: Counterexample("a second attempt on a branch created again", inv.STUCK),
    Rule.ADOPT_ONLY: Counterexample("moved back by hand", inv.BODY),
    Rule.INV_3: Counterexample("a retry of the same txn", inv.UNWRITTEN),
    Rule.R1: Counterexample("deleted and created again", inv.REBORN),
    Rule.R2: Counterexample("a retry with old and new code", inv.STALE),
    Rule.R2_ORDER: Counterexample("a retry with old and new code", inv.STALE),
    Rule.R3: Counterexample("the same attempt with two codes", inv.NOOP_BESIDE),
    Rule.R4: Counterexample("a retry with old and new code", inv.LEFT),
    Rule.R5: Counterexample("a second attempt after a move by hand", inv.STUCK),
    Rule.EPOCH: Counterexample("a forced rerun", inv.OLD_EPOCH),
    Rule.FENCE_BLANK: Counterexample("a retry of the same txn", inv.UNWRITTEN),
    Rule.OUTPUT: Counterexample("a retry beside a colleague", inv.OTHER_OUTPUT),
    Rule.D1_ABORT: Counterexample("two direct writers", inv.PART),
    Rule.D1_SEALED: Counterexample("two direct writers", inv.PART),
    Rule.D1_OWNER: Counterexample("a retry of the same txn", inv.PART),
    Rule.D2: Counterexample("refused, then moved back", inv.APPLIED),
    Rule.D3_ORDER: Counterexample("collected beside direct writers", inv.PART),
    Rule.D3_AGAIN: Counterexample("tagged while collected", inv.COLLECTED),
    Rule.D3_INTENTS: Counterexample("collected beside direct writers", inv.PART),
    Rule.D3_REFUSE: Counterexample("moved while collected", inv.PART),
    Rule.D3_REBASED: Counterexample("collected beside direct writers", inv.COLLECTED),
    Rule.D3_NUMBER: Counterexample("expired behind the head", inv.COLLECTED),
    Rule.D3_RESERVE: Counterexample("tagged while collected", inv.COLLECTED),
    Rule.D4: Counterexample("a retry of the same txn", inv.PART),
    Rule.SWEEP_CONFIRMS: Counterexample("one key, two programs", inv.KEY),
    Rule.SWEEP_REBASES: Counterexample("one key, two programs", inv.DROPPED),
    Rule.SWEEP_MOVES: Counterexample("a retry beside a colleague", inv.RECORD),
}


def story(rule: Rule) -> list[str] | None:
    """The shortest way to the damage that a rule prevents; None if there is none, and so the rule proves nothing."""
    name, violation = COUNTEREXAMPLES[rule]
    if violation == inv.STUCK:
        live = LIVE[name]
        return next(iter(Model(live.configuration, rule).stuck(live.fresh)), None)
    return Model(CONFIGURATIONS[name], rule).explore(until=violation).violations.get(violation)

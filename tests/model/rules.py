"""Every rule of the protocol that the model can switch off, with one line that says what it is."""

from __future__ import annotations

from enum import StrEnum
from typing import Self


class Rule(StrEnum):
    """Ids are those of `docs/how-it-commits.md` and the protocol page. The model keeps all of them unless told."""

    says: str

    def __new__(cls, name: str, says: str) -> Self:
        rule = str.__new__(cls, name)
        rule._value_ = name
        rule.says = says
        return rule

    # --- the rows of the Confirm table --------------------------------------------------------------------------
    ROW_0_DELETED = "row 0 deleted", "an execution from before the branch was deleted fails closed"
    ROW_0_TXN = "row 0 txn", "an attempt whose outcome is another txn's fails closed"
    ROW_0_MOVED = "row 0 moved", "an attempt whose outcome was moved away fails closed"
    ROW_1 = "row 1", "an attempt that has an outcome reports that one, and writes nothing"
    ROW_2_KEY = "row 2 key", "a key that was applied is adopted, however long ago that was"
    ROW_2_STEP = "row 2 step", "a retry adopts what an earlier attempt published for the same txn"
    ROW_2B = "row 2b", "a staged execution that was fenced or published before is not published again"
    ROW_5_LINE = "row 5 line", "only what has the input on its first-parent line can be rebased on"
    ROW_5_OUTPUT = "row 5 output", "a no-op reports its input, also where others published meanwhile"
    # --- confirm ------------------------------------------------------------------------------------------------
    LOG = "log since input", "Confirm reads the log since the input became head, not only since the base"
    BASE = "own base", "who resumes a sealed execution goes by the base of its own look-back"
    ADOPT_ONLY = "adopt only", "who skipped the body in order to adopt may only adopt; else it fails closed"
    INV_3 = "INV-3", "an unknown outcome of the conditional write is settled by the `by` of the entry"
    R1 = "R1", "entry keys are never removed: a branch that is created again goes on with its numbers"
    R2 = "R2", "the attempt fence is asked before every write"
    R2_ORDER = "R2 order", "the attempt fence is asked after the decision, not before the log is read"
    R3 = "R3", "every reported outcome is one conditional entry, adopt and noop too"
    R4 = "R4", "whose turn it is, is judged by the attempt of the step's last entry, not of the commit"
    R5 = "R5", "a spent execution is never resumed"
    EPOCH = "epoch", "a forced rerun raises the epoch, which is part of the attempt and of the attempt fence"
    FENCE_BLANK = "fence blank", "a fence entry is nobody's outcome: it carries no step, txn or attempt"
    OUTPUT = "output", "an entry names its output beside the head; adopt copies it unchanged"
    # --- deleting, recovering, collecting -----------------------------------------------------------------------
    D1_ABORT = "D1 abort", "a sweep wins the verdict `aborted` before it deletes what is not sealed"
    D1_SEALED = "D1 sealed", "a sweep fences what is sealed before it deletes it"
    D1_OWNER = "D1 owner", "an owner, too, leaves what it sealed until a fence entry stands"
    D2 = "D2", "after sealing, `not_applied` is said only once a fence entry stands"
    D3_ORDER = "D3 order", "a collection reads the intents before the refs, and both twice"
    D3_AGAIN = "D3 again", "a collection announces what it condemned, then reads intents and refs again"
    D3_INTENTS = "D3 intents", "a collection keeps what unfinished intents name"
    D3_REFUSE = "D3 refuse", "who points a ref at an old commit asks first if it is condemned"
    D3_REBASED = "D3 rebased", "a collection keeps every commit of an unfinished intent's execution, rebased ones too"
    D3_NUMBER = "D3 number", "a collection takes a number on every ref between its announcement and its second look"
    D3_RESERVE = "D3 reserve", "a new name is reserved before the look at the condemned list"
    D4 = "D4", "a verdict is never removed: who wakes later must still lose `sealed`"
    SWEEP_CONFIRMS = "sweep confirms", "a sweep rolls forward only what Confirm would publish"
    SWEEP_REBASES = "sweep rebases", "a sweep that rolls forward on a moved head rebases"
    SWEEP_MOVES = "sweep moves", "only a move makes an intent AlreadyPublished, not any entry its execution wrote"

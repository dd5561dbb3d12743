"""What is said of a transaction that a command made."""

from __future__ import annotations

from fenceline.cli import documents
from fenceline.cli.output import emit, say, short
from fenceline.txn.transaction import TransactionResult


def show_result(
    result: TransactionResult,
    branch: str,
    as_json: bool,
    done: str,
    *,
    unchanged: str = "nothing changed",
    **more: object,
) -> None:
    """`done` says what was changed, `unchanged` that there was nothing to; `more` goes into the JSON document."""
    if as_json:
        emit(documents.result(result, branch, **more))
    elif result.op == "noop":
        say(f"{unchanged}; {branch} stays at {short(result.commit)}")
    elif result.op == "adopt":
        say(f"this key was applied before: {short(result.commit)}, entry {result.seq} of {branch}; nothing was written")
    else:
        say(f"{done}: {branch} is now {short(result.commit)}, entry {result.seq}")

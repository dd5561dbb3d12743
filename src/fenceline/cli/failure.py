"""What becomes of an error: one readable line or one JSON document, and an exit code that scripts can rely on."""

from __future__ import annotations

import json
import os
import sys
from typing import Any

import typer
from typer.core import TyperGroup

from fenceline.cli.output import Column, notes, one_line, table
from fenceline.errors import (
    ConfigError,
    ConflictError,
    ContractError,
    FenceError,
    FencelineError,
    GuardError,
    MergeConflict,
    Outcome,
    PublishConflict,
    RecoveryError,
    StoreError,
)
from fenceline.repo.merge import Conflict

JSON_MODE = "fenceline.json"

UNKNOWN_OUTCOME = 8
FAILED_ATTEMPT = 9
PROBLEMS_FOUND = 10
INTERRUPTED, TERMINATED = 130, 143
BROKEN_PIPE = 141

EXIT_CODES: dict[int, str] = {
    0: "done",
    1: "unexpected error: a defect, shown with its traceback",
    2: "usage: the command line cannot be read",
    3: "contract: not found, bad name, exists already, or a call that cannot be",
    4: "conflict: someone else changed what this change was built on, or a merge needs a decision",
    5: "fence: this execution may not publish any more; begin again",
    6: "store: the disk or object store failed, or an object is missing or damaged",
    7: "config: no repository there, a format that is too new, or a file system that cannot be used",
    UNKNOWN_OUTCOME: "outcome unknown: the change may or may not have been published; `fenceline recover` decides it",
    FAILED_ATTEMPT: "recovery, guard, task or run: a commit not to build on, a broken rule, a failed attempt or run",
    PROBLEMS_FOUND: "`fsck` or `doctor` found problems",
    INTERRUPTED: "interrupted from the keyboard; a run is left to go on with",
    BROKEN_PIPE: "the reader of standard output went away",
    TERMINATED: "a run was asked to stop by SIGTERM, and is left to go on with",
}

_CODE_OF_CLASS: tuple[tuple[type[FencelineError], int], ...] = (
    (ContractError, 3),
    (ConflictError, 4),
    (FenceError, 5),
    (StoreError, 6),
    (ConfigError, 7),
    (RecoveryError, 9),
    (GuardError, FAILED_ATTEMPT),
)


def exit_code(error: FencelineError) -> int:
    """An unknown outcome comes before the class of the error: a script must not simply try again (INV-3)."""
    if error.outcome is Outcome.UNKNOWN:
        return UNKNOWN_OUTCOME
    ended = error.code.startswith(("task.", "run."))  # a task or a run that failed is no defect of ours
    otherwise = FAILED_ATTEMPT if ended else 1
    return next((code for kind, code in _CODE_OF_CLASS if isinstance(error, kind)), otherwise)


def document(error: FencelineError) -> dict[str, Any]:
    """The error as JSON, with lists as lists: `as_dict` flattens what is not a plain value."""
    found: dict[str, Any] = {**error.as_dict(), "exit_code": exit_code(error), "notes": list(_notes_of(error))}
    if isinstance(error, MergeConflict):
        found["conflicts"] = [_conflict(each) for each in error.conflicts]
    if isinstance(error, PublishConflict):
        found["paths"] = list(error.paths)
    rows = getattr(error, "rows", ())  # of a load
    if rows:
        found["rows"] = [row.to_json() for row in rows]
    return found


def report(error: FencelineError, as_json: bool) -> None:
    """Say on standard error what went wrong and what to do next."""
    console = notes()
    if as_json:
        console.out(json.dumps(document(error), indent=2))
        return
    lines = "\n".join(one_line(line) for line in _headline(error).splitlines())
    console.print(f"error: {lines}", style="red", soft_wrap=True)
    if isinstance(error, MergeConflict):
        rows = [(found["path"], found["reason"]) for found in map(_conflict, error.conflicts)]
        table((Column("conflict"), Column("why")), rows, to=console)
    for note in _notes_of(error):
        console.print(f"note: {one_line(note)}", soft_wrap=True)
    if error.hint:
        console.print(f"hint: {one_line(error.hint)}", soft_wrap=True)


class CommandGroup(TyperGroup):
    """Runs commands; turns what they raise into a report and an exit code."""

    def resolve_command(self, ctx: Any, args: list[str]) -> Any:
        """Some commands have names of two or three words (`runs show`, `graph schema plan`)."""
        for words in (3, 2):
            if len(args) >= words and " ".join(args[:words]) in self.commands:
                args = [" ".join(args[:words]), *args[words:]]
                break
        return super().resolve_command(ctx, args)

    def invoke(self, ctx: Any) -> Any:
        try:
            answer = super().invoke(ctx)
            sys.stdout.flush()  # inside the try: a reader that went away must not end in a message at shutdown
            return answer
        except FencelineError as error:
            report(error, bool(ctx.meta.get(JSON_MODE)))
            raise typer.Exit(exit_code(error)) from error
        except KeyboardInterrupt as error:
            notes().print("interrupted")
            raise typer.Exit(INTERRUPTED) from error
        except BrokenPipeError as error:
            _silence_stdout()
            raise typer.Exit(BROKEN_PIPE) from error


def _silence_stdout() -> None:
    """Let the interpreter flush what is left into nothing when it shuts down."""
    nothing = os.open(os.devnull, os.O_WRONLY)
    os.dup2(nothing, sys.stdout.fileno())
    os.close(nothing)


def _headline(error: FencelineError) -> str:
    """The message; of a merge conflict without the list, which follows in full as a table."""
    if not isinstance(error, MergeConflict):
        return error.message
    listed = error.message.find(f": {error.conflicts[0]}") if error.conflicts else -1
    return error.message[:listed] if listed >= 0 else error.message


def _conflict(conflict: object) -> dict[str, str]:
    if isinstance(conflict, Conflict):
        return {"path": conflict.path, "reason": conflict.reason}
    return {"path": str(conflict), "reason": ""}


def _notes_of(error: FencelineError) -> list[str]:
    return list(getattr(error, "__notes__", ()))

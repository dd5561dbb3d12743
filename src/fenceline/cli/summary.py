"""What is said of a run at its end: what it did, where to look, how to go on."""

from __future__ import annotations

import typer

from fenceline.api import Repository
from fenceline.cli.board import Board, Line
from fenceline.cli.failure import FAILED_ATTEMPT
from fenceline.cli.live import took
from fenceline.cli.output import Column, counted, fields, say, short, size, table
from fenceline.pipeline.builtin import PublishRefused, run_branch
from fenceline.task.result import cut

STEPS = (
    Column("step", style="bold"),
    Column("state", fixed=True),
    Column("attempts", right=True),
    Column("bytes", right=True),
    Column("guards"),
    Column("took", right=True),
    Column("commit", style="yellow", fixed=True),
)

FOUND = 120
"""How much of what a guard found is shown here; `runs show --events` has all of it."""


def summary(repo: Repository, board: Board, as_json: bool) -> None:
    """The run's steps and what comes next. A run that did not complete ends the command with 9."""
    if not as_json:
        show_steps(board)
        if board.completed:
            _completed(board)
        else:
            _ended(repo, board)
    if not board.completed:
        raise typer.Exit(FAILED_ATTEMPT)


def show_steps(board: Board) -> None:
    table(STEPS, (_row(line, board.now) for line in board.lines))


def _row(line: Line, now: float) -> tuple[object, ...]:
    seconds = line.took(now)
    return (
        line.step,
        line.state,
        line.attempt or None,
        size(line.bytes) if line.bytes else None,
        line.guards,
        took(seconds) if seconds is not None else None,
        line.commit and short(line.commit),
    )


def _completed(board: Board) -> None:
    commits = {line.commit for line in board.steps if line.commit} - {board.start}
    made = f"{counted(len(board.steps), 'step')}, {counted(len(commits), 'commit')}"
    say(f"run {board.run} completed in {took(board.seconds)}: {made}", style="green")
    if board.published is None or board.published == board.start:
        say(f"nothing changed on {board.target}")
        return
    say(f"{board.target} is now {short(board.published)}")
    look = [f"fenceline log {board.target}"]
    if board.start is not None:
        look.append(f"fenceline diff {short(board.start)} {short(board.published)}")
    say(f"look: {' · '.join(look)}")


def _ended(repo: Repository, board: Board) -> None:
    line = board.failed
    at = f" at {line.step}, attempt {line.attempt}" if line else ""
    reason = (line.reason if line else board.row.reason) or ""
    status = board.row.status.lower().replace("_", " ")
    say(f"run {board.run} {status}{at}: {reason}", style="red")
    show_violations(line)
    fields(ways_on(repo, board))


def show_violations(line: Line | None) -> None:
    if line is not None and line.violations:
        columns = (Column("guard", fixed=True), Column("path"), Column("found"), Column("expected"))
        table(
            columns,
            ((each["guard"], each["path"], cut(each["found"], FOUND), each["expected"]) for each in line.violations),
        )


def ways_on(repo: Repository, board: Board) -> list[tuple[str, str]]:
    """Commands, each with what it does."""
    branch, line = run_branch(board.run, repo.url), board.failed
    kept = repo.store.find_head(branch) is not None
    ways = []
    if line is not None and line.code == PublishRefused.code and kept:
        ways.append(("both changed the same", f"fenceline diff {board.target} {branch}"))
        ways.append(("take the run's side", f"fenceline runs publish {board.run} --strategy theirs"))
        ways.append((f"keep that of {board.target}", f"fenceline runs publish {board.run} --strategy ours"))
    elif line is not None:
        ways.append(("go on from there", f"fenceline runs restart-from {board.run} {line.step} --yes"))
    if kept and not any("publish" in command for _, command in ways):
        ways.append(("see what it made", f"fenceline diff {board.target} {branch}"))
        ways.append(("publish that", f"fenceline runs publish {board.run}"))
    return [*ways, ("all that happened", f"fenceline runs show {board.run} --events")]

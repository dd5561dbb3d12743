"""Runs that were started on this machine: list, show, cancel, publish by hand, restart, go on with."""

from __future__ import annotations

import json
from dataclasses import asdict
from typing import Annotated, Literal

import typer

from fenceline.api import Repository
from fenceline.cli.board import Board
from fenceline.cli.following import follow
from fenceline.cli.live import took
from fenceline.cli.opening import reading, writing
from fenceline.cli.options import Actor, Json, JsonLines, Repo
from fenceline.cli.output import Column, counted, emit, fields, moment, one_line, remark, say, short, table
from fenceline.cli.run import Grace, Master, Slots, Workers, make_runner
from fenceline.cli.summary import show_steps, show_violations, summary, ways_on
from fenceline.errors import ContractError, NotFound
from fenceline.pipeline.builtin import run_branch
from fenceline.pipeline.definition.loading import AnyPipeline, load_pipeline
from fenceline.pipeline.embedded.rows import RUNNING, RunRow, read_owner
from fenceline.pipeline.embedded.runner import GRACE
from fenceline.pipeline.embedded.runs import (
    RunEvent,
    cancel_run,
    forget_run,
    list_runs,
    old_runs,
    open_store,
    plan_restart,
    publish_by_hand,
    run_events,
    show_run,
    store_path,
)
from fenceline.pipeline.embedded.runs import (
    restart_from as prepare_restart,
)
from fenceline.pipeline.embedded.store import Store, get_run
from fenceline.task.contract import LoadError

_NOBODY = "nobody: fenceline runs resume goes on with it"

RunArgument = Annotated[str, typer.Argument(metavar="RUN", help="A run's id; its first letters are enough.")]
StepArgument = Annotated[str, typer.Argument(metavar="STEP", help="A step's name, as `runs show` lists them.")]
PipelineOption = Annotated[
    str | None,
    typer.Option(
        "--pipeline",
        metavar="MODULE[:PIPELINE]",
        help="Where the run's pipeline is.",
        show_default="the module it was run from",
    ),
]


def runs(
    status: Annotated[
        Literal["RUNNING", "COMPLETED", "FAILED", "TIMED_OUT", "CANCELED"] | None,
        typer.Option("--status", help="Only those with this status.", case_sensitive=False),
    ] = None,
    limit: Annotated[int, typer.Option("-n", "--limit", min=1, help="Show only the N newest.", metavar="N")] = 20,
    repo: Repo = ".",
    as_json: Json = False,
) -> None:
    """List runs, the newest first. With a word more: runs show, cancel, publish, restart-from, resume."""
    store = _store(reading(repo))
    found = list_runs(store, status=status, limit=limit) if store else []
    boards = [_board(store, each.id) for each in found] if store else []
    if as_json:
        keys = ("id", "key", "name", "status", "reason", "created", "ended")
        told = [{**{key: getattr(each.row, key) for key in keys}, "steps": each.progress} for each in boards]
        emit([{**each, "worked_on_by": _by(store, board)} for each, board in zip(told, boards, strict=True)])
        return
    if not boards:
        remark("no runs yet" if status is None else f"no runs that are {status}")
        return
    columns = (
        Column("run", style="bold", fixed=True),
        Column("pipeline"),
        Column("key"),
        Column("status", fixed=True),
        Column("steps", right=True),
        Column("started", fixed=True),
        Column("took", right=True),
    )
    table(columns, (_listed(store, board) for board in boards))


def _listed(store: Store | None, board: Board) -> tuple[object, ...]:
    row = board.row
    status = "interrupted" if board.running and _by(store, board) is None else row.status
    return row.id, row.name, row.key, status, board.progress, moment(row.created), took(board.seconds)


def _by(store: Store | None, board: Board) -> str | None:
    """Who works on a run; None for one that is over, and for one whose process stopped or died."""
    if store is None or not board.running or board.row.runner is None:
        return None
    with store.read() as db:
        runner = db.execute("SELECT owner, ended FROM runners WHERE id = ?", [board.row.runner]).fetchone()
    owner = read_owner(runner["owner"]) if runner is not None and runner["ended"] is None else None
    if owner is None or store.seams.proven_dead(owner):
        return None
    return f"process {owner.pid} on {owner.host}"


def show(
    run: RunArgument,
    events: Annotated[bool, typer.Option("--events", help="Also everything that happened.")] = False,
    repo: Repo = ".",
    as_json: Json = False,
) -> None:
    """Show a run: its steps, why it failed, and how to go on."""
    opened = reading(repo)
    store, found = _find(opened, run)
    happened = run_events(store, found) if events else []
    if as_json:
        told = {"events": [asdict(event) for event in happened]} if events else {}
        emit({**show_run(store, found).as_dict(), **told})
        return
    board = _board(store, found)
    row, branch = board.row, run_branch(found, opened.url)
    fields(
        (
            ("run", row.id),
            ("pipeline", f"{row.name} ({row.reference})"),
            ("key", row.key),
            ("status", row.status),
            ("reason", row.reason),
            ("target", board.target),
            ("worked on by", (_by(store, board) or _NOBODY) if board.running else None),
            ("branch", branch if opened.store.find_head(branch) else None),
            ("started", moment(row.created)),
            ("took", took(board.seconds)),
        )
    )
    show_steps(board)
    show_violations(board.failed)
    if events:
        columns = (Column("time", fixed=True), Column("event", fixed=True), Column("step"), Column("about"))
        table(columns, (_event(event) for event in happened))
    if not board.completed and not board.running:
        fields(ways_on(opened, board))


def _event(event: RunEvent) -> tuple[object, ...]:
    data = dict(event.data)
    step, attempt = data.pop("step", ""), data.pop("attempt", 0)
    data.pop("task", None)
    about = " ".join(f"{name}={value if isinstance(value, str) else json.dumps(value)}" for name, value in data.items())
    return moment(event.time), event.kind, f"{step} #{attempt + 1}" if step else "", one_line(about)


def cancel(run: RunArgument, repo: Repo = ".", as_json: Json = False) -> None:
    """End a run. What it works on publishes nothing; its branch stays."""
    store, found = _find(writing(repo, as_json), run)
    result = cancel_run(store, found)
    if as_json:
        emit(result.as_dict())
    else:
        say(f"run {found} is {result.status}; fenceline runs restart-from goes on with it")


def forget(
    days: Annotated[float, typer.Option("--older-than", metavar="DAYS", min=0, help="Only runs that ended before.")],
    yes: Annotated[bool, typer.Option("--yes", help="Do it; without this, only say what would go.")] = False,
    repo: Repo = ".",
    as_json: Json = False,
) -> None:
    """Forget old runs that ended: their records, events and kept branches. What they published stays."""
    opened = writing(repo, as_json)
    store = _store(opened)
    found = old_runs(store, days * 86_400) if store is not None else []
    if yes and store is not None:
        for result in found:
            forget_run(store, opened, result.id)
    if as_json:
        emit({"runs": [result.id for result in found], "forgotten": yes})
        return
    columns = (Column("run", fixed=True), Column("pipeline"), Column("status"), Column("ended"))
    table(columns, ((r.id, r.name, r.status, moment(r.ended or 0.0)) for r in found))
    said = counted(len(found), "run")
    say(f"{said} forgotten; fenceline gc frees what only they had" if yes else f"{said}; --yes forgets them")


def publish(
    run: RunArgument,
    strategy: Annotated[
        Literal["ours", "theirs"] | None,
        typer.Option("--strategy", help="Decide conflicts: ours keeps the target's side, theirs takes the run's."),
    ] = None,
    actor: Actor = None,
    repo: Repo = ".",
    as_json: Json = False,
) -> None:
    """Publish what a run that ended has made so far: its branch, as it is now, to its target."""
    opened = writing(repo, as_json)
    store, found = _find(opened, run)
    commit = publish_by_hand(store, opened, found, actor, strategy)
    target = str(_row(store, found).input["branch"])
    if as_json:
        emit({"run": found, "branch": target, "commit": commit})
    else:
        say(f"run {found} published: {target} is now {short(commit)}")


def restart_from(
    run: RunArgument,
    step: StepArgument,
    yes: Annotated[bool, typer.Option("--yes", help="Do it; without this, only say what would run again.")] = False,
    pipeline: PipelineOption = None,
    workers: Workers = 0,
    slots: Slots = 4,
    master: Master = None,
    grace: Grace = GRACE,
    repo: Repo = ".",
    as_json: JsonLines = False,
) -> None:
    """Run a step of a run that ended again, and all that comes after it; what it published meanwhile is taken back."""
    opened = writing(repo, as_json)
    store, found = _find(opened, run)
    again = plan_restart(store, opened, found, step)
    if not yes:
        _explain(_row(store, found), again, as_json)
        return
    loaded = _pipeline(_row(store, found), pipeline)
    prepare_restart(store, opened, found, step)
    runner = make_runner(opened, loaded, workers, slots, master, grace)
    summary(opened, follow(runner, lambda it: it.resume(found), as_json).board, as_json)


def _explain(row: RunRow, again: tuple[str, ...], as_json: bool) -> None:
    if as_json:
        emit({"run": row.id, "again": list(again), "restarted": False})
        return
    say(f"would run again in run {row.id} of {row.name}, and what comes after: {', '.join(again)}")
    say("nothing was done; --yes does it")


def resume(
    run: RunArgument,
    pipeline: PipelineOption = None,
    workers: Workers = 0,
    slots: Slots = 4,
    master: Master = None,
    grace: Grace = GRACE,
    repo: Repo = ".",
    as_json: JsonLines = False,
) -> None:
    """Go on with a run that was interrupted or whose process died."""
    opened = writing(repo, as_json)
    store, found = _find(opened, run)
    row = _row(store, found)
    if row.status != RUNNING:
        raise ContractError(
            f"run {found} is {row.status}: there is nothing to go on with",
            hint=f"fenceline runs restart-from {found} STEP runs a part of it again",
        )
    runner = make_runner(opened, _pipeline(row, pipeline), workers, slots, master, grace)
    summary(opened, follow(runner, lambda it: it.resume(found), as_json).board, as_json)


# --- finding ------------------------------------------------------------------------------------------------------


def _store(repo: Repository) -> Store | None:
    """None where there were no runs: looking makes no file."""
    return open_store(repo) if store_path(repo).exists() else None


def _find(repo: Repository, prefix: str) -> tuple[Store, str]:
    """The store, and the whole id of a run."""
    store = _store(repo)
    if store is None:
        raise NotFound(f"there is no run {prefix!r}", hint="fenceline run starts one")
    with store.read() as db:
        query = "SELECT id FROM runs WHERE substr(id, 1, ?) = ? ORDER BY id LIMIT 3"
        found = [row["id"] for row in db.execute(query, [len(prefix), prefix])]
    if len(found) > 1 and prefix not in found:
        raise ContractError(f"{prefix!r} begins the ids of several runs: {', '.join(found)}", hint="give more of it")
    if not found:
        raise NotFound(f"there is no run {prefix!r}", hint="fenceline runs lists them")
    return store, found[0]


def _board(store: Store, run: str) -> Board:
    board = Board(store, run)
    board.look()
    return board


def _row(store: Store, run: str) -> RunRow:
    with store.read() as db:
        return get_run(db, run)


def _pipeline(row: RunRow, named: str | None) -> AnyPipeline:
    """The code of a run."""
    try:
        found = load_pipeline(named or row.reference)
    except LoadError as error:
        if named is None:
            error.add_note("say with --pipeline path/to/file.py:NAME where the run's pipeline is")
        raise
    if found.name != row.name:
        raise ContractError(f"run {row.id} is of {row.name}, not of {found.name}", hint="name its own pipeline")
    return found

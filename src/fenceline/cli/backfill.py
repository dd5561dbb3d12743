"""One run of a pipeline for each of many values: backfill."""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from datetime import date, timedelta
from typing import Annotated, Any, Literal, TypeAlias

import typer
from rich.live import Live
from rich.text import Text

from fenceline.cli.board import Board
from fenceline.cli.failure import FAILED_ATTEMPT
from fenceline.cli.following import Interrupts, Waiting, drain, heard_once, in_place, interrupts
from fenceline.cli.live import answers_apart, terminal_apart, took
from fenceline.cli.opening import writing
from fenceline.cli.options import Json, Params, PipelineArgument, Repo, RunBranch, read_params
from fenceline.cli.output import Column, emit, one_line, remark, say, short, table
from fenceline.cli.run import Grace, Master, Slots, Workers, make_runner
from fenceline.errors import ContractError
from fenceline.pipeline.definition.loading import AnyPipeline, load_pipeline
from fenceline.pipeline.embedded.runner import GRACE, RunBusy, Runner
from fenceline.repo.model import canonical, digest
from fenceline.task.contract import InvalidParams

MOST = 10_000
TICK = 0.1

Over = Annotated[
    str,
    typer.Option(
        "--over",
        metavar="FIELD=VALUES",
        help="The field of the params, and its values: 2026-01-01..2026-01-31, 1..10, or a,b,c.",
    ),
]
Parallel = Annotated[int, typer.Option("--parallel", min=1, help="How many runs at once.", metavar="N")]
FailFast = Annotated[bool, typer.Option("--fail-fast", help="Start no more runs once one has failed.")]

State: TypeAlias = Literal["waiting", "running", "completed", "done before", "failed", "interrupted", "not run"]


@dataclass(eq=False, slots=True)
class Item:
    """A value, and the run for it."""

    value: str
    params: Any
    key: str
    state: State = "waiting"
    board: Board | None = None
    waiting: Waiting | None = None
    reason: str = ""

    def document(self) -> dict[str, Any]:
        return {
            "value": self.value,
            "key": self.key,
            "state": self.state,
            "run": self.board.run if self.board else None,
            "commit": self.board.published if self.board else None,
            "reason": self.reason or None,
        }


def backfill(
    reference: PipelineArgument,
    over: Over,
    params: Params = "{}",
    branch: RunBranch = "main",
    parallel: Parallel = 1,
    fail_fast: FailFast = False,
    workers: Workers = 0,
    slots: Slots = 4,
    master: Master = None,
    grace: Grace = GRACE,
    repo: Repo = ".",
    as_json: Json = False,
) -> None:
    """Run a pipeline once for each value of a field of its params. What completed before is not run again."""
    pipeline = load_pipeline(reference)
    items = plan(pipeline, over, read_params(params), branch)
    opened = writing(repo, as_json)
    opened.head(branch)
    runner = make_runner(opened, pipeline, workers, slots, master, grace)
    work = Backfill(runner, pipeline, branch, items, parallel, fail_fast)
    stopped = work.run(as_json)
    if as_json:
        emit({"pipeline": pipeline.name, "branch": branch, "items": [item.document() for item in items]})
    else:
        _summary(items, stopped is not None)
    if stopped is not None:
        raise typer.Exit(stopped)
    if any(item.state in ("failed", "not run") for item in items):
        raise typer.Exit(FAILED_ATTEMPT)


# --- what to run --------------------------------------------------------------------------------------------------


def plan(pipeline: AnyPipeline, over: str, common: Any, branch: str) -> list[Item]:
    """The runs of a backfill. Every value is checked against the params model before any of them starts."""
    name, equals, text = over.partition("=")
    if not equals or not name or not text:
        raise ContractError(f"--over is {over!r}", hint="write FIELD=FIRST..LAST or FIELD=a,b,c")
    if not isinstance(common, dict):
        raise ContractError("--params is not an object", hint='write {"field": value}; the --over field is added')
    if name in common:
        raise ContractError(f"{name} is in --params and in --over", hint="leave it out of --params")
    items = [_item(pipeline, name, values, common, branch) for values in read_values(text)]
    keys = [item.key for item in items]
    twice = next((item for item in items if keys.count(item.key) > 1), None)
    if twice is not None:
        raise ContractError(f"--over has {twice.value} twice", hint="name each value once")
    return items


def _item(pipeline: AnyPipeline, name: str, values: Sequence[Any], common: dict[str, Any], branch: str) -> Item:
    shown = str(values[-1])
    refusal: InvalidParams | None = None
    for value in values:
        try:
            given = pipeline.workflow_input("", branch, {**common, name: value})["params"]
        except InvalidParams as error:
            refusal = refusal or error
            continue
        mark = digest(canonical(given))[:12]
        return Item(shown, {**common, name: value}, f"backfill:{pipeline.name}:{branch}:{name}={shown}:{mark}")
    assert refusal is not None
    refusal.add_note(f"nothing was started; the value is {name}={shown}")
    raise refusal


def read_values(text: str) -> list[tuple[Any, ...]]:
    """The values, each in the forms in which it may be meant, the likeliest first; the last is how it is shown."""
    first, dots, last = text.partition("..")
    if not dots:
        pieces = [piece.strip() for piece in text.split(",")]
        if not all(pieces):
            raise ContractError(f"--over has an empty value: {text!r}", hint="write a,b,c")
        return [(piece, *_as_json(piece), piece) for piece in pieces]
    try:
        low, high = date.fromisoformat(first), date.fromisoformat(last)
        return [(day.isoformat(),) for day in _days(low, high, text)]
    except ValueError:
        pass  # no dates: then numbers
    try:
        numbers = range(int(first), int(last) + 1)
    except ValueError:
        raise ContractError(
            f"--over has the range {text!r}", hint="ranges are of dates (2026-01-01..2026-01-31) or whole numbers"
        ) from None
    _check_length(len(numbers), text)
    return [(number, str(number)) for number in numbers]


def _days(low: date, high: date, text: str) -> Iterator[date]:
    count = (high - low).days + 1
    _check_length(count, text)
    return (low + timedelta(days=number) for number in range(count))


def _check_length(count: int, text: str) -> None:
    if not 0 < count <= MOST:
        raise ContractError(f"--over has {max(count, 0)} values: {text!r}", hint=f"both ends count; at most {MOST}")


def _as_json(text: str) -> tuple[Any, ...]:
    try:
        return (json.loads(text),)
    except ValueError:
        return ()


# --- running it ---------------------------------------------------------------------------------------------------


@dataclass(eq=False, slots=True)
class Backfill:
    """Keeps `parallel` runs going until there are none left."""

    runner: Runner
    pipeline: AnyPipeline
    branch: str
    items: list[Item]
    parallel: int
    fail_fast: bool
    _told: set[str] = field(default_factory=set)
    _live: Live | None = None
    _note: str = ""

    def run(self, as_json: bool) -> int | None:
        """None if it went to its end, else the exit code of the signal that stopped it."""
        clock = self.runner.repo.store.seams.clock
        with self._showing(as_json), interrupts() as asked, self.runner:
            while not asked.count and self._go_on():
                self._show(as_json)
                clock.sleep(TICK)
            if asked.count:
                self._stop(asked, as_json)
            self._look()
            self._show(as_json)
        self._end()
        return asked.code if asked.count else None

    def _go_on(self) -> bool:
        """Look at what runs, and start what there is room for; whether anything is left."""
        self._look()
        failed = self.fail_fast and any(item.state == "failed" for item in self.items)
        running = sum(item.state == "running" for item in self.items)
        for item in self.items:
            if item.state == "waiting" and running < self.parallel and not failed:
                running += self._start(item)
        return running > 0 or (not failed and any(item.state == "waiting" for item in self.items))

    def _start(self, item: Item) -> bool:
        """Whether it runs now; one that completed before does not."""
        try:
            run = self.runner.submit(self.pipeline, self.branch, item.params, item.key)
        except RunBusy as error:
            item.state, item.reason = "failed", error.message
            return False
        item.board = Board(self.runner.store, run)
        item.board.look()
        item.state = "running" if item.board.running else "done before"
        item.waiting = Waiting(self.runner, run)
        return item.state == "running"

    def _look(self) -> None:
        for item in self.items:
            if item.state == "running" and item.board is not None and item.waiting is not None:
                item.waiting.check()
                item.board.look()
                if not item.board.running:
                    item.state = "completed" if item.board.completed else "failed"
                    item.reason = "" if item.board.completed else item.board.row.reason or item.board.row.status

    def _stop(self, asked: Interrupts, as_json: bool) -> None:
        def note(text: str) -> None:
            self._note = text
            if self._live is None and not as_json:
                remark(text)

        def show() -> None:
            self._look()
            self._show(as_json)

        self.runner.drain()
        drain(self.runner, asked, show, note)

    def _end(self) -> None:
        for item in self.items:
            if item.state in ("waiting", "running"):
                item.state = "not run" if item.state == "waiting" else "interrupted"

    # --- what is shown meanwhile --------------------------------------------------------------------------------

    @contextmanager
    def _showing(self, as_json: bool) -> Iterator[None]:
        with ExitStack() as stack:
            stack.enter_context(heard_once())
            if as_json or not in_place():
                stack.enter_context(answers_apart())
            else:
                console = stack.enter_context(terminal_apart(self.runner.repo.store.seams.threads))
                self._live = stack.enter_context(Live(console=console, auto_refresh=False, transient=True))
            yield

    def _show(self, as_json: bool) -> None:
        if as_json:
            return
        ended = [item for item in self.items if item.state not in ("waiting", "running")]
        if self._live is None:
            for item in ended:
                if item.key not in self._told:
                    self._told.add(item.key)
                    remark(f"  {len(self._told)} of {len(self.items)}: {item.value} {item.state}{_why(item)}")
            return
        lines = [f"{len(ended)} of {len(self.items)} done"]
        lines += [f"✗ {item.value}{_why(item)}" for item in ended if item.state == "failed"][-10:]
        running = [item for item in self.items if item.state == "running" and item.board is not None]
        lines += [f"▶ {item.value}  {item.board.progress} steps  {item.board.run}" for item in running if item.board]
        text = Text("\n".join([*lines, *filter(None, [self._note])]), no_wrap=True, overflow="ellipsis")
        self._live.update(text, refresh=True)


def _why(item: Item) -> str:
    return f": {one_line(item.reason)}" if item.reason else ""


def _summary(items: Sequence[Item], stopped: bool) -> None:
    columns = (
        Column("value", style="bold"),
        Column("state", fixed=True),
        Column("steps", right=True),
        Column("took", right=True),
        Column("commit", style="yellow", fixed=True),
        Column("run", fixed=True),
        Column("why"),
    )
    table(columns, (_row(item) for item in items))
    counts = {state: sum(item.state == state for item in items) for state in dict.fromkeys(i.state for i in items)}
    say(f"{len(items)} values: " + ", ".join(f"{count} {state}" for state, count in counts.items()))
    if stopped or any(item.state in ("failed", "not run") for item in items):
        say("the same command runs what is not completed, and nothing else")


def _row(item: Item) -> tuple[object, ...]:
    board = item.board
    if board is None:
        return item.value, item.state, None, None, None, None, item.reason
    commit = board.published and short(board.published)
    return item.value, item.state, board.progress, took(board.seconds), commit, board.run, item.reason

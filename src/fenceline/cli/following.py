"""Following a run to its end: on a terminal in place, in a pipe line by line, for programs as JSON lines.

The runner works in threads or processes of its own. The main thread looks into its store, draws, and hears signals.
"""

from __future__ import annotations

import json
import logging
import os
import signal
from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from types import FrameType
from typing import Any, Protocol

import typer

from fenceline.cli.board import FAILURES, Board
from fenceline.cli.failure import INTERRUPTED, TERMINATED
from fenceline.cli.live import LiveView, answers_apart, terminal_apart, took
from fenceline.cli.output import notes, one_line, remark, short, size, write_bytes
from fenceline.pipeline.builtin import PUBLISH, Builtins
from fenceline.pipeline.embedded.runner import RunInterrupted, Runner
from fenceline.pipeline.embedded.runs import RunEvent, show_run
from fenceline.seams import Seams

TICK = 0.1
_TOLD_BY_EVENTS = ("task.attempt", "task.lease", "pipeline.builtin", "pipeline.worker")


# --- views --------------------------------------------------------------------------------------------------------


class View(Protocol):
    """Shows a run while it goes on."""

    def show(self, board: Board, events: list[RunEvent]) -> None: ...

    def note(self, text: str) -> None: ...


@dataclass(frozen=True, slots=True)
class InPlace:
    """The live view of a terminal."""

    live: LiveView

    def show(self, board: Board, events: list[RunEvent]) -> None:
        self.live.draw(board)

    def note(self, text: str) -> None:
        self.live.note(text)


@dataclass(frozen=True, slots=True)
class InLines:
    """A line for what is worth one, on standard error."""

    prefix: str = "  "

    def show(self, board: Board, events: list[RunEvent]) -> None:
        for event in events:
            if text := told(board, event):
                remark(f"{self.prefix}{text}")

    def note(self, text: str) -> None:
        remark(text)


@dataclass(frozen=True, slots=True)
class InJson:
    """Every event as it is, one JSON object a line."""

    answers: int | None

    def show(self, board: Board, events: list[RunEvent]) -> None:
        for event in events:
            document = {"type": "event", "run": board.run, "seq": event.seq, "time": event.time, "kind": event.kind}
            self.line({**document, "data": event.data})

    def line(self, document: Mapping[str, Any]) -> None:
        data = json.dumps(document).encode() + b"\n"
        if self.answers is None:
            write_bytes(data)
            return
        while data:
            data = data[os.write(self.answers, data) :]

    def note(self, text: str) -> None:
        """Programs are told by the exit code."""


def told(board: Board, event: RunEvent) -> str:
    """An event as a line; '' for those that are only of interest while they last."""
    data, step = event.data, event.data.get("step", "")
    if not event.kind.startswith("task.") or (data.get("task") in Builtins.NAMES and data["task"] != PUBLISH):
        return ""
    line = board.line(step)
    again = f", attempt {data['attempt'] + 1}" if data["attempt"] else ""
    why = f": {one_line(data['reason'])}" if data.get("reason") else ""
    kind = event.kind.removeprefix("task.")
    if kind == "started":
        return f"{step} started{again}"
    if kind != "completed" or line is None:
        later = "; it is tried again" if line is not None and line.state not in FAILURES and board.running else ""
        return f"{step} {kind.replace('_', ' ')}{again}{why}{later}"
    seconds = line.took(board.now)
    facts = [size(line.bytes) if line.bytes else "", f"guards: {line.guards}" if line.guards else ""]
    facts.append(f"commit {short(line.commit)}" if line.commit else "")
    in_time = f" in {took(seconds)}" if seconds is not None else ""
    return "; ".join([f"{step} completed{in_time}", *filter(None, facts)])


@contextmanager
def viewing(as_json: bool, seams: Seams) -> Iterator[View]:
    """The view that fits where the output goes."""
    with ExitStack() as stack:
        if as_json:
            yield InJson(stack.enter_context(answers_apart()))
            return
        stack.enter_context(heard_once())
        if in_place():
            console = stack.enter_context(terminal_apart(seams.threads))
            yield InPlace(stack.enter_context(LiveView(console)))
        else:
            stack.enter_context(answers_apart())
            yield InLines()


def in_place() -> bool:
    """Whether there is a terminal on which lines can be drawn again."""
    console = notes()
    return console.file.isatty() and not console.is_dumb_terminal


@contextmanager
def heard_once() -> Iterator[None]:
    """Attempts that fail are shown as events: their warnings would say it twice."""
    loggers = [logging.getLogger(f"fenceline.{name}") for name in _TOLD_BY_EVENTS]
    before = [each.level for each in loggers]
    for each in loggers:
        each.setLevel(logging.ERROR)
    try:
        yield
    finally:
        for each, level in zip(loggers, before, strict=True):
            each.setLevel(level)


# --- signals ------------------------------------------------------------------------------------------------------


class Interrupts:
    """How often this process was asked to stop. The handler only counts: whoever is asked looks when it can."""

    def __init__(self) -> None:
        self.count = 0
        self.code = INTERRUPTED

    def __call__(self, number: int, frame: FrameType | None) -> None:
        self.count += 1
        self.code = TERMINATED if number == signal.SIGTERM else INTERRUPTED


@contextmanager
def interrupts() -> Iterator[Interrupts]:
    asked = Interrupts()
    before = {number: signal.signal(number, asked) for number in (signal.SIGINT, signal.SIGTERM)}
    try:
        yield asked
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


# --- following ----------------------------------------------------------------------------------------------------


class Waiting:
    """`runner.wait` in a thread, so that this one can draw."""

    def __init__(self, runner: Runner, run: str) -> None:
        self.over = False
        self.error: Exception | None = None
        runner.repo.store.seams.threads.start("wait", lambda: self._wait(runner, run))

    @property
    def interrupted(self) -> bool:
        return isinstance(self.error, RunInterrupted)

    def check(self) -> None:
        """Raises what went wrong with the runner itself; that it was interrupted is nothing wrong."""
        if self.error is not None and not self.interrupted:
            raise self.error

    def _wait(self, runner: Runner, run: str) -> None:
        try:
            runner.wait(run)
        except Exception as error:  # noqa: BLE001 - raised where it is waited for
            self.error = error
        self.over = True
        runner.store.close()


@dataclass(frozen=True, slots=True)
class Followed:
    """A run that was followed as far as it went."""

    board: Board
    before: str
    """`started`, `resumed`, or '' if it was over before."""


def follow(runner: Runner, begin: Callable[[Runner], str], as_json: bool) -> Followed:
    """Run until the run is over. Ctrl-C drains; then it ends with 130, and the run can be gone on with."""
    seams = runner.repo.store.seams
    with viewing(as_json, seams) as view, interrupts() as asked:
        with runner:
            board = Board(runner.store, begin(runner))
            how = _begun(board, runner, view)
            waiting = Waiting(runner, board.run)
            while not waiting.over:
                if asked.count:
                    runner.drain()
                view.show(board, board.look())
                seams.clock.sleep(TICK)
            if waiting.interrupted:
                drain(runner, asked, lambda: view.show(board, board.look()), view.note)
        view.show(board, board.look())
        if isinstance(view, InJson):
            view.line({"type": "run", **show_run(runner.store, board.run).as_dict()})
    runner.store.close()
    waiting.check()
    if not waiting.interrupted:
        return Followed(board, how)
    if not as_json:
        remark(f"stopped; run {board.run} has {board.progress} steps done, and the same command goes on with it")
    raise typer.Exit(asked.code)


def drain(runner: Runner, asked: Interrupts, show: Callable[[], None], note: Callable[[str], None]) -> None:
    """Let what runs finish, for as long as the grace is; asked again, at once."""
    clock = runner.repo.store.seams.clock
    once, end = asked.count, clock.monotonic() + runner.grace
    note(f"stopping: what runs has {runner.grace:g} s to finish; Ctrl-C again stops it at once")
    while not runner.drained() and clock.monotonic() < end and asked.count == once:
        show()
        clock.sleep(TICK)
    if not runner.drained():
        note("stopping at once: nothing of what is cut off is published")
        show()
        runner.drain(hurry=True)


def _begun(board: Board, runner: Runner, view: View) -> str:
    """Say what this is: a new run, one to go on with, or one that is over. Its history is not shown again."""
    events = board.look()
    mine = [event for event in events if event.data.get("runner") == runner.id]
    row = board.row
    if not mine:
        view.note(f"run {row.id} of {row.name} is {row.status}")
        return ""
    new = mine[0].kind == "run.started"
    if new and isinstance(view, InLines):  # the live view says so all the time
        view.note(f"run {row.id} of {row.name} on {board.target}")
    elif not new:
        view.note(f"going on with run {row.id} of {row.name} on {board.target}: {board.progress} steps are done")
    view.show(board, [event for event in events if event.seq >= mine[0].seq])
    return "started" if new else "resumed"

"""The `fenceline` command: what it offers, in the order its help shows it."""

from __future__ import annotations

import logging
import sys
from collections.abc import Callable
from typing import Annotated

import typer

import fenceline
from fenceline.cli import (
    attempts,
    care,
    content,
    graph_care,
    graph_load,
    graph_schema,
    graphs,
    history,
    lakefs,
    refs,
    runs,
    tasks,
)
from fenceline.cli.backfill import backfill
from fenceline.cli.deploy import deploy
from fenceline.cli.doctor import doctor
from fenceline.cli.extract import extract
from fenceline.cli.failure import CommandGroup
from fenceline.cli.run import run
from fenceline.cli.start import start
from fenceline.cli.submit import submit
from fenceline.cli.warm import warm

app = typer.Typer(
    name="fenceline",
    cls=CommandGroup,
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
    context_settings={"help_option_names": ["--help", "-h"]},
)

PANELS: dict[str, tuple[Callable[..., None], ...]] = {
    "Content": (care.init, content.put, content.get, content.cat, content.ls, content.rm),
    "History": (history.log, history.show, history.diff),
    "Branches and tags": (refs.branch, refs.tag, refs.merge, refs.revert),
    "Graphs": (
        graphs.init,
        graph_load.load,
        graphs.show,
        graphs.export,
        graph_schema.schema_show,
        graph_schema.schema_plan,
        graph_schema.schema_apply,
        graph_care.indices,
        graph_care.optimize,
    ),
    "Tasks": (tasks.check, attempts.try_, extract),
    "Pipelines": (
        run,
        backfill,
        runs.runs,
        runs.show,
        runs.cancel,
        runs.forget,
        runs.publish,
        runs.restart_from,
        runs.resume,
    ),
    "Conductor": (deploy, start, submit),
    "lakeFS": (lakefs.setup,),
    "Care": (care.recover, care.recoveries, care.intents, care.gc, care.fsck, doctor, warm),
}


_GROUPS = {
    **{module.__name__: "graph" for module in (graphs, graph_load, graph_schema, graph_care)},
    lakefs.__name__: "lakefs",
}


def name_of(command: Callable[..., None]) -> str:
    """What a command is called: its function's name, but for a last '_' (`try` is a word of Python's)."""
    group = _GROUPS.get(command.__module__)
    if group:
        return f"{group} {command.__name__.replace('_', ' ')}"
    name = command.__name__.rstrip("_").replace("_", "-")
    return f"runs {name}" if command.__module__ == runs.__name__ and command is not runs.runs else name


for panel, commands in PANELS.items():
    for command in commands:
        app.command(name_of(command), rich_help_panel=panel)(command)


def _version(wanted: bool) -> None:
    if wanted:
        typer.echo(f"fenceline {fenceline.__version__}")
        raise typer.Exit


@app.callback()
def options(
    version: Annotated[
        bool, typer.Option("--version", callback=_version, is_eager=True, help="Show the version and exit.")
    ] = False,
) -> None:
    """A versioned repository whose every change becomes visible whole, once, or not at all."""


def main() -> None:
    """Run the command line."""
    level = logging.ERROR if "--json" in sys.argv else logging.WARNING  # stderr then holds JSON, or nothing
    logging.basicConfig(level=level, format="warning: %(message)s")
    app()


if __name__ == "__main__":
    main()

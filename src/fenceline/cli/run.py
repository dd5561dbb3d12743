"""Running a pipeline on this machine: run."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Annotated, Any

import typer

from fenceline.api import Repository
from fenceline.cli.following import follow
from fenceline.cli.opening import writing
from fenceline.cli.options import JsonLines, Repo
from fenceline.cli.output import say
from fenceline.cli.summary import summary
from fenceline.errors import ContractError
from fenceline.pipeline.definition.loading import AnyPipeline, load_pipeline
from fenceline.pipeline.embedded.runner import GRACE, Runner
from fenceline.spark.settings import SparkSettings

Reference = Annotated[
    str, typer.Argument(metavar="MODULE[:PIPELINE]", help="package.module or path/to/file.py, and after ':' which one.")
]
Params = Annotated[str, typer.Option("--params", help="The params as JSON, or @FILE to read them from a file.")]
Branch = Annotated[str, typer.Option("--branch", help="The branch to start from and to publish to.")]
Key = Annotated[
    str | None,
    typer.Option(
        "--key",
        help="What makes two runs the same; one that completed is not run again.",
        show_default="pipeline, branch and params, for runs that are not finished",
    ),
]
Workers = Annotated[
    int, typer.Option("-j", "--workers", min=0, help="Worker processes; 0 works in threads of this one.", metavar="N")
]
Slots = Annotated[int, typer.Option("--slots", min=1, help="How many attempts at once in each of them.", metavar="N")]
Master = Annotated[
    str | None,
    typer.Option(
        "--master",
        envvar="FENCELINE_SPARK_MASTER",
        help="Where Spark steps run: local[N], spark://host:port or sc://host:port.",
        show_default="local[*]",
    ),
]
Grace = Annotated[
    float, typer.Option("--grace", min=0, help="Seconds for running attempts to finish when asked to stop.")
]


def run(
    reference: Reference,
    params: Params = "{}",
    branch: Branch = "main",
    key: Key = None,
    workers: Workers = 0,
    slots: Slots = 4,
    master: Master = None,
    grace: Grace = GRACE,
    repo: Repo = ".",
    as_json: JsonLines = False,
) -> None:
    """Run a pipeline to its end on this machine, showing its steps; goes on with an unfinished run of the same key."""
    pipeline = load_pipeline(reference)
    given = read_params(params)
    opened = writing(repo, as_json)
    opened.head(branch)  # a branch that is not there is told now, not by a failed run
    runner = make_runner(opened, pipeline, workers, slots, master, grace)
    followed = follow(runner, lambda it: it.submit(pipeline, branch, given, key), as_json)
    if not as_json and not followed.before:
        say(f"key {followed.board.row.key} was completed before; nothing was run")
    summary(opened, followed.board, as_json)


def make_runner(
    repo: Repository, pipeline: AnyPipeline, workers: int, slots: int, master: str | None, grace: float
) -> Runner:
    settings = SparkSettings(master=master) if master else None
    return Runner(repo, [pipeline], workers, slots, grace=grace, spark=settings)


def read_params(text: str) -> Any:
    try:
        return json.loads(Path(text[1:]).read_text() if text.startswith("@") else text)
    except (OSError, ValueError) as error:
        raise ContractError(f"--params cannot be read: {error}", hint="give JSON, or @FILE") from error

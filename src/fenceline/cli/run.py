"""Running a pipeline on this machine: run."""

from __future__ import annotations

from typing import Annotated

import typer

from fenceline.api import Repository
from fenceline.cli.following import follow
from fenceline.cli.opening import writing
from fenceline.cli.options import JsonLines, Params, PipelineArgument, Repo, RunBranch, read_params
from fenceline.cli.output import say
from fenceline.cli.summary import summary
from fenceline.pipeline.definition.loading import AnyPipeline, load_pipeline
from fenceline.pipeline.embedded.runner import GRACE, Runner
from fenceline.spark.settings import SparkSettings

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
    reference: PipelineArgument,
    params: Params = "{}",
    branch: RunBranch = "main",
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

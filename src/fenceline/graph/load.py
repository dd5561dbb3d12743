"""Load files into a graph: read, check, publish all tables in one commit, or none of them."""

from __future__ import annotations

import contextlib
from collections.abc import Iterable, Iterator, Mapping
from typing import TYPE_CHECKING, Any

from fenceline.errors import ContractError, FencelineError
from fenceline.graph.graph import Graph
from fenceline.graph.loading.job import FrameSource, Job
from fenceline.graph.loading.local import load_here
from fenceline.graph.loading.reading import PieceReader
from fenceline.graph.loading.result import (
    MOST_REPORTED,
    EngineName,
    LoadResult,
    Mode,
    OnError,
    OnProgress,
)
from fenceline.graph.loading.sources import PIECE, Source, pieces
from fenceline.graph.spark_start import chosen
from fenceline.txn.branches import RefAdmin

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

SMALL = 64 << 20
"""Bytes of input that `auto` reads in process where no Spark session is up: starting one takes longer."""


def load(
    graph: Graph,
    sources: str | Source | FrameSource | Iterable[str | Source | FrameSource],
    *,
    mode: Mode = "append",
    engine: EngineName = "auto",
    on_error: OnError = "fail",
    most: int = MOST_REPORTED,
    dry_run: bool = False,
    source_branch: str | None = None,
    actor: str | None = None,
    key: str | None = None,
    message: str = "",
    progress: OnProgress = lambda progress: None,
    session: SparkSession | None = None,
    piece: int = PIECE,
) -> LoadResult:
    """Load files, or frames of Spark, into a graph's tables.

    `append` inserts, `merge` changes the rows whose id is there and inserts the others, `overwrite` replaces all rows
    of the tables that the input names. If any row is wrong, `LoadRefused` names file, line, type, property and value,
    and nothing is published: the first of them, or with `on_error="report"` up to `most`. `source_branch` creates the
    graph's branch from there if it does not exist.
    """
    if mode not in ("append", "merge", "overwrite"):
        raise ContractError(f"mode is {mode!r}", hint="use append, merge or overwrite")
    many = [sources] if isinstance(sources, str | Source | FrameSource) else list(sources)
    listed = [Source(each) if isinstance(each, str) else each for each in many if not isinstance(each, FrameSource)]
    frames = [each for each in many if isinstance(each, FrameSource)]
    with _branch(graph, source_branch, actor, dry_run) as ref:
        catalogue = graph.at(ref).schema
        cut = pieces(listed, catalogue, piece)
        seams = graph._repo.seams
        reader = PieceReader(
            catalogue,
            patch=mode == "merge",
            load=seams.ids.execution(),
            milliseconds=int(seams.clock.now() * 1000),
            most=most if on_error == "report" else 1,
        )
        job = Job(graph, ref, cut, reader, mode, dry_run, progress, actor, key, message, frames)
        size = sum(each.size for each in cut)
        if not frames and chosen(engine, size, SMALL, session) == "local":
            return load_here(job)
        from fenceline.graph.loading.on_spark import load_on_spark

        return load_on_spark(job, session)


def given(
    sources: str | Source | FrameSource | DataFrame | Iterable[str | Source | FrameSource],
    table: str | None,
    mapping: Mapping[str, str],
) -> list[Source | FrameSource]:
    """What a caller names, with the type and the mapping that it gives for all of them."""
    if isinstance(sources, str | Source | FrameSource):
        sources = [sources]
    elif hasattr(sources, "sparkSession"):
        if table is None:
            raise ContractError("a frame does not say of which type its rows are", hint="load(frame, table='Person')")
        frame: Any = sources
        sources = [FrameSource(frame, table, mapping)]
    return [Source(each, table, mapping) if isinstance(each, str) else each for each in sources]


@contextlib.contextmanager
def _branch(graph: Graph, source: str | None, actor: str | None, dry_run: bool) -> Iterator[str]:
    """The ref to read the schema from. A branch that was created for a load that fails goes again."""
    repo = graph._repo
    if source is None or repo.find_head(graph.branch) is not None:
        yield graph.branch
        return
    if dry_run:
        yield source
        return
    who, refs = actor or repo.seams.actor(), RefAdmin(repo, graph._intents)
    made = refs.create_branch(graph.branch, source, who)
    try:
        yield graph.branch
    except BaseException:
        with contextlib.suppress(FencelineError):  # what the load failed for says more
            if repo.head(graph.branch).commit.id == made.commit.id:
                refs.delete_branch(graph.branch, who)
        raise

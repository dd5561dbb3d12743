"""The graph: people, songs and artists, who listened to what and who performs it."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pyarrow as pa  # type: ignore[import-untyped]
import pyarrow.compute as pc  # type: ignore[import-untyped]
from pyspark.sql import functions as F  # noqa: N812

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

    from fenceline.task.workspace_graph import WorkspaceGraph

SCHEMA = """
node Person { name: String @key  seen: Date }
node Song { code: String @key  title: String }
node Artist { name: String @key }
edge Performs: Artist -> Song @card(1..) { }
edge Listened: Person -> Song { day: Date  times: I64 @range(1..)  minutes: F64 }
"""
OFTEN = 2
"""Songs that a person heard so often in a day are in the graph."""


def new_songs(songs: DataFrame, graph: WorkspaceGraph) -> dict[str, pa.Table]:
    """What the graph does not have yet. A few thousand rows: as Arrow, they are loaded where the task runs."""
    found = songs.toArrow()
    found = found.filter(pc.invert(pc.is_in(found["song"], graph.table("Song").to_arrow(["id"])["id"])))
    artists = found["artist"].unique()
    artists = artists.filter(pc.invert(pc.is_in(artists, graph.table("Artist").to_arrow(["id"])["id"])))
    return {
        "Artist": pa.table({"name": artists}),
        "Song": pa.table({"code": found["song"], "title": found["title"]}),
        "Performs": pa.table({"id": found["song"], "from": found["artist"], "to": found["song"]}),
    }


def of_plays(plays: DataFrame) -> dict[str, DataFrame]:
    """Many rows: as frames, they are written by executors."""
    people = plays.groupBy(F.col("person").alias("name")).agg(F.max("day").alias("seen"))
    often = (
        plays.groupBy("day", F.col("person").alias("from"), F.col("song").alias("to"))
        .agg(F.count("*").alias("times"), (F.sum("ms_played") / 60_000).alias("minutes"))
        .where(F.col("times") >= OFTEN)
        .withColumn("id", F.concat_ws("/", "from", "to", F.col("day").cast("string")))
    )
    return {"Person": people, "Listened": often}

"""The steps: what each reads, writes, requires and reports."""

from __future__ import annotations

from datetime import date

from pydantic import BaseModel, ConfigDict
from pyspark.sql import Window
from pyspark.sql import functions as F  # noqa: N812

import fenceline as fl
from listening import catalogue, events

OWNER = "data@example.com"
CONTROLS = fl.TaskControls(retry_count=2, retry_delay_seconds=1, response_timeout_seconds=10)
BUDGET = fl.PublishBudget(
    stage_timeout_seconds=5, confirm_timeout_seconds=3, completion_reserve_seconds=1, heartbeat_interval_seconds=1
)


class Params(BaseModel):
    model_config = ConfigDict(extra="forbid")


class Ingest(Params):
    day: date
    events: int = 1_000_000
    dirty: float = 0.01
    seed: int = 1


class Clean(Params):
    day: date
    reject: bool = True


class Day(Params):
    day: date


class Rows(BaseModel):
    rows: int


class Cleaned(BaseModel):
    rows: int
    rejected: int


class Loaded(BaseModel):
    nodes: int
    edges: int


class Report(BaseModel):
    top_song: str
    plots: list[str]


@fl.task(name="listening.ingest", owner=OWNER, controls=CONTROLS, budget=BUDGET, workspace=fl.WorkspaceSpec(prefix="/"))
def ingest(workspace: fl.SparkWorkspace, params: Ingest) -> Rows:
    """What the players sent on one day, as it came."""
    plays = events.generate(workspace.spark, str(params.day), params.events, params.dirty, params.seed)
    written = workspace.write(plays, "raw/plays", partition_by="day", mode="overwrite_partitions")
    workspace.write(events.songs(workspace.spark).coalesce(1), "raw/songs", mode="overwrite")
    return Rows(rows=written.rows or 0)


@fl.task(
    name="listening.clean",
    owner=OWNER,
    controls=CONTROLS,
    budget=BUDGET,
    workspace=fl.WorkspaceSpec(
        prefix="/",
        pre=[fl.require_rows("raw/plays", min=1)],
        post=[
            fl.require_unique("clean/plays", ["event"]),
            fl.expect("clean/plays", "person IS NOT NULL"),
            fl.expect("clean/plays", "ms_played > 0"),
        ],
    ),
)
def clean(workspace: fl.SparkWorkspace, params: Clean) -> Cleaned:
    """Keep each good event once; put the others aside with the reason. The guards check that nothing slipped by."""
    plays = workspace.read.parquet("raw/plays").where(F.col("day") == F.lit(params.day))
    seen = F.row_number().over(Window.partitionBy("event").orderBy("at"))
    reason = (
        F.when(F.col("person").isNull(), "no person")
        .when(F.col("ms_played") <= 0, "negative time")
        .when(seen > 1, "sent twice")
    )
    judged = plays.withColumn("reason", reason if params.reject else F.lit(None).cast("string"))
    judged.persist()  # both writes need it
    good = judged.where("reason IS NULL").drop("reason")
    kept = workspace.write(good, "clean/plays", partition_by="day", mode="overwrite_partitions")
    rejects = judged.where("reason IS NOT NULL")
    rejected = workspace.write(rejects, "quality/rejects", partition_by="day", mode="overwrite_partitions")
    workspace.metrics.gauge("rejected", rejected.rows or 0)
    return Cleaned(rows=kept.rows or 0, rejected=rejected.rows or 0)


@fl.task(
    name="listening.sessions", owner=OWNER, controls=CONTROLS, budget=BUDGET, workspace=fl.WorkspaceSpec(prefix="/")
)
def sessions(workspace: fl.SparkWorkspace, params: Day) -> Rows:
    """Listening without a break of half an hour is one session."""
    plays = workspace.read.parquet("clean/plays").where(F.col("day") == F.lit(params.day))
    by_person = Window.partitionBy("person").orderBy("at")
    pause = F.col("at").cast("long") - F.lag("at").over(by_person).cast("long")
    numbered = plays.withColumn("session", F.sum(F.when(pause > 1800, 1).otherwise(0)).over(by_person))
    found = numbered.groupBy("day", "person", "session").agg(
        F.min("at").alias("begin"), F.count("*").alias("plays"), (F.sum("ms_played") / 60_000).alias("minutes")
    )
    written = workspace.write(found, "gold/sessions", partition_by="day", mode="overwrite_partitions")
    return Rows(rows=written.rows or 0)


@fl.task(name="listening.songs", owner=OWNER, controls=CONTROLS, budget=BUDGET, workspace=fl.WorkspaceSpec(prefix="/"))
def songs(workspace: fl.SparkWorkspace, params: Day) -> Rows:
    """How each song did, with its title and artist, and how many people heard it."""
    plays = workspace.read.parquet("clean/plays").where(F.col("day") == F.lit(params.day))
    catalogue = F.broadcast(workspace.read.parquet("raw/songs"))
    found = (
        plays.groupBy("day", "song")
        .agg(F.count("*").alias("plays"), F.approx_count_distinct("person").alias("listeners"))
        .join(catalogue, "song")
    )
    written = workspace.write(found.coalesce(1), "gold/songs", partition_by="day", mode="overwrite_partitions")
    return Rows(rows=written.rows or 0)


@fl.task(name="listening.graph", owner=OWNER, controls=CONTROLS, budget=BUDGET, workspace=fl.WorkspaceSpec(prefix="/"))
def graph(workspace: fl.SparkWorkspace, params: Day) -> Loaded:
    """Who listened to what, and who performs it, as a graph: five tables that publish with the step."""
    plays = workspace.read.parquet("clean/plays").where(F.col("day") == F.lit(params.day))
    graph = workspace.graph("graph")
    if not graph.exists:
        graph.init(catalogue.SCHEMA)
    graph.load(catalogue.new_songs(workspace.read.parquet("raw/songs"), graph))
    graph.load(catalogue.of_plays(plays), mode="merge")
    kinds = {table.table_key: graph.table(table.table_key).count() for table in graph.schema.tables()}
    nodes = sum(rows for key, rows in kinds.items() if key.startswith("node:"))
    return Loaded(nodes=nodes, edges=sum(kinds.values()) - nodes)


@fl.task(
    name="listening.report",
    owner=OWNER,
    controls=CONTROLS,
    budget=BUDGET,
    workspace=fl.WorkspaceSpec(
        prefix="gold", pre=[fl.require_dir("sessions"), fl.require_dir("songs")], post=[fl.require_file("report.html")]
    ),
)
def report(workspace: fl.Workspace, params: Day) -> Report:
    """A page with plots. This one works on files: its workspace is a directory."""
    from listening import plots  # workers that draw nothing need not load what draws

    return Report(**plots.draw(workspace.path, str(params.day)))

"""A day of made-up listening, the same for the same seed. A few of the events are dirty, as real ones are."""

from __future__ import annotations

from typing import TYPE_CHECKING

from pyspark.sql import functions as F  # noqa: N812

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame, SparkSession

PEOPLE, SONGS, ARTISTS = 20_000, 2_000, 120
FIRST = ("Aurora", "Velvet", "Paper", "Neon", "Quiet", "Golden", "Winter", "Electric", "Hollow", "Distant")
SECOND = ("Harbor", "Lanterns", "Parade", "Echoes", "Gardens", "Static", "Rivers", "Mirrors", "Kites", "Engines")


def generate(spark: SparkSession, day: str, events: int, dirty: float, seed: int) -> DataFrame:
    """`dirty` is the share of events that are broken: no person, a negative time, or sent twice."""
    ids = spark.range(events)
    person = (F.pow(_uniform("id", seed, 1), 1.7) * PEOPLE).cast("int")
    song = (F.pow(_uniform("id", seed, 2), 2.5) * SONGS).cast("int")
    second = (_evenings(_uniform("id", seed, 3)) * 86_400).cast("int")
    plays = ids.select(
        F.concat(F.lit(f"{day}-"), F.lpad(F.col("id").cast("string"), 8, "0")).alias("event"),
        F.concat(F.lit("p"), F.lpad(person.cast("string"), 5, "0")).alias("person"),
        F.concat(F.lit("s"), F.lpad(song.cast("string"), 4, "0")).alias("song"),
        (F.to_timestamp(F.lit(day)).cast("long") + second).cast("timestamp").alias("at"),
        (30_000 + _uniform("id", seed, 4) * 210_000).cast("int").alias("ms_played"),
        F.lit(day).cast("date").alias("day"),
        _uniform("id", seed, 5).alias("_luck"),
    )
    luck, third = F.col("_luck"), dirty / 3
    broken = plays.withColumn("person", F.when(luck < third, None).otherwise(F.col("person"))).withColumn(
        "ms_played", F.when(luck.between(third, 2 * third), -F.col("ms_played")).otherwise(F.col("ms_played"))
    )
    times = F.when(luck.between(2 * third, dirty), 2).otherwise(1)
    return broken.withColumn("_sent", F.explode(F.array_repeat(F.lit(1), times))).drop("_luck", "_sent")


def songs(spark: SparkSession) -> DataFrame:
    """The catalogue: every song with its title and artist."""
    number = F.col("id").cast("int")
    first, second = F.array(*map(F.lit, FIRST)), F.array(*map(F.lit, SECOND))
    return spark.range(SONGS).select(
        F.concat(F.lit("s"), F.lpad(number.cast("string"), 4, "0")).alias("song"),
        F.concat_ws(
            " ", F.get(second, number % len(SECOND)), F.lit("No."), (number / len(SECOND)).cast("int") + 1
        ).alias("title"),
        _artist(first, second, (F.hash(number, F.lit(7)) % ARTISTS + ARTISTS) % ARTISTS).alias("artist"),
    )


def _artist(first: Column, second: Column, number: Column) -> Column:
    name = F.concat_ws(" ", F.get(first, number % len(FIRST)), F.get(second, (number / len(FIRST)).cast("int") % 10))
    return F.when(number >= 100, F.concat(F.lit("The "), name)).otherwise(name)


def _uniform(column: str, seed: int, stream: int) -> Column:
    """Numbers in [0, 1) that depend on the row alone, not on how Spark splits the work."""
    return F.pmod(F.xxhash64(F.col(column), F.lit(seed), F.lit(stream)), F.lit(1 << 40)) / float(1 << 40)


def _evenings(uniform: Column) -> Column:
    """More of the day's listening in the evening."""
    return F.pow(uniform, 0.6)

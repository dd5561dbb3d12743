"""`replace_where`: files that hold matching rows are written again without them, in the same job as the new rows."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING
from urllib.parse import unquote, urlsplit

from fenceline.errors import ContractError
from fenceline.spark.modes import ReplaceWhere
from fenceline.spark.reader import Reader

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame


_FILE = "_fl_file"


@dataclass(frozen=True, slots=True)
class Replacement:
    """What replaces what, decided before the job."""

    frame: DataFrame
    """The new rows, and those of the affected files that stay."""
    files: frozenset[str]
    """The affected part files, by tree path."""
    matching: int
    """Rows that go."""
    seen: str | None
    incoming: Callable[[], int]
    """The frame's own rows, known after the job; refuses those that do not match the predicate."""


def plan_replacement(reader: Reader, path: str, df: DataFrame, mode: ReplaceWhere) -> Replacement:
    from pyspark.sql import Observation, functions

    matches = functions.coalesce(functions.expr(mode.predicate), functions.lit(False))
    seen = Observation()
    new = df.observe(
        seen, functions.count(functions.lit(1)).alias("rows"), functions.count_if(~matches).alias("foreign")
    )

    def incoming() -> int:
        counts = seen.get
        if counts["foreign"]:
            raise ContractError(
                f"{counts['foreign']} rows of the frame do not match {mode.predicate!r}, so writing them again would "
                "add them twice",
                hint="filter the frame by the same predicate",
            )
        return int(counts["rows"])

    found = reader.live(path)
    if found is None:
        return Replacement(new, frozenset(), 0, None, incoming)
    dataset, live = found
    by_location = {reader.location(entry): entry for entry in live}
    counted = _matching(reader.scan(dataset, live, None, {}, _FILE), matches) if live else {}
    affected = [by_location[location] for location in counted]
    frame = new
    if affected:
        frame = new.unionByName(reader.scan(dataset, affected, None, {}).where(~matches))
    return Replacement(frame, frozenset(e.path for e in affected), sum(counted.values()), dataset.job, incoming)


def _matching(df: DataFrame, matches: Column) -> dict[str, int]:
    """How many rows match, by the file that holds them. Partitions that cannot match are not read."""
    from pyspark.sql import functions

    rows = functions.count(functions.lit(1)).alias("rows")
    counted = df.where(matches).groupBy(_FILE).agg(rows).collect()
    return {_location(row[_FILE]): int(row["rows"]) for row in counted}


def _location(url: str) -> str:
    """A file as `reader.location` names it."""
    parts = urlsplit(url)
    path = unquote(parts.path)
    return path if parts.scheme in ("", "file") else f"{parts.scheme}://{parts.netloc}{path}"

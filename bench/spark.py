"""What a Spark workspace costs: ratios measured side by side in one run, in one session.

python bench/spark.py [--quick] [--json FILE]
"""

from __future__ import annotations

import argparse
import itertools
import os
import shutil
import statistics
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

from pydantic import BaseModel, ConfigDict
from repository import Measure, report, timed

import fenceline as fl
from fenceline.seams import Seams
from fenceline.spark import SparkWorkspace, get_session, stop_session
from fenceline.spark.reader import at_commit
from fenceline.task.attempt import AttemptRunner
from fenceline.task.by_hand import ByHand, handed_out

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

ROWS = 5_000_000
FILES, COMMITS = 1_000, 20


class Params(BaseModel):
    model_config = ConfigDict(extra="forbid")
    rows: int
    number: int


class Result(BaseModel):
    rows: int


def plays(session: SparkSession, rows: int) -> DataFrame:
    """Rows with keys, words and numbers, made as they are written."""
    return session.range(rows).selectExpr(
        "id", "id % 100003 as song", "hash(id) as listener", "rand(7) as score", "cast(id % 365 as string) as day"
    )


@fl.task(name="bench.plays", owner="bench@example.com", version="1", workspace=fl.WorkspaceSpec())
def write_plays(workspace: SparkWorkspace, params: Params) -> Result:
    written = workspace.write(plays(workspace.spark, params.rows), f"plays-{params.number}")
    return Result(rows=written.rows)


def plain_write(session: SparkSession, rows: int, target: Path) -> None:
    """What anyone would do who wants the files to last."""
    plays(session, rows).write.parquet(str(target))
    for file in (*target.rglob("*"), target):
        descriptor = os.open(file, os.O_RDONLY)
        os.fsync(descriptor)
        os.close(descriptor)


def write_and_publish(session: SparkSession, work: Path, rows: int, rounds: int) -> Iterator[Measure]:
    repo = fl.open_repository(work / "written", create=True)
    runner = AttemptRunner(lambda url: repo.native, ByHand(), work / "attempts", actor="bench")

    def attempt(number: int) -> None:
        place = {
            "repository": repo.url,
            "branch": "main",
            "ref_type": "commit",
            "ref": repo.head("main").commit.id,
        }
        given = {"workspace": place, "params": {"rows": rows, "number": number}}
        result = runner.run(write_plays, handed_out("bench.plays", given, Seams()))
        if result.status != "COMPLETED" or result.output["result"] != {"rows": rows}:
            raise SystemExit(f"the attempt failed: {result.reason}")

    plain, ours = [], []
    for n in range(-1, rounds):  # the first of each warms the JVM, and counts for nothing
        os.sync()
        one = timed(lambda n=n: plain_write(session, rows, work / f"plain{n}"))  # type: ignore[misc]
        shutil.rmtree(work / f"plain{n}")
        os.sync()
        two = timed(lambda n=n: attempt(n + 1))  # type: ignore[misc]
        if n >= 0:
            plain.append(one)
            ours.append(two)
    yield ratio(f"attempt that writes and publishes {rows:,} rows / df.write.parquet and fsync", ours, plain, 1.10)


def read_many_commits(session: SparkSession, work: Path, rounds: int) -> Iterator[Measure]:
    repo = fl.open_repository(work / "read", create=True)
    runner = AttemptRunner(lambda url: repo.native, ByHand(), work / "attempts", actor="bench")
    each = FILES // COMMITS

    @fl.task(name="bench.append", owner="bench@example.com", version="1", workspace=fl.WorkspaceSpec())
    def append(workspace: SparkWorkspace, params: Params) -> Result:
        frame = workspace.spark.range(0, params.rows, 1, each).selectExpr("id", "id * 2 as twice")
        return Result(rows=workspace.write(frame, "events", mode="append").rows)

    for n in range(COMMITS):
        ref = repo.head("main").commit.id
        place = {"repository": repo.url, "branch": "main", "ref_type": "commit", "ref": ref}
        given = {"workspace": place, "params": {"rows": 20_000, "number": n}}
        result = runner.run(append, handed_out("bench.append", given, Seams()))
        if result.status != "COMPLETED":
            raise SystemExit(f"the attempt failed: {result.reason}")

    directory = work / "one-directory"
    directory.mkdir()
    for n, file in enumerate(sorted((work / "read" / "datasets").rglob("*.parquet"))):
        os.link(file, directory / f"part-{n:05}.parquet")
    if len(list(directory.iterdir())) != FILES:
        raise SystemExit(f"there are not {FILES} files")

    def total(frame: DataFrame) -> None:
        row = frame.selectExpr("count(*)", "sum(twice)").first()
        if row is None or row[0] != 20_000 * COMMITS:
            raise SystemExit(f"wrong rows: {row}")

    plain, ours = [], []
    for n in range(-2, rounds):
        one = timed(lambda: total(session.read.parquet(str(directory))))
        fresh = fl.open_repository(work / "read", mode="r")  # nothing cached
        two = timed(
            lambda fresh=fresh: total(at_commit(session, fresh.native, fresh.commit("main")).parquet("events"))  # type: ignore[misc]
        )
        if n >= 0:
            plain.append(one)
            ours.append(two)
    yield ratio(f"read of {FILES:,} files from {COMMITS} commits / plain scan of one directory", ours, plain, 1.3)


def ratio(name: str, ours: list[float], theirs: list[float], limit: float) -> Measure:
    """Round by round, since the machine's other work comes and goes; the median of that."""
    found = statistics.median(a / b for a, b in zip(ours, theirs, strict=True))
    return Measure(name, found, "×", limit, f"{statistics.median(ours):.2f} s / {statistics.median(theirs):.2f} s")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--quick", action="store_true", help="fewer rounds, for a look")
    parser.add_argument("--json", type=Path, help="also write the figures here")
    chosen = parser.parse_args()
    work = Path(tempfile.mkdtemp(prefix="fenceline-bench-"))
    rounds = 3 if chosen.quick else 9
    try:
        session = get_session()
        groups = (write_and_publish(session, work, ROWS, rounds), read_many_commits(session, work, rounds))
        report(itertools.chain.from_iterable(groups), chosen.json)
    finally:
        stop_session()
        shutil.rmtree(work, ignore_errors=True)


if __name__ == "__main__":
    main()

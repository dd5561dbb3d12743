"""What graphs cost: loads against plain Spark, small transactions, many processes, and a long history.

    python bench/graph.py [--quick] [--json FILE]

The loads run on Spark in one session; the same rows as plain Parquet, with their files made durable, are the measure.
"""

from __future__ import annotations

import argparse
import os
import shutil
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

from repository import Measure, report, timed

import fenceline as fl
from fenceline.graph.graph import Graph
from fenceline.graph.load import load
from fenceline.graph.loading.job import FrameSource
from fenceline.graph.loading.result import Mode
from fenceline.graph.maintenance import ensure_indices, optimize
from fenceline.spark import SparkSettings, get_session, stop_session

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

NODES, EDGES = 1_000_000, 5_000_000
SCHEMA = """
node Person { name: String @key  age: I32? @range(0..150)  city: String? }
edge Knows: Person -> Person { weight: F64? }
"""
SMALL = "node Person { name: String @key  age: I32? }\nedge Knows: Person -> Person"


def people(session: SparkSession, count: int) -> DataFrame:
    return session.range(count).selectExpr(
        "concat('p', id) AS name", "cast(id % 100 AS int) AS age", "concat('c', id % 977) AS city"
    )


def pairs(session: SparkSession, people: int, count: int) -> DataFrame:
    return session.range(count).selectExpr(
        "concat('k', id) AS id",
        f"concat('p', pmod(hash(id), {people})) AS src",
        f"concat('p', pmod(hash(id, 7), {people})) AS dst",
        "id / 7 AS weight",
    )


def plain(frames: dict[str, DataFrame], target: Path) -> None:
    """What anyone would do who wants the files to last."""
    for name, frame in frames.items():
        frame.write.parquet(str(target / name))
    for file in (*target.rglob("*"), target):
        descriptor = os.open(file, os.O_RDONLY)
        os.fsync(descriptor)
        os.close(descriptor)


def loads(session: SparkSession, work: Path, nodes: int, edges: int, rounds: int) -> Iterator[Measure]:
    frames = {"Person": people(session, nodes), "Knows": pairs(session, nodes, edges)}
    sources = [FrameSource(frame, name) for name, frame in frames.items()]
    times: dict[str, list[float]] = {"plain": [], "append": [], "merge": []}
    for n in range(rounds + 1):  # the first round warms up
        target, root = work / f"plain-{n}", work / f"graph-{n}"
        taken = {"plain": timed(lambda target=target: plain(frames, target))}  # type: ignore[misc]
        graph = fl.open_repository(root, create=True).graph()
        graph.init(SCHEMA)
        taken["append"] = timed(lambda graph=graph: _load(graph, sources, "append", session))  # type: ignore[misc]
        taken["merge"] = timed(lambda graph=graph: _load(graph, sources, "merge", session))  # type: ignore[misc]
        for name, seconds in taken.items():
            times[name] += [seconds] if n else []
        shutil.rmtree(target)
        shutil.rmtree(root)
    middle = {name: statistics.median(found) for name, found in times.items()}
    rows = nodes + edges
    for mode, limit in (("append", 2.0), ("merge", 4.0)):
        detail = f"{middle[mode]:.1f} s against {middle['plain']:.1f} s for {rows:,} rows"
        yield Measure(f"load, {mode}, against plain Parquet", middle[mode] / middle["plain"], "×", limit, detail)


def _load(graph: Graph, sources: list[FrameSource], mode: Mode, session: SparkSession) -> None:
    load(graph, sources, mode=mode, session=session)


def flat(work: Path, few: int, many: int) -> Iterator[Measure]:
    """Time per row of a merge in process, of few rows and of many."""
    each: dict[int, float] = {}
    for count in (few, many):
        root = work / f"flat-{count}"
        graph = fl.open_repository(root, create=True).graph()
        graph.init(SCHEMA)
        source = _files(work, count)
        load(graph, source, mode="merge", engine="local")
        start = time.perf_counter()
        load(graph, source, mode="merge", engine="local")
        each[count] = (time.perf_counter() - start) / count
        shutil.rmtree(root)
    detail = f"{each[many] * 1e6:.1f} µs against {each[few] * 1e6:.1f} µs a row"
    yield Measure(f"merge of {many:,} edges against {few:,}, a row", each[many] / each[few], "×", 1.5, detail)


def _files(work: Path, edges: int) -> str:
    import numpy as np
    import pyarrow as pa  # type: ignore[import-untyped]
    import pyarrow.parquet as pq  # type: ignore[import-untyped]

    nodes, found, target = max(1, edges // 5), np.random.default_rng(7), work / f"in-{edges}"
    target.mkdir()
    names = pa.array([f"p{n}" for n in range(nodes)])
    ages = pa.array(found.integers(0, 100, nodes), pa.int32())
    pq.write_table(pa.table({"name": names, "age": ages, "city": names}), target / "Person.parquet")
    ids = pa.array([f"k{n}" for n in range(edges)])
    ends = [names.take(pa.array(found.integers(0, nodes, edges))) for _ in range(2)]
    table = pa.table({"id": ids, "src": ends[0], "dst": ends[1], "weight": found.random(edges)})
    pq.write_table(table, target / "Knows.parquet")
    return str(target)


# --- small transactions -----------------------------------------------------------------------------------------


def small(graph: Graph, name: str) -> float:
    def run() -> None:
        with graph.transaction() as tx:
            tx.insert("Person", {"name": name, "age": 1})
            tx.insert_edge("Knows", name, "root")

    return timed(run)


def latency(work: Path, count: int, commits: int) -> Iterator[Measure]:
    graph = _small_graph(work / "small")
    for n in range(20):
        small(graph, f"warm-{n}")
    early = sorted(small(graph, f"early-{n}") for n in range(count))
    yield Measure("small transaction, p50", statistics.median(early) * 1000, "ms", detail="a node and an edge")
    yield Measure("small transaction, p95", early[int(len(early) * 0.95)] * 1000, "ms")
    for n in range(commits):
        small(graph, f"more-{n}")
    for what, limit in (("", None), (", optimized", 1.5)):
        if limit:
            ensure_indices(graph)
            optimize(graph)
        late = [small(graph, f"late{limit}-{n}") for n in range(count)]
        ratio = statistics.median(late) / statistics.median(early)
        detail = f"{statistics.median(late) * 1000:.1f} ms against {statistics.median(early) * 1000:.1f} ms"
        yield Measure(f"small transaction after {commits:,} commits{what}, against 20", ratio, "×", limit, detail)


def together(work: Path, each: int) -> Iterator[Measure]:
    for processes in (1, 4, 8):
        root = work / f"together-{processes}"
        _small_graph(root)
        running = [
            subprocess.Popen(
                [sys.executable, __file__, "--transactions", str(each), str(root), str(n)],
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
            )
            for n in range(processes)
        ]
        for process in running:
            assert process.stdout is not None
            process.stdout.readline()  # it is ready
        start = time.perf_counter()
        for process in running:
            assert process.stdin is not None
            process.stdin.close()
        codes = [process.wait() for process in running]
        seconds = time.perf_counter() - start
        if any(codes):
            raise SystemExit(f"a writer failed: {codes}")
        found = fl.open_repository(root, "r").graph().table("Person").count()
        if found != processes * each + 1:
            raise SystemExit(f"{processes * each + 1 - found} rows were lost")
        yield Measure(f"transactions a second, {processes} processes", processes * each / seconds, "/s")


def _small_graph(root: Path) -> Graph:
    graph = fl.open_repository(root, create=True).graph()
    graph.init(SMALL)
    with graph.transaction() as tx:
        tx.insert("Person", {"name": "root"})
    return graph


def write_some(root: str, count: int, who: str) -> None:
    graph = fl.open_repository(root, sweep=False).graph()
    graph.table("Person").count()
    print("ready", flush=True)
    sys.stdin.read()
    for n in range(count):
        with graph.transaction(tries=1000) as tx:
            tx.insert("Person", {"name": f"{who}-{n}"})
            tx.insert_edge("Knows", f"{who}-{n}", "root")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--quick", action="store_true")
    parser.add_argument("--json", type=Path)
    parser.add_argument("--only", choices=["loads", "flat", "latency", "together"])
    parser.add_argument("--transactions", nargs=3, metavar=("COUNT", "ROOT", "WHO"))
    chosen = parser.parse_args()
    if chosen.transactions:
        count, root, who = chosen.transactions
        write_some(root, int(count), who)
        return
    quick, measures = chosen.quick, list[Measure]()
    with tempfile.TemporaryDirectory(prefix="fenceline-bench-") as directory:
        work = Path(directory)
        if chosen.only in (None, "loads"):
            session = get_session(SparkSettings())
            nodes, edges = (NODES // 10, EDGES // 10) if quick else (NODES, EDGES)
            measures += loads(session, work, nodes, edges, 1 if quick else 3)
            stop_session()
        if chosen.only in (None, "flat"):
            measures += flat(work, 100_000, 500_000 if quick else EDGES)
        if chosen.only in (None, "latency"):
            measures += latency(work, 30 if quick else 100, 200 if quick else 2_000)
        if chosen.only in (None, "together"):
            measures += together(work, 5 if quick else 25)
    report(measures, chosen.json)


if __name__ == "__main__":
    main()

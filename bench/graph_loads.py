"""Loads into a graph on Spark: against plain Parquet, and a large one in merge mode with every rule on."""

from __future__ import annotations

import json
import os
import shutil
import statistics
import subprocess
import sys
import threading
import warnings
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

from repository import Measure, timed

import fenceline as fl
from fenceline.graph.graph import Graph
from fenceline.graph.load import load
from fenceline.graph.loading.job import FrameSource
from fenceline.graph.loading.result import Mode
from fenceline.spark import SparkSettings, get_session, stop_session

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

GIB = 1 << 30
EDGES_EACH = 5
PLAIN = """
node Person { name: String @key  age: I32?  email: String?  city: String? }
edge Knows: Person -> Person { weight: F64? }
"""
RULES = """
node Person {
  name: String @key
  age: I32? @range(0..150)
  email: String? @unique @check("^p[0-9]+@example[.]org$")
  city: String?
}
edge Knows: Person -> Person @card(1..10) { weight: F64?  @unique(src, dst) }
"""
"""All kinds of rules there are; that edges have their ends is always one."""


# starting the JVM forks and executes it at once: nothing of Lance runs in between
warnings.filterwarnings("ignore", message="lance is not fork-safe")


def say(text: str) -> None:
    print(f"# {text}", file=sys.stderr, flush=True)


def frames(session: SparkSession, nodes: int, edges: int) -> dict[str, DataFrame]:
    """Every person knows as many others as there are edges for each, and nobody twice."""
    return {
        "Person": session.range(nodes).selectExpr(
            "concat('p', id) AS name",
            "cast(id % 100 AS int) AS age",
            "concat('p', id, '@example.org') AS email",
            "concat('c', id % 977) AS city",
        ),
        "Knows": session.range(edges).selectExpr(
            "concat('k', id) AS id",
            f"concat('p', id % {nodes}) AS src",
            f"concat('p', (id % {nodes} * 7919 + id div {nodes} * 31 + 1) % {nodes}) AS dst",
            "id / 7 AS weight",
        ),
    }


def loaded(graph: Graph, given: dict[str, DataFrame], mode: Mode, session: SparkSession) -> float:
    sources = [FrameSource(frame, name) for name, frame in given.items()]
    return timed(lambda: load(graph, sources, mode=mode, session=session))


def plain(given: dict[str, DataFrame], target: Path) -> None:
    """What anyone would do who wants the files to last."""
    for name, frame in given.items():
        frame.write.parquet(str(target / name))
    for file in (*target.rglob("*"), target):
        descriptor = os.open(file, os.O_RDONLY)
        os.fsync(descriptor)
        os.close(descriptor)


def against_parquet(work: Path, nodes: int, edges: int, rounds: int) -> Iterator[Measure]:
    session = get_session(SparkSettings())
    times: dict[str, list[float]] = {"plain": [], "append": [], "merge": []}
    for n in range(-1, rounds):
        few = n < 0  # the first round warms up, with a tenth of the rows
        given = frames(session, nodes // 10, edges // 10) if few else frames(session, nodes, edges)
        target, root = work / f"plain-{n}", work / f"graph-{n}"
        taken = {"plain": timed(lambda: plain(given, target))}  # noqa: B023
        graph = fl.open_repository(root, create=True).graph()
        graph.init(PLAIN)
        taken["append"] = loaded(graph, given, "append", session)
        taken["merge"] = loaded(graph, given, "merge", session)
        said = ", ".join(f"{name} {seconds:.1f} s" for name, seconds in taken.items())
        say(f"load of {(nodes + edges) // (10 if few else 1):,} rows: {said}")
        for name, seconds in taken.items():
            times[name] += [] if few else [seconds]
        shutil.rmtree(target)
        shutil.rmtree(root)
    stop_session()
    for mode, limit in (("append", 2.0), ("merge", 4.0)):
        found = statistics.median(a / b for a, b in zip(times[mode], times["plain"], strict=True))
        detail = f"{statistics.median(times[mode]):.1f} s / {statistics.median(times['plain']):.1f} s"
        yield Measure(f"load of {nodes + edges:,} rows, {mode} / plain Parquet and fsync", found, "×", limit, detail)


# --- with every rule on -----------------------------------------------------------------------------------------


def with_rules(work: Path, few: int, many: int) -> Iterator[Measure]:
    """Each in a process of its own, with its JVM and its workers, so that the peak is its own."""
    each: dict[int, float] = {}
    for edges in (few, many):
        nodes = edges // EDGES_EACH
        times, peak = _in_child(work / f"rules-{edges}", nodes, edges)
        each[edges] = times["merge"] / (nodes + edges)
        detail = f"{times['first']:.0f} s into an empty graph, {times['merge']:.0f} s over all of it once more"
        say(f"merge of {nodes:,} nodes and {edges:,} edges: {detail}, {peak / GIB:.1f} GiB")
        if edges == many:
            name = f"merge of {nodes:,} nodes and {edges:,} edges, every rule on: peak memory with the JVM"
            yield Measure(name, peak / GIB, "GiB", 8, detail)
    detail = f"{each[many] * 1e6:.1f} µs / {each[few] * 1e6:.1f} µs"
    yield Measure(f"its time for a row: {many:,} edges / {few:,}", each[many] / each[few], "×", 1.5, detail)


def _in_child(root: Path, nodes: int, edges: int) -> tuple[dict[str, float], int]:
    command = [sys.executable, __file__, str(root), str(nodes), str(edges)]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as child:
        peak, stop = [0], threading.Event()
        watching = threading.Thread(target=_watch, args=(child.pid, peak, stop))
        watching.start()
        out, _ = child.communicate()
        stop.set()
        watching.join()
    shutil.rmtree(root, ignore_errors=True)
    if child.returncode:
        raise SystemExit(f"the load failed: {child.returncode}")
    times: dict[str, float] = json.loads(out.splitlines()[-1])
    return times, peak[0]


def _watch(pid: int, peak: list[int], stop: threading.Event) -> None:
    while not stop.wait(0.25):
        peak[0] = max(peak[0], resident(pid))


def resident(pid: int) -> int:
    """Bytes in memory of a process and all below it. What they share is counted for each: it is never too little."""
    parents: dict[int, int] = {}
    pages: dict[int, int] = {}
    for entry in Path("/proc").iterdir():
        if not entry.name.isdigit():
            continue
        try:
            fields = (entry / "stat").read_text().rpartition(")")[2].split()
        except OSError:  # it has ended
            continue
        parents[int(entry.name)], pages[int(entry.name)] = int(fields[1]), int(fields[21])
    family, size = {pid}, 0
    while len(family) != size:
        size = len(family)
        family |= {child for child, parent in parents.items() if parent in family}
    return sum(pages.get(each, 0) for each in family) * os.sysconf("SC_PAGE_SIZE")


def _child(root: str, nodes: int, edges: int) -> None:
    session = get_session(SparkSettings(conf={"spark.driver.memory": "3g"}))
    graph = fl.open_repository(root, create=True).graph()
    graph.init(RULES)
    loaded(_warm(Path(f"{root}-warm")), frames(session, 200, 1_000), "merge", session)
    given = frames(session, nodes, edges)
    times = {name: loaded(graph, given, "merge", session) for name in ("first", "merge")}
    found = {name: graph.table(name).count() for name in given}
    stop_session()
    shutil.rmtree(f"{root}-warm")
    if found != {"Person": nodes, "Knows": edges}:
        raise SystemExit(f"wrong rows: {found}")
    print(json.dumps(times), flush=True)


def _warm(root: Path) -> Graph:
    graph = fl.open_repository(root, create=True).graph()
    graph.init(RULES)
    return graph


if __name__ == "__main__":
    _child(sys.argv[1], int(sys.argv[2]), int(sys.argv[3]))

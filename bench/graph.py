"""What graphs cost: loads against plain Spark, small transactions, many processes, and a long history.

    python bench/graph.py [--quick] [--only loads|rules|latency|together] [--json FILE]

Everything that is compared is measured in the same run, in turns; progress goes to stderr.
"""

from __future__ import annotations

import argparse
import itertools
import shutil
import statistics
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import replace
from pathlib import Path

from graph_loads import against_parquet, say, with_rules
from repository import Measure, report, timed

import fenceline as fl
from fenceline.graph.graph import Graph
from fenceline.graph.maintenance import ensure_indices

SCHEMA = "node Person { name: String @key  age: I32? }\nedge Knows: Person -> Person"
AGO = 20


def small(graph: Graph, name: str) -> float:
    def run() -> None:
        with graph.transaction() as tx:
            tx.insert("Person", {"name": name, "age": 1})
            tx.insert_edge("Knows", name, "root")

    return timed(run)


def latency(work: Path, count: int, commits: int) -> Iterator[Measure]:
    """A young graph and old ones in turns, so that the machine's other work meets all of them."""
    young = _graph(work / "young")
    old = {"": _graph(work / "old"), ", indexed": _graph(work / "indexed")}
    for graph in (young, *old.values()):
        for n in range(AGO):
            small(graph, f"first-{n}")
    ensure_indices(old[", indexed"])
    for n in range(commits - AGO):
        for graph in old.values():
            small(graph, f"more-{n}")
        if not (n + AGO + 1) % 200:
            say(f"{n + AGO + 1:,} of {commits:,} commits")
    taken: dict[str, list[float]] = {"young": [], **{name: [] for name in old}}
    for n in range(count):
        taken["young"].append(small(young, f"late-{n}"))
        for name, graph in old.items():
            taken[name].append(small(graph, f"late-{n}"))
    middle = {name: statistics.median(times) * 1000 for name, times in taken.items()}
    times = sorted(taken["young"])
    yield Measure("small transaction, p50", middle["young"], "ms", detail="a node and an edge")
    yield Measure("small transaction, p95", times[int(len(times) * 0.95)] * 1000, "ms")
    for name in old:
        detail = f"{middle[name]:.1f} ms / {middle['young']:.1f} ms, without maintenance"
        ratio = middle[name] / middle["young"]
        yield Measure(f"small transaction{name}, after {commits:,} commits / after {AGO}", ratio, "×", 1.5, detail)


def together(work: Path, each: int, counts: Sequence[int]) -> Iterator[Measure]:
    for processes in counts:
        say(f"{processes} processes, {each} transactions each")
        root = work / f"together-{processes}"
        _graph(root)
        command = [sys.executable, __file__, "--transactions", str(each), str(root)]
        running = [
            subprocess.Popen([*command, str(n)], stdin=subprocess.PIPE, stdout=subprocess.PIPE)
            for n in range(processes)
        ]
        for process in running:
            assert process.stdout is not None
            process.stdout.readline()  # it is ready

        def finish(running: list[subprocess.Popen[bytes]] = running) -> None:
            for process in running:
                assert process.stdin is not None
                process.stdin.close()
            codes = [process.wait() for process in running]
            if any(codes):
                raise SystemExit(f"a writer failed: {codes}")

        seconds = timed(finish)
        found = fl.open_repository(root, "r").graph().table("Person").count()
        if found != processes * each + 1:
            raise SystemExit(f"{processes * each + 1 - found} rows were lost")
        yield Measure(f"transactions a second on the same two tables, {processes} processes", found / seconds, "/s")


def _graph(root: Path) -> Graph:
    graph = fl.open_repository(root, create=True).graph()
    graph.init(SCHEMA)
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


def groups(work: Path, quick: bool) -> dict[str, Callable[[], Iterator[Measure]]]:
    nodes, edges = (20_000, 100_000) if quick else (1_000_000, 5_000_000)
    return {
        "latency": lambda: latency(work, 5 if quick else 100, 30 if quick else 2_000),
        "together": lambda: together(work, 3 if quick else 25, (1, 2) if quick else (1, 4, 8)),
        "loads": lambda: against_parquet(work, nodes, edges, 1 if quick else 3),
        "rules": lambda: with_rules(work, edges // 5 if quick else 100_000, edges),
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--quick", action="store_true", help="a fiftieth of the size, for a look; limits do not count")
    parser.add_argument("--json", type=Path, help="also write the figures here")
    parser.add_argument("--only", action="append", help="one of the groups; may be given again")
    parser.add_argument("--transactions", nargs=3, metavar=("COUNT", "ROOT", "WHO"), help=argparse.SUPPRESS)
    chosen = parser.parse_args()
    if chosen.transactions:
        count, root, who = chosen.transactions
        write_some(root, int(count), who)
        return
    work = Path(tempfile.mkdtemp(prefix="fenceline-bench-"))
    try:
        every = groups(work, chosen.quick)
        measures: Iterable[Measure] = itertools.chain.from_iterable(every[name]() for name in chosen.only or every)
        report((replace(each, limit=None) for each in measures) if chosen.quick else measures, chosen.json)
    finally:
        shutil.rmtree(work, ignore_errors=True)


if __name__ == "__main__":
    main()

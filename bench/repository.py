"""What a publish costs: ratios measured side by side in one run.

    python bench/repository.py [--quick] [--json FILE]

Absolute times depend on the machine and its neighbours; the ratios are what we promise, each against something
measured in the same run, in turns.
"""

from __future__ import annotations

import argparse
import itertools
import json
import os
import random
import resource
import shutil
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterable, Iterator
from dataclasses import asdict, dataclass
from pathlib import Path

import fenceline as fl
from fenceline.repo.model import Entry, Kind
from fenceline.repo.native.local import LocalObjects

MANY = 1_000_000
FEW = 1_000


@dataclass(frozen=True)
class Measure:
    """One figure; `limit` is what it must stay under, where something is promised."""

    name: str
    value: float
    unit: str
    limit: float | None = None
    detail: str = ""

    @property
    def kept(self) -> bool:
        return self.limit is None or self.value <= self.limit


def timed(call: Callable[[], object]) -> float:
    start = time.perf_counter()
    call()
    return time.perf_counter() - start


def path_of(n: int) -> str:
    return f"raw/shard={n % 97:02}/part-{n:08}.parquet"


def entries(count: int) -> Iterator[tuple[str, Entry]]:
    """Entries as an import makes them: nothing is copied, so only the tree is measured."""
    for n in range(count):
        path = path_of(n)
        yield path, Entry(path, Kind.FILE, 10_000 + n, f"file:///lake/{path}", f"etag:{n:x}")


def import_entries(repo: fl.Repository, count: int) -> None:
    with repo.transaction("main", message=f"import {count}") as tx:
        tx.apply(entries(count))


def import_in_child(root: Path, count: int) -> tuple[float, float]:
    """Seconds and peak memory (MiB) of an import, in a process of its own so that the peak is its own."""
    start = time.perf_counter()
    done = subprocess.run(
        [sys.executable, __file__, "--import-entries", str(count), str(root)],
        check=True,
        capture_output=True,
        text=True,
    )
    return time.perf_counter() - start, float(done.stdout)


def change_ten(repo: fl.Repository, count: int, round_: int) -> None:
    with repo.transaction("main") as tx:
        for n in random.Random(round_).sample(range(count), 10):
            tx.write(path_of(n), f"{round_}-{n}".encode())


def commit_and_diff(work: Path, many: int, rounds: int) -> Iterator[Measure]:
    small = fl.open_repository(work / "small", create=True)
    import_entries(small, FEW)
    seconds, peak = import_in_child(work / "large", many)
    yield Measure(f"import of {many:,} entries: peak memory", peak, "MiB", 1024, f"{seconds:.1f} s")
    large = fl.open_repository(work / "large")
    times: dict[str, list[float]] = {"few": [], "many": [], "diff few": [], "diff many": []}
    for n in range(rounds):
        times["few"].append(timed(lambda n=n: change_ten(small, FEW, n)))  # type: ignore[misc]
        times["many"].append(timed(lambda n=n: change_ten(large, many, n)))  # type: ignore[misc]
        for name, repo in (("diff few", small), ("diff many", large)):
            fresh = fl.open_repository(repo.url, mode="r")  # nothing cached
            times[name].append(timed(lambda fresh=fresh: len(list(fresh.diff("main~1", "main")))))  # type: ignore[misc]
    p50 = {name: statistics.median(values) for name, values in times.items()}
    yield Measure(
        f"commit of 10 changed files: tree of {many:,} / tree of {FEW:,}",
        p50["many"] / p50["few"],
        "×",
        3,
        f"{p50['many'] * 1e3:.1f} ms / {p50['few'] * 1e3:.1f} ms",
    )
    yield Measure(
        f"diff of those commits: tree of {many:,} / tree of {FEW:,}",
        p50["diff many"] / p50["diff few"],
        "×",
        3,
        f"{p50['diff many'] * 1e3:.2f} ms / {p50['diff few'] * 1e3:.2f} ms",
    )


def upload_against_cp(work: Path, rounds: int) -> Iterator[Measure]:
    source = work / "source"
    source.mkdir()
    for n in range(1000):
        (source / f"part-{n:04}.bin").write_bytes(os.urandom(10_000))
    repo = fl.open_repository(work / "upload", create=True)
    copied, published = [], []

    def cp(n: int) -> None:
        subprocess.run(["cp", "-r", source, work / f"copy{n}"], check=True)
        subprocess.run(["sync"], check=True)

    def upload(n: int) -> None:
        with repo.transaction("main") as tx:
            tx.upload(str(source), f"raw/{n}")

    for n in range(rounds):
        os.sync()
        copied.append(timed(lambda n=n: cp(n)))  # type: ignore[misc]
        os.sync()
        published.append(timed(lambda n=n: upload(n)))  # type: ignore[misc]
    ours, theirs = statistics.median(published), statistics.median(copied)
    yield Measure(
        "upload and publish 1,000 files of 10 KB / cp -r and sync",
        ours / theirs,
        "×",
        2.5,
        f"{ours * 1e3:.0f} ms / {theirs * 1e3:.0f} ms",
    )


def one_file(work: Path, rounds: int) -> Iterator[Measure]:
    repo = fl.open_repository(work / "one", create=True)
    objects = LocalObjects(work / "bare")
    bare, transactions = [], []

    def transact(n: int) -> None:
        with repo.transaction("main") as tx:
            tx.write("state.json", str(n).encode())

    for n in range(rounds):
        bare.append(timed(lambda n=n: objects.create(f"area/{n}", b"x" * 300)))  # type: ignore[misc]
        transactions.append(timed(lambda n=n: transact(n)))  # type: ignore[misc]
    ours, theirs = statistics.median(transactions), statistics.median(bare)
    yield Measure(
        "one-file transaction p50 / one fsynced create-if-absent p50",
        ours / theirs,
        "×",
        detail=f"{ours * 1e3:.2f} ms / {theirs * 1e3:.2f} ms",
    )


def throughput(work: Path, seconds: float) -> Iterator[Measure]:
    for processes in (1, 4, 8):
        root = work / f"throughput-{processes}"
        fl.open_repository(root, create=True)
        command = [sys.executable, __file__, "--publish-for", str(seconds), str(root)]
        children = [subprocess.Popen([*command, str(n)], stdout=subprocess.PIPE, text=True) for n in range(processes)]
        counts = [int(child.communicate()[0]) for child in children]
        total = sum(counts)
        with fl.open_repository(root) as repo:
            found = sum(1 for item in repo.log("main") if item.commit.kind == "write")
        if any(child.returncode for child in children) or found != total:
            raise SystemExit(f"{processes} processes acknowledged {total} publishes, the log shows {found}")
        yield Measure(f"publishes per second, {processes} process(es), one branch", total / seconds, "/s")


def publish_for(root: str, seconds: float, name: str) -> int:
    repo = fl.open_repository(root)
    end = time.monotonic() + seconds
    count = 0
    while time.monotonic() < end:
        with repo.transaction("main", on_conflict="rebase") as tx:
            tx.write(f"{name}/state", str(count).encode())
        count += 1
    return count


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--quick", action="store_true", help="a tenth of the size, for a look")
    parser.add_argument("--json", type=Path, help="also write the figures here")
    parser.add_argument("--import-entries", nargs=2, help=argparse.SUPPRESS)
    parser.add_argument("--publish-for", nargs=3, help=argparse.SUPPRESS)
    chosen = parser.parse_args()
    if chosen.import_entries:
        count, root = chosen.import_entries
        import_entries(fl.open_repository(root, create=True), int(count))
        sys.stdout.write(f"{resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024:.0f}\n")
        return
    if chosen.publish_for:
        seconds, root, name = chosen.publish_for
        sys.stdout.write(f"{publish_for(root, float(seconds), name)}\n")
        return
    measure_all(chosen.quick, chosen.json)


def report(measures: Iterable[Measure], target: Path | None) -> None:
    """Print the figures as they come, write them, and fail if a promise was missed."""
    kept = []
    for measure in measures:
        kept.append(measure)
        limit = "" if measure.limit is None else f"  (limit {measure.limit:g}: {'kept' if measure.kept else 'MISSED'})"
        print(f"{measure.value:10.2f} {measure.unit:4} {measure.name}  [{measure.detail}]{limit}", flush=True)
    if target:
        target.parent.mkdir(parents=True, exist_ok=True)
        target.write_text(json.dumps([{**asdict(m), "kept": m.kept} for m in kept], indent=2) + "\n")
    if not all(measure.kept for measure in kept):
        raise SystemExit("a promised ratio was missed")


def measure_all(quick: bool, target: Path | None) -> None:
    work = Path(tempfile.mkdtemp(prefix="fenceline-bench-"))
    groups = (
        upload_against_cp(work, 5 if quick else 15),
        one_file(work, 50 if quick else 300),
        throughput(work, 2 if quick else 5),
        commit_and_diff(work, MANY // 10 if quick else MANY, 7 if quick else 21),
    )
    try:
        report(itertools.chain.from_iterable(groups), target)
    finally:
        shutil.rmtree(work, ignore_errors=True)


if __name__ == "__main__":
    main()

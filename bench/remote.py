"""What distance costs: a repository on a real S3 server, 30 ms away. Counts of round trips, and ratios.

python bench/remote.py [--quick] [--json FILE]
"""

from __future__ import annotations

import argparse
import os
import statistics
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from pathlib import Path

from repository import Measure, report, timed

import fenceline as fl
from fenceline.repo.native.remote.objects import RemoteObjects
from fenceline.testing import SlowObjects
from fenceline.txn import upload

sys.path.insert(0, str(Path(__file__).parents[1] / "tests" / "s3"))
from s3_server import S3Server, running

TRIP = 0.03


def write_one(repo: fl.Repository, name: str, key: str | None = None) -> None:
    with repo.transaction("main", key=key) as tx:
        tx.write(f"{name}.txt", name.encode())


def trips(far: SlowObjects, work: Callable[[int], object], rounds: int) -> tuple[float, str]:
    """How many round trips long something is: its time, less the same work nearby, in units of a trip."""
    times, calls = [], []
    for n in range(rounds):
        far.calls.clear()
        times.append(timed(lambda n=n: work(n)))  # type: ignore[misc]
        calls.append(len(far.calls))
    p50 = statistics.median(times)
    return p50 / TRIP, f"{statistics.median(calls):.0f} calls, {p50 * 1e3:.0f} ms"


def publishes(server: S3Server, rounds: int) -> Iterator[Measure]:
    objects = RemoteObjects.at(server.url("bench"), server.options)
    fl.Repository.on(objects, create=True)
    far = SlowObjects(objects, TRIP)
    repo = fl.Repository.on(far)
    write_one(repo, "warm")
    found, detail = trips(far, lambda n: write_one(repo, f"plain-{n}"), rounds)
    yield Measure("publish one file: length in round trips", found, "", 22, detail)
    found, detail = trips(far, lambda n: write_one(repo, f"key-{n}", f"key-{n}"), rounds)
    yield Measure("publish one file under a key: length in round trips", found, "", 26, detail)
    found, detail = trips(far, lambda n: repo.head(), rounds)
    yield Measure("head of a branch: length in round trips", found, "", 2, detail)
    found, detail = trips(far, lambda n: fl.Repository.on(far, "r").head(), rounds)
    yield Measure("open for reading, and the head: length in round trips", found, "", 8, detail)


def many_files(server: S3Server, work: Path, count: int) -> Iterator[Measure]:
    for n in range(count):
        (work / f"part-{n:05}.bin").write_bytes(os.urandom(10_000))
    objects = RemoteObjects.at(server.url("many"), server.options)
    fl.Repository.on(objects, create=True)
    repo = fl.Repository.on(SlowObjects(objects, TRIP))

    def publish(path: str) -> None:
        with repo.transaction("main") as tx:
            tx.upload(str(work), path)

    at_once = timed(lambda: publish("at-once"))
    some = max(count // 20, 10)
    each = timed(lambda: one_by_one(objects, work, some)) / some
    yield Measure(
        f"publish {count:,} files of 10 KB: one at a time / {upload.FAR_WORKERS} at once (at least 5)",
        each * count / at_once,
        "×",
        None,
        f"{each * count:.1f} s / {at_once:.1f} s",
    )


def one_by_one(objects: RemoteObjects, work: Path, count: int) -> None:
    far = SlowObjects(objects, TRIP)
    for path in sorted(work.iterdir())[:count]:
        far.put(f"files/one/{path.name}", path.read_bytes())


def measure_all(quick: bool, target: Path | None) -> None:
    with tempfile.TemporaryDirectory(prefix="fenceline-bench-") as place:
        root = Path(place)
        (root / "files").mkdir()
        with running(root) as server:
            time.sleep(1)  # it goes on settling for a moment after its first answer

            def groups() -> Iterator[Measure]:
                yield from publishes(server, 5 if quick else 15)
                yield from many_files(server, root / "files", 200 if quick else 1000)

            report(groups(), target)


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--quick", action="store_true")
    parser.add_argument("--json", type=Path)
    arguments = parser.parse_args()
    measure_all(arguments.quick, arguments.json)

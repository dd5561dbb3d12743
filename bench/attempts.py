"""What an attempt costs: ratios measured side by side in one run.

python bench/attempts.py [--quick] [--json FILE]
"""

from __future__ import annotations

import argparse
import itertools
import os
import shutil
import statistics
import subprocess
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

from pydantic import BaseModel, ConfigDict
from repository import Measure, report, timed

import fenceline as fl
from fenceline.seams import Seams
from fenceline.task.attempt import AttemptRunner
from fenceline.task.by_hand import ByHand, handed_out
from fenceline.task.contract import TaskDefinition


class Params(BaseModel):
    model_config = ConfigDict(extra="forbid")
    number: int


class Result(BaseModel):
    number: int


@fl.task(name="bench.change", owner="bench@example.com", version="1", workspace=fl.WorkspaceSpec())
def change(workspace: Path, params: Params) -> Result:
    (workspace / "part-0500.bin").write_bytes(os.urandom(10_000))
    return Result(number=params.number)


@fl.task(name="bench.nothing", owner="bench@example.com", version="1", workspace=fl.WorkspaceSpec())
def nothing(workspace: Path, params: Params) -> Result:  # noqa: ARG001 - a task takes its workspace
    return Result(number=params.number)


def runner_on(repo: fl.Repository, work: Path) -> Callable[[TaskDefinition[Any, Any], int], None]:
    runner = AttemptRunner(lambda url: repo.native, ByHand(), work, actor="bench")

    def run(definition: TaskDefinition[Any, Any], number: int) -> None:
        ref = repo.head("main").commit.id
        place = {"repository": repo.url, "branch": "main", "ref_type": "commit", "ref": ref}
        given = {"workspace": place, "params": {"number": number}}
        result = runner.run(definition, handed_out(definition.name, given, Seams()))
        if result.status != "COMPLETED":
            raise SystemExit(f"the attempt failed: {result.reason}")

    return run


def one_file_among_many(work: Path, rounds: int) -> Iterator[Measure]:
    source = work / "source"
    source.mkdir()
    for n in range(1000):
        (source / f"part-{n:04}.bin").write_bytes(os.urandom(10_000))
    repo = fl.open_repository(work / "repo", create=True)
    with repo.transaction("main") as tx:
        tx.upload(str(source), "")
    run = runner_on(repo, work / "attempts")
    copied, attempted = [], []
    for n in range(rounds):
        os.sync()
        copied.append(timed(lambda n=n: subprocess.run(["cp", "-r", source, work / f"copy{n}"], check=True)))  # type: ignore[misc]
        shutil.rmtree(work / f"copy{n}")
        os.sync()
        attempted.append(timed(lambda n=n: run(change, n)))  # type: ignore[misc]
    ours, theirs = statistics.median(attempted), statistics.median(copied)
    yield Measure(
        "attempt that changes one file among 1,000 of 10 KB / cp -r",
        ours / theirs,
        "×",
        3,
        f"{ours * 1e3:.0f} ms / {theirs * 1e3:.0f} ms",
    )


def empty_body(work: Path, rounds: int) -> Iterator[Measure]:
    repo = fl.open_repository(work / "empty", create=True)
    with repo.transaction("main") as tx:
        tx.write("a.txt", b"a")
    run = runner_on(repo, work / "empty-attempts")
    numbers = itertools.count()
    times = [timed(lambda: run(nothing, next(numbers))) for _ in range(rounds)]
    yield Measure("attempt with an empty body, p50", statistics.median(times) * 1e3, "ms")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--quick", action="store_true", help="fewer rounds, for a look")
    parser.add_argument("--json", type=Path, help="also write the figures here")
    chosen = parser.parse_args()
    work = Path(tempfile.mkdtemp(prefix="fenceline-bench-"))
    rounds = 5 if chosen.quick else 15
    try:
        report([*one_file_among_many(work, rounds), *empty_body(work, rounds * 5)], chosen.json)
    finally:
        shutil.rmtree(work, ignore_errors=True)


if __name__ == "__main__":
    main()

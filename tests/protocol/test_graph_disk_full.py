"""Disks that fill up under graph transactions, loads and merges: injected at every effect, and for real under Lance.

Every table stays as it was, and the next transaction of the same process proceeds once there is room.
"""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest
from harness import assert_sound, copy, occurrences
from test_graph_crashes import tables, template  # noqa: F401 - the same graph

import fenceline as fl
from fenceline import failpoints
from fenceline.errors import Outcome, StoreFull
from fenceline.seams import Seams, SystemClock

FULL = os.environ.get("FENCELINE_KILLS") == "full"


class AnHourLater(SystemClock):
    def now(self) -> float:
        return time.time() + 3600


def change(repo: fl.Repository) -> None:
    """Four tables and a file."""
    with repo.graph().transaction(actor="test") as tx:
        tx.insert("Person", {"name": "cy", "age": 7})
        tx.update("Person", "ada", {"age": 37})
        tx.delete("Person", "bob")
        tx.insert("City", {"name": "Bari"})
        tx.insert_edge("LivesIn", "cy", "Bari", id="l2")
        tx.insert_edge("Knows", "cy", "ada", id="k2")
        tx.files.write("cy.txt", b"cy")


def set_failpoints(patch: pytest.MonkeyPatch, text: str = "", log: Path | None = None) -> None:
    patch.setattr(failpoints, "_actions", failpoints._parse(text))
    patch.setattr(failpoints, "_log", str(log) if log else None)
    patch.setattr(failpoints, "_switched_on", bool(text or log))


def test_a_disk_that_is_full_at_any_effect_changes_no_table_and_the_next_transaction_proceeds(
    template: Path,  # noqa: F811
    tmp_path: Path,
) -> None:
    whole = fl.open_repository(copy(template, tmp_path / "whole"))
    before = tables(whole)
    with pytest.MonkeyPatch.context() as patch:
        set_failpoints(patch, log=tmp_path / "log")
        change(whole)
    after = tables(whole)
    points = [each for each in (tmp_path / "log").read_text().split() if not each.startswith("beat.")]
    reached = [each for each in occurrences(points) if ".before@" in each]
    assert {"table.write.before@1", "table.stage.before@1", "verdict.seal.before@1"} <= set(reached)
    for number, point in enumerate(each for each in reached if FULL or each.endswith("@1")):
        root = copy(template, tmp_path / f"{number}")
        repo, told = fl.open_repository(root), Outcome.APPLIED
        with pytest.MonkeyPatch.context() as patch:
            set_failpoints(patch, f"{point}=error:ENOSPC")
            try:
                change(repo)
            except fl.FencelineError as error:
                told = error.outcome
        assert tables(repo) == (after if told == Outcome.APPLIED else before), point
        with repo.graph().transaction() as tx:  # the same process, with no restart
            tx.insert("Person", {"name": "next"})
        again = fl.open_repository(root, seams=Seams(clock=AnHourLater()))  # its owner lives: its lease decides
        assert again.graph().table("Person").count("name = 'next'") == 1
        assert list(again.intents()) == [], point
        assert_sound(again)


CHILD = """
import json, os, sys, time
import fenceline as fl
from fenceline.seams import Seams, SystemClock
from fenceline.graph.load import load

disk = sys.argv[1]
repo = fl.open_repository(disk + "/repo", create=True)
graph = repo.graph()
graph.init("node Person { name: String @key  text: String? }\\nnode City { name: String @key }\\n"
           "edge LivesIn: Person -> City")
with graph.transaction() as tx:
    tx.insert("Person", [{"name": "ada"}, {"name": "bob"}])
    tx.insert("City", {"name": "Rome"})
    tx.insert_edge("LivesIn", "ada", "Rome", id="l1")
repo.create_branch("dev")

def everything(branch="main"):
    there = repo.graph(branch)
    return {key: sorted(map(str, there.table(key).rows())) for key in there.schema.table_keys()}

def used():
    return sum(os.stat(os.path.join(at, name)).st_blocks * 512 for at, _, names in os.walk(disk) for name in names)

def big(n):
    return {"name": f"p{n}", "text": os.urandom(32 << 10).hex()}

def transaction():
    with graph.transaction() as tx:
        tx.insert("City", {"name": "Bari"})
        tx.insert_edge("LivesIn", "bob", "Bari", id="l2")
        tx.insert("Person", [big(n) for n in range(400)])

def loading():
    load(graph, sys.argv[2], mode="merge", engine="local")

def small():
    with graph.transaction() as tx:
        tx.insert("City", {"name": "Bari"})
        tx.update("Person", "ada", {"text": "x"})
        tx.insert_edge("LivesIn", "bob", "Bari", id="l2")

told = []
def attempt(what, doing):
    before, room = everything(), used()
    try:
        doing()
        told.append([what, "applied", True, 0])
        return True
    except fl.FencelineError as error:
        same = everything() == before
        told.append([what, f"{error.outcome}: {type(error).__name__}", same, used() - room])
        return False

attempt("transaction", transaction)
attempt("load", loading)
with graph.transaction() as tx:  # there is room for this, because what failed was taken back
    tx.insert("City", {"name": "Oslo"})
room = os.statvfs(disk).f_bavail * os.statvfs(disk).f_frsize
for left in range(0, 132, int(sys.argv[3])):  # KiB: whatever is written when the disk is full, its turn comes
    with open(disk + "/filler", "wb") as filler:
        size = os.statvfs(disk).f_bavail * os.statvfs(disk).f_frsize
        filler.write(b"1" * (size - (left << 10)))
    done = attempt(f"{left} KiB left", small)
    os.remove(disk + "/filler")
    if done:
        break
said = {"told": told, "cities": graph.table("City").count()}
with graph.transaction() as tx:
    tx.insert("Person", {"name": "last"})
class AnHourLater(SystemClock):
    def now(self):
        return time.time() + 3600

again = fl.open_repository(disk + "/repo", seams=Seams(clock=AnHourLater()))  # their owner lives: leases decide
said |= {"clean": again.fsck().clean, "left": [s.state for s in again.intents()],
         "last": again.graph().table("Person").count("name = 'last'")}
print(json.dumps(said))
"""


@pytest.fixture
def small_disk(tmp_path: Path) -> tuple[list[str], Path]:
    """A command prefix that runs a child with a tmpfs of 8 MiB at the path, in a mount namespace of its own."""
    if shutil.which("unshare") is None:
        pytest.skip("NOT TESTED: tables on a disk that is really full; `unshare` (util-linux) is not installed")
    disk = tmp_path / "disk"
    disk.mkdir()
    flags = "-m" if os.getuid() == 0 else "-rm"
    mount = f"mount -t tmpfs -o size=8m none '{disk}'"
    probe = subprocess.run(["unshare", flags, "sh", "-c", mount], capture_output=True, text=True, check=False)
    if probe.returncode != 0:
        pytest.skip(f"NOT TESTED: tables on a disk that is really full; no namespaces here: {probe.stderr.strip()}")
    return ["unshare", flags, "sh", "-c", f'{mount} && exec "$@"', "sh"], disk


def test_a_disk_that_is_really_full_under_lance(small_disk: tuple[list[str], Path], tmp_path: Path) -> None:
    command, disk = small_disk
    source = tmp_path / "big.jsonl"
    rows = ({"type": "Person", "data": {"name": f"q{n}", "text": os.urandom(32 << 10).hex()}} for n in range(400))
    source.write_text("".join(json.dumps(row) + "\n" for row in rows))
    steps = "4" if FULL else "24"
    child = [*command, sys.executable, "-c", CHILD, str(disk), str(source), steps]
    ended = subprocess.run(child, capture_output=True, text=True, check=False, timeout=240)
    assert ended.returncode == 0, ended.stderr
    said: dict[str, Any] = json.loads(ended.stdout.splitlines()[-1])
    told = {what: (outcome, same, more) for what, outcome, same, more in said["told"]}
    for what in ("transaction", "load"):
        outcome, same, more = told[what]
        assert outcome == f"not_applied: {StoreFull.__name__}"
        assert same, "every table is as it was"
        assert more < 1 << 20, "what was staged was taken back"
    assert told["0 KiB left"][0].startswith("not_applied")
    assert all(same for _, _, same, _ in said["told"])
    assert (said["clean"], said["left"], said["last"]) == (True, [], 1)

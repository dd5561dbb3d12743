"""What the child processes of the protocol tests do: `python children.py SCENARIO ROOT [ARGUMENT…]`.

A child prints one JSON line with what it was told. `--without RULE` takes one rule of the protocol out, in this process
only: the tests use it to show that they would notice.
"""

from __future__ import annotations

import json
import sys
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import ablations

import fenceline as fl
from fenceline.repo.native.gc import Retention

Scenario = Callable[..., dict[str, Any]]


def report(tx: fl.Transaction) -> dict[str, Any]:
    return {"outcome": str(tx.result.outcome), "op": tx.result.op, "commit": tx.result.commit, "seq": tx.result.seq}


def part_files(*names: str) -> str:
    directory = Path(tempfile.mkdtemp())
    for name in names:
        target = directory / name
        target.parent.mkdir(parents=True, exist_ok=True)
        target.write_bytes(name.encode() * 10)
    return str(directory)


def open_unswept(root: str) -> fl.Repository:
    """A writer that does not recover first, so that a test decides who sweeps and when."""
    return fl.open_repository(root, sweep=False)


def init(root: str) -> dict[str, Any]:
    return {"id": fl.open_repository(root, create=True).id}


def everything(root: str) -> dict[str, Any]:
    """One transaction with every kind of change in it, and no heartbeats: each run passes the same points in order."""
    repo = open_unswept(root)
    with repo.transaction("main", key="everything", message="everything", actor="child") as tx:
        tx.write("new/file.txt", b"new")
        tx.write("old/changed.txt", b"changed")
        tx.delete("old/removed.txt")
        tx.put_dataset(part_files("day=1/a.parquet", "day=2/b.parquet"), "data", mode="append", partition_by=["day"])
    return report(tx)


def write(
    root: str, path: str, text: str, on_conflict: str = "fail", key: str = "", branch: str = "main"
) -> dict[str, Any]:
    repo = open_unswept(root)
    policy: Any = on_conflict
    with repo.transaction(branch, key=key or None, on_conflict=policy, lease=0.3, actor="child") as tx:
        tx.write(path, text.encode())
    return report(tx)


def conflicting(root: str) -> dict[str, Any]:
    """A transaction that is overtaken after its last look and before its own entry."""
    repo = open_unswept(root)
    with repo.transaction("main", lease=0.3, actor="child") as tx:
        tx.write("mine.txt", b"mine")
    return report(tx)


def cancelled(root: str) -> dict[str, Any]:
    repo = open_unswept(root)
    try:
        with repo.transaction("main", actor="child") as tx:
            tx.write("never.txt", b"never")
            raise RuntimeError("the body failed")
    except RuntimeError:
        return {"outcome": "not_applied"}


def slow(root: str) -> dict[str, Any]:
    """A transaction that outlives its first heartbeat."""
    repo = open_unswept(root)
    with repo.transaction("main", lease=0.3, actor="child") as tx:
        tx.write("slow.txt", b"slow")
        repo.native.seams.clock.sleep(0.35)
    return report(tx)


def merge(root: str, key: str | None = None) -> dict[str, Any]:
    repo = open_unswept(root)
    result = repo.merge("dev", into="main", actor="child", key=key)
    return {"outcome": str(result.outcome), "op": result.op, "commit": result.commit}


def branches(root: str) -> dict[str, Any]:
    """Every operation on refs by hand."""
    repo = open_unswept(root)
    repo.create_branch("topic", "main", actor="child")
    repo.relocate_branch("topic", "main~1", actor="child")
    repo.delete_branch("topic", actor="child")
    repo.create_tag("v1", "main", actor="child")
    return {"done": True}


def point(root: str, how: str, commit: str) -> dict[str, Any]:
    """Point a ref at an old commit."""
    repo = open_unswept(root)
    try:
        if how == "relocate":
            repo.relocate_branch("main", commit, actor="child")
        elif how == "branch":
            repo.create_branch("again", commit, actor="child")
        else:
            repo.create_tag("keepsake", commit, actor="child")
    except fl.RecoveryError as error:
        return {"refused": str(error)}
    return {"refused": None}


def tables(root: str) -> dict[str, Any]:
    """A table created, filled and pinned with a file beside it."""
    import pyarrow as pa  # type: ignore[import-untyped]

    from fenceline.graph.storage import TableStore

    repo = open_unswept(root)
    rows = pa.table({"id": ["a", "b"]})
    with repo.transaction("main", actor="child") as tx:
        tx._try.declare_table("t1")
        store = TableStore(repo.native.objects).noting(tx._try.wrote)
        pin = store.stage_append(store.create("t1", rows.schema), rows)
        tx.write("tables/node.Letter.pin", pin.published_after(None).to_bytes())
        tx.write("letters.txt", b"a, b")
    return report(tx)


def recover(root: str) -> dict[str, Any]:
    repo = open_unswept(root)
    return {"swept": [[s.execution, s.ending] for s in repo.recover()]}


def collect(root: str, keep: str = "10", expire: str = "") -> dict[str, Any]:
    repo = open_unswept(root)
    deleted = repo.gc(Retention(keep=int(keep), expire=bool(expire)), grace=0)
    return {"deleted": len(deleted.objects)}


def attempt(
    root: str, orchestrator: str, text: str, version: str = "1", on_conflict: str = "fail", fence: str = "strict"
) -> dict[str, Any]:
    """One attempt of a step, as a worker runs it; every run of the body leaves a line in `runs`."""
    from file_orchestrator import FileOrchestrator
    from step_task import build_task

    from fenceline.task.attempt import AttemptRunner

    repo = open_unswept(root)
    port = FileOrchestrator(Path(orchestrator))
    work = Path(orchestrator).parent / "work"
    runner = AttemptRunner(lambda url: repo.store, port, work, actor="child", lease=0.3)
    handed_out = port.poll("build")
    result = runner.run(build_task(text, version, on_conflict, Path(orchestrator).parent / "runs", fence), handed_out)
    accepted = port.complete(handed_out, result)
    return {
        "status": result.status,
        "code": result.code,
        "output": result.output,
        "accepted": accepted,
        "reason": result.reason,
    }


GRAPH = """
node Person { name: String @key  age: I32? @range(0..150)  email: String? @unique }
node City { name: String @key }
edge Knows: Person -> Person @card(0..3) { since: Date? }
edge LivesIn: Person -> City
"""


def graph_init(root: str) -> dict[str, Any]:
    result = open_unswept(root).graph().init(GRAPH, actor="child")
    return {"outcome": str(result.outcome), "op": result.op}


def graph(root: str) -> dict[str, Any]:
    """One transaction over all tables of a graph and a file: rows are added, changed and deleted."""
    with open_unswept(root).graph().transaction(key="graph", message="graph", actor="child") as tx:
        tx.insert("Person", {"name": "cy", "age": 7})
        tx.update("Person", "ada", {"age": 37})
        tx.delete("Person", "bob")
        tx.insert("City", {"name": "Bari"})
        tx.insert_edge("LivesIn", "cy", "Bari", id="l2")
        tx.insert_edge("Knows", "cy", "ada", id="k2")
        tx.files.write("cy.txt", b"cy")
    return {"outcome": str(tx.result.outcome), "op": tx.result.op}


def graph_merge(root: str) -> dict[str, Any]:
    """Rows of one table from two branches, and a table from one."""
    result = open_unswept(root).merge("dev", into="main", actor="child", key="merge")
    return {"outcome": str(result.outcome), "op": result.op}


def graph_statement(root: str, statement: str, tries: str = "5") -> dict[str, Any]:
    """One statement, as a small program would make it."""
    with open_unswept(root).graph().transaction(actor="child", tries=int(tries), lease=0.3) as tx:
        if statement.startswith("person "):
            tx.insert("Person", {"name": statement.removeprefix("person ")})
        elif statement == "edge":
            tx.insert_edge("Knows", "ada", "bob", id="new")
        elif statement == "delete":
            tx.delete("Person", "bob")
        elif statement.startswith("age "):
            tx.update("Person", "ada", {"age": int(statement.removeprefix("age "))})
    return {"outcome": str(tx.result.outcome), "op": tx.result.op}


def graph_worker(root: str, name: str, count: str) -> dict[str, Any]:
    """Many small transactions: people who know the one before them and the hub; every fourth deletes an older one."""
    repo = open_unswept(root)
    graph, lost = repo.graph(), 0
    number = 0
    while number < int(count):
        try:
            with graph.transaction(actor=name, message=f"{name}:{number}") as tx:
                tx.insert("Person", {"name": f"{name}-{number}"})
                tx.insert_edge("Knows", f"{name}-{number}", "ada", id=f"{name}-{number}-hub")
                if number:
                    tx.insert_edge("Knows", f"{name}-{number}", f"{name}-{number - 1}", id=f"{name}-{number}-last")
                if number % 4 == 3:
                    tx.delete("Person", f"{name}-{number - 3}")
            number += 1
        except fl.ConflictError:  # as a scheduler would: again, from the start
            lost += 1
    return {"outcome": "applied", "lost": lost}


SCENARIOS: dict[str, Scenario] = {
    call.__name__: call
    for call in (
        init,
        everything,
        write,
        conflicting,
        cancelled,
        slow,
        merge,
        branches,
        point,
        tables,
        recover,
        collect,
        attempt,
        graph_init,
        graph,
        graph_merge,
        graph_statement,
        graph_worker,
    )
}


def main(arguments: list[str]) -> None:
    if "--without" in arguments:
        at = arguments.index("--without")
        ablations.take_out(arguments[at + 1])
        arguments = arguments[:at] + arguments[at + 2 :]
    name, root, *rest = arguments
    try:
        told = SCENARIOS[name](root, *rest)
    except fl.FencelineError as error:
        told = {"outcome": str(error.outcome), "error": error.code, "message": str(error)}
    print(json.dumps(told), flush=True)


if __name__ == "__main__":
    main(sys.argv[1:])

"""What a sweep makes of graph transactions over several tables: every class of its table, reached by a real crash.

Each is decided as the table says: all tables or none, one record, the same when swept again, and beside a live writer.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from harness import assert_sound, copy, killed, state
from test_crashes import check_no_leftovers
from test_graph_crashes import tables, template  # noqa: F401 - the same graph

import fenceline as fl
from fenceline.txn.recover import Class

pytestmark = pytest.mark.slow

CHANGED = ("edge.Knows", "edge.LivesIn", "node.City", "node.Person")
SEALED = "verdict.seal.after"
"""A crash here leaves everything staged, sealed and unpublished: what the other states are made of."""


@pytest.fixture(scope="module")
def dead(template: Path, tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:  # noqa: F811
    """Repositories that a writer over four tables and a file died in, by where it died."""
    found = {}
    for point in ("table.stage.after", SEALED, "entry.publish.after"):
        root = copy(template, tmp_path_factory.mktemp("dead") / point)
        assert killed(["graph", root], f"{point}=crash")
        found[point] = root
    return found


def unswept(root: Path) -> fl.Repository:
    return fl.open_repository(root, sweep=False)


def meanwhile(root: Path, *ages: int) -> None:
    """Others publish one of the tables that the dead one has changed."""
    for age in ages:
        with unswept(root).graph().transaction() as tx:
            tx.update("Person", "ada", {"age": age})


def table_files(root: Path, table: str, kind: str) -> list[Path]:
    """The newest files of a kind that a table has: what the dead one wrote last."""
    repo = unswept(root)
    pin = repo.graph().at("main").snapshot.pin(table)
    return sorted((root / "tables" / f"{pin.table}.lance" / kind).glob("*"), key=lambda file: file.stat().st_mtime_ns)


def lose(kind: str, how: Callable[[Path], object]) -> Callable[[Path], None]:
    return lambda root: (how(table_files(root, "edge:Knows", kind)[-1]), None)[1]


def cut(file: Path) -> None:
    file.write_bytes(file.read_bytes()[:-7])


NOTHING: Callable[[Path], None] = lambda root: None  # noqa: E731
CASES: list[Any] = [
    ("table.stage.after", NOTHING, Class.NO_MOVEMENT, "aborted", "before"),
    (SEALED, NOTHING, Class.ROLLED_PAST_EXPECTED, "rolled_forward", "after"),
    ("entry.publish.after", NOTHING, Class.ALREADY_PUBLISHED, "published", "after"),
    (SEALED, lambda root: meanwhile(root, 1), Class.UNEXPECTED_AT_P1, "rolled_back", "before"),
    (SEALED, lambda root: meanwhile(root, 1, 2), Class.UNEXPECTED_MULTISTEP, "rolled_back", "before"),
    (SEALED, lose("data", Path.unlink), Class.INVARIANT_VIOLATION, "quarantined", "before"),
    (SEALED, lose("data", cut), Class.INVARIANT_VIOLATION, "quarantined", "before"),
    (SEALED, lose("_versions", Path.unlink), Class.INVARIANT_VIOLATION, "quarantined", "before"),
]
NAMES = ["open", "sealed", "published", "moved once", "moved twice", "data lost", "data cut off", "version lost"]


@pytest.mark.parametrize(("point", "change", "found", "ending", "shown"), CASES, ids=NAMES)
def test_a_sweep_decides_all_tables_alike_and_once(
    dead: dict[str, Path],
    tmp_path: Path,
    point: str,
    change: Callable[[Path], None],
    found: Class,
    ending: str,
    shown: str,
) -> None:
    root = copy(dead[point], tmp_path / "repo")
    before = tables(unswept(root), "main~1" if point == "entry.publish.after" else "main")
    change(root)
    now = tables(unswept(root))
    repo = unswept(root)
    with repo.graph().transaction(actor="live") as live:  # a live writer beside it, with a table in common
        live.insert("City", {"name": "Live"})
        (swept,) = [each for each in repo.recover() if each.ending != "live"]
        assert (swept.found, swept.ending) == (found, ending)
        after = tables(unswept(root))
        assert [row["id"] for row in after["node:Person"]] == (["ada", "cy"] if shown == "after" else ["ada", "bob"])
        assert after == now if shown == "before" else after != before
        again = [(each.found, each.ending) for each in repo.recover() if each.ending != "live"]
        assert again == ([(found, ending)] if ending == "quarantined" else [])
        assert tables(unswept(root)) == after
    assert repo.graph().table("City").count("name = 'Live'") == 1
    records = [record for record in repo.recoveries() if record.execution == swept.execution]
    assert [record.kind for record in records] == ([] if ending == "quarantined" else [ending])
    assert all(record.recovered_for == "child" for record in records)
    if ending in ("rolled_forward", "rolled_back"):
        assert records[0].tables == {f"tables/{name}.pin": ending for name in CHANGED}
    settled = state(repo)
    repo.recover()
    assert state(repo) == settled
    if ending == "quarantined":
        assert repo.resolve_intent(swept.execution, "roll_back").ending == "rolled_back"
    assert_sound(repo)
    with repo.graph().transaction() as tx:
        tx.insert("Person", {"name": "next"})
    check_no_leftovers(fl.open_repository(root))


def test_an_undecided_graph_transaction_blocks_neither_reads_nor_other_writers(
    dead: dict[str, Path], tmp_path: Path
) -> None:
    root = copy(dead[SEALED], tmp_path / "repo")
    lose("data", Path.unlink)(root)
    repo = fl.open_repository(root)
    assert [each.ending for each in repo.swept] == ["quarantined"]
    assert repo.graph().table("Person").count() == 2
    with repo.graph().transaction() as tx:
        tx.update("Person", "bob", {"age": 1})
    assert repo.graph().table("Person").count("age = 1") == 1
    assert [status.state for status in repo.intents()] == ["quarantined"]
    repo.gc(grace=0)
    assert [status.state for status in repo.intents()] == ["quarantined"], "gc keeps what it may still need"

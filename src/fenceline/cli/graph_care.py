"""Looking after the tables of a graph: indices and compaction."""

from __future__ import annotations

from typing import TYPE_CHECKING

from fenceline.cli import progress
from fenceline.cli.content import Key
from fenceline.cli.graph_options import At, Branch, Tables
from fenceline.cli.opening import writing
from fenceline.cli.options import Actor, Json, Message, Repo
from fenceline.cli.output import Column, counted, table
from fenceline.cli.published import show_result

if TYPE_CHECKING:
    from fenceline.graph.maintenance import Maintained


def indices(
    tables: Tables = None,
    branch: Branch = "main",
    graph: At = "",
    message: Message = "",
    actor: Actor = None,
    key: Key = None,
    repo: Repo = ".",
    as_json: Json = False,
) -> None:
    """Build the indices that the schema asks for, where they do not cover all rows yet."""
    opened = writing(repo, as_json).graph(branch, graph)
    from fenceline.graph.maintenance import ensure_indices

    with progress.waiting("building indices"):
        done = ensure_indices(opened, tables or (), actor=actor, key=key, message=message)
    _show_maintained(done, branch, as_json, "indexed")


def optimize(
    tables: Tables = None,
    branch: Branch = "main",
    graph: At = "",
    message: Message = "",
    actor: Actor = None,
    key: Key = None,
    repo: Repo = ".",
    as_json: Json = False,
) -> None:
    """Compact tables: fewer, larger fragments, no deleted rows; indices are built again."""
    opened = writing(repo, as_json).graph(branch, graph)
    from fenceline.graph.maintenance import optimize as compact

    with progress.waiting("compacting"):
        done = compact(opened, tables or (), actor=actor, key=key, message=message)
    _show_maintained(done, branch, as_json, "compacted")


def _show_maintained(done: Maintained, branch: str, as_json: bool, what: str) -> None:
    if not as_json and done.tables:
        columns = (Column("table", style="bold"), Column("rows", right=True), Column("fragments", right=True))
        rows = [(key, p.rows, p.fragments, ", ".join(i.name for i in p.indices)) for key, p in done.tables.items()]
        table((*columns, Column("indices")), rows)
    listed = {key: {"rows": pin.rows, "fragments": pin.fragments} for key, pin in done.tables.items()}
    show_result(done.result, branch, as_json, f"{counted(len(done.tables), 'table')} {what}", tables=listed)

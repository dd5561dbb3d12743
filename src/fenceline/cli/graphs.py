"""Graphs: typed tables in a repository, created, looked at and written out.

What needs Lance is imported when a command runs: without graphs the command line does without it.
"""

from __future__ import annotations

from typing import Annotated, Any, Literal

import typer

from fenceline.cli.content import Key
from fenceline.cli.graph_options import At, Branch, SchemaFile, Tables, text_of
from fenceline.cli.opening import reading, writing
from fenceline.cli.options import Actor, Json, Message, RefArgument, Repo
from fenceline.cli.output import Column, counted, emit, remark, size, table
from fenceline.cli.published import show_result


def init(
    schema: SchemaFile,
    branch: Branch = "main",
    graph: At = "",
    message: Message = "Create the graph",
    actor: Actor = None,
    key: Key = None,
    repo: Repo = ".",
    as_json: Json = False,
) -> None:
    """Create a graph: an empty table for every type of a schema."""
    text = text_of(schema)
    made = writing(repo, as_json).graph(branch, graph)
    result = made.init(text, actor=actor, key=key, message=message)
    types = made.schema.table_keys()
    show_result(result, branch, as_json, f"graph created with {counted(len(types), 'table')}", tables=list(types))


def show(
    ref: RefArgument = "main",
    name: Annotated[str | None, typer.Argument(metavar="TYPE", help="Show rows of this type.")] = None,
    where: Annotated[str | None, typer.Option("--where", help="A condition in SQL: age > 30 AND city IS NULL.")] = None,
    limit: Annotated[int, typer.Option("-n", "--limit", min=1, metavar="N", help="Rows to show.")] = 20,
    graph: At = "",
    repo: Repo = ".",
    as_json: Json = False,
) -> None:
    """The tables of a graph, or rows of one of them."""
    found = reading(repo).graph(path=graph).at(ref)
    if name is not None:
        _show_rows(found.table(name), where, limit, as_json)
        return
    pins = {each.table_key: found.snapshot.pin(each.table_key) for each in found.schema.tables()}
    if as_json:
        listed = {
            key: {
                "rows": pin.rows,
                "published": pin.published,
                "fragments": pin.fragments,
                "indices": [{"name": i.name, "column": i.column, "fragments": i.fragments} for i in pin.indices],
            }
            for key, pin in pins.items()
        }
        emit({"ref": ref, "commit": found.commit.id, "tables": listed})
        return
    numbers = (Column(name, right=True) for name in ("rows", "published", "fragments"))
    columns = (Column("table", style="bold"), *numbers, Column("indices"))
    rows = [(key, p.rows, p.published, p.fragments, ", ".join(i.name for i in p.indices)) for key, p in pins.items()]
    table(columns, rows)


def export(
    directory: Annotated[str, typer.Argument(metavar="DIRECTORY", help="Where to write; one file for each type.")],
    ref: RefArgument = "main",
    file_format: Annotated[
        Literal["jsonl", "parquet"], typer.Option("--format", help="Format of the files.")
    ] = "jsonl",
    tables: Tables = None,
    graph: At = "",
    repo: Repo = ".",
    as_json: Json = False,
) -> None:
    """Write a graph as files that `graph load` reads again."""
    found = reading(repo).graph(path=graph).at(ref)
    from fenceline.graph.export import export as write

    counts = write(found, directory, format=file_format, tables=tables or ())
    if as_json:
        emit({"ref": ref, "commit": found.commit.id, "directory": directory, "rows": counts})
    else:
        table((Column("table", style="bold"), Column("rows", right=True)), counts.items())


def _show_rows(view: Any, where: str | None, limit: int, as_json: bool) -> None:
    rows = view.rows(where) if where else _first(view, limit)
    shown = rows[:limit]
    names = [*view.type.own_columns, *(each.name for each in view.type.properties)]
    if as_json:
        emit({"table": view.type.table_key, "rows": [{n: _plain(v) for n, v in row.items()} for row in shown]})
        return
    table([Column(name) for name in names], [[_plain(row[name]) for name in names] for row in shown])
    more = (len(rows) if where else view.pin.rows) - len(shown)
    if more > 0:
        remark(f"{counted(more, 'row')} more; -n shows more of them")


def _first(view: Any, limit: int) -> list[dict[str, Any]]:
    """The first rows, without reading the others."""
    found: list[dict[str, Any]] = []
    for batch in view.scan():
        found += batch.slice(0, limit - len(found)).to_pylist()
        if len(found) >= limit:
            break
    return found


def _plain(value: Any) -> Any:
    if isinstance(value, bytes):
        return size(len(value))
    return value if isinstance(value, str | int | float | bool | list | None) else str(value)

"""Graphs: typed tables in a repository, loaded, looked at and looked after.

What needs Lance is imported when a command runs: without graphs the command line does without it.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Annotated, Any, Literal

import typer

from fenceline.cli import documents, progress
from fenceline.cli.content import Key
from fenceline.cli.opening import reading, writing
from fenceline.cli.options import Actor, Json, Message, RefArgument, Repo
from fenceline.cli.output import Column, counted, emit, remark, say, size, table
from fenceline.cli.published import show_result
from fenceline.errors import ContractError, store_error
from fenceline.txn.upload import ProgressEvent

if TYPE_CHECKING:
    from fenceline.graph.loading.result import LoadResult, OnProgress
    from fenceline.graph.maintenance import Maintained

Branch = Annotated[str, typer.Option("--branch", "-b", help="The branch to change.")]
At = Annotated[str, typer.Option("--graph", "-g", metavar="PATH", help="The graph's directory.", show_default="root")]
SchemaFile = Annotated[str, typer.Argument(metavar="SCHEMA", help="A file in the schema language; - is stdin.")]
Tables = Annotated[
    list[str] | None,
    typer.Option("--table", metavar="TYPE", help="Only this node or edge type; repeat it.", show_default="all"),
]


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
    text = _text(schema)
    made = writing(repo, as_json).graph(branch, graph)
    result = made.init(text, actor=actor, key=key, message=message)
    types = made.schema.table_keys()
    show_result(result, branch, as_json, f"graph created with {counted(len(types), 'table')}", tables=list(types))


def load(
    sources: Annotated[
        list[str],
        typer.Argument(metavar="FILE...", help="JSONL, Parquet or CSV files, directories or patterns."),
    ],
    mode: Annotated[
        Literal["append", "merge", "overwrite"],
        typer.Option("--mode", help="Insert; change what is there and insert the rest; or replace the tables named."),
    ] = "append",
    of: Annotated[
        str | None,
        typer.Option("--table", metavar="TYPE", help="The type of all rows.", show_default="as rows or files say"),
    ] = None,
    mapping: Annotated[
        list[str] | None,
        typer.Option("--map", metavar="COLUMN=PROPERTY", help="A column under another name; COLUMN= leaves it out."),
    ] = None,
    file_format: Annotated[
        Literal["jsonl", "parquet", "csv"] | None,
        typer.Option("--format", help="Format of the files.", show_default="by their names"),
    ] = None,
    on_error: Annotated[
        Literal["fail", "report"],
        typer.Option("--on-error", help="Stop at the first bad row, or list them. Nothing is published either way."),
    ] = "fail",
    most: Annotated[int, typer.Option("--most", min=1, metavar="N", help="Bad rows to list.")] = 100,
    engine: Annotated[
        Literal["auto", "local", "spark"],
        typer.Option("--engine", help="In this process, or on Spark; auto takes Spark for large inputs."),
    ] = "auto",
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Read and check everything, publish nothing.")] = False,
    branch: Branch = "main",
    source_branch: Annotated[
        str | None, typer.Option("--from", metavar="REF", help="Create the branch from this ref if it is not there.")
    ] = None,
    graph: At = "",
    message: Message = "",
    actor: Actor = None,
    key: Key = None,
    repo: Repo = ".",
    as_json: Json = False,
) -> None:
    """Load files into a graph: all of them in one commit, or nothing."""
    opened = writing(repo, as_json)
    into = opened.graph(branch, graph)
    from fenceline.graph.load import load as load_files
    from fenceline.graph.loading.sources import Source

    names = _mapping(mapping or [])
    given = [Source(path, of, names, file_format) for path in sources]
    with _loading() as report:
        loaded = load_files(
            into,
            given,
            mode=mode,
            engine=engine,
            on_error=on_error,
            most=most,
            dry_run=dry_run,
            source_branch=source_branch,
            actor=actor,
            key=key,
            message=message,
            progress=report,
        )
    _show_loaded(loaded, branch, as_json)


def schema_show(
    ref: RefArgument = "main",
    graph: At = "",
    repo: Repo = ".",
    as_json: Json = False,
) -> None:
    """The schema of a graph, as text or as JSON."""
    found = reading(repo).graph(path=graph).at(ref)
    from fenceline.graph.schema import render, schema_id, to_json

    if as_json:
        emit({"ref": ref, "commit": found.commit.id, "id": schema_id(found.schema), "schema": to_json(found.schema)})
    else:
        say(render(found.schema).rstrip("\n"))


def schema_plan(
    schema: SchemaFile,
    ref: RefArgument = "main",
    graph: At = "",
    repo: Repo = ".",
    as_json: Json = False,
) -> None:
    """What `graph schema apply` would do with this file, step by step."""
    opened = reading(repo).graph(ref, graph)
    from fenceline.graph.schema_apply import plan_schema

    found = plan_schema(opened, _text(schema), ref)
    if as_json:
        emit(found.to_json())
    else:
        say(str(found))


def schema_apply(
    schema: SchemaFile,
    allow_data_loss: Annotated[
        bool, typer.Option("--allow-data-loss", help="Drop types and properties; history keeps them readable.")
    ] = False,
    branch: Branch = "main",
    graph: At = "",
    message: Message = "",
    actor: Actor = None,
    key: Key = None,
    repo: Repo = ".",
    as_json: Json = False,
) -> None:
    """Change the schema of a graph to what this file says; data that breaks a new rule is named."""
    text = _text(schema)
    opened = writing(repo, as_json).graph(branch, graph)
    from fenceline.graph.schema_apply import apply_schema

    made = apply_schema(opened, text, allow_data_loss=allow_data_loss, actor=actor, key=key, message=message)
    if not as_json:
        say(str(made.plan))
    show_result(made.result, branch, as_json, "schema changed", plan=made.plan.to_json())


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


# --- reading arguments ------------------------------------------------------------------------------------------


def _text(path: str) -> str:
    if path == "-":
        return sys.stdin.read()
    try:
        with open(path, encoding="utf-8") as file:
            return file.read()
    except FileNotFoundError as error:
        raise ContractError(f"there is no file {path}", hint="check the path") from error
    except UnicodeDecodeError as error:
        raise ContractError(f"{path} is no UTF-8", hint="save it as UTF-8") from error
    except OSError as error:
        raise store_error(error, f"reading {path}") from error


def _mapping(given: list[str]) -> dict[str, str]:
    found: dict[str, str] = {}
    for each in given:
        column, equals, name = each.partition("=")
        if not equals or not column:
            raise typer.BadParameter(f"--map {each}: write COLUMN=PROPERTY")
        found[column] = name
    return found


@contextmanager
def _loading() -> Iterator[OnProgress]:
    from fenceline.graph.loading.result import LoadProgress

    words = {"read": "reading", "check": "checking rules", "write": "writing tables", "publish": "publishing"}
    with progress.transfer("loading") as bar:

        def show(event: LoadProgress) -> None:
            bar(ProgressEvent(words[event.phase], event.done, event.total, event.done_bytes, event.total_bytes))

        yield show


# --- showing ----------------------------------------------------------------------------------------------------


def _show_loaded(loaded: LoadResult, branch: str, as_json: bool) -> None:
    if as_json:
        result = documents.result(loaded.result, branch) if loaded.result else {"branch": branch}
        emit({**result, "dry_run": loaded.result is None, **loaded.to_json()})
        return
    columns = [Column("table", style="bold"), *(Column(name, right=True) for name in ("read", "inserted"))]
    columns += [Column(name, right=True) for name in ("updated", "deleted", "rows")]
    rows = [(key, t.read, t.inserted, t.updated, t.deleted, t.rows) for key, t in loaded.tables.items()]
    if rows:
        table(columns, rows)
    if loaded.result is None:
        say("dry run: every row can be loaded; nothing was published")
    else:
        show_result(loaded.result, branch, as_json, f"{counted(loaded.rows, 'row')} loaded")


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


def _show_maintained(done: Maintained, branch: str, as_json: bool, what: str) -> None:
    if not as_json and done.tables:
        columns = (Column("table", style="bold"), Column("rows", right=True), Column("fragments", right=True))
        rows = [(key, p.rows, p.fragments, ", ".join(i.name for i in p.indices)) for key, p in done.tables.items()]
        table((*columns, Column("indices")), rows)
    listed = {key: {"rows": pin.rows, "fragments": pin.fragments} for key, pin in done.tables.items()}
    show_result(done.result, branch, as_json, f"{counted(len(done.tables), 'table')} {what}", tables=listed)

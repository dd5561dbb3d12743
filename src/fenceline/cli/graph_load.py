"""Loading files into a graph."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Annotated, Literal

import typer

from fenceline.cli import documents, progress
from fenceline.cli.content import Key
from fenceline.cli.graph_options import At, Branch
from fenceline.cli.opening import writing
from fenceline.cli.options import Actor, Json, Message, Repo
from fenceline.cli.output import Column, counted, emit, say, table
from fenceline.cli.published import show_result
from fenceline.txn.upload import ProgressEvent

if TYPE_CHECKING:
    from fenceline.graph.loading.result import LoadResult, OnProgress


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

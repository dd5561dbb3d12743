"""Looking back: log, show, diff."""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Iterable, Sequence
from itertools import islice
from typing import Annotated

import typer

from fenceline.api import LogItem, Repository
from fenceline.cli import documents, graph
from fenceline.cli.opening import reading
from fenceline.cli.options import Json, Limit, RefArgument, Repo
from fenceline.cli.output import (
    SHORT_ID,
    Column,
    emit,
    fields,
    first_line,
    moment,
    one_line,
    remark,
    say,
    screen,
    short,
    size,
    table,
)
from fenceline.repo.merge import Unit
from fenceline.repo.model import Commit, Entry

Refs = dict[str, list[str]]


def log(
    ref: RefArgument = "main",
    actor: Annotated[
        str | None, typer.Option("--actor", help="Only what this actor made, or made visible.", show_default=False)
    ] = None,
    draw: Annotated[bool, typer.Option("--graph", help="Draw the commit graph over all parents.")] = False,
    full: Annotated[bool, typer.Option("--full", help="Through all parents, not only the first ones.")] = False,
    raw: Annotated[bool, typer.Option("--entries", help="List the branch's entries instead of its commits.")] = False,
    limit: Limit = None,
    repo: Repo = ".",
    as_json: Json = False,
) -> None:
    """List commits, newest first."""
    if draw and actor:
        raise typer.BadParameter("--graph shows whole lines of history; leave --actor out")
    if raw and (draw or full):
        raise typer.BadParameter("--entries are one line already; leave --graph and --full out")
    opened = reading(repo)
    if raw:
        _log_entries(opened, ref, actor, limit, as_json)
        return
    # `~0` reads the same commit, and lets a whole commit id through where a branch name is looked for.
    start = f"{ref}~0" if re.fullmatch("[0-9a-f]{64}", ref) else ref
    items = list(islice(opened.log(start, full=full or draw, actor=actor), limit))
    refs = _refs(opened)
    if as_json:
        emit([documents.log_item(item, refs.get(item.commit.id, ())) for item in items])
    elif draw:
        _draw(items, refs)
    else:
        _log_table(items, refs)


def show(ref: RefArgument = "main", repo: Repo = ".", as_json: Json = False) -> None:
    """Show a commit, and what it changed against its first parent."""
    opened = reading(repo)
    commit = opened.commit(ref)
    changes = _changes(opened, commit)
    refs = _refs(opened).get(commit.id, [])
    if as_json:
        listed = None if changes is None else [documents.change(unit) for unit in changes]
        emit({"commit": documents.commit(commit), "refs": refs, "changes": listed})
        return
    fields(
        [
            ("commit", commit.id),
            ("refs", ", ".join(refs)),
            *(("parent", parent) for parent in commit.parents),
            ("actor", commit.actor),
            ("time", moment(commit.time)),
            ("kind", commit.kind),
            ("txn", commit.txn),
            ("execution", commit.execution),
            *((f"metadata {name}", value) for name, value in sorted(commit.metadata.items())),
        ]
    )
    if commit.message:
        say("")
        for line in commit.message.splitlines():
            say(f"    {one_line(line)}")
    say("")
    if changes is None:
        remark("its content, or that of its parent, was given up by garbage collection; the record stays")
    else:
        _change_table(changes)


def diff(
    left: Annotated[str, typer.Argument(metavar="LEFT", help="The ref to compare from.")],
    right: Annotated[str, typer.Argument(metavar="RIGHT", help="The ref to compare to.")],
    repo: Repo = ".",
    as_json: Json = False,
) -> None:
    """Show what differs between two refs, each dataset as one."""
    opened = reading(repo)
    ours, theirs = opened.commit(left), opened.commit(right)
    changes = list(opened.store.changes(ours, theirs))
    if as_json:
        emit({"left": ours.id, "right": theirs.id, "changes": [documents.change(unit) for unit in changes]})
    else:
        _change_table(changes)


def _refs(repo: Repository) -> Refs:
    """Names of branches and tags by the commit they stand on."""
    found: Refs = defaultdict(list)
    for head in repo.branches():
        found[head.commit.id].append(head.name)
    for head in repo.tags():
        found[head.commit.id].append(f"tag: {head.name}")
    return found


def _log_table(items: Iterable[LogItem], refs: Refs) -> None:
    columns = (
        Column("commit", style="yellow", fixed=True),
        Column("entry", right=True),
        Column("op", fixed=True),
        Column("time", fixed=True),
        Column("actor"),
        Column("message"),
    )
    table(columns, (_log_row(item, refs) for item in items))


def _log_row(item: LogItem, refs: Refs) -> Sequence[object]:
    commit, entry = item.commit, item.entry
    number, op = (entry.seq, entry.op) if entry else (None, None)
    return short(commit.id), number, op, moment(commit.time), commit.actor, _described(commit, refs)


def _described(commit: Commit, refs: Refs) -> str:
    names = refs.get(commit.id)
    return f"({', '.join(names)}) {first_line(commit.message)}" if names else first_line(commit.message)


def _draw(items: Iterable[LogItem], refs: Refs) -> None:
    console = screen()
    plain = not console.encoding.lower().startswith("utf")
    lines = list(graph.draw(item.commit for item in items))
    width = max((len(line) for line, _ in lines), default=0)
    for drawn, commit in lines:
        line = graph.to_ascii(drawn) if plain else drawn
        if commit is not None:
            about = f"{_described(commit, refs)} · {one_line(commit.actor)}, {moment(commit.time)}"
            line = f"{line:<{width}}  {commit.id[:SHORT_ID]} {about}"
        console.print(line, soft_wrap=True)


def _log_entries(repo: Repository, branch: str, actor: str | None, limit: int | None, as_json: bool) -> None:
    entries = list(islice((e for e in repo.entries(branch) if actor in (None, e.actor)), limit))
    if as_json:
        emit([documents.ref_entry(entry) for entry in entries])
        return
    columns = (
        Column("entry", right=True),
        Column("op", fixed=True),
        Column("commit", style="yellow", fixed=True),
        Column("time", fixed=True),
        Column("execution"),
        Column("by"),
        Column("actor"),
        Column("note"),
    )
    table(
        columns,
        (
            (e.seq, e.op, short(e.commit), moment(e.time), e.execution, e.by, e.actor, first_line(e.note))
            for e in entries
        ),
    )


def _changes(repo: Repository, commit: Commit) -> list[Unit] | None:
    """None where garbage collection has given up the content of the commit or of its parent."""
    if repo.given_up((commit.id, *commit.parents[:1])):
        return None
    parent = repo.store.commit(commit.parents[0]) if commit.parents else None
    return list(repo.store.changes(parent, commit))


def _change_table(changes: Sequence[Unit]) -> None:
    if not changes:
        remark("no differences")
        return
    columns = (
        Column("status", fixed=True),
        Column("kind", fixed=True),
        Column("before", right=True),
        Column("after", right=True),
        Column("path", style="bold"),
    )
    table(
        columns,
        (
            (unit.status, "dataset" if unit.is_dataset else "file", _size(unit.left), _size(unit.right), unit.path)
            for unit in changes
        ),
    )


def _size(entry: Entry | None) -> str | None:
    return size(entry.size) if entry else None

"""Branches and tags, and what brings their histories together: branch, tag, merge, revert."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Annotated, Literal

import typer

from fenceline.cli import documents
from fenceline.cli.opening import reading, writing
from fenceline.cli.options import Actor, Json, Message, RefArgument, Repo
from fenceline.cli.output import Column, emit, first_line, moment, remark, say, short, table
from fenceline.cli.published import show_result
from fenceline.repo.model import Head


def branch(
    name: Annotated[str | None, typer.Argument(metavar="NAME", help="Without a name: list branches.")] = None,
    source: Annotated[
        str | None, typer.Option("--from", metavar="REF", help="Create it from this ref.", show_default="main")
    ] = None,
    delete: Annotated[bool, typer.Option("--delete", help="Delete it; its entries stay readable as NAME@N.")] = False,
    to: Annotated[str | None, typer.Option("--to", metavar="REF", help="Point it at another published commit.")] = None,
    expected: Annotated[
        str | None, typer.Option("--expected", metavar="REF", help="With --to: only if the branch is still there.")
    ] = None,
    actor: Actor = None,
    repo: Repo = ".",
    as_json: Json = False,
) -> None:
    """List, create, delete or relocate branches."""
    if sum((source is not None, delete, to is not None)) > 1:
        raise typer.BadParameter("--from, --delete and --to exclude each other")
    if expected is not None and to is None:
        raise typer.BadParameter("--expected needs --to")
    if name is None:
        if source is not None or delete or to is not None:
            raise typer.BadParameter("name the branch")
        _list(reading(repo).branches(), as_json, "branch")
        return
    opened = writing(repo, as_json)
    if delete:
        opened.delete_branch(name, actor=actor)
        _deleted(name, as_json, "branch")
    elif to is not None:
        head = opened.relocate_branch(name, to, expected=expected, actor=actor)
        _created(head, as_json, f"{name} is now {short(head.commit.id)}, entry {head.seq}")
    else:
        head = opened.create_branch(name, source or "main", actor=actor)
        _created(head, as_json, f"branch {name} created at {short(head.commit.id)}")


def tag(
    name: Annotated[str | None, typer.Argument(metavar="NAME", help="Without a name: list tags.")] = None,
    source: Annotated[
        str | None, typer.Option("--from", metavar="REF", help="Tag this ref.", show_default="main")
    ] = None,
    note: Annotated[str, typer.Option("--note", help="Why it is tagged.")] = "",
    delete: Annotated[bool, typer.Option("--delete", help="Delete it.")] = False,
    actor: Actor = None,
    repo: Repo = ".",
    as_json: Json = False,
) -> None:
    """List, create or delete tags."""
    if delete and (source is not None or note):
        raise typer.BadParameter("--delete takes neither --from nor --note")
    if name is None:
        if source is not None or note or delete:
            raise typer.BadParameter("name the tag")
        _list(reading(repo).tags(), as_json, "tag")
        return
    opened = writing(repo, as_json)
    if delete:
        opened.delete_tag(name, actor=actor)
        _deleted(name, as_json, "tag")
    else:
        head = opened.create_tag(name, source or "main", actor=actor, note=note)
        _created(head, as_json, f"tag {name} created at {short(head.commit.id)}")


def merge(
    source: Annotated[str, typer.Argument(metavar="SOURCE", help="The branch, tag or commit to bring in.")],
    into: Annotated[str, typer.Option("--into", metavar="BRANCH", help="The branch to merge into.")] = "main",
    strategy: Annotated[
        Literal["ours", "theirs"] | None,
        typer.Option("--strategy", help="Decide conflicts: ours keeps the branch's side, theirs takes the source's."),
    ] = None,
    engine: Annotated[
        Literal["auto", "local", "spark"],
        typer.Option(
            "--engine", help="Merge graph tables in this process, or on Spark; auto takes Spark for large ones."
        ),
    ] = "auto",
    message: Message = "",
    actor: Actor = None,
    repo: Repo = ".",
    as_json: Json = False,
) -> None:
    """Merge a ref into a branch; all conflicts are listed together."""
    opened = writing(repo, as_json)
    result = opened.merge(source, into, actor=actor, message=message, strategy=strategy, engine=engine)
    show_result(result, into, as_json, f"{source} merged", unchanged="nothing to do")


def revert(
    ref: RefArgument,
    on: Annotated[str, typer.Option("--branch", metavar="BRANCH", help="The branch that gets the undoing commit.")] = (
        "main"
    ),
    message: Message = "",
    actor: Actor = None,
    repo: Repo = ".",
    as_json: Json = False,
) -> None:
    """Undo what one commit changed, as a new commit."""
    result = writing(repo, as_json).revert(ref, on, actor=actor, message=message)
    show_result(result, on, as_json, f"{ref} reverted", unchanged="nothing to do")


def _list(heads: Iterable[Head], as_json: bool, what: str) -> None:
    found = list(heads)
    if as_json:
        emit([documents.head(head) for head in found])
        return
    if not found:
        remark(f"no {what} yet")
        return
    columns = (
        Column(what, style="bold"),
        Column("entry", right=True),
        Column("commit", style="yellow", fixed=True),
        Column("op", fixed=True),
        Column("time", fixed=True),
        Column("actor"),
        Column("note" if what == "tag" else "message"),
    )
    table(columns, (_row(head, what) for head in found))


def _row(head: Head, what: str) -> tuple[object, ...]:
    entry = head.entry
    about = entry.note if what == "tag" else head.commit.message
    return head.name, head.seq, short(head.commit.id), entry.op, moment(entry.time), entry.actor, first_line(about)


def _created(head: Head, as_json: bool, done: str) -> None:
    if as_json:
        emit(documents.head(head))
    else:
        say(done)


def _deleted(name: str, as_json: bool, what: str) -> None:
    if as_json:
        emit({"name": name, "deleted": True})
    else:
        say(f"{what} {name} deleted")

"""Files and datasets: put, get, cat, ls, rm."""

from __future__ import annotations

import base64
import os
import posixpath
import sys
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import Annotated, Literal

import typer

from fenceline.api import Repository
from fenceline.cli import documents, progress
from fenceline.cli.opening import reading, writing
from fenceline.cli.options import Actor, BranchArgument, Json, Message, PathArgument, RefArgument, Repo
from fenceline.cli.output import Column, counted, emit, remark, say, short, size, table, write_bytes
from fenceline.cli.published import show_result
from fenceline.errors import NotFound
from fenceline.repo.merge import PART_PREFIX
from fenceline.repo.model import Entry, Kind
from fenceline.repo.names import check_prefix
from fenceline.txn.datasets import WriteMode
from fenceline.txn.transaction import Transaction
from fenceline.txn.upload import Progress, ProgressEvent, pieces

Key = Annotated[str | None, typer.Option("--key", help="Names the change: the same key never applies twice.")]
OnConflict = Annotated[
    Literal["fail", "rebase"],
    typer.Option("--on-conflict", help="If the branch moves meanwhile: fail, or go on where nothing overlaps."),
]


def put(
    branch: BranchArgument,
    local: Annotated[str, typer.Argument(metavar="LOCAL", help="A local file or directory; - reads standard input.")],
    path: PathArgument,
    message: Message = "",
    actor: Actor = None,
    key: Key = None,
    on_conflict: OnConflict = "fail",
    dataset: Annotated[
        bool, typer.Option("--dataset", help="LOCAL is a directory of part files: one dataset that changes as a unit.")
    ] = False,
    mode: Annotated[
        WriteMode | None, typer.Option("--mode", help="If the dataset exists.", show_default="error")
    ] = None,
    file_format: Annotated[
        str | None, typer.Option("--format", help="Format of the part files.", show_default="parquet")
    ] = None,
    partition_by: Annotated[
        list[str] | None,
        typer.Option("--partition-by", metavar="COLUMN", help="Partition column; repeat it for each level."),
    ] = None,
    repo: Repo = ".",
    as_json: Json = False,
) -> None:
    """Publish a local file, directory or dataset in one transaction."""
    if not dataset and (mode or file_format or partition_by):
        raise typer.BadParameter("--mode, --format and --partition-by need --dataset")
    if dataset and local == "-":
        raise typer.BadParameter("a dataset is a directory of part files; it cannot come from standard input")
    opened = writing(repo, as_json)
    with (
        progress.transfer("uploading") as report,
        opened.transaction(
            branch, actor=actor, key=key, message=message, on_conflict=on_conflict, progress=report
        ) as tx,
    ):
        if dataset:
            files = tx.put_dataset(
                local,
                path,
                mode=mode or "error",
                format=file_format or "parquet",
                partition_by=partition_by or (),
            )
        elif local == "-":
            files = _put_stream(tx, path, report)
        else:
            files = tx.upload(local, path)
    show_result(tx.result, branch, as_json, f"{counted(files, 'file')} at {path or '/'}", files=files, path=path)


def get(
    ref: RefArgument,
    path: PathArgument,
    local: Annotated[str, typer.Argument(metavar="LOCAL", help="Where to write; a file goes into a directory.")],
    repo: Repo = ".",
    as_json: Json = False,
) -> None:
    """Copy a file, dataset or directory to the local disk."""
    opened = reading(repo)
    commit = opened.commit(ref)
    target = _target(opened, commit.id, path, local)
    with progress.transfer("downloading") as report:
        files = opened.download(commit.id, path, target, report)
    if as_json:
        emit({"ref": ref, "commit": commit.id, "path": path, "local": target, "files": files})
    else:
        say(f"{counted(files, 'file')} of {short(commit.id)} in {target}")


def cat(ref: RefArgument, path: PathArgument, repo: Repo = ".", as_json: Json = False) -> None:
    """Write a file's bytes to standard output."""
    opened = reading(repo)
    if as_json:
        commit = opened.commit(ref)
        data = opened.read(commit.id, path)
        emit({"ref": ref, "commit": commit.id, **documents.entry(opened.stat(commit.id, path)), **_as_text(data)})
        return
    for piece in opened.chunks(ref, path):
        write_bytes(piece)


def ls(
    ref: RefArgument = "main",
    path: Annotated[str, typer.Argument(metavar="PATH", help="A directory, dataset or file.", show_default=False)] = "",
    recursive: Annotated[bool, typer.Option("--recursive", "-r", help="Everything below, not one level.")] = False,
    repo: Repo = ".",
    as_json: Json = False,
) -> None:
    """List a directory; a dataset is one line, and its part files are listed when PATH names it."""
    opened = reading(repo)
    commit = opened.commit(ref)
    prefix = check_prefix(path)
    entries = opened.list(commit.id, prefix)
    rows = list(_all_below(entries, prefix) if recursive else _one_level(entries, prefix))
    if prefix and not rows:
        raise NotFound(f"there is nothing at {path!r} in {ref}", hint=f"fenceline ls {ref} lists what is there")
    if as_json:
        emit({"ref": ref, "commit": commit.id, "path": prefix, "entries": [row.document for row in rows]})
    elif rows:
        columns = (Column("kind"), Column("size", right=True), Column("path", style="bold"), Column("about"))
        table(columns, ((row.kind, size(row.size), row.name, row.about) for row in rows))
    else:
        remark(f"{ref} is empty")


def rm(
    branch: BranchArgument,
    path: PathArgument,
    message: Message = "",
    actor: Actor = None,
    key: Key = None,
    on_conflict: OnConflict = "fail",
    repo: Repo = ".",
    as_json: Json = False,
) -> None:
    """Delete a file, dataset or directory; history keeps it readable."""
    opened = writing(repo, as_json)
    with opened.transaction(branch, actor=actor, key=key, message=message, on_conflict=on_conflict) as tx:
        entries = tx.delete(path)
    show_result(tx.result, branch, as_json, f"{path} removed", entries=entries, path=path)


def _put_stream(tx: Transaction, path: str, report: Progress) -> int:
    def passing() -> Iterator[bytes]:
        done = 0
        for piece in pieces(sys.stdin.buffer):
            done += len(piece)
            report(ProgressEvent("upload", 0, 0, done, 0))
            yield piece

    tx.write(path, passing())
    return 1


def _target(repo: Repository, commit: str, path: str, local: str) -> str:
    """As cp does: a single file goes into a directory that exists, under its own name."""
    if not os.path.isdir(local):
        return local
    found = repo.store.find(repo.commit(commit), path) if path.strip("/") else None
    is_file = found is not None and found.kind is Kind.FILE
    return os.path.join(local, posixpath.basename(path)) if is_file else local


def _as_text(data: bytes) -> dict[str, str]:
    try:
        return {"encoding": "utf-8", "content": data.decode()}
    except UnicodeDecodeError:
        return {"encoding": "base64", "content": base64.b64encode(data).decode()}


# --- listing ----------------------------------------------------------------------------------------------------


@dataclass(slots=True)
class _Row:
    """One line of a listing."""

    kind: str
    name: str
    size: int
    about: str
    document: documents.Document


def _file_row(entry: Entry, name: str) -> _Row:
    return _Row("file", name, entry.size, "", documents.entry(entry))


def _dataset_row(entry: Entry, name: str) -> _Row:
    dataset = entry.dataset
    assert dataset is not None
    about = [counted(dataset.files, "file"), dataset.format]
    if dataset.rows is not None:
        about.insert(1, counted(dataset.rows, "row"))
    if dataset.partition_by:
        about.append(f"by {', '.join(dataset.partition_by)}")
    return _Row("dataset", name, entry.size, ", ".join(about), documents.entry(entry))


def _all_below(entries: Iterable[Entry], prefix: str) -> Iterator[_Row]:
    """Files and datasets, without the part files of datasets unless the listing is of one."""
    dataset: str | None = None
    for entry in entries:
        if entry.kind is Kind.DATASET:
            dataset = entry.path
            yield _dataset_row(entry, entry.path.removesuffix("/"))
        elif not _is_part(entry, dataset) or dataset == f"{prefix}/":
            yield _file_row(entry, entry.path)


def _is_part(entry: Entry, dataset: str | None) -> bool:
    return dataset is not None and entry.path.startswith(dataset + PART_PREFIX)


def _one_level(entries: Iterable[Entry], prefix: str) -> Iterable[_Row]:
    """The direct children: a directory becomes one line with all below it added up."""
    rows: dict[str, _Row] = {}
    for row in _all_below(entries, prefix):
        path = row.document["path"]
        name, deeper, _ = path.removeprefix(prefix).lstrip("/").partition("/")
        if path == prefix or f"/{PART_PREFIX}" in path:  # what was asked for itself, or a part file of it
            rows[path] = row
        elif not deeper:
            row.name = name
            rows[path] = row
        else:
            inside = f"{prefix}/{name}" if prefix else name
            directory = rows.setdefault(inside, _directory_row(inside, name))
            directory.size += row.size
            directory.document["size"] += row.size
            directory.document["entries"] += 1
            directory.about = f"{directory.document['entries']} inside"
    return rows.values()


def _directory_row(path: str, name: str) -> _Row:
    return _Row("dir", f"{name}/", 0, "", {"path": path, "kind": "directory", "size": 0, "entries": 0})

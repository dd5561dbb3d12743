"""Writing datasets from local directories: a directory of part files that changes as a unit."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from typing import Literal

from fenceline.errors import AlreadyExists, ContractError
from fenceline.repo.merge import partition_of
from fenceline.repo.model import Dataset, Entry, Kind, Write
from fenceline.repo.names import check_path
from fenceline.repo.native.staging import Staging
from fenceline.seams import Seams
from fenceline.txn.upload import Progress, Source, in_batches, read_source, walk
from fenceline.txn.working import WorkingTree

WriteMode = Literal["error", "append", "overwrite", "overwrite_partitions"]


@dataclass(frozen=True, slots=True)
class DatasetPlan:
    """What one dataset write will do, decided before the first byte."""

    path: str
    dataset_id: str
    mode: WriteMode
    parts: Mapping[Source, str]
    replaced: tuple[Entry, ...]
    kept_bytes: int
    dataset: Dataset
    """What stays of it: `files` counts the part files kept; generation and job come with the job's name."""


def plan(
    tree: WorkingTree,
    local: str,
    path: str,
    mode: WriteMode,
    format: str,  # noqa: A002
    partition_by: tuple[str, ...],
    schema: str | None,
    options: Mapping[str, str],
    rows: int | None,
    new_id: Callable[[], str],
) -> DatasetPlan:
    """Check a dataset write against what is there. Fails before anything is staged."""
    path = check_path(path.removesuffix("/"))
    existing = tree.dataset(path)
    before = existing.dataset if existing else None
    if mode not in ("error", "append", "overwrite", "overwrite_partitions"):
        raise ContractError(f"mode is {mode!r}", hint="use error, append, overwrite or overwrite_partitions")
    if before is None:
        tree.check_place(path)
        if tree.find(path) is not None:
            raise AlreadyExists(
                f"{path} is a file", hint="delete it first in the same transaction, or choose another path"
            )
    elif mode == "error":
        raise AlreadyExists(
            f"the dataset {path} exists", hint="say mode='append', 'overwrite' or 'overwrite_partitions'"
        )
    elif mode != "overwrite" and (before.format, before.partition_by) != (format, partition_by):
        raise ContractError(
            f"{path} is {before.format} partitioned by {list(before.partition_by)}; "
            f"this write is {format} by {list(partition_by)}",
            hint="write it the same way, or with mode='overwrite'",
        )
    if mode == "overwrite_partitions" and not partition_by:
        raise ContractError(
            f"{path}: mode='overwrite_partitions' needs partition_by", hint="name the partition columns"
        )
    parts = {source: relative for relative, source in walk(local) if _published(relative)}
    for relative in parts.values():
        _check_partitions(path, relative, partition_by)
    gone: tuple[Entry, ...] = ()
    if before and mode in ("overwrite", "overwrite_partitions"):  # an append never looks at what is there
        fresh = {relative.rpartition("/")[0] for relative in parts.values()}
        gone = tuple(e for e in tree.parts(path) if mode == "overwrite" or partition_of(e.path) in fresh)
    total = None
    if rows is not None and (before is None or mode == "overwrite"):
        total = rows
    elif rows is not None and mode == "append" and before is not None and before.rows is not None:
        total = before.rows + rows
    return DatasetPlan(
        path,
        before.id if before else new_id(),
        mode,
        parts,
        gone,
        (existing.size if existing else 0) - sum(e.size for e in gone),
        Dataset(
            id=before.id if before else "",
            format=format,
            generation=before.generation if before and mode != "overwrite" else "",
            job="",
            operation="create" if before is None else mode,
            partition_by=partition_by,
            schema=schema if schema is not None or before is None or mode == "overwrite" else before.schema,
            options=options,
            files=(before.files if before else 0) - len(gone),
            rows=total,
        ),
    )


def write(
    tree: WorkingTree, staging: Staging, seams: Seams, planned: DatasetPlan, number: int, progress: Progress | None
) -> None:
    """Stage the part files, take the replaced ones out, and put the dataset's entry."""
    how = Write.APPEND if planned.mode == "append" else Write.REPLACE

    def stage(source: Source) -> Entry:
        relative = planned.parts[source]
        return read_source(
            source, lambda data: staging.part(planned.path, planned.dataset_id, number, relative, data, how)
        )

    written = list(in_batches(seams, planned.parts, stage, "upload", progress, staging.far))
    tree.remove(staging, iter(planned.replaced))
    for entry in written:
        tree.set(staging, entry)
    job = f"{staging.execution}-{number}"
    dataset = replace(
        planned.dataset,
        id=planned.dataset_id,
        generation=planned.dataset.generation or job,
        job=job,
        files=planned.dataset.files + len(written),
    )
    size = planned.kept_bytes + sum(entry.size for entry in written)
    tree.set(staging, Entry(planned.path + "/", Kind.DATASET, size, "", "none", dataset=dataset))


def _published(relative: str) -> bool:
    """Spark's own bookkeeping never counts: `_SUCCESS`, `_temporary`, checksums, hidden files."""
    *directories, name = relative.split("/")
    hidden = [
        d for d in directories if d.startswith(".") or (d.startswith("_") and "=" not in d)
    ]  # as Spark hides them
    return not hidden and not name.startswith((".", "_"))


def _check_partitions(path: str, relative: str, partition_by: tuple[str, ...]) -> None:
    directories = relative.split("/")[:-1]
    if ":" in relative:
        raise ContractError(
            f"{path}: part file {relative!r} has ':' in its name", hint="Spark cannot read it: rename it"
        )
    if not relative:
        raise ContractError(
            f"{path}: a dataset is written from a directory", hint="give the directory of the part files"
        )
    if [d.partition("=")[0] for d in directories] != list(partition_by) or not all("=" in d for d in directories):
        raise ContractError(
            f"{path}: part file {relative!r} does not lie in directories for partition_by={list(partition_by)}",
            hint="lay part files out as column=value/…, one directory for each partition column",
        )

"""One dataset write against the attempt's tree: checked before the first byte, and again when it is registered."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass

from fenceline.errors import AlreadyExists, ContractError
from fenceline.repo.merge import PART_PREFIX, partition_of
from fenceline.repo.model import Dataset, Entry, Kind, Write
from fenceline.repo.native.staging import Staging
from fenceline.spark.parts import Part
from fenceline.txn.working import WorkingTree


@dataclass(frozen=True, slots=True)
class Target:
    """What a write makes of the dataset at a path."""

    path: str
    dataset_id: str
    mode: str
    format: str
    partition_by: tuple[str, ...]
    options: Mapping[str, str]
    """Those that readers need."""


@dataclass(frozen=True, slots=True)
class Outcome:
    """What a job left behind, ready to be registered."""

    job: str
    parts: Sequence[Part]
    schema: str | None
    rows: int | None
    """Rows in the part files."""
    replaced: Collection[str] | None = None
    """The part files that `replace_where` wrote again, by tree path."""
    seen: str | None = None
    """The job that `replace_where` read the dataset after."""


def check(tree: WorkingTree, target: Target) -> Entry | None:
    """Refuse what cannot be written here; the dataset that is there, if any. An append reads nothing of it."""
    existing = tree.dataset(target.path)
    before = existing.dataset if existing else None
    if before is None:
        tree.check_place(target.path)
        if tree.find(target.path) is not None:
            raise AlreadyExists(
                f"{target.path} is a file", hint="choose another path: a dataset is a directory", path=target.path
            )
        return None
    if target.mode == "error":
        raise AlreadyExists(
            f"the dataset {target.path} exists",
            hint="say mode='append', 'overwrite', 'overwrite_partitions' or replace_where(…)",
            path=target.path,
        )
    if target.mode != "overwrite":
        _check_alike(target, before)
    return existing


def _check_alike(target: Target, before: Dataset) -> None:
    if (before.format, before.partition_by) != (target.format, target.partition_by):
        raise ContractError(
            f"{target.path} is {before.format} partitioned by {list(before.partition_by)}; "
            f"this write is {target.format} by {list(target.partition_by)}",
            hint="write it the same way, or with mode='overwrite'",
        )
    if dict(before.options) != dict(target.options):
        raise ContractError(
            f"{target.path} was written with the options {dict(before.options)}; this write has {dict(target.options)}",
            hint="give the same options, or none: then they are taken over",
        )


def removed(tree: WorkingTree, target: Target, existing: Entry | None, outcome: Outcome) -> list[Entry]:
    """The live part files that this write takes the place of."""
    if existing is None or target.mode == "append":
        return []
    live = tree.parts(target.path)
    if target.mode == "overwrite":
        return live
    if target.mode == "overwrite_partitions":
        fresh = {part.relative.rpartition("/")[0] for part in outcome.parts}
        return [entry for entry in live if partition_of(entry.path) in fresh]
    gone = [entry for entry in live if entry.path in (outcome.replaced or ())]
    if existing.dataset is None or existing.dataset.job != outcome.seen:
        raise ContractError(
            f"{target.path} was changed by another write of this attempt while replace_where ran",
            hint="do them one after the other",
        )
    return gone


def register(
    tree: WorkingTree,
    staging: Staging,
    target: Target,
    existing: Entry | None,
    outcome: Outcome,
    gone: Sequence[Entry],
    total: int | None,
) -> None:
    """Put the dataset's entry and its new part files in place of those that go. `total`: rows it has then."""
    before = existing.dataset if existing else None
    how = Write.APPEND if target.mode == "append" else Write.REPLACE
    keys = [f"datasets/{target.dataset_id}/{PART_PREFIX}{outcome.job}/{part.relative}" for part in outcome.parts]
    staging.adopt(keys)
    staging.bytes += sum(part.size for part in outcome.parts)
    tree.remove(staging, iter(gone))
    for part, key in zip(outcome.parts, keys, strict=True):
        path = f"{target.path}/{PART_PREFIX}{outcome.job}/{part.relative}"
        tree.set(staging, Entry(path, Kind.FILE, part.size, key, "none", None, how))
    # What else a write keeps of a dataset can be merged with what others did to it; these keep nothing that can.
    keeps = before is not None and target.mode in ("append", "overwrite_partitions")
    dataset = Dataset(
        id=target.dataset_id,
        format=target.format,
        generation=before.generation if before and keeps else outcome.job,
        job=outcome.job,
        operation=target.mode if before else "create",
        partition_by=target.partition_by,
        schema=outcome.schema,
        options=target.options,
        files=(before.files if before else 0) - len(gone) + len(outcome.parts),
        rows=total,
    )
    size = (existing.size if existing else 0) - sum(e.size for e in gone) + sum(p.size for p in outcome.parts)
    tree.set(staging, Entry(target.path + "/", Kind.DATASET, size, "", "none", dataset=dataset))

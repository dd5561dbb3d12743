"""The JSON form of what the library returns: whole ids, seconds since the epoch, names as in the library."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import asdict
from typing import Any

from fenceline.api import LogItem
from fenceline.repo.merge import Unit
from fenceline.repo.model import Commit, Entry, Head, RefEntry
from fenceline.repo.native.gc import Plan
from fenceline.txn.transaction import TransactionResult

Document = dict[str, Any]


def commit(value: Commit) -> Document:
    tree = value.tree
    root = {"digest": tree.digest, "entries": tree.entries, "size": tree.size} if tree else None
    return {**asdict(value), "parents": list(value.parents), "tree": root, "metadata": dict(value.metadata)}


def ref_entry(value: RefEntry) -> Document:
    return asdict(value)


def head(value: Head) -> Document:
    return {
        "name": value.name,
        "seq": value.seq,
        "commit": value.commit.id,
        "message": value.commit.message,
        "entry": ref_entry(value.entry),
    }


def entry(value: Entry) -> Document:
    found: Document = {
        "path": value.path.removesuffix("/"),
        "kind": str(value.kind),
        "size": value.size,
        "checksum": value.checksum,
        "address": value.address,
        "mode": value.mode,
    }
    if value.dataset is not None:
        found["dataset"] = value.dataset.to_json()
    return found


def log_item(value: LogItem, refs: Iterable[str]) -> Document:
    return {
        "commit": commit(value.commit),
        "entry": ref_entry(value.entry) if value.entry else None,
        "refs": list(refs),
    }


def change(value: Unit) -> Document:
    return {
        "path": value.path,
        "status": value.status,
        "kind": "dataset" if value.is_dataset else "file",
        "left": entry(value.left) if value.left else None,
        "right": entry(value.right) if value.right else None,
        "parts_changed": len(value.sides) - 1 if value.is_dataset else None,
    }


def result(value: TransactionResult, branch: str, **more: object) -> Document:
    return {"branch": branch, **asdict(value), **more}


def areas(plan: Plan) -> dict[str, dict[str, int]]:
    """Objects and bytes by the area of the repository they lie in."""
    found: dict[str, dict[str, int]] = {}
    for info in plan.objects:
        area = found.setdefault(info.key.partition("/")[0], {"objects": 0, "bytes": 0})
        area["objects"] += 1
        area["bytes"] += info.size
    return found


def plan(value: Plan, *, deleted: bool) -> Document:
    return {
        "deleted": deleted,
        "objects": len(value.objects),
        "bytes": value.bytes,
        "reasons": value.reasons,
        "areas": areas(value),
        "expired": list(value.expired),
        "dropped": list(value.dropped),
        "kept": {"objects": value.kept_objects, "bytes": value.kept_bytes},
        "keys": [info.key for info in value.objects],
    }

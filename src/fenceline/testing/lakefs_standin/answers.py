"""Requests and answers of lakeFS's HTTP API as values, and its JSON forms."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

from fenceline.testing.lakefs_standin.state import StoredCommit
from fenceline.testing.lakefs_standin.trees import Stored, Tree

MAX_PAGE = 1000


@dataclass(frozen=True, slots=True)
class Request:
    query: Mapping[str, str]
    headers: Mapping[str, str]
    body: bytes
    pause: Callable[[], None] = lambda: None
    """Called by a merge between its decision and its effect."""

    @property
    def json(self) -> Any:
        return json.loads(self.body) if self.body else {}

    def flag(self, name: str) -> bool:
        return self.query.get(name, "").lower() == "true"


@dataclass(frozen=True, slots=True)
class Answer:
    status: int
    body: bytes = b""
    headers: Mapping[str, str] = field(default_factory=dict)


def as_json(status: int, value: object) -> Answer:
    return Answer(status, json.dumps(value).encode(), {"Content-Type": "application/json"})


def page(request: Request, results: Iterable[dict[str, Any]], key: str) -> Answer:
    """One page of results that are in order; the next one goes on behind the last `key`."""
    amount = min(max(int(request.query.get("amount", "100")), 1), MAX_PAGE)
    found: list[dict[str, Any]] = []
    for result in results:
        found.append(result)
        if len(found) > amount:
            break
    more = len(found) > amount
    kept = found[:amount]
    pagination = {
        "has_more": more,
        "next_offset": kept[-1][key] if more else "",
        "results": len(kept),
        "max_per_page": MAX_PAGE,
    }
    return as_json(200, {"pagination": pagination, "results": kept})


def refs(request: Request, refs: Mapping[str, str]) -> Iterator[dict[str, Any]]:
    for name, commit in sorted(asked(request, refs)):
        yield {"id": name, "commit_id": commit}


def asked(request: Request, named: Mapping[str, Any]) -> list[tuple[str, Any]]:
    prefix, after = request.query.get("prefix", ""), request.query.get("after", "")
    return [(name, value) for name, value in named.items() if name.startswith(prefix) and name > after]


def listing(request: Request, tree: Tree) -> Iterator[dict[str, Any]]:
    prefix, delimiter = request.query.get("prefix", ""), request.query.get("delimiter", "")
    seen: str | None = None
    for path, stored in sorted(asked(request, tree)):
        head, cut, _ = path[len(prefix) :].partition(delimiter) if delimiter else (path, "", "")
        if not cut:
            yield object_json(path, stored)
        elif prefix + head + cut not in (seen, request.query.get("after")):
            seen = prefix + head + cut
            common = {"path": seen, "path_type": "common_prefix", "physical_address": "", "checksum": "", "mtime": 0}
            yield common


def object_json(path: str, stored: Stored) -> dict[str, Any]:
    return {
        "path": path,
        "path_type": "object",
        "physical_address": stored.address,
        "checksum": stored.checksum,
        "size_bytes": len(stored.data),
        "mtime": stored.time,
        "content_type": stored.content_type,
        "metadata": dict(stored.metadata),
    }


def commit_json(commit: StoredCommit) -> dict[str, Any]:
    return {
        "id": commit.id,
        "parents": list(commit.parents),
        "committer": "stand-in",
        "message": commit.message,
        "creation_date": commit.time,
        "meta_range_id": commit.tree_id,
        "metadata": dict(commit.metadata),
        "generation": commit.generation,
        "version": 1,
    }


def differences(request: Request, found: Mapping[str, tuple[Stored | None, Stored | None]]) -> Iterator[dict[str, Any]]:
    for path, (left, right) in sorted(asked(request, found)):
        kind = "added" if left is None else "removed" if right is None else "changed"
        size = len((right or left or Stored(b"", "", 0, "", "")).data)
        yield {"type": kind, "path": path, "path_type": "object", "size_bytes": size}

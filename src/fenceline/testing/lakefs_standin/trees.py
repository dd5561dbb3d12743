"""Trees as plain dictionaries, and the three-way merge of them that lakeFS does."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from dataclasses import dataclass, field


@dataclass(frozen=True, slots=True)
class Stored:
    data: bytes
    checksum: str
    time: int
    address: str
    content_type: str
    metadata: Mapping[str, str] = field(default_factory=dict)

    @property
    def identity(self) -> str:
        """What makes two objects equal; where and when they were uploaded does not matter."""
        return f"{len(self.data)} {self.checksum} {sorted(self.metadata.items())} {self.content_type}"


Tree = Mapping[str, Stored]


def overlay(tree: Tree, staged: Mapping[str, Stored | None]) -> dict[str, Stored]:
    both = {**tree, **staged}
    return {path: stored for path, stored in both.items() if stored is not None}


def _identity(stored: Stored | None) -> str | None:
    return stored.identity if stored else None


def changes(left: Tree, right: Tree) -> dict[str, tuple[Stored | None, Stored | None]]:
    paths = sorted({*left, *right})
    pairs = {path: (left.get(path), right.get(path)) for path in paths}
    return {path: pair for path, pair in pairs.items() if _identity(pair[0]) != _identity(pair[1])}


def merged(base: Tree, ours: Tree, theirs: Tree) -> dict[str, Stored] | None:
    """None if both changed a path, each in its own way."""
    result = dict(ours)
    for path, (before, after) in changes(base, theirs).items():
        mine = ours.get(path)
        if _identity(mine) == _identity(after):
            continue
        if _identity(mine) != _identity(before):
            return None
        if after is None:
            del result[path]
        else:
            result[path] = after
    return result


def tree_id(tree: Tree) -> str:
    """Of these very uploads: the same content uploaded again has another id, as on the real server."""
    text = "\n".join(f"{path} {stored.address} {stored.identity}" for path, stored in sorted(tree.items()))
    return hashlib.sha256(text.encode()).hexdigest()

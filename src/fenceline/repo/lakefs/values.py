"""What the lakeFS client answers: frozen values, free of the SDK's own types."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum


@dataclass(frozen=True, slots=True)
class BranchInfo:
    """A branch or a tag, and the commit it names."""

    name: str
    commit: str


@dataclass(frozen=True, slots=True)
class CommitInfo:
    id: str
    parents: tuple[str, ...]
    message: str
    committer: str
    time: int
    """Seconds since the epoch: lakeFS keeps no fractions."""
    tree: str
    """Equal ids mean equal content; the same content uploaded again has another id."""
    metadata: Mapping[str, str] = field(default_factory=dict)
    generation: int = 0
    """Greater than that of every parent: a walk back knows when it has gone past a commit. 0 where it is not said."""


@dataclass(frozen=True, slots=True)
class ObjectInfo:
    path: str
    size: int
    checksum: str
    """As the server says: an MD5 for what was uploaded in one piece, otherwise opaque. Equal means equal content."""
    modified: int
    address: str
    """Where the bytes lie in the server's own block store."""
    metadata: Mapping[str, str] = field(default_factory=dict)


class ChangeKind(StrEnum):
    ADDED = "added"
    REMOVED = "removed"
    CHANGED = "changed"
    CONFLICT = "conflict"


@dataclass(frozen=True, slots=True)
class Change:
    """A path that differs between two refs."""

    path: str
    kind: ChangeKind
    size: int | None
    """Of what is there now; of an uncommitted removal it is 0."""


class MergeEnd(StrEnum):
    """What became of a merge; all but MERGED and UNKNOWN are certain to have changed nothing."""

    MERGED = "merged"
    REFUSED = "refused"
    """The server-side hook said no (412)."""
    CONFLICT = "conflict"
    """Both sides changed the same path (409)."""
    UNCHANGED = "unchanged"
    """The target has this content already (400)."""
    DIRTY = "dirty"
    """The target has uncommitted changes (400)."""
    BUSY = "busy"
    """The target moved under the server too often (429); the same merge may be tried again."""
    UNKNOWN = "unknown"
    """The answer was lost: settle by reading the target's log for the execution, never by merging again (INV-3)."""


@dataclass(frozen=True, slots=True)
class MergeOutcome:
    end: MergeEnd
    commit: str | None = None
    """The new head of the target, if it was merged."""
    why: str = ""


@dataclass(frozen=True, slots=True)
class ServerInfo:
    """Who is asked, and as whom."""

    endpoint: str
    version: str
    user: str
    policies: tuple[str, ...] | None
    """The names of the policies that apply to the user; None where the server does not say."""

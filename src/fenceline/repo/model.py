"""The values of a repository: entries, commits, ref entries, changes. All frozen."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from dataclasses import dataclass, field, fields
from enum import StrEnum
from typing import Any, NamedTuple

from fenceline.errors import ContractError, ObjectDamaged

DEFAULT_BRANCH = "main"
SYSTEM_RECOVERY = "fenceline:recovery"


def canonical(value: object) -> bytes:
    """The one JSON form of a value: hashes are taken over it."""
    text = json.dumps(value, sort_keys=True, separators=(",", ":"), ensure_ascii=False, allow_nan=False)
    try:
        return text.encode()
    except UnicodeEncodeError as error:
        raise ContractError(
            f"text that is not Unicode: {error.object[error.start - 20 : error.end]!r}", hint="remove it"
        ) from error


def digest(data: bytes) -> str:
    return hashlib.sha256(data).hexdigest()


class Kind(StrEnum):
    FILE = "file"
    DATASET = "dataset"


class Write(StrEnum):
    """How the job that wrote a part file of a dataset treated what was there before."""

    APPEND = "append"
    REPLACE = "replace"


@dataclass(frozen=True, slots=True)
class Dataset:
    """What a dataset entry knows beyond its files: a directory that changes as a unit."""

    id: str
    format: str
    generation: str
    """The job that last replaced the whole dataset; appends and partition overwrites leave it."""
    job: str
    """The job that changed it last."""
    operation: str
    partition_by: tuple[str, ...] = ()
    schema: str | None = None
    options: Mapping[str, str] = field(default_factory=dict)
    files: int = 0
    rows: int | None = None

    def to_json(self) -> dict[str, Any]:
        plain = {f.name: getattr(self, f.name) for f in fields(self)}
        return {k: list(v) if isinstance(v, tuple) else v for k, v in plain.items()}

    @classmethod
    def from_json(cls, value: Mapping[str, Any]) -> Dataset:
        return cls(**{**value, "partition_by": tuple(value["partition_by"])})


_KINDS = {str(kind): kind for kind in Kind}  # an enum's own look-up is ten times slower, and every row needs it


class Entry(NamedTuple):
    """One tree entry. A dataset stands at its root with a trailing slash, its part files stand below it."""

    path: str
    kind: Kind
    size: int
    address: str
    """Key of the bytes in this repository, or the URL of data registered in place; empty for a dataset."""
    checksum: str
    """Typed: `sha256:…`, `etag:…` or `none`."""
    mode: int | None = None
    write: Write | None = None
    dataset: Dataset | None = None

    @property
    def identity(self) -> str:
        """Equal for equal content; without a hash of it, equal for the same unchanged object."""
        return self.checksum if self.checksum.startswith("sha256:") else f"{self.address} {self.checksum}"

    def to_row(self) -> list[Any]:
        row: list[Any] = [self.path, str(self.kind), self.size, self.address, self.checksum]
        if self.mode is not None or self.write is not None or self.dataset is not None:
            row += [self.mode, self.write, self.dataset and self.dataset.to_json()]
        return row

    @classmethod
    def from_row(cls, row: list[Any]) -> Entry:
        if len(row) == 5:
            path, kind, size, address, checksum = row
            return cls(path, _KINDS[kind], size, address, checksum)
        path, kind, size, address, checksum, mode, write, dataset = row
        return cls(
            path,
            _KINDS[kind],
            size,
            address,
            checksum,
            mode,
            Write(write) if write else None,
            Dataset.from_json(dataset) if dataset else None,
        )

    def same_content(self, other: Entry) -> bool:
        return (self.kind, self.size, self.identity, self.mode, self.dataset) == (
            other.kind,
            other.size,
            other.identity,
            other.mode,
            other.dataset,
        )


class Node(NamedTuple):
    """A pointer to one range of a tree."""

    last: str
    """The greatest path in the range."""
    digest: str
    """Hash of the range's bytes. Leaves with the same entries have the same digest wherever they lie."""
    address: str
    """`<key of the pack>#<start>+<length>`."""
    height: int
    entries: int
    size: int


@dataclass(frozen=True, slots=True)
class Commit:
    """An immutable tree and where it comes from. Its id is the hash of this record."""

    id: str
    parents: tuple[str, ...]
    tree: Node | None
    """None for the empty tree."""
    depth: int
    """One more than the greatest of its parents': a walk back knows when it has gone past a commit."""
    execution: str
    actor: str
    time: float
    message: str
    kind: str = "write"
    step: str | None = None
    txn: str | None = None
    attempt: str | None = None
    result: Any = None
    metadata: Mapping[str, str] = field(default_factory=dict)

    def to_bytes(self) -> bytes:
        plain = {f.name: getattr(self, f.name) for f in fields(self) if f.name != "id"}
        plain["tree"] = list(self.tree) if self.tree else None
        plain["parents"] = list(self.parents)
        return canonical(plain)

    @classmethod
    def make(cls, **values: Any) -> Commit:
        draft = cls(id="", **values)
        return cls(id=digest(draft.to_bytes()), **values)

    @classmethod
    def from_bytes(cls, id: str, data: bytes) -> Commit:  # noqa: A002
        if digest(data) != id:
            raise ObjectDamaged(
                f"commit {id} does not match its id",
                hint="fenceline fsck shows what that breaks",
                address=f"commits/{id}",
            )
        value = json.loads(data)
        tree = Node(*value.pop("tree")) if value["tree"] else value.pop("tree")
        return cls(id=id, tree=tree, parents=tuple(value.pop("parents")), **value)


class Op(StrEnum):
    """What a ref entry does."""

    CREATE = "create"
    PUBLISH = "publish"
    ADOPT = "adopt"
    NOOP = "noop"
    RELOCATE = "relocate"
    MERGE = "merge"
    FENCE = "fence"
    RESERVE = "reserve"
    """Only takes the number (D3): whoever decided before it loses its write, and looks again."""
    DELETE = "delete"


MOVES = frozenset({Op.PUBLISH, Op.RELOCATE, Op.MERGE})
OUTCOMES = MOVES | {Op.ADOPT, Op.NOOP}
CHANGES_HEAD = MOVES | {Op.CREATE, Op.DELETE}


@dataclass(frozen=True, slots=True)
class RefEntry:
    """One numbered entry of a branch or tag: the only thing in a repository that makes anything visible."""

    seq: int
    op: Op
    commit: str | None
    """The head after this entry; None after `delete`."""
    by: str
    """The execution that wrote the entry (INV-3 compares this one)."""
    actor: str
    time: float
    output: str | None = None
    """What the step reports; adopt copies it unchanged."""
    execution: str | None = None
    """Whose staged commit is published or fenced."""
    step: str | None = None
    txn: str | None = None
    attempt: str | None = None
    result: Any = None
    note: str = ""

    def to_bytes(self) -> bytes:
        return canonical({f.name: getattr(self, f.name) for f in fields(self)})

    @classmethod
    def from_bytes(cls, key: str, data: bytes) -> RefEntry:
        try:
            value = json.loads(data)
            return cls(**{**value, "op": Op(value["op"])})
        except (ValueError, TypeError, KeyError) as error:
            raise ObjectDamaged(
                f"ref entry {key} cannot be read: {error}",
                hint="fenceline fsck shows what that breaks",
                address=key,
            ) from error


@dataclass(frozen=True, slots=True)
class Head:
    """A branch or tag and the last of its entries."""

    name: str
    seq: int
    commit: Commit
    entry: RefEntry


class Side(NamedTuple):
    """A path as two commits see it; None where it is absent."""

    path: str
    left: Entry | None
    right: Entry | None

    @property
    def status(self) -> str:
        if self.left is None:
            return "added"
        return "removed" if self.right is None else "changed"

"""The object port: the few calls a repository needs of a disk or an object store.

Small on purpose: S3, GCS and Azure offer all of it. Keys are '/'-separated; what a key holds never changes except
under `put` of hints and beats.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import Protocol


@dataclass(frozen=True, slots=True)
class ObjectInfo:
    key: str
    size: int
    modified: float
    """Seconds since the epoch, by the store's clock."""


def is_far(store: object) -> bool:
    """Whether every call is a round trip over a network: then many go at once, and pieces are large."""
    return getattr(store, "far", False) is True


class ObjectStore(Protocol):
    """Errors are `StoreError`s: `OutcomeUnknown` when a write may have happened, any other when it did not."""

    @property
    def url(self) -> str: ...

    def create(self, key: str, data: bytes) -> None:
        """Write `data` under `key` only if the key is free; durable on return. Raises `ObjectExists`.

        Nobody ever sees a part of it.
        """
        ...

    def put(self, key: str, data: bytes | Iterable[bytes]) -> None:
        """Write `key`, or replace it: then readers see the old whole or the new whole. Durable only after `persist`.

        A new key may be seen in part until this returns; nobody knows of it before.
        """
        ...

    def persist(self, keys: Iterable[str]) -> None:
        """Make these existing objects durable, whoever wrote them (INV-2).

        Raises `ObjectMissing` where there is something to do; a store that acknowledges only what is durable has not.
        """
        ...

    def get(self, key: str, start: int = 0, length: int | None = None) -> bytes:
        """The object's bytes, or `length` of them from `start`. Raises `ObjectMissing`."""
        ...

    def stat(self, key: str) -> ObjectInfo | None: ...

    def list(self, prefix: str) -> Iterator[ObjectInfo]:
        """All objects whose key starts with `prefix`, sorted by key. What comes or goes meanwhile may be missed."""
        ...

    def children(self, prefix: str) -> Iterator[str]:
        """The next path component of every key below `prefix` (which ends with '/'), each once, sorted."""
        ...

    def delete(self, keys: Iterable[str]) -> None:
        """Remove the keys; those already gone are fine."""
        ...

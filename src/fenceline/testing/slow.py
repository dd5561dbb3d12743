"""An object store that is far away: every call takes as long as a round trip, and is counted."""

from __future__ import annotations

import threading
import time
from collections.abc import Iterable, Iterator

from fenceline.repo.native.objects import ObjectInfo, ObjectStore


class SlowObjects:
    """Another store behind a wire. `delay` is in seconds for each call; with 0 it only counts."""

    far = True

    def __init__(self, objects: ObjectStore, delay: float = 0.03) -> None:
        self._objects = objects
        self._delay = delay
        self._lock = threading.Lock()
        self.calls: list[tuple[str, str]] = []
        """What was asked, and of which key, in the order it was asked; a test clears it where it starts to count."""

    @property
    def url(self) -> str:
        return self._objects.url

    def create(self, key: str, data: bytes) -> None:
        self._travel("create", key)
        self._objects.create(key, data)

    def put(self, key: str, data: bytes | Iterable[bytes]) -> None:
        self._travel("put", key)
        self._objects.put(key, data)

    def persist(self, keys: Iterable[str]) -> None:
        """No trip: a store that is far away acknowledges only what is durable."""
        self._objects.persist(keys)

    def get(self, key: str, start: int = 0, length: int | None = None) -> bytes:
        self._travel("get", key)
        return self._objects.get(key, start, length)

    def stat(self, key: str) -> ObjectInfo | None:
        self._travel("stat", key)
        return self._objects.stat(key)

    def list(self, prefix: str) -> Iterator[ObjectInfo]:
        self._travel("list", prefix)
        yield from self._objects.list(prefix)

    def children(self, prefix: str) -> Iterator[str]:
        self._travel("children", prefix)
        yield from self._objects.children(prefix)

    def delete(self, keys: Iterable[str]) -> None:
        named = list(keys)
        if named:
            self._travel("delete", named[0])
            self._objects.delete(named)

    def _travel(self, call: str, key: str) -> None:
        with self._lock:
            self.calls.append((call, key))
        if self._delay:
            time.sleep(self._delay)

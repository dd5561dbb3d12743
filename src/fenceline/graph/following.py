"""Pins for garbage collection and fsck. The engine is loaded with the first pin: most repositories have none."""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING

from fenceline.graph import effects, files  # noqa: F401 - every durable effect is declared where the api is imported
from fenceline.graph.pins import Pin
from fenceline.repo.native.objects import ObjectStore
from fenceline.repo.native.pinned import NotFollowed, Pinned

if TYPE_CHECKING:
    from fenceline.graph.storage import TableStore


class FollowPins:
    """What the pins of a repository keep alive; see `repo/native/pinned.py`."""

    def __init__(self, objects: ObjectStore) -> None:
        self._objects = objects
        self._opened: TableStore | None = None
        self._sound: set[str] = set()

    def files(self, content: bytes) -> Iterable[str]:
        store = self._store()
        if store is None:
            return _without.files(content)
        return [file.key for file in store.files_of(Pin.from_bytes(content))]

    def problems(self, content: bytes) -> Iterable[tuple[str, str]]:
        store = self._store()
        if store is None:
            return _without.problems(content)
        return files.problems(store.files_of(Pin.from_bytes(content)), self._objects, self._sound)

    def _store(self) -> TableStore | None:
        if self._opened is None:
            try:
                from fenceline.graph.storage import TableStore
            except ModuleNotFoundError as error:
                if error.name not in ("lance", "pyarrow"):
                    raise
                return None
            self._opened = TableStore(self._objects)
        return self._opened


_without: Pinned = NotFollowed()

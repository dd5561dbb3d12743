"""An object store in memory that fails when told to, and forgets what was never made durable when the power fails."""

from __future__ import annotations

import fnmatch
import threading
import time
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from typing import Literal

from fenceline.errors import ObjectExists, ObjectMissing, OutcomeUnknown, StoreError
from fenceline.repo.native.objects import ObjectInfo

Call = Literal["create", "put", "persist", "get", "stat", "list", "children", "delete"]
Action = Literal["fail", "hang", "lose_answer", "tear"]


@dataclass(frozen=True)
class Fault:
    """What goes wrong at the `nth` call (counted from 1, over matching calls only).

    `fail`: nothing happens, an error is raised. `lose_answer`: it happens, the caller hears `OutcomeUnknown`.
    `hang`: the call waits until `release()`. `tear`: half of a put's bytes arrive, then an error; a torn create leaves
    nothing, because create-if-absent is atomic on every store.
    """

    call: Call
    nth: int
    action: Action
    key: str = "*"


class MemoryObjects:
    """The object port on a dictionary."""

    def __init__(
        self, faults: Iterable[Fault] = (), url: str = "memory://", now: Callable[[], float] = time.time
    ) -> None:
        self._faults = [(fault, [0]) for fault in faults]
        self._url = url
        self._now = now
        self._lock = threading.RLock()
        self._data: dict[str, tuple[bytes, float]] = {}
        self._durable: dict[str, tuple[bytes, float]] = {}
        self._released = threading.Event()
        self.hanging = threading.Event()
        self.calls: list[tuple[str, str]] = []

    @property
    def url(self) -> str:
        return self._url

    def inject(self, *faults: Fault) -> None:
        """Add faults; their calls are counted from now on."""
        with self._lock:
            self._faults += [(fault, [0]) for fault in faults]

    def release(self) -> None:
        """Let every hanging call go on."""
        self._released.set()

    def power_failure(self) -> MemoryObjects:
        """The store after the power came back: what was put but never persisted is gone."""
        with self._lock:
            survivor = MemoryObjects(url=self._url, now=self._now)
            survivor._data = dict(self._durable)
            survivor._durable = dict(self._durable)
            return survivor

    def damage(self, key: str, data: bytes) -> None:
        """Change stored bytes behind everyone's back."""
        with self._lock:
            self._data[key] = self._durable[key] = (data, self._now())

    def create(self, key: str, data: bytes) -> None:
        action = self._call("create", key)
        with self._lock:
            if action == "tear":
                raise StoreError(f"injected: the create of {key} was cut off")
            if key in self._data:
                raise ObjectExists(f"{key} exists already", key=key)
            self._data[key] = self._durable[key] = (data, self._now())
        self._answer(action, key)

    def put(self, key: str, data: bytes | Iterable[bytes]) -> None:
        action = self._call("put", key)
        whole = data if isinstance(data, bytes) else b"".join(data)
        with self._lock:
            if action == "tear":
                self._data[key] = (whole[: len(whole) // 2], self._now())
                raise StoreError(f"injected: the put of {key} was cut off")
            self._data[key] = (whole, self._now())
        self._answer(action, key)

    def persist(self, keys: Iterable[str]) -> None:
        for key in keys:
            action = self._call("persist", key)
            with self._lock:
                self._durable[key] = self._found(key)
            self._answer(action, key)

    def get(self, key: str, start: int = 0, length: int | None = None) -> bytes:
        action = self._call("get", key)
        with self._lock:
            data = self._found(key)[0]
        self._answer(action, key)
        return data[start:] if length is None else data[start : start + length]

    def stat(self, key: str) -> ObjectInfo | None:
        self._answer(self._call("stat", key), key)
        with self._lock:
            found = self._data.get(key)
        return ObjectInfo(key, len(found[0]), found[1]) if found else None

    def list(self, prefix: str) -> Iterator[ObjectInfo]:
        self._answer(self._call("list", prefix), prefix)
        with self._lock:
            keys = sorted(key for key in self._data if key.startswith(prefix))
        for key in keys:
            with self._lock:
                found = self._data.get(key)
            if found:
                yield ObjectInfo(key, len(found[0]), found[1])

    def children(self, prefix: str) -> Iterator[str]:
        self._answer(self._call("children", prefix), prefix)
        with self._lock:
            names = {key[len(prefix) :].partition("/")[0] for key in self._data if key.startswith(prefix)}
        yield from sorted(names)

    def delete(self, keys: Iterable[str]) -> None:
        for key in keys:
            action = self._call("delete", key)
            with self._lock:
                self._data.pop(key, None)
                self._durable.pop(key, None)
            self._answer(action, key)

    def _found(self, key: str) -> tuple[bytes, float]:
        if key not in self._data:
            raise ObjectMissing(f"{key} is missing", hint="fenceline fsck shows what that breaks", address=key)
        return self._data[key]

    def _call(self, call: Call, key: str) -> Action | None:
        due: Action | None = None
        with self._lock:
            self.calls.append((call, key))
            for fault, count in self._faults:
                if fault.call == call and fnmatch.fnmatchcase(key, fault.key):
                    count[0] += 1
                    if count[0] == fault.nth:
                        due = fault.action
        if due == "fail":
            raise StoreError(f"injected: {call} of {key} failed")
        if due == "hang":
            self.hanging.set()
            self._released.wait()
        return due

    def _answer(self, action: Action | None, key: str) -> None:
        if action == "lose_answer":
            raise OutcomeUnknown(f"injected: the answer about {key} was lost", key=key)

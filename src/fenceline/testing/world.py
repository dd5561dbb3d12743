"""A world driven by hand: a clock that moves when told, ids in order, no threads."""

from __future__ import annotations

import itertools
import random
from collections.abc import Callable, Iterable, Iterator
from typing import TypeVar

from fenceline.seams import Owner, Running, Seams, Signal, encode_id

T = TypeVar("T")
R = TypeVar("R")


class HandClock:
    def __init__(self, start: float = 1_767_225_600.0) -> None:
        self._now = start

    def now(self) -> float:
        return self._now

    def monotonic(self) -> float:
        return self._now

    def sleep(self, seconds: float) -> None:
        self._now += seconds

    advance = sleep


class CountedIds:
    def __init__(self, clock: HandClock) -> None:
        self._clock = clock
        self._count = itertools.count(1)

    def execution(self) -> str:
        return encode_id(int(self._clock.now() * 1000), next(self._count))


class _Never:
    def set(self) -> None:
        pass

    def wait(self, timeout: float | None = None) -> bool:
        return True


class _Done:
    def join(self, timeout: float | None = None) -> None:
        pass


class SerialThreads:
    """Background work never runs; parallel work runs in order."""

    def signal(self) -> Signal:
        return _Never()

    def start(self, name: str, work: Callable[[], None]) -> Running:
        return _Done()

    def map(self, work: Callable[[T], R], items: Iterable[T], workers: int) -> Iterator[R]:
        return map(work, items)


def test_seams(clock: HandClock | None = None, dead: Callable[[Owner], bool] = lambda owner: False) -> Seams:
    """Seams whose every answer is decided by the test."""
    hand = clock or HandClock()
    return Seams(
        clock=hand,
        ids=CountedIds(hand),
        random=random.Random(0),  # noqa: S311
        threads=SerialThreads(),
        owner=lambda: Owner("test", "boot", "space", 1, "1"),
        proven_dead=dead,
        actor=lambda: "tester",
    )


test_seams.__test__ = False  # type: ignore[attr-defined]

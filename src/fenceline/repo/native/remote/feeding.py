"""A stream of pieces for the client, pulled by a thread of its own.

The client asks for pieces from inside its event loop, where nothing may call the client again; yet a piece may come
out of the same store: a copy from one repository to another.
"""

from __future__ import annotations

import queue
import threading
from collections.abc import Iterable, Iterator

from fenceline.seams import OsThreads

_AHEAD = 4  # pieces pulled before they are asked for
_PATIENCE = 0.2  # seconds between two looks whether anyone still wants them


def fed(pieces: Iterable[bytes]) -> Iterator[bytes]:
    """The same pieces in the same order; an error of the stream comes out here, which makes the client give up."""
    waiting: queue.Queue[bytes | BaseException | None] = queue.Queue(_AHEAD)
    unwanted = threading.Event()

    def hand(item: bytes | BaseException | None) -> None:
        while not unwanted.is_set():
            try:
                waiting.put(item, timeout=_PATIENCE)
            except queue.Full:
                continue
            return

    def pull() -> None:
        try:
            for piece in pieces:
                hand(piece)
                if unwanted.is_set():
                    return
            hand(None)
        except BaseException as error:  # noqa: BLE001 — handed over, and raised where the stream is used
            hand(error)

    OsThreads().start("fenceline-feed", pull)
    try:
        while (item := waiting.get()) is not None:
            if isinstance(item, BaseException):
                raise item
            yield item
    finally:
        unwanted.set()

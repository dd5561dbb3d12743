"""A worker process: it works until its parent asks it to stop, or is gone."""

from __future__ import annotations

import logging
import os
import signal
import sys
import threading
from typing import NoReturn

from fenceline.pipeline.worker import Worker

log = logging.getLogger(__name__)

ORPHANED = 3
"""The exit code of a worker whose parent died."""


def first_line() -> bytes:
    """What the parent says before anything else. Nothing behind it is taken from the pipe."""
    said = bytearray()
    while not said.endswith(b"\n"):
        piece = os.read(sys.stdin.fileno(), 1)
        if not piece:
            _leave(ORPHANED)
        said += piece
    return bytes(said)


def serve(worker: Worker, grace: float) -> int:
    """Work until SIGTERM, then drain within the grace. The parent's death, seen as EOF on stdin, ends it at once."""
    asked, ask = os.pipe()  # an Event could be set by the handler while the main thread holds its lock
    signal.signal(signal.SIGTERM, lambda number, frame: os.write(ask, b"!") and None)
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C reaches the whole group; the parent decides what to do
    threading.Thread(target=_leave_with_parent, name="parent", daemon=True).start()
    worker.start()
    os.read(asked, 1)
    finished = worker.stop(grace)
    log.info("worker %d stops: %s", os.getpid(), worker.counts)
    if not finished:
        _leave(0)  # a body that cannot be stopped must not keep the process
    return 0


def _leave_with_parent() -> None:
    """No orphans: an attempt that nobody waits for ends here, wherever it is. Its next one finishes its work."""
    try:
        while os.read(sys.stdin.fileno(), 1024):
            pass
    except OSError as error:
        log.debug("the pipe to the parent failed: %s", error)
    _leave(ORPHANED)


def _leave(code: int) -> NoReturn:
    os._exit(code)

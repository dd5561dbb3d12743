"""Everything the protocol takes from the world: time, ids, randomness, sleep, threads and the owner's identity.

They come in as one `Seams` value, so that the same code can run under a deterministic simulator. No other module
of `repo/` or `txn/` asks the operating system for any of these.
"""

from __future__ import annotations

import getpass
import os
import random
import secrets
import socket
import threading
import time
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import FIRST_COMPLETED, ThreadPoolExecutor, wait
from dataclasses import asdict, dataclass, field
from typing import Any, Protocol, TypeVar

T = TypeVar("T")
R = TypeVar("R")

_ALPHABET = "0123456789abcdefghjkmnpqrstvwxyz"  # Crockford's base 32, lower case: safe on case-insensitive disks


class Clock(Protocol):
    def now(self) -> float:
        """Wall-clock seconds since the epoch."""
        ...

    def monotonic(self) -> float: ...

    def sleep(self, seconds: float) -> None: ...


class Ids(Protocol):
    def execution(self) -> str:
        """A fresh id that sorts by time and never repeats."""
        ...


class Signal(Protocol):
    """What a background thread waits on between two rounds."""

    def set(self) -> None: ...

    def wait(self, timeout: float | None = None) -> bool: ...


class Running(Protocol):
    def join(self, timeout: float | None = None) -> None: ...


class Threads(Protocol):
    def signal(self) -> Signal: ...

    def start(self, name: str, work: Callable[[], None]) -> Running: ...

    def map(self, work: Callable[[T], R], items: Iterable[T], workers: int) -> Iterator[R]:
        """Run `work` on every item, results in any order; the first error stops the rest and is raised."""
        ...


class SystemClock:
    def now(self) -> float:
        return time.time()

    def monotonic(self) -> float:
        return time.monotonic()

    def sleep(self, seconds: float) -> None:
        time.sleep(seconds)


def encode_id(milliseconds: int, entropy: int) -> str:
    """26 characters: 48 bits of time, then 80 of randomness, so that ids sort by when they were made."""
    value = (milliseconds & (2**48 - 1)) << 80 | (entropy & (2**80 - 1))
    return "".join(_ALPHABET[value >> shift & 31] for shift in range(125, -1, -5))


class RandomIds:
    def __init__(self, clock: Clock) -> None:
        self._clock = clock

    def execution(self) -> str:
        return encode_id(int(self._clock.now() * 1000), secrets.randbits(80))


class OsThreads:
    def signal(self) -> Signal:
        return threading.Event()

    def start(self, name: str, work: Callable[[], None]) -> Running:
        thread = threading.Thread(target=work, name=name, daemon=True)
        thread.start()
        return thread

    def map(self, work: Callable[[T], R], items: Iterable[T], workers: int) -> Iterator[R]:
        if workers <= 1:
            yield from map(work, items)
            return
        with ThreadPoolExecutor(workers, thread_name_prefix="fenceline") as pool:
            running = set()
            try:
                for item in items:
                    running.add(pool.submit(work, item))
                    if len(running) >= workers * 4:  # bounded: the items may be a stream of millions
                        done, running = wait(running, return_when=FIRST_COMPLETED)
                        for future in done:
                            yield future.result()
                while running:
                    done, running = wait(running, return_when=FIRST_COMPLETED)
                    for future in done:
                        yield future.result()
            finally:
                for future in running:
                    future.cancel()


@dataclass(frozen=True)
class Owner:
    """Which process wrote a record, precise enough to tell whether that very process still lives."""

    host: str
    boot: str
    pid_space: str
    pid: int
    started: str

    def as_dict(self) -> dict[str, Any]:
        return asdict(self)


def _read(path: str) -> str:
    """A kernel file's text; empty where this system has no such file (then only leases decide)."""
    try:
        with open(path, encoding="ascii", errors="replace") as file:
            return file.read().strip()
    except OSError:
        return ""


def _process_start(pid: int) -> str:
    fields = _read(f"/proc/{pid}/stat").rpartition(")")[2].split()
    if not fields or fields[0] in ("Z", "X"):  # a zombie process has ended; only its exit status is left
        return ""
    return fields[19]


def _pid_space() -> str:
    try:
        return os.readlink("/proc/self/ns/pid")
    except OSError:
        return ""


def this_process() -> Owner:
    pid = os.getpid()
    return Owner(socket.gethostname(), _read("/proc/sys/kernel/random/boot_id"), _pid_space(), pid, _process_start(pid))


def proven_dead(owner: Owner) -> bool:
    """Whether that process certainly ended. False where it cannot be known from here: then its lease decides."""
    me = this_process()
    if not owner.boot or not owner.started or owner.host != me.host:
        return False
    if owner.boot != me.boot:
        return True
    return owner.pid_space == me.pid_space and _process_start(owner.pid) != owner.started


def default_actor() -> str:
    try:
        return f"{getpass.getuser()}@{socket.gethostname()}"
    except (KeyError, OSError):
        return f"uid-{os.getuid()}@{socket.gethostname()}"


@dataclass(frozen=True)
class Seams:
    """The world as one value; every part has the real thing as its default."""

    clock: Clock = field(default_factory=SystemClock)
    ids: Ids = field(default_factory=lambda: RandomIds(SystemClock()))
    random: random.Random = field(default_factory=random.Random)
    threads: Threads = field(default_factory=OsThreads)
    owner: Callable[[], Owner] = this_process
    proven_dead: Callable[[Owner], bool] = proven_dead
    actor: Callable[[], str] = default_actor

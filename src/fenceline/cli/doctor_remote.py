"""`fenceline doctor` on an object store: does it decide between writers, as everything here rests on?"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator

from fenceline.cli.finding import Finding
from fenceline.errors import ObjectExists, StoreError
from fenceline.repo.native.remote.objects import RemoteObjects
from fenceline.seams import Seams

_WRITERS = 8
_GET_ANOTHER = "use a store whose conditional writes are atomic: AWS S3, GCS, Azure, or see docs/howto/s3.md"

Clock = Callable[[float, float, float], Finding]


def examine_store(store: RemoteObjects, clock: Clock, seams: Seams) -> Iterator[Finding]:
    """Do what a publish does, under a name that only this check uses."""
    probe = f"tmp/doctor-{seams.ids.execution()}"
    try:
        before = time.time()
        won = sum(seams.threads.map(lambda n: _create(store, probe, n), range(_WRITERS), _WRITERS))
        after = time.time()
        try:
            yield _creates(store, won)
            written = store.stat(probe)
            if written is not None:
                yield clock(before, written.modified, after)
        finally:
            store.delete([probe])
    except StoreError as error:
        yield Finding("object store", "warn", f"cannot be tried: {error.message}", error.hint or "")


def _create(store: RemoteObjects, key: str, number: int) -> int:
    try:
        store.create(key, str(number).encode())
    except ObjectExists:
        return 0
    return 1


def _creates(store: RemoteObjects, won: int) -> Finding:
    if won == 1:
        return Finding("object store", "ok", f"{store.url} lets one of {_WRITERS} writers create a key")
    return Finding("object store", "fail", f"{won} of {_WRITERS} writers created one key", _GET_ANOTHER)

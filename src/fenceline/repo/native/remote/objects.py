"""Objects on S3, Google Cloud Storage or Azure, through obstore.

The conditional write is `If-None-Match: *` (a generation or ETag condition elsewhere): the store decides, in one
request. An acknowledged write is durable, so there is nothing to persist. Requests that change nothing when repeated
are repeated by the client; `create` is not one of them, and settles a lost answer itself.
"""

from __future__ import annotations

import itertools
import random
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from functools import cached_property
from typing import TYPE_CHECKING, TypeVar

from fenceline.errors import ObjectExists, ObjectMissing, OutcomeUnknown, StoreError
from fenceline.repo.native.objects import ObjectInfo
from fenceline.repo.native.remote.failures import missing, passing, refused, status, typed
from fenceline.repo.native.remote.feeding import fed
from fenceline.repo.native.remote.location import Location, first_line, require_obstore
from fenceline.seams import Clock, SystemClock

if TYPE_CHECKING:
    from obstore import ObjectMeta
    from obstore.store import ObjectStore as Client

R = TypeVar("R")

PART = 16 << 20  # bytes sent as one request; more goes up in parts of this size, at most 10,000 of them
_PARTS_AT_ONCE = 4
_DELETE_BATCH = 1000
_CREATE_TRIES = 6
_CLIENT_RETRIES = 5


class RemoteObjects:
    """An object store in a bucket."""

    far = True

    def __init__(self, location: Location, clock: Clock | None = None) -> None:
        require_obstore(location.url)
        self.location = location
        self._clock = clock or SystemClock()
        self._random = random.Random()  # noqa: S311 — spreads retries

    @classmethod
    def at(cls, url: str, options: Mapping[str, str] | None = None) -> RemoteObjects:
        return cls(Location.parse(url, options))

    @property
    def url(self) -> str:
        return self.location.url

    def __repr__(self) -> str:
        return f"RemoteObjects({self.url!r})"

    @cached_property
    def _client(self) -> Client:
        return self.location.client(retries=_CLIENT_RETRIES, timeout="120s")

    @cached_property
    def _once(self) -> Client:
        """For creates: repeated by the client, one that succeeded unheard would come back as "exists"."""
        return self.location.client(retries=0, timeout="30s")

    def create(self, key: str, data: bytes) -> None:
        from obstore import put
        from obstore.exceptions import AlreadyExistsError, BaseError

        in_doubt = False
        last: Exception | None = None
        for attempt in range(_CREATE_TRIES):
            if attempt:
                self._clock.sleep(0.05 * 2**attempt * (1 + self._random.random()))
            try:
                put(self._once, key, data, mode="create", use_multipart=False)
                return
            except (BaseError, OSError) as error:
                last = error
                if not in_doubt and isinstance(error, AlreadyExistsError) and status(error) != "409":
                    raise _taken(key) from error  # 409 is not that: two requests met, and neither may have won
                if not in_doubt and not passing(error):
                    raise self._typed(error, "creating", key) from error
                in_doubt = in_doubt or not refused(error)
            try:  # INV-3: what is there decides; absent means the same write again
                standing = self.get(key)
            except ObjectMissing:
                continue
            except StoreError as unanswered:
                last = unanswered
                continue
            if in_doubt and standing == data:
                return
            raise _taken(key) from last
        assert last is not None
        if in_doubt:
            raise OutcomeUnknown(f"it is not known whether {key} was written: {first_line(last)}", key=key) from last
        raise self._typed(last, "creating", key) from last

    def put(self, key: str, data: bytes | Iterable[bytes]) -> None:
        from obstore import put

        first, rest = (data, None) if isinstance(data, bytes) else _first_part(data)
        if rest is None and len(first) <= PART:
            self._ask("writing", key, lambda: put(self._client, key, first, use_multipart=False))
            return
        parts = itertools.chain([first], fed(rest or ()))
        self._ask(
            "writing",
            key,
            lambda: put(self._client, key, parts, use_multipart=True, chunk_size=PART, max_concurrency=_PARTS_AT_ONCE),
        )

    def persist(self, keys: Iterable[str]) -> None:
        """Nothing to do (INV-2): a store acknowledges only what it will not lose, and every write was acknowledged."""

    def get(self, key: str, start: int = 0, length: int | None = None) -> bytes:
        from obstore import get, get_range
        from obstore.exceptions import BaseError

        def read() -> bytes:
            if length is not None:
                # a range of nothing cannot be asked for, and a missing key must still be told
                return bytes(get_range(self._client, key, start=start, length=length or 1))[:length]
            if start:
                return bytes(get(self._client, key, options={"range": {"offset": start}}).bytes())
            return bytes(get(self._client, key).bytes())

        try:
            return read()
        except (BaseError, OSError) as error:
            if status(error) == "416":  # it ends before that range
                return b""
            raise self._typed(error, "reading", key) from error

    def stat(self, key: str) -> ObjectInfo | None:
        from obstore import head

        try:
            return _info(self._ask("looking at", key, lambda: head(self._client, key)))
        except ObjectMissing:
            return None

    def list(self, prefix: str) -> Iterator[ObjectInfo]:
        if "//" in prefix or prefix.startswith("/"):
            return  # no key has an empty component
        directory, _, start = prefix.rpartition("/")
        if not start:
            yield from self._below(directory)
            return
        # stores list by whole components: look at one level, then below what fits
        directories, objects = self._level(directory)
        found = [info for info in objects if info.key.startswith(prefix)]
        for each in directories:
            if each.startswith(prefix):
                found += self._below(each)
        yield from sorted(found, key=_key)

    def children(self, prefix: str) -> Iterator[str]:
        directories, objects = self._level(prefix.rstrip("/"))
        yield from sorted({key.rpartition("/")[2] for key in (*directories, *map(_key, objects))})

    def delete(self, keys: Iterable[str]) -> None:
        waiting = iter(keys)
        while batch := list(itertools.islice(waiting, _DELETE_BATCH)):
            self._delete(batch)

    def _delete(self, keys: Sequence[str]) -> None:
        from obstore import delete

        try:
            self._ask("deleting", keys[0], lambda: delete(self._client, keys))
        except ObjectMissing:  # Google and Azure say so, and stop there
            for key in keys if len(keys) > 1 else ():
                self._delete([key])

    def _below(self, directory: str) -> Sequence[ObjectInfo]:
        """Sorted here: S3 sorts by key, but not everything that speaks its language does."""
        from obstore import list as list_objects

        def read() -> Sequence[ObjectInfo]:
            return [_info(meta) for page in list_objects(self._client, directory or None) for meta in page]

        return sorted(self._ask("listing", directory, read), key=_key)

    def _level(self, directory: str) -> tuple[Sequence[str], Sequence[ObjectInfo]]:
        """The directories and the objects right below one."""
        from obstore import list_with_delimiter

        found = self._ask("listing", directory, lambda: list_with_delimiter(self._client, directory or None))
        return [name.rstrip("/") for name in found["common_prefixes"]], [_info(meta) for meta in found["objects"]]

    def _ask(self, doing: str, key: str, call: Callable[[], R]) -> R:
        from obstore.exceptions import BaseError

        try:
            return call()
        except (BaseError, OSError) as error:
            raise self._typed(error, doing, key) from error

    def _typed(self, error: Exception, doing: str, key: str) -> StoreError:
        if isinstance(error, FileNotFoundError) and "NoSuchBucket" not in str(error):
            return missing(key)
        return typed(error, f"{doing} {key}", self.url)


def _taken(key: str) -> ObjectExists:
    return ObjectExists(f"{key} exists already", key=key)


def _key(info: ObjectInfo) -> str:
    return info.key


def _info(meta: ObjectMeta) -> ObjectInfo:
    return ObjectInfo(meta["path"], meta["size"], meta["last_modified"].timestamp())


def _first_part(chunks: Iterable[bytes]) -> tuple[bytes, Iterator[bytes] | None]:
    """The first part of a stream, and what follows it: None where that was all."""
    waiting = iter(chunks)
    pieces, size = [], 0
    for piece in waiting:
        pieces.append(piece)
        size += len(piece)
        if size >= PART:
            return b"".join(pieces), waiting
    return b"".join(pieces), None

"""Where Spark finds the objects of a repository: on a disk that executors share, or in a bucket through `s3a://`."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Protocol

from fenceline.errors import ConfigError
from fenceline.repo.native.local import LocalObjects
from fenceline.repo.native.objects import ObjectStore
from fenceline.repo.native.remote.objects import RemoteObjects
from fenceline.seams import Seams
from fenceline.spark import parts, s3a
from fenceline.spark.checks import ensure_shared
from fenceline.spark.parts import Part
from fenceline.spark.settings import SparkSettings

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


class Place(Protocol):
    """What reading and writing need to know of where objects lie."""

    def path(self, key: str) -> str:
        """Where an object lies: a path of the disk, or the address that Spark knows it by."""
        ...

    def url(self, key: str) -> str:
        """The same as Spark takes it."""
        ...

    def local(self, key: str) -> str:
        """A path of this machine's disk, for programs that know no other."""
        ...

    def names(self, key: str) -> set[str]:
        """The part files in a job directory, by relative path."""
        ...

    def settle(self, key: str) -> list[Part]:
        """The part files that a finished job left in its directory, in order."""
        ...

    def rows(self, seams: Seams, format: str, keys: Sequence[str]) -> int | None:  # noqa: A002
        """The rows that these files say they hold; None where that cannot be told cheaply."""
        ...

    def check_writable(self, session: SparkSession, seams: Seams) -> None:
        """Refuse to write unless the driver and all executors write to the same place."""
        ...


class Disk:
    """A repository on a file system."""

    def __init__(self, objects: LocalObjects) -> None:
        self._objects = objects

    def path(self, key: str) -> str:
        return self._objects.path(key)

    def url(self, key: str) -> str:
        return "file://" + self.path(key)

    def local(self, key: str) -> str:
        return self.path(key)

    def names(self, key: str) -> set[str]:
        return parts.names(self.path(key))

    def settle(self, key: str) -> list[Part]:
        return parts.settle(self.path(key))

    def rows(self, seams: Seams, format: str, keys: Sequence[str]) -> int | None:  # noqa: A002
        return parts.rows_in(seams, format, [self.path(key) for key in keys])

    def check_writable(self, session: SparkSession, seams: Seams) -> None:
        ensure_shared(session, self._objects, seams)


class Bucket:
    """A repository on S3. Executors write where everyone reads: there is no disk to be shared, and none to differ."""

    def __init__(self, objects: RemoteObjects) -> None:
        self._objects = objects
        location = objects.location
        self._root = "/".join(filter(None, (f"s3a://{location.bucket}", location.prefix)))

    def path(self, key: str) -> str:
        return f"{self._root}/{key}"

    def url(self, key: str) -> str:
        return self.path(key)

    def local(self, key: str) -> str:
        raise ConfigError(
            f"{self._objects.url} has no directory that other programs could write into",
            hint="write a frame with workspace.write(…), or let the task take a Path",
        )

    def names(self, key: str) -> set[str]:
        return {part.relative for part in self.settle(key)}

    def settle(self, key: str) -> list[Part]:
        below = f"{key.rstrip('/')}/"
        found = (Part(info.key.removeprefix(below), info.size) for info in self._objects.list(below))
        return sorted(part for part in found if not parts.hidden(part.relative))

    def rows(self, seams: Seams, format: str, keys: Sequence[str]) -> int | None:  # noqa: A002
        return None  # every footer would be a request or two, and there is no second disk to catch out

    def check_writable(self, session: SparkSession, seams: Seams) -> None:
        """The store is shared by what it is."""


def place_of(session: SparkSession, objects: ObjectStore) -> Place:
    """The place of a repository's objects; the session is told how to get there."""
    if isinstance(objects, LocalObjects):
        return Disk(objects)
    if isinstance(objects, RemoteObjects) and objects.location.scheme == "s3":
        access = objects.location.access()
        settings = s3a.s3a_settings(
            access.endpoint,
            access.key,
            access.secret,
            path_style=access.endpoint is not None,
            region=access.region,
            token=access.token,
            bucket=objects.location.bucket,
        )
        s3a.tell(session, settings, objects.url)
        return Bucket(objects)
    raise ConfigError(
        f"Spark cannot reach the files of {objects.url}",
        hint="use a repository on S3 or on a disk that executors share; tasks that take a Path work everywhere",
    )


def settings_for(objects: ObjectStore, settings: SparkSettings | None) -> SparkSettings | None:
    """What to start Spark with for a repository: on S3 with the jars for it, unless a session is running already."""
    if not isinstance(objects, RemoteObjects) or objects.location.scheme != "s3":
        return settings
    if settings is None:
        from pyspark import SparkContext

        if SparkContext._active_spark_context is not None:
            return None
        settings = SparkSettings()
    return settings if settings.is_connect else replace(settings, conf=s3a.with_jars(settings.conf))

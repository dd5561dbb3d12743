"""What a Spark task is given: a prefix of the repository at one commit, read and written in place, without a copy."""

from __future__ import annotations

import contextlib
import os
import threading
from collections.abc import Iterator, Mapping, Sequence
from contextlib import AbstractContextManager
from typing import TYPE_CHECKING, ClassVar, Protocol, get_args

from fenceline.errors import ContractError
from fenceline.repo.names import check_path, check_prefix
from fenceline.repo.native.repository import NativeRepository
from fenceline.seams import Seams
from fenceline.spark import formats, modes, schemas
from fenceline.spark.modes import Mode, ModeName
from fenceline.spark.places import place_of
from fenceline.spark.reader import Reader
from fenceline.spark.target import Outcome
from fenceline.spark.writer import Writer, Written
from fenceline.txn.trying import Try

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession
    from pyspark.sql.types import StructType


class Metrics(Protocol):
    """Numbers a task author wants to see beside the attempt."""

    def counter(self, name: str, value: float = 1) -> None: ...

    def gauge(self, name: str, value: float) -> None: ...

    def timer(self, name: str) -> AbstractContextManager[None]: ...


class SparkWorkspace:
    """Reads at the attempt's commit, its own writes included; writes where they will be published.

    Nothing written is visible to others before the attempt publishes. Paths are relative to the workspace's prefix.
    """

    __fenceline_workspace__: ClassVar[str] = "spark"

    replace_where = staticmethod(modes.replace_where)

    def __init__(
        self,
        session: SparkSession,
        repo: NativeRepository,
        trying: Try,
        prefix: str,
        metrics: Metrics,
        seams: Seams,
        read_only: bool = False,
    ) -> None:
        place = place_of(session, repo.objects)
        self._session, self._try, self._metrics = session, trying, metrics
        self._prefix = check_prefix(prefix)
        self._read_only = read_only
        self._lock = threading.RLock()
        self._reader = Reader(session, place, trying.tree, self._prefix, self._lock)
        self._writer = Writer(session, place, trying, self._prefix, seams, self._reader, self._lock)

    @property
    def spark(self) -> SparkSession:
        """The attempt's own session: temporary views and settings end with it."""
        return self._session

    @property
    def commit(self) -> str:
        """The id of the commit the workspace shows."""
        return self._try.input.id

    @property
    def prefix(self) -> str:
        """The directory of the repository that the workspace shows; '' for all of it."""
        return self._prefix

    @property
    def metrics(self) -> Metrics:
        return self._metrics

    @property
    def job_group(self) -> str:
        """The group of the Spark jobs that writes start; `fenceline.spark.cancel` stops them."""
        return self._writer.group

    @property
    def read(self) -> Reader:
        """Frames over files and datasets: `.parquet(path)`, `.csv(path, header=True)`, `.dataset(path)` …"""
        return self._reader

    def exists(self, path: str) -> bool:
        """Whether a file, a dataset or a directory is there; counts as read."""
        full = self._full(path)
        with self._lock:
            if full and self._try.tree.find(full) is not None:
                return True
            return next(iter(self._try.tree.below(full)), None) is not None

    def files(self, prefix: str = "") -> list[str]:
        """Every file below a directory, part files of datasets too; the whole directory counts as read."""
        full, cut = self._full(prefix), len(self._prefix) + 1 if self._prefix else 0
        with self._lock:
            return [entry.path[cut:] for entry in self._try.tree.below(full) if entry.dataset is None]

    def write(
        self,
        df: DataFrame,
        path: str,
        *,
        format: str = "parquet",  # noqa: A002
        mode: Mode = "error",
        partition_by: Sequence[str] | str = (),
        options: Mapping[str, object] | None = None,
    ) -> Written:
        """Write a frame as the dataset at a path.

        `mode`: `error` (it must not exist), `append`, `overwrite`, `overwrite_partitions` (exactly those in the frame),
        or `replace_where(predicate)`. Overwriting what the frame is computed from is safe.
        """
        self._check_writable(path)
        return self._writer.write(df, path, format, mode, _names(partition_by), options)

    @contextlib.contextmanager
    def output_dir(
        self,
        path: str,
        *,
        format: str = "parquet",  # noqa: A002
        mode: ModeName = "error",
        partition_by: Sequence[str] | str = (),
        schema: StructType | None = None,
        rows: int | None = None,
        options: Mapping[str, object] | None = None,
    ) -> Iterator[str]:
        """A new directory on the driver for other writers; what is in it when the block ends becomes the dataset.

        An exception in the block registers nothing. `schema` and `rows` are kept with the dataset where they are given.
        """
        self._check_writable(path)
        if mode not in get_args(ModeName):
            raise ContractError(f"mode is {mode!r}", hint=f"output_dir takes {', '.join(get_args(ModeName))}")
        columns = _names(partition_by)
        aim, existing = self._writer.aim(path, formats.check_readable(format), mode, columns, formats.as_text(options))
        stored = existing.dataset.schema if existing and existing.dataset and aim.mode != "overwrite" else None
        if schema is not None:
            stored = stored or schemas.dump(schemas.nullable(schema))
        job = self._writer.begin(aim)
        directory = self._writer.directory(aim, job)
        os.makedirs(directory)
        yield directory
        found = self._writer.left_in(aim, job)
        for part in found:
            _check_place(path, part.relative, columns)
        self._writer.register(aim, Outcome(job, found, stored, rows), None)

    def _check_writable(self, path: str) -> None:
        if self._read_only:
            raise ContractError(
                f"cannot write {path}: the task is read-only", hint="declare WorkspaceSpec(read_only=False)"
            )

    def _full(self, path: str) -> str:
        clean = path.removesuffix("/")
        if not clean:
            return self._prefix
        return f"{self._prefix}/{check_path(clean)}" if self._prefix else check_path(clean)

    def __repr__(self) -> str:
        return f"SparkWorkspace(commit={self.commit[:12]!r}, prefix={self._prefix!r})"


def _names(columns: Sequence[str] | str) -> tuple[str, ...]:
    return (columns,) if isinstance(columns, str) else tuple(columns)


def _check_place(path: str, relative: str, columns: tuple[str, ...]) -> None:
    directories = relative.split("/")[:-1]
    if ":" in relative:
        raise ContractError(f"{path}: {relative!r} has ':' in its name", hint="Spark cannot read it: rename it")
    if [d.partition("=")[0] for d in directories] != list(columns) or not all("=" in d for d in directories):
        raise ContractError(
            f"{path}: {relative!r} does not lie in directories for partition_by={list(columns)}",
            hint="lay files out as column=value/…, one directory for each partition column",
        )

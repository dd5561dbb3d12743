"""What a Spark task is given on lakeFS: the input commit and the attempt's staging branch, through the S3 gateway."""

from __future__ import annotations

import threading
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, NoReturn

from fenceline.errors import AlreadyExists, ContractError, FencelineError, NotFound, StoreError
from fenceline.repo.lakefs.client import Client
from fenceline.repo.lakefs.hook import ACTIONS
from fenceline.repo.names import check_path, check_prefix
from fenceline.repo.pathset import PathSet
from fenceline.seams import Seams
from fenceline.spark import formats, lake_staging, reports, schemas
from fenceline.spark.lake_gateway import Gateway
from fenceline.spark.lake_staging import Listing
from fenceline.spark.modes import Mode, ReplaceWhere, check_mode
from fenceline.spark.parts import hidden
from fenceline.spark.reader import Reader
from fenceline.spark.session import job_group
from fenceline.spark.workspace import Metrics, SparkWorkspace
from fenceline.spark.writer import Written

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession
    from pyspark.sql.types import StructType

_BY_ENDING = {"parquet": "parquet", "orc": "orc", "json": "json", "csv": "csv", "txt": "text", "avro": "avro"}
_NO_MARKER = {"mapreduce.fileoutputcommitter.marksuccessfuljobs": "false"}


@dataclass(frozen=True, slots=True)
class Staging:
    """As much of the staging branch as a workspace needs: made by the first write."""

    name: Callable[[], str | None]
    open: Callable[[], str]
    remove: Callable[[Iterable[str]], None]
    wrote: Callable[[int], None]
    """Told how many bytes were added."""


class LakeReader(Reader):
    """`workspace.read` on lakeFS: what this attempt wrote from its staging branch, all else from the commit."""

    def __init__(self, session: SparkSession, gateway: Gateway, workspace: LakeSparkWorkspace) -> None:
        self._session, self._gateway, self._workspace = session, gateway, workspace

    def load(
        self,
        path: str,
        format: str | None,  # noqa: A002
        schema: StructType | str | None,
        options: Mapping[str, object],
    ) -> DataFrame:
        files = self._workspace.files(path)
        if not files:
            raise NotFound(f"there is nothing at {path}", hint="workspace.files() lists what is there", path=path)
        chosen = format or _told_by(path, files)
        given = self._parsed(schema)
        wanted = formats.as_text(options)
        if format is None:
            wanted = formats.with_defaults(chosen, wanted)
        reader = self._session.read.format(chosen).options(**wanted)
        reader = reader.schema(given) if given is not None else reader
        return reader.load(self._gateway.pattern(*self._workspace.place(path)))


class LakeSparkWorkspace(SparkWorkspace):
    """Reads at the attempt's commit, its own writes included; writes to the branch that will be published."""

    def __init__(
        self,
        session: SparkSession,
        client: Client,
        commit: str,
        staging: Staging,
        execution: str,
        prefix: str,
        metrics: Metrics,
        seams: Seams,
        reads: PathSet,
        read_only: bool = False,
    ) -> None:
        self._session, self._client, self._commit, self._staging = session, client, commit, staging
        self._execution, self._prefix, self._metrics, self._seams = execution, check_prefix(prefix), metrics, seams
        self._reads, self._read_only = reads, read_only
        self._lock = threading.RLock()
        self._gateway = Gateway(session, client)
        self._reader = LakeReader(session, self._gateway, self)
        self._jobs = 0
        self._written = PathSet()
        self.damaged: str | None = None
        """Why nothing of this attempt may be sealed: a write failed, and what it left could not be taken back."""

    @property
    def commit(self) -> str:
        return self._commit

    @property
    def job_group(self) -> str:
        return f"fenceline-{self._execution}"

    def place(self, path: str) -> tuple[str, str]:
        """The ref and the path at which something is found; it counts as read."""
        full = self._full(path)
        with self._lock:
            branch = self._staging.name()
            if branch is not None and self._written.overlaps(full):
                return branch, full
            self._reads.add(full)
            return self._commit, full

    def exists(self, path: str) -> bool:
        return bool(self.files(path))

    def files(self, prefix: str = "") -> list[str]:
        return list(self.sizes(prefix))

    def sizes(self, prefix: str = "") -> dict[str, int]:
        """Every file below a directory, or the file itself, and its bytes; the directory counts as read."""
        ref, full = self.place(prefix)
        cut = len(self._prefix) + 1 if self._prefix else 0
        if full and (itself := self._client.stat(ref, full)) is not None:
            return {full[cut:]: itself.size}
        found = self._client.objects(ref, f"{full}/" if full else "")
        shown = (each for each in found if not each.path.endswith("/") and not each.path.startswith(ACTIONS))
        return {each.path[cut:]: each.size for each in shown}

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
        """Write a frame as part files below a path; `mode`: `error`, `append`, `overwrite`, `overwrite_partitions`."""
        self._check_writable(path)
        columns = (partition_by,) if isinstance(partition_by, str) else tuple(partition_by)
        name = self._checked_mode(path, mode, columns)
        schemas.check_frame(df, columns)
        chosen = formats.check_writable(format)
        full = self._target(path)
        with self._lock:  # two jobs in one directory take each other's files for their own
            return self._write(df, full, chosen, name, columns, formats.as_text(options))

    def _write(
        self, df: DataFrame, full: str, kind: str, mode: str, columns: tuple[str, ...], options: Mapping[str, str]
    ) -> Written:
        before = Listing.read(self._client, self._staging.name() or self._commit, full)
        if mode == "error" and before.parts():
            raise AlreadyExists(
                f"there are files at {full}", hint="say mode='append', 'overwrite' or 'overwrite_partitions'", path=full
            )
        if mode != "append":
            self._reads.add(full)  # what is replaced, or found absent, was looked at
        branch = self._staging.open()
        self._written.add(full)
        self._jobs += 1
        job = f"{self._execution}-{self._jobs}"
        with self._taken_back(branch, before):
            told = {**formats.with_defaults(kind, options), **_NO_MARKER}
            writer = df.write.format(kind).options(**told).mode("append")
            if columns:
                writer = writer.partitionBy(*columns)
            with job_group(self._session, self.job_group, f"fenceline: write {full} ({job})"):
                writer.save(self._gateway.url(branch, full))
            said = reports.written(self._session, job, self._seams)
            after = Listing.read(self._client, branch, full)
            new = lake_staging.fresh(before, after)
            if len(new) != said.files:
                raise StoreError(
                    f"{full}: the job wrote {said.files} files, but {len(new)} new ones are on {branch}",
                    hint="nothing was kept; run it again, and see the log of the lakeFS server",
                )
            self._staging.remove(lake_staging.litter(before, after) | lake_staging.replaced(mode, before, new))
        size = sum(after.sizes[path] for path in new)
        self._staging.wrote(size)
        return Written(said.rows, len(new), size)

    @contextmanager
    def _taken_back(self, branch: str, before: Listing) -> Iterator[None]:
        """A body may catch the failure of a write and go on: nothing of that write may be left then."""
        try:
            yield
        except BaseException as error:
            try:
                lake_staging.take_back(before, Listing.read(self._client, branch, before.directory), self._remove)
            except FencelineError as again:
                self.damaged = f"what a failed write left at {before.directory} could not be taken back: {again}"
                error.add_note(self.damaged)
            raise

    def _remove(self, paths: Collection[str]) -> None:
        self._staging.remove(sorted(paths))

    def _target(self, path: str) -> str:
        full = self._full(check_path(path.removesuffix("/")))
        if ":" in full or f"{full}/".startswith(ACTIONS):
            raise ContractError(
                f"cannot write to {path!r}: Spark cannot read names with ':', and lakeFS keeps its hooks in {ACTIONS}",
                hint="choose another path",
            )
        if self._client.stat(self._staging.name() or self._commit, full) is not None:
            raise AlreadyExists(f"{full} is a file", hint="choose another path: a dataset is a directory", path=full)
        return full

    def _checked_mode(self, path: str, mode: Mode, columns: tuple[str, ...]) -> str:
        if isinstance(mode, ReplaceWhere):
            raise ContractError(
                f"{path}: replace_where is not there on lakeFS", hint="read, filter, and write with mode='overwrite'"
            )
        name = check_mode(mode)
        if name == "overwrite_partitions" and not columns:
            raise ContractError(f"{path}: mode='overwrite_partitions' needs partition_by", hint="name the columns")
        return name

    def output_dir(self, path: str, **options: Any) -> NoReturn:
        self._not_here(f"output_dir({path!r})", "write a frame, or let the task take a Path")

    def graph(self, path: str = "") -> NoReturn:
        self._not_here("a graph", "keep graphs in a native repository")

    def _not_here(self, what: str, hint: str) -> NoReturn:
        raise ContractError(f"{what} is not there in a Spark workspace on lakeFS", hint=hint)


def _told_by(path: str, files: Sequence[str]) -> str:
    """The format that the names of the files tell."""
    endings = {name.rpartition(".")[2] for name in files if not hidden(name.rpartition("/")[2])}
    found = {_BY_ENDING.get(ending, "") for ending in endings}
    if len(found) != 1 or not (chosen := found.pop()):
        raise ContractError(f"{path}: its files do not tell their format", hint="name it: read.parquet(…), read.csv(…)")
    return chosen

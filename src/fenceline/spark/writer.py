"""Writing a frame: one Spark job into a directory of its own, registered only after all of it is known to be there."""

from __future__ import annotations

import threading
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from fenceline.errors import ContractError, StoreError
from fenceline.repo.merge import PART_PREFIX
from fenceline.repo.model import Entry
from fenceline.repo.names import check_path
from fenceline.repo.native.staging import FILE
from fenceline.seams import Seams
from fenceline.spark import formats, parts, reports, schemas, target
from fenceline.spark.modes import Mode, ReplaceWhere, check_mode
from fenceline.spark.places import Place
from fenceline.spark.reader import Reader
from fenceline.spark.replacing import plan_replacement
from fenceline.spark.reports import Report
from fenceline.spark.session import is_connect, job_group
from fenceline.spark.target import Outcome, Target
from fenceline.txn.trying import Try

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession
    from pyspark.sql.types import StructType

# The v1 committer moves files when the job succeeded, so that failed, retried or speculative tasks leave nothing:
# with v2, 975 rows were left for 100. Its marker is of no use here.
_COMMITTER = {
    "mapreduce.fileoutputcommitter.algorithm.version": "1",
    "mapreduce.fileoutputcommitter.marksuccessfuljobs": "false",
}


@dataclass(frozen=True, slots=True)
class Written:
    """What one write put in place: the frame's rows, and the files that hold them."""

    rows: int
    files: int
    bytes: int


class Writer:
    """Writes of one attempt, into one repository. Safe to use from several threads."""

    def __init__(
        self,
        session: SparkSession,
        place: Place,
        trying: Try,
        prefix: str,
        seams: Seams,
        reader: Reader,
        lock: threading.RLock,
    ) -> None:
        self._session, self._place, self._try = session, place, trying
        self._prefix, self._seams, self._reader, self._lock = prefix, seams, reader, lock
        self._new_ids: dict[str, str] = {}
        self.group = f"fenceline-{trying.execution}"

    def write(
        self,
        df: DataFrame,
        path: str,
        format: str,  # noqa: A002
        mode: Mode,
        partition_by: Sequence[str],
        options: Mapping[str, object] | None,
    ) -> Written:
        """Check, write, compare, register: in this order."""
        columns = tuple(partition_by)
        schemas.check_frame(df, columns)
        given = formats.as_text(options)
        aim, existing = self.aim(path, formats.check_writable(format), mode, columns, given)
        frame, schema = self._fitted(df, aim, existing)
        replacing = plan_replacement(self._reader, aim.path, frame, mode) if isinstance(mode, ReplaceWhere) else None
        self._place.check_writable(self._session, self._seams)
        job = self.begin(aim)
        said = self._run(aim, replacing.frame if replacing else frame, job, given)
        incoming = replacing.incoming() if replacing else said.rows
        found = self._settled(aim, job, said, given)
        outcome = Outcome(job, found, schemas.dump(schema), said.rows)
        if replacing is not None:
            outcome = replace(outcome, replaced=replacing.files, seen=replacing.seen)
        self.register(aim, outcome, None if replacing is None else incoming - replacing.matching)
        return Written(incoming, len(found), sum(part.size for part in found))

    # --- before the first byte --------------------------------------------------------------------------------------

    def aim(
        self,
        path: str,
        format: str,  # noqa: A002
        mode: Mode,
        partition_by: tuple[str, ...],
        given: Mapping[str, str],
    ) -> tuple[Target, Entry | None]:
        """Where a write goes and what is there. Fails before anything is staged."""
        name = check_mode(mode)
        if name == "overwrite_partitions" and not partition_by:
            raise ContractError(
                f"{path}: mode='overwrite_partitions' needs partition_by", hint="name the partition columns"
            )
        full = self._full(path)
        with self._lock:
            before = self._try.tree.dataset(full)
            kept = before.dataset.options if before and before.dataset and name != "overwrite" else {}
            told = formats.for_readers(format, given)
            options = {**kept, **told} if kept else formats.for_readers(format, formats.with_defaults(format, given))
            known = before.dataset.id if before and before.dataset else None
            dataset_id = known or self._new_ids.get(full) or self._try.new_id()
            aim = Target(full, dataset_id, name, format, partition_by, options)
            existing = target.check(self._try.tree, aim)
            self._new_ids[full] = dataset_id  # two first appends at once are appends to one dataset
        return aim, existing

    def _full(self, path: str) -> str:
        if ":" in path:
            raise ContractError(
                f"cannot write to {path!r}: a workspace writes below its own prefix, in names without ':'",
                hint="name a path in the repository; Spark cannot read names with ':'",
            )
        clean = check_path(path.removesuffix("/"))
        return f"{self._prefix}/{clean}" if self._prefix else clean

    def _fitted(self, df: DataFrame, aim: Target, existing: Entry | None) -> tuple[DataFrame, StructType]:
        dataset = existing.dataset if existing else None
        if dataset is None or aim.mode == "overwrite":
            return df, schemas.nullable(df.schema)
        if dataset.schema:
            stored = schemas.parse(dataset.schema)
        else:
            with self._lock:
                live = self._try.tree.parts(aim.path)
            stored = schemas.nullable(self._reader.scan(dataset, live, None, {}).schema)
        return schemas.fitted(df, stored, aim.path, ordered=aim.format == "csv"), stored

    def begin(self, aim: Target) -> str:
        """Name the dataset in the intent, and take a directory that nobody else has; its name."""
        with self._lock:
            self._try.declare(aim.dataset_id)
            return f"{self._try.execution}-{self._try.next_job()}"

    def directory(self, aim: Target, job: str) -> str:
        """The job's directory on the local disk, for other writers."""
        return self._place.local(_directory(aim, job))

    def left_in(self, aim: Target, job: str) -> list[parts.Part]:
        """The part files in it."""
        return self._place.settle(_directory(aim, job))

    # --- the job ----------------------------------------------------------------------------------------------------

    def _run(self, aim: Target, df: DataFrame, job: str, given: Mapping[str, str]) -> Report:
        """Run it; what Spark says that it wrote."""
        frame, told = _counted(df, job) if is_connect(self._session) else (df, None)
        options = {**formats.with_defaults(aim.format, {**aim.options, **given}), **_COMMITTER}
        writer = frame.write.format(aim.format).options(**options).mode("error")
        if aim.partition_by:
            writer = writer.partitionBy(*aim.partition_by)
        with job_group(self._session, self.group, f"fenceline: write {aim.path} ({job})"), FILE:
            writer.save(self._place.url(_directory(aim, job)))
        return told() if told else reports.written(self._session, job, self._seams)

    def _settled(self, aim: Target, job: str, said: Report, given: Mapping[str, str]) -> list[parts.Part]:
        """The part files, compared with what the job said. Executors that write elsewhere also report success."""
        directory = _directory(aim, job)
        found = self._place.settle(directory)
        if any(":" in part.relative for part in found):
            raise ContractError(f"{aim.path}: a part file has ':' in its name", hint="Spark could not read it again")
        if any(name.lower().startswith("parquet.encryption") for name in given):
            there = None  # their footers are not ours to read
        else:
            there = self._place.rows(self._seams, aim.format, [f"{directory}/{part.relative}" for part in found])
        short = len(found) < said.files or (said.rows > 0 and not found)
        if short or there not in (None, said.rows):
            held = "" if there is None else f" with {there} rows"
            raise StoreError(
                f"{aim.path}: the job wrote {said.rows} rows, but there are {len(found)} files{held} in "
                f"{self._place.path(directory)}",
                hint="nothing was registered. All executors and the driver must write to the same disk",
            )
        return found

    # --- after it ---------------------------------------------------------------------------------------------------

    def register(self, aim: Target, outcome: Outcome, change: int | None) -> None:
        """Make the job's files part of the attempt's tree. `change`: by how many rows the dataset grew, if known."""
        with self._lock:
            tree = self._try.tree
            existing = target.check(tree, aim)
            before = existing.dataset if existing else None
            if before is not None and before.id != aim.dataset_id:
                raise ContractError(f"{aim.path} was replaced while it was written", hint="do one after the other")
            if before is not None and aim.mode != "overwrite" and before.schema not in (None, outcome.schema):
                raise ContractError(
                    f"{aim.path} got another schema from another write of this attempt", hint="do one after the other"
                )
            gone = target.removed(tree, aim, existing, outcome)
            total = self._total(aim, existing, outcome, gone, change)
            target.register(tree, self._try.staging(), aim, existing, outcome, gone, total)

    def _total(
        self, aim: Target, existing: Entry | None, outcome: Outcome, gone: Sequence[Entry], change: int | None
    ) -> int | None:
        before = existing.dataset if existing else None
        if before is None or aim.mode == "overwrite" or outcome.rows is None:
            return outcome.rows
        if before.rows is None:
            return None
        if change is not None:
            return before.rows + change
        if not gone:
            return before.rows + outcome.rows
        lost = self._place.rows(self._seams, before.format, [entry.address for entry in gone])
        return None if lost is None else before.rows - lost + outcome.rows


def _directory(aim: Target, job: str) -> str:
    return f"datasets/{aim.dataset_id}/{PART_PREFIX}{job}"


def _counted(df: DataFrame, job: str) -> tuple[DataFrame, Callable[[], Report]]:
    """A frame that counts its rows as they pass: behind Connect there is no other way. Its files are not counted."""
    from pyspark.sql import Observation, functions

    seen = Observation(f"fenceline-{job}")
    observed = df.observe(seen, functions.count(functions.lit(1)).alias("rows"))
    return observed, lambda: Report(int(seen.get["rows"]), 0)

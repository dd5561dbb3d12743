"""Reading at a commit: a dataset is one scan of its live part files, plain files are read as they are listed."""

from __future__ import annotations

import contextlib
import re
from collections.abc import Iterator, Mapping, Sequence
from contextlib import AbstractContextManager
from typing import TYPE_CHECKING, Protocol, cast

from fenceline.errors import ContractError, FencelineError, NotFound, ObjectMissing
from fenceline.repo.model import Commit, Dataset, Entry
from fenceline.repo.names import check_path, check_prefix
from fenceline.repo.native.repository import NativeRepository, external_file
from fenceline.spark import layout, parts, schemas
from fenceline.spark.formats import FILE_FORMATS, as_text, check_readable
from fenceline.spark.places import Place, place_of
from fenceline.spark.settings import LISTED_BY_DRIVER, SERIAL_LISTING

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, DataFrameReader, SparkSession
    from pyspark.sql.types import StructType


class Tree(Protocol):
    """What is read: a commit, or one with an attempt's own writes over it."""

    def find(self, path: str) -> Entry | None: ...

    def below(self, prefix: str) -> Iterator[Entry]: ...


class CommitTree:
    """A commit, for reading only."""

    def __init__(self, repo: NativeRepository, commit: Commit) -> None:
        self._repo, self._commit = repo, commit

    def find(self, path: str) -> Entry | None:
        return self._repo.find(self._commit, path)

    def below(self, prefix: str) -> Iterator[Entry]:
        return self._repo.trees.below(self._commit.tree, check_prefix(prefix))


def at_commit(session: SparkSession, repo: NativeRepository, commit: Commit, prefix: str = "") -> Reader:
    """Read at any commit, outside of a task: notebooks, tests."""
    return Reader(session, place_of(session, repo.objects), CommitTree(repo, commit), prefix)


class Reader:
    """`workspace.read`: frames over files and datasets, by their paths in the repository."""

    def __init__(
        self,
        session: SparkSession,
        place: Place,
        tree: Tree,
        prefix: str = "",
        lock: AbstractContextManager[object] | None = None,
    ) -> None:
        self._session, self._place, self._tree = session, place, tree
        self._prefix = check_prefix(prefix)
        self._lock = lock or contextlib.nullcontext()
        if int(session.conf.get(SERIAL_LISTING) or 0) < int(LISTED_BY_DRIVER):
            session.conf.set(SERIAL_LISTING, LISTED_BY_DRIVER)

    def parquet(self, path: str, *, schema: StructType | str | None = None, **options: object) -> DataFrame:
        return self.load(path, "parquet", schema, options)

    def orc(self, path: str, *, schema: StructType | str | None = None, **options: object) -> DataFrame:
        return self.load(path, "orc", schema, options)

    def json(self, path: str, *, schema: StructType | str | None = None, **options: object) -> DataFrame:
        return self.load(path, "json", schema, options)

    def csv(self, path: str, *, schema: StructType | str | None = None, **options: object) -> DataFrame:
        return self.load(path, "csv", schema, options)

    def text(self, path: str, *, schema: StructType | str | None = None, **options: object) -> DataFrame:
        return self.load(path, "text", schema, options)

    def format(self, name: str) -> FormatReader:
        """Any other file format, in the manner of Spark's reader: `.format("xml").option("rowTag", "r").load(…)`."""
        return FormatReader(self, check_readable(name))

    def dataset(self, path: str, **options: object) -> DataFrame:
        """A dataset in the format, and with the options, that it was written with."""
        return self.load(path, None, None, options)

    def load(
        self,
        path: str,
        format: str | None,  # noqa: A002
        schema: StructType | str | None,
        options: Mapping[str, object],
    ) -> DataFrame:
        full = self._full(path)
        given = self._parsed(schema)
        with self._lock:
            entry = self._tree.find(full) if full else None
            below = [] if entry is not None and entry.dataset is None else list(self._tree.below(full))
        if entry is not None and entry.dataset is not None:
            if format not in (None, entry.dataset.format):
                raise ContractError(
                    f"{path} is a dataset of {entry.dataset.format}, not {format}",
                    hint=f"use read.{entry.dataset.format}(…), or read.dataset(…)",
                )
            live = [part for part in below if not part.path.endswith("/")]
            return self.scan(entry.dataset, live, given, as_text(options))
        if format is None:
            raise (
                self._not_there(full, path)
                if entry is None and not below
                else ContractError(f"{path} is no dataset", hint="name its format: read.parquet(…), read.csv(…)")
            )
        inside = [e.path for e in below if e.dataset is not None]
        if inside:
            raise ContractError(
                f"{path} holds datasets: {', '.join(inside[:5])}", hint="read each by its own path, and union() them"
            )
        files = [entry] if entry is not None else below
        if not files:
            raise self._not_there(full, path)
        placed = self._placed(files, full)
        if not placed:
            raise NotFound(
                f"{path} holds only files that Spark passes over (their names start with '_' or '.')",
                hint="rename them",
                path=path,
            )
        return self._files(path, placed, format, given, as_text(options))

    # --- datasets ---------------------------------------------------------------------------------------------------

    def live(self, full: str) -> tuple[Dataset, list[Entry]] | None:
        """The dataset at a path of the tree with its live part files; all of it counts as read."""
        with self._lock:
            entry = self._tree.find(full)
            if entry is None or entry.dataset is None:
                return None
            return entry.dataset, [part for part in self._tree.below(full) if not part.path.endswith("/")]

    def scan(
        self,
        dataset: Dataset,
        live: Sequence[Entry],
        schema: StructType | None,
        options: Mapping[str, str],
        file_column: str | None = None,
    ) -> DataFrame:
        """One scan over these part files of a dataset. `file_column` adds the file that each row comes from."""
        stored = schemas.parse(dataset.schema) if dataset.schema and schema is None else schema
        if not live:
            return self._session.createDataFrame([], self._schema_of_nothing(dataset, stored))
        base = f"datasets/{dataset.id}/"
        reader = self._reader(dataset.format, {**dataset.options, **options})
        reader = reader.option("basePath", self._place.url(base).removesuffix("/"))
        if stored is not None:
            from pyspark.sql.types import StringType

            reader = reader.schema(layout.with_columns(stored, {schemas.JOB_COLUMN: StringType()}))
        found = reader.load(self._roots(base, live))
        names = [field.name for field in stored.fields] if stored else []
        names += [name for name in found.columns if name not in {*names, schemas.JOB_COLUMN}]
        columns = [schemas.column(name) for name in names]
        if file_column:
            from pyspark.sql import functions

            columns.append(functions.col("_metadata.file_path").alias(file_column))
        return found.select(*columns)

    def _roots(self, base: str, live: Sequence[Entry]) -> list[str]:
        """The job directories that are live as a whole, and the single files of those that are not."""
        jobs: dict[str, set[str]] = {}
        for entry in live:
            job, _, relative = entry.address.removeprefix(base).partition("/")
            jobs.setdefault(job, set()).add(relative)
        roots = []
        for job, wanted in jobs.items():
            there = self._place.names(base + job)
            if lost := wanted - there:
                key = f"{base}{job}/{min(lost)}"
                raise ObjectMissing(f"{key} is missing", hint="fenceline fsck shows what that breaks", address=key)
            roots += [f"{base}{job}"] if there == wanted else [f"{base}{job}/{name}" for name in sorted(wanted)]
        return [_pattern(self._place.path(root)) for root in roots]

    def _schema_of_nothing(self, dataset: Dataset, stored: StructType | None) -> StructType:
        if stored is None:
            raise ContractError(
                "the dataset has no files and no schema", hint="give one: read.parquet(path, schema=…)", id=dataset.id
            )
        return schemas.nullable(stored)

    # --- plain files ------------------------------------------------------------------------------------------------

    def _files(
        self,
        path: str,
        files: Sequence[layout.Placed],
        format: str,  # noqa: A002
        schema: StructType | None,
        options: Mapping[str, str],
    ) -> DataFrame:
        found = layout.find_layout(files, path)
        urls = [_pattern(file.path) for file in files]
        reader = self._reader(format, options)
        if found is None:
            return (reader.schema(schema) if schema else reader).load(urls)
        if found.root is None or format not in FILE_FORMATS:
            wanted = schemas.without(schema, found.columns) if schema else None
            return layout.add_columns((reader.schema(wanted) if wanted else reader).load(urls), found, schema)
        data = schema or schemas.without(self._reader(format, options).load(urls).schema, found.columns)
        return reader.schema(layout.with_columns(data, found.columns)).option("basePath", _url(found.root)).load(urls)

    def _placed(self, files: Sequence[Entry], directory: str) -> list[layout.Placed]:
        placed = []
        for entry in files:
            relative = entry.path.removeprefix(directory + "/") if directory else entry.path
            if relative == entry.path and directory:
                relative = entry.path.rpartition("/")[2]  # the file itself was asked for
            if parts.hidden(relative):
                continue
            if ":" in entry.path:
                raise ContractError(
                    f"Spark cannot read {entry.path!r}: it has ':' in its name", hint="rename it, or read it in Python"
                )
            placed.append(layout.Placed(self.location(entry), relative))
        return placed

    def location(self, entry: Entry) -> str:
        """Where a file lies. Data registered in place is looked at: it is not ours, and may have changed."""
        if "://" not in entry.address:
            return self._place.path(entry.address)
        return external_file(entry)

    # --- shared -----------------------------------------------------------------------------------------------------

    def _reader(self, format: str, options: Mapping[str, str]) -> DataFrameReader:  # noqa: A002
        return self._session.read.format(format).options(**options)

    def _full(self, path: str) -> str:
        clean = path.removesuffix("/")
        if not clean:
            return self._prefix
        return f"{self._prefix}/{check_path(clean)}" if self._prefix else check_path(clean)

    def _parsed(self, schema: StructType | str | None) -> StructType | None:
        from pyspark.sql.types import StructType

        return cast(StructType, StructType.fromDDL(schema)) if isinstance(schema, str) else schema

    def _not_there(self, full: str, path: str) -> FencelineError:
        at = full
        while at := at.rpartition("/")[0]:
            with self._lock:
                above = self._tree.find(at)
            if above is not None:
                return NotFound(
                    f"{path} is inside the dataset {at}" if above.dataset else f"{at} is a file, so {path} cannot be",
                    hint=f"read {at} and filter by its columns" if above.dataset else "check the path",
                    path=path,
                )
        return NotFound(f"there is nothing at {path}", hint="workspace.files() lists what is there", path=path)


def _pattern(path: str) -> str:
    """A path as Spark takes it: a pattern that matches this name only, `a[1].txt` too.

    Its option `__globPaths__=false` is no help: it reads every path once more for each that looks like a pattern.
    """
    return re.sub(r"([{}\[\]*?\\])", r"\\\1", _url(path))


def _url(path: str) -> str:
    return path if "://" in path else f"file://{path}"


class FormatReader:
    """A format with its options and schema; each call gives a new one."""

    def __init__(
        self,
        reader: Reader,
        name: str,
        options: Mapping[str, object] | None = None,
        schema: StructType | str | None = None,
    ) -> None:
        self._reader, self._name = reader, name
        self._options, self._schema = dict(options or {}), schema

    def option(self, name: str, value: object) -> FormatReader:
        return FormatReader(self._reader, self._name, {**self._options, name: value}, self._schema)

    def options(self, **options: object) -> FormatReader:
        return FormatReader(self._reader, self._name, {**self._options, **options}, self._schema)

    def schema(self, schema: StructType | str) -> FormatReader:
        return FormatReader(self._reader, self._name, self._options, schema)

    def load(self, path: str) -> DataFrame:
        return self._reader.load(path, self._name, self._schema, self._options)

"""A local directory as guards see it."""

from __future__ import annotations

import json
import os
import stat
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any

from fenceline.errors import ConfigError, NotFound
from fenceline.repo.model import Dataset
from fenceline.repo.names import check_prefix
from fenceline.task.guard import GuardUnavailable
from fenceline.task.patterns import glob_regex, is_pattern

_FORMATS: Mapping[str, tuple[str, Mapping[str, str]]] = {
    ".parquet": ("parquet", {}),
    ".orc": ("orc", {}),
    ".json": ("json", {}),
    ".jsonl": ("json", {}),
    ".ndjson": ("json", {}),
    ".csv": ("csv", {"header": "true", "inferSchema": "true"}),
    ".tsv": ("csv", {"header": "true", "inferSchema": "true", "sep": "\t"}),
    ".txt": ("text", {}),
    ".text": ("text", {}),
}
_COMPRESSED = (".gz", ".bz2", ".zst", ".lz4", ".snappy", ".deflate")


class LocalView:
    """A directory as guards see it.

    `frame` and `schema` read by a file's extension (of a directory: that of its data files), json one object a line,
    csv with a header and inferred types. `datasets` says by their path how datasets are to be read instead
    (`PathWorkspace.datasets`).
    """

    def __init__(
        self,
        path: str | os.PathLike[str],
        datasets: Mapping[str, Dataset] | None = None,
        session: Callable[[], Any] | None = None,
    ) -> None:
        self._root = os.path.realpath(path)
        self._datasets = datasets or {}
        self._session = session or _default_session

    def files(self, pattern: str | None = None) -> Iterator[tuple[str, int]]:
        if pattern is None:
            yield from self._walk("")
            return
        matches = glob_regex(pattern).fullmatch
        fixed: list[str] = []
        for part in pattern.split("/")[:-1]:
            if is_pattern(part):
                break
            fixed.append(part)
        start = "/".join(fixed)
        if self._inside(start) is not None:
            yield from ((path, size) for path, size in self._walk(start) if matches(path))

    def is_dir(self, path: str) -> bool:
        inside = self._inside(check_prefix(path))
        return inside is not None and os.path.isdir(inside)

    def schema(self, path: str) -> Mapping[str, str]:
        return {each.name: each.dataType.simpleString() for each in self.frame(path).schema.fields}

    def frame(self, path: str) -> Any:
        place = check_prefix(path)
        target = self.opened(path)
        dataset = self._datasets.get(place)
        if dataset is not None:
            kind, options = dataset.format, dataset.options
        else:
            kind, options = self._format(place, target)
        reader = self._session().read.format(kind).options(**options)
        if dataset is not None and dataset.schema is not None:
            reader = reader.schema(_stored_schema(dataset.schema))
        # without globs, or a name such as a[1].csv is not found
        return reader.option("__globPaths__", "false").load(f"file://{target}")

    def opened(self, path: str) -> Path:
        inside = self._inside(check_prefix(path))
        if inside is None or not os.path.exists(inside):
            raise NotFound(f"there is nothing at {path}", hint="require_file or require_dir says so by itself")
        return Path(inside)

    def _inside(self, place: str) -> str | None:
        """The local path, unless a link leads out of the workspace."""
        path = os.path.realpath(f"{self._root}/{place}") if place else self._root
        return path if path == self._root or path.startswith(self._root + "/") else None

    def _walk(self, start: str) -> Iterator[tuple[str, int]]:
        waiting = [f"{start}/" if start else ""]
        while waiting:
            prefix = waiting.pop()
            try:
                with os.scandir(f"{self._root}/{prefix}") as entries:
                    found = sorted(entries, key=lambda entry: entry.name)
            except (FileNotFoundError, NotADirectoryError):
                continue
            for entry in found:
                if entry.is_dir(follow_symlinks=False):
                    waiting.append(f"{prefix}{entry.name}/")
                elif stat.S_ISREG((status := entry.stat(follow_symlinks=False)).st_mode):
                    yield prefix + entry.name, status.st_size

    def _format(self, place: str, target: Path) -> tuple[str, Mapping[str, str]]:
        names = [target.name]
        if target.is_dir():
            below = (path.removeprefix(f"{place}/") for path, _ in self._walk(place))
            names = [path for path in below if not _hidden(path)]
        formats = {_extension(name) for name in names}
        if len(formats) != 1 or not formats <= _FORMATS.keys():
            found = ", ".join(sorted(extension or "no extension" for extension in formats)) or "no files"
            raise GuardUnavailable(
                f"{place or 'the workspace'} cannot be read as one table: {found}",
                hint=f"data files end with one of {', '.join(_FORMATS)}",
            )
        return _FORMATS[formats.pop()]


def _extension(name: str) -> str:
    stem, extension = os.path.splitext(name.lower())
    return os.path.splitext(stem)[1] if extension in _COMPRESSED else extension


def _hidden(path: str) -> bool:
    """Whether Spark leaves the file out: a name that starts with '.' or with '_', except for partition directories."""
    *directories, name = path.split("/")
    return name.startswith((".", "_")) or any(d[0] == "." or (d[0] == "_" and "=" not in d) for d in directories)


def _stored_schema(text: str) -> Any:
    """A schema as datasets keep it: Spark's JSON form, or DDL."""
    if not text.lstrip().startswith("{"):
        return text
    from pyspark.sql.types import StructType

    return StructType.fromJson(json.loads(text))


def _default_session() -> Any:
    try:
        from fenceline.spark.session import get_session

        return get_session()
    except (ImportError, ConfigError) as error:
        raise GuardUnavailable(
            f"guards over data run on Spark, and there is no session: {error}",
            hint="pip install 'fenceline[spark]', and Java 17 or newer",
        ) from error

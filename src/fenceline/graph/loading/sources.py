"""Which files a load reads, and in which pieces, so that no process ever needs all of them."""

from __future__ import annotations

import glob
import os
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Literal, get_args

import pyarrow as pa  # type: ignore[import-untyped]
import pyarrow.parquet as pq  # type: ignore[import-untyped]

from fenceline.errors import ContractError, NotFound, store_error
from fenceline.graph.schema import Catalogue

Format = Literal["jsonl", "parquet", "csv"]
PIECE = 32 << 20
_SUFFIXES: Mapping[str, Format] = {".jsonl": "jsonl", ".ndjson": "jsonl", ".json": "jsonl"}
_SUFFIXES = {**_SUFFIXES, ".parquet": "parquet", ".csv": "csv"}
_HIDDEN = ("_", ".")


@dataclass(frozen=True, slots=True)
class Source:
    """A file, a directory or a pattern to load.

    Rows of JSONL say which type they are of, unless `table` does. Parquet and CSV are of one type: `table`, or the one
    that the file or its directory is named after. `mapping` gives columns the names of properties.
    """

    path: str
    table: str | None = None
    mapping: Mapping[str, str] = field(default_factory=dict)
    format: Format | None = None


@dataclass(frozen=True, slots=True)
class Piece:
    """A part of a file that is read at once: bytes of JSONL, row groups of Parquet, a whole CSV. It pickles."""

    number: int
    """Pieces are in input order: where two rows meet, that of the later one wins."""
    path: str
    format: Format
    table: str | None
    mapping: tuple[tuple[str, str], ...]
    start: int
    end: int
    size: int


def pieces(sources: Iterable[Source], catalogue: Catalogue, size: int = PIECE) -> list[Piece]:
    """Everything to read, in order."""
    found: list[Piece] = []
    for source in sources:
        for path in _files(source):
            form = source.format or _format(path)
            table = _table(source, path, form, catalogue)
            for start, end, weight in _cut(path, form, size):
                mapping = tuple(sorted(source.mapping.items()))
                found.append(Piece(len(found), path, form, table, mapping, start, end, weight))
    return found


def _files(source: Source) -> list[str]:
    if os.path.isdir(source.path):
        below = [
            os.path.join(directory, name)
            for directory, _, names in os.walk(source.path)
            for name in names
            if not name.startswith(_HIDDEN) and (source.format or _known(name))
        ]
        if not below:
            raise NotFound(f"{source.path} holds no file to load", hint="JSONL, Parquet and CSV can be loaded")
        return sorted(below)
    if os.path.exists(source.path):
        return [source.path]
    found = sorted(glob.glob(source.path, recursive=True))
    if not found:
        raise NotFound(f"there is no file {source.path}", hint="check the path")
    return [path for path in found if os.path.isfile(path)]


def _plain(path: str) -> str:
    return path.removesuffix(".gz")


def _known(path: str) -> Format | None:
    return _SUFFIXES.get(os.path.splitext(_plain(path))[1].lower())


def _format(path: str) -> Format:
    known = _known(path)
    if known is None:
        raise ContractError(
            f"{path} does not say what it holds", hint=f"name its format: {', '.join(get_args(Format))}"
        )
    return known


def _table(source: Source, path: str, form: Format, catalogue: Catalogue) -> str | None:
    if source.table is not None:
        return catalogue.table(source.table).table_key
    if form == "jsonl":
        return None
    stem = os.path.splitext(os.path.basename(_plain(path)))[0]
    parents = (os.path.basename(os.path.dirname(os.path.abspath(path))), os.path.basename(source.path.rstrip("/")))
    named = {table.name: table.table_key for table in catalogue.tables()}
    for name in (stem, *parents):
        if name in named:
            return named[name]
    raise ContractError(
        f"{path} does not say of which type its rows are", hint=f"name it: --table, one of {', '.join(named)}"
    )


def _cut(path: str, form: Format, size: int) -> Iterator[tuple[int, int, int]]:
    """Start, end, and roughly how many bytes that is."""
    try:
        length = os.path.getsize(path)
        if form == "parquet":
            yield from _row_groups(path, size, length)
        elif form == "jsonl" and not path.endswith(".gz"):
            for start in range(0, max(length, 1), size):
                yield start, min(start + size, length), min(size, length - start)
        else:
            yield 0, length, length
    except OSError as error:
        raise store_error(error, f"reading {path}") from error


def _row_groups(path: str, size: int, length: int) -> Iterator[tuple[int, int, int]]:
    try:
        metadata = pq.read_metadata(path)
    except pa.ArrowException as error:
        raise ContractError(f"{path} cannot be read as Parquet: {error}", hint="check the file") from error
    groups: Sequence[int] = [metadata.row_group(n).total_byte_size for n in range(metadata.num_row_groups)]
    start = weight = 0
    for n, bytes_ in enumerate(groups):
        weight += bytes_
        if weight >= size or n == len(groups) - 1:
            yield start, n + 1, weight
            start, weight = n + 1, 0
    if not groups:
        yield 0, 0, length

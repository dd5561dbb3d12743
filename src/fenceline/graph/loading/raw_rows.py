"""The rows of a piece as their format has them: where they stand, and what they say."""

from __future__ import annotations

import csv
import gzip
import io
import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any, BinaryIO, TypeAlias

import pyarrow as pa  # type: ignore[import-untyped]
import pyarrow.parquet as pq  # type: ignore[import-untyped]

from fenceline.errors import ContractError, store_error
from fenceline.graph.loading.sources import Piece

Row: TypeAlias = Mapping[str, Any]
_COUNTED = 1 << 20


class Unreadable(ContractError):
    """Text that is no row of its format."""

    code = "load.unreadable"


@dataclass(frozen=True, slots=True)
class Raw:
    """`at` is the byte of JSONL where the line starts, the line of CSV; what `line` makes a number of for people."""

    at: int
    row: Row | Unreadable


def raw_rows(piece: Piece) -> Iterator[Raw]:
    """Rows of text formats."""
    try:
        yield from _jsonl(piece) if piece.format == "jsonl" else _csv(piece)
    except OSError as error:
        raise store_error(error, f"reading {piece.path}") from error


def raw_batches(piece: Piece) -> Iterator[tuple[int, pa.RecordBatch]]:
    """Batches of Parquet, each with the number of its first row."""
    try:
        file = pq.ParquetFile(piece.path)
        at = sum(file.metadata.row_group(n).num_rows for n in range(piece.start))
        groups = list(range(piece.start, piece.end))
        for batch in file.iter_batches(row_groups=groups) if groups else ():
            yield at, batch
            at += batch.num_rows
    except (OSError, pa.ArrowException) as error:
        raise ContractError(f"{piece.path} cannot be read as Parquet: {error}", hint="check the file") from error


def line(piece: Piece, at: int) -> int:
    """The number that people know a row by, from 1."""
    if piece.format == "parquet":
        return at + 1
    if piece.format == "csv":
        return at
    number, left = 1, at
    with _opened(piece.path) as file:
        while left > 0 and (part := file.read(min(left, _COUNTED))):
            number += part.count(b"\n")
            left -= len(part)
    return number


def _opened(path: str) -> BinaryIO:
    return gzip.open(path, "rb") if path.endswith(".gz") else open(path, "rb")  # type: ignore[return-value]


def _jsonl(piece: Piece) -> Iterator[Raw]:
    """Lines that start in the piece: the last one may end behind it."""
    whole = piece.path.endswith(".gz")
    with _opened(piece.path) as file:
        at = piece.start
        if at:
            file.seek(at - 1)
            at += len(file.readline()) - 1
        while whole or at < piece.end:
            text = file.readline()
            if not text:
                return
            if not text.isspace():
                yield Raw(at, _parsed(text))
            at += len(text)


def _parsed(text: bytes) -> Row | Unreadable:
    try:
        row = _decode(text.decode().lstrip("\ufeff"))
    except UnicodeDecodeError:
        return Unreadable("it is no UTF-8")
    except (ValueError, RecursionError) as error:
        return Unreadable(f"it is no JSON: {error}")
    return row if isinstance(row, dict) else Unreadable("it is no JSON object")


def _no_constant(name: str) -> Any:
    raise ValueError(f"{name} is no number of JSON")


def _pairs(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    made = dict(pairs)
    if len(made) != len(pairs):
        twice = next(name for n, (name, _) in enumerate(pairs) if name in {other for other, _ in pairs[:n]})
        raise ValueError(f"{twice!r} is there twice")
    return made


_decode = json.JSONDecoder(object_pairs_hook=_pairs, parse_constant=_no_constant).decode


def _csv(piece: Piece) -> Iterator[Raw]:
    with _opened(piece.path) as file, io.TextIOWrapper(file, encoding="utf-8-sig", newline="") as text:
        reader = csv.reader(text, strict=True)
        try:
            header = next(reader, [])
            if len(set(header)) != len(header):
                yield Raw(1, Unreadable("its first line names a column twice"))
                return
            at = reader.line_num + 1
            for values in reader:
                if values:
                    yield Raw(at, _named(header, values))
                at = reader.line_num + 1
        except (csv.Error, UnicodeDecodeError) as error:
            yield Raw(reader.line_num + 1, Unreadable(f"it is no CSV: {error}"))


def _named(header: list[str], values: list[str]) -> Row | Unreadable:
    if len(values) != len(header):
        return Unreadable(f"it has {len(values)} values for {len(header)} columns")
    return {name: value if value else None for name, value in zip(header, values, strict=True)}

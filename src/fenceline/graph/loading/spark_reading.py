"""What executors do of a load: read pieces of the input, and write rows as fragments that no version names yet."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

import pyarrow as pa  # type: ignore[import-untyped]

from fenceline.graph.loading.bad_rows import BadRow
from fenceline.graph.loading.job import FrameSource, Job
from fenceline.graph.loading.reading import Bad, Batch, PieceReader
from fenceline.graph.loading.row_reading import Given
from fenceline.graph.loading.sources import PIECE, Piece
from fenceline.graph.storage import TablePlace, write_fragments, write_fresh_fragments

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

_ROWS = "piece int, part int, table_key string, given string, fragment string, rows bigint, folded bigint, bad string"
_ARROW = pa.schema(
    [
        ("piece", pa.int32()),
        ("part", pa.int32()),
        ("table_key", pa.string()),
        ("given", pa.string()),
        ("fragment", pa.string()),
        ("rows", pa.int64()),
        ("folded", pa.int64()),
        ("bad", pa.string()),
    ]
)
_FRAME = 1_000_000
"""Numbers of pieces that a frame has for its partitions."""


@dataclass(frozen=True, slots=True)
class Written:
    """A fragment, what its rows give, and where in the input they stand."""

    order: tuple[int, int]
    given: Given
    fragment: str
    rows: int
    folded: int


@dataclass(frozen=True, slots=True)
class Found:
    """What was read: fragments by table, in input order, and rows that cannot be read."""

    written: Mapping[str, Sequence[Written]]
    named: Sequence[str]
    """The tables that files and frames name, rows or none."""
    bad: Sequence[BadRow]


def read_on_spark(session: SparkSession, job: Job, places: Mapping[str, TablePlace]) -> Found:
    """Every piece, and every partition of a frame, on some executor."""
    groups, reader, fresh = _grouped(job.pieces), job.reader, job.mode == "overwrite"
    at = dict(places)

    def read(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        for batch in batches:
            for group in batch.column(0).to_pylist():
                yield pa.RecordBatch.from_pylist(list(_read_group(groups[group], reader, at, fresh)), _ARROW)

    rows = session.range(0, len(groups), 1, len(groups)).mapInArrow(read, _ROWS).collect() if groups else []
    pieces = {piece.number: piece for piece in job.pieces}
    named = [piece.table for piece in job.pieces if piece.table]
    for n, source in enumerate(job.frames, 1):
        whole = _frame_piece(source, reader, n * _FRAME)
        named.append(whole.table or "")
        found = source.frame.mapInArrow(_frame_reader(whole, reader, at, fresh), _ROWS).collect()
        pieces.update({row["piece"]: _part(whole, row["piece"] - whole.number) for row in found})
        rows += found
    written: dict[str, list[Written]] = {}
    bad: list[BadRow] = []
    for row in sorted(rows, key=lambda row: (row["piece"], row["part"])):
        if row["bad"] is not None:
            bad.append(Bad(**json.loads(row["bad"])).row(pieces[row["piece"]]))
            continue
        given, order = tuple(json.loads(row["given"])), (row["piece"], row["part"])
        one = Written(order, given, row["fragment"], row["rows"], row["folded"])
        written.setdefault(row["table_key"], []).append(one)
    return Found(written, named, bad)


def _frame_piece(source: FrameSource, reader: PieceReader, number: int) -> Piece:
    table = reader.catalogue.table(source.table)
    mapping = tuple(sorted(source.mapping.items()))
    return Piece(number, f"a frame of {table.name}", "parquet", table.table_key, mapping, 0, 0, 0)


def _grouped(pieces: Sequence[Piece]) -> list[list[Piece]]:
    """Pieces in order, so many that a task has something to do."""
    groups: list[list[Piece]] = []
    weight = PIECE
    for piece in pieces:
        if weight + piece.size > PIECE:
            groups.append([])
            weight = 0
        groups[-1].append(piece)
        weight += piece.size
    return groups


def _read_group(
    group: Sequence[Piece], reader: PieceReader, places: dict[str, TablePlace], fresh: bool
) -> Iterator[dict[str, Any]]:
    """On an executor: rows into fragments, one for each table and each set of properties that rows give."""
    for piece in group:
        yield from _written(piece, reader.read(piece), places, fresh)


def _frame_reader(
    whole: Piece, reader: PieceReader, places: dict[str, TablePlace], fresh: bool
) -> Callable[[Iterator[pa.RecordBatch]], Iterator[pa.RecordBatch]]:
    """The same for the partitions of a frame, each of them a piece."""

    def read(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        from pyspark import TaskContext

        context = TaskContext.get()
        piece = _part(whole, context.partitionId() if context else 0)
        found = reader.read_batches(piece, _placed(batches))
        yield pa.RecordBatch.from_pylist(list(_written(piece, found, places, fresh)), _ARROW)

    return read


def _part(whole: Piece, partition: int) -> Piece:
    return replace(whole, number=whole.number + partition, path=f"{whole.path}, partition {partition}")


def _placed(batches: Iterator[pa.RecordBatch]) -> Iterator[tuple[int, pa.RecordBatch]]:
    at = 0
    for batch in batches:
        yield at, batch
        at += len(batch)


def _written(
    piece: Piece, found: Iterator[Batch | Bad], places: dict[str, TablePlace], fresh: bool
) -> Iterator[dict[str, Any]]:
    write = write_fresh_fragments if fresh else write_fragments
    gathered: dict[tuple[str, Given], list[Batch]] = {}
    bad = False
    for each in found:
        if isinstance(each, Bad):
            bad = True
            said = {name: getattr(each, name) for name in ("at", "problem", "type", "property", "value")}
            yield {"piece": piece.number, "part": 0, "bad": json.dumps(said)}
        elif not bad:
            gathered.setdefault((each.table_key, each.given), []).append(each)
    if bad:
        return
    part = 0
    for (key, given), batches in gathered.items():
        rows = [batch.rows for batch in batches]
        folded = sum(batch.folded for batch in batches)
        for n, fragment in enumerate(write(places[key], rows, rows[0].schema)):
            yield {
                "piece": piece.number,
                "part": part,
                "table_key": key,
                "given": json.dumps(given),
                "fragment": fragment,
                "rows": int(json.loads(fragment)["physical_rows"]),
                "folded": 0 if n else folded,
            }
            part += 1

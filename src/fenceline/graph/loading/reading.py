"""A piece becomes batches of table rows, and rows that cannot be read. The same in process and on executors."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import pyarrow as pa  # type: ignore[import-untyped]

from fenceline.errors import ContractError, FencelineError
from fenceline.graph.loading.bad_rows import BadRow, shown
from fenceline.graph.loading.column_reading import read_columns
from fenceline.graph.loading.fresh_ids import FreshIds
from fenceline.graph.loading.raw_rows import Raw, Unreadable, line, raw_batches, raw_rows
from fenceline.graph.loading.row_reading import Given, RowReader
from fenceline.graph.loading.sources import Piece
from fenceline.graph.schema import Catalogue, EdgeType, NodeType

_ROWS_IN_A_BATCH = 1 << 16
_Placed = tuple[int, list[Any]]
"""A row, and where it stands."""
_OF_A_NODE = frozenset(("type", "id", "data"))
_OF_AN_EDGE = frozenset(("edge", "id", "from", "to", "data"))


@dataclass(frozen=True, slots=True)
class Batch:
    """Rows of one table that all say something of the same properties."""

    table_key: str
    given: Given
    rows: pa.RecordBatch
    places: Sequence[int]
    """Where in the piece each row stands."""
    folded: int = 0
    """Rows of the same ids that came before these, and are in them."""


@dataclass(frozen=True, slots=True)
class Bad:
    """A row that cannot be read; `at` is its place in the piece."""

    at: int
    problem: str
    type: str | None = None
    property: str | None = None
    value: str | None = None

    def row(self, piece: Piece) -> BadRow:
        return BadRow(self.problem, piece.path, line(piece, self.at), self.type, self.property, self.value)


@dataclass(slots=True)
class PieceReader:
    """Reads pieces alike, wherever. `patch`: rows change what they give, and leave the rest."""

    catalogue: Catalogue
    patch: bool
    load: str
    milliseconds: int
    most: int
    """Of rows that cannot be read; behind them reading stops."""
    _readers: dict[tuple[str, bool], RowReader] = field(default_factory=dict)

    def read(self, piece: Piece) -> Iterator[Batch | Bad]:
        fresh, bad = FreshIds(self.milliseconds, self.load, piece.number), 0
        if piece.format == "parquet":
            found = self._batches(piece, raw_batches(piece), fresh)
        else:
            found = self._texts(piece, fresh)
        for each in found:
            yield each
            bad += isinstance(each, Bad)
            if bad >= self.most:
                return

    def read_batches(self, piece: Piece, batches: Iterator[tuple[int, pa.RecordBatch]]) -> Iterator[Batch | Bad]:
        """Rows that come from elsewhere than a file: a frame's partition, with the places of its batches."""
        return self._batches(piece, batches, FreshIds(self.milliseconds, self.load, piece.number))

    # --- columns ------------------------------------------------------------------------------------------------

    def _batches(
        self, piece: Piece, batches: Iterator[tuple[int, pa.RecordBatch]], fresh: FreshIds
    ) -> Iterator[Batch | Bad]:
        reader = self._reader(piece.table or "", text=False)
        mapping = dict(piece.mapping)
        for at, found in batches:
            batch = _renamed(found, mapping)
            read = read_columns(reader, batch, fresh, at)
            if read is not None:
                yield Batch(reader.table.table_key, *read, range(at, at + len(batch)))
                continue
            rows = (Raw(at + n, row) for n, row in enumerate(batch.to_pylist()))
            yield from self._gathered(piece, rows, fresh)

    # --- rows ---------------------------------------------------------------------------------------------------

    def _texts(self, piece: Piece, fresh: FreshIds) -> Iterator[Batch | Bad]:
        mapping = dict(piece.mapping)
        rows = raw_rows(piece)
        if mapping:
            rows = (raw if isinstance(raw.row, Unreadable) else Raw(raw.at, _mapped(raw.row, mapping)) for raw in rows)
        return self._gathered(piece, rows, fresh)

    def _gathered(self, piece: Piece, rows: Iterator[Raw], fresh: FreshIds) -> Iterator[Batch | Bad]:
        gathered: dict[tuple[str, Given], list[_Placed]] = {}
        latest: dict[str, dict[str, tuple[Given, _Placed]]] = {}
        text, folded = piece.format == "csv", dict[str, int]()
        for raw in rows:
            if isinstance(raw.row, Unreadable):
                yield Bad(raw.at, raw.row.message)
                continue
            table = piece.table
            try:
                row: Mapping[str, Any] = raw.row
                if table is None:
                    table, row = self._typed(row)
                reader = self._reader(table, text)
                given, values = reader.read(row, lambda at=raw.at: fresh.at(at))  # type: ignore[misc]
            except FencelineError as error:
                yield _bad(raw.at, error, table)
                continue
            if self.patch:
                mine = latest.setdefault(table, {})
                folded[table] = folded.get(table, 0) + (values[0] in mine)
                mine[values[0]] = _folded(reader, mine.get(values[0]), given, (raw.at, values))
                continue
            many = gathered.setdefault((table, given), [])
            many.append((raw.at, values))
            if len(many) >= _ROWS_IN_A_BATCH:
                yield self._batch(table, given, gathered.pop((table, given)))
        for table, by_id in latest.items():
            for given, placed in by_id.values():
                gathered.setdefault((table, given), []).append(placed)
        for (table, given), many in gathered.items():
            yield self._batch(table, given, many, folded.pop(table, 0))

    def _typed(self, row: Mapping[str, Any]) -> tuple[str, Mapping[str, Any]]:
        """A row of JSONL that says itself what it is."""
        is_edge = "edge" in row
        name, known = row.get("edge" if is_edge else "type"), _OF_AN_EDGE if is_edge else _OF_A_NODE
        if not isinstance(name, str):
            raise Unreadable('it names no type: write {"type": …, "data": …} or {"edge": …, "from": …, "to": …}')
        table: NodeType | EdgeType = self.catalogue.edge(name) if is_edge else self.catalogue.node(name)
        data = row.get("data")
        if not row.keys() <= known:
            raise Unreadable(f"{next(key for key in row if key not in known)!r} stands beside 'data': put it inside")
        if data is None:
            data = {}
        elif not isinstance(data, dict):
            raise Unreadable("its 'data' is no JSON object")
        beside = {key: row[key] for key in ("id", "from", "to") if key in row}
        twice = beside.keys() & data.keys()
        if twice:
            raise Unreadable(f"{min(twice)!r} is there twice: beside 'data' and inside")
        return table.table_key, {**data, **beside} if beside else data

    def _reader(self, table_key: str, text: bool) -> RowReader:
        found = self._readers.get((table_key, text))
        if found is None:
            table = self.catalogue.table(table_key)
            found = self._readers[table_key, text] = RowReader(self.catalogue, table, patch=self.patch, text=text)
        return found

    def _batch(self, table_key: str, given: Given, rows: Sequence[_Placed], folded: int = 0) -> Batch:
        schema = self._reader(table_key, text=False).schema
        columns = zip(*(values for _, values in rows), strict=True)
        arrays = [pa.array(values, field.type) for values, field in zip(columns, schema, strict=True)]
        batch = pa.RecordBatch.from_arrays(arrays, schema=schema)
        return Batch(table_key, given, batch, [at for at, _ in rows], folded)


def _folded(
    reader: RowReader, before: tuple[Given, _Placed] | None, given: Given, placed: _Placed
) -> tuple[Given, _Placed]:
    """A later row of the same id over an earlier one."""
    if before is None or given == reader.names:
        return given, placed
    own, (at, values) = len(reader.table.own_columns), placed
    merged = [*values[:own]]
    for name, old, new in zip(reader.names, before[1][1][own:], values[own:], strict=True):
        merged.append(new if name in given else old)
    both = {*given, *before[0]}
    return tuple(name for name in reader.names if name in both), (at, merged)


def _renamed(batch: pa.RecordBatch, mapping: Mapping[str, str]) -> pa.RecordBatch:
    if not mapping:
        return batch
    _refuse_missing(batch.schema.names, mapping)
    kept = [name for name in batch.schema.names if mapping.get(name, name)]
    return batch.select(kept).rename_columns([mapping.get(name, name) for name in kept])


def _mapped(row: Mapping[str, Any], mapping: Mapping[str, str]) -> Mapping[str, Any]:
    return {mapping.get(name, name): value for name, value in row.items() if mapping.get(name, name)}


def _refuse_missing(names: list[str], mapping: Mapping[str, str]) -> None:
    missing = [name for name in mapping if name not in names]
    if missing:
        raise ContractError(f"there is no column {missing[0]!r} to map", hint=f"there are {', '.join(names)}")


def _bad(at: int, error: FencelineError, table: str | None) -> Bad:
    name = table.partition(":")[2] if table else None
    problem = f"{error.message} ({error.hint})" if error.hint else error.message
    return Bad(at, problem, name, getattr(error, "property", None), shown(getattr(error, "value", None)))

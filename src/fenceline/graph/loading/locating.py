"""From broken rules back to the rows of the input: their files and lines.

Tables know nothing of files. Ids are made of a row and its place alone, so reading the input once more finds them.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import pyarrow as pa  # type: ignore[import-untyped]
import pyarrow.compute as pc  # type: ignore[import-untyped]

from fenceline.graph.loading.bad_rows import BadRow, shown
from fenceline.graph.loading.raw_rows import line
from fenceline.graph.loading.reading import Bad, Batch, PieceReader
from fenceline.graph.loading.sources import Piece
from fenceline.graph.schema import Rule
from fenceline.graph.violations import BrokenRule

Wanted = tuple[str, str, str]
"""Table key, column, value."""


@dataclass(frozen=True, slots=True)
class Spot:
    piece: Piece
    at: int
    row: Mapping[str, Any]


def bad_rows(broken: Sequence[BrokenRule], pieces: Iterable[Piece], reader: PieceReader) -> list[BadRow]:
    """Every broken rule with the line that breaks it; of equal ids the last one, and the others in its words."""
    found = _spots({_wanted(each) for each in broken} | {_other(each) for each in broken}, pieces, reader)
    return [_told(each, found) for each in broken]


def _wanted(each: BrokenRule) -> Wanted:
    if each.rule is Rule.CARD:
        return f"edge:{each.other}", "src", each.id
    return each.table_key, "id", each.id


def _other(each: BrokenRule) -> Wanted:
    return each.table_key, "id", (each.other or "") if each.rule is Rule.UNIQUE else each.id


def _told(each: BrokenRule, found: dict[Wanted, list[Spot]]) -> BadRow:
    spots = found.get(_wanted(each), [])
    rest = spots[:-1] if each.rule is Rule.KEY else found.get(_other(each), []) if each.rule is Rule.UNIQUE else []
    problem = str(each)
    if rest:
        problem += f" (also {', '.join(f'{s.piece.path}:{line(s.piece, s.at)}' for s in rest[:3])})"
    row = BadRow(
        problem,
        type=each.table_key.partition(":")[2],
        property=", ".join(each.properties) or None,
        value=shown(each.value),
    )
    if not spots:
        return row
    last = next((spot for spot in spots if _breaks(spot, each)), spots[-1])
    return replace(row, file=last.piece.path, line=line(last.piece, last.at))


def _breaks(spot: Spot, each: BrokenRule) -> bool:
    """Of several rows with one id, the one with the value that breaks the rule."""
    if each.rule not in (Rule.REQUIRED, Rule.RANGE, Rule.CHECK, Rule.ENUM, Rule.UNIQUE):
        return False
    values = [spot.row.get(name) for name in each.properties]
    return None in values if each.value is None else ", ".join(map(str, values)) == each.value


def _spots(wanted: set[Wanted], pieces: Iterable[Piece], reader: PieceReader) -> dict[Wanted, list[Spot]]:
    found: dict[Wanted, list[Spot]] = {}
    by_column: dict[tuple[str, str], list[str]] = {}
    for table_key, column, value in wanted:
        by_column.setdefault((table_key, column), []).append(value)
    sets = {where: pa.array(values, pa.string()) for where, values in by_column.items()}
    for piece in pieces:
        for batch in reader.read(piece):
            if isinstance(batch, Bad):
                continue
            for (table_key, column), values in sets.items():
                if batch.table_key != table_key:
                    continue
                for n in _hits(batch, column, values):
                    key = (table_key, column, batch.rows[column][n].as_py())
                    found.setdefault(key, []).append(
                        Spot(piece, batch.places[n], batch.rows.slice(n, 1).to_pylist()[0])
                    )
    for spots in found.values():
        spots.sort(key=lambda spot: (spot.piece.number, spot.at))
    return found


def _hits(batch: Batch, column: str, values: pa.Array) -> Iterator[int]:
    mask = pc.is_in(batch.rows[column], value_set=values)
    yield from pc.indices_nonzero(mask).to_pylist()

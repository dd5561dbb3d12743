"""What an index over a table's fragments should be made of. Pure decisions; `storage/indices.py` builds it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from fenceline.errors import ContractError
from fenceline.graph.pins import IndexKind

MOST_SEGMENTS = 8
"""Each segment costs every query a look-up."""
FEWEST_VECTORS = 256
"""Below this a scan over all vectors is exact and as fast."""
QUANTISE_FROM = 65_536
_ROWS_IN_A_PARTITION = 8_192
_TYPES: Mapping[IndexKind, str] = {"btree": "BTREE", "inverted": "INVERTED", "label_list": "LABEL_LIST"}


@dataclass(frozen=True, slots=True)
class IndexPlan:
    """One segment to build."""

    type: str
    fragments: tuple[int, ...]
    options: Mapping[str, Any] = field(default_factory=dict)


def kind_of(lance_type: str) -> IndexKind:
    """What Lance calls an index, in our words."""
    plain = lance_type.replace("_", "").upper()
    for kind, name in _TYPES.items():
        if plain == name.replace("_", ""):
            return kind
    return "vector"


def absorbed(segments: Mapping[str, int], fresh: int) -> set[str]:
    """Which segments (uuid → rows) become one with `fresh` new rows: those not much larger, and any beyond the most.

    So a row is indexed again only as often as its segment grows to a multiple of itself.
    """
    found: set[str] = set()
    for uuid, rows in sorted(segments.items(), key=lambda each: each[1]):
        if rows > 2 * fresh and len(segments) - len(found) < MOST_SEGMENTS:
            break
        found.add(uuid)
        fresh += rows
    return found


def segment(
    kind: IndexKind, fragments: Mapping[int, int], dimension: int | None, like: str | None = None
) -> IndexPlan | None:
    """A segment over these fragments (id → rows), of the type that the index has; None if not worth it."""
    rows = sum(fragments.values())
    ids = tuple(sorted(fragments))
    if not ids:
        return None
    if kind != "vector":
        if kind not in _TYPES:
            raise ContractError(f"there is no index of kind {kind!r}", hint="btree, inverted, label_list or vector")
        return IndexPlan(_TYPES[kind], ids)
    if dimension is None:
        raise ContractError("a vector index needs a column of vectors of one length", hint="declare it as Vector(n)")
    if rows < FEWEST_VECTORS:
        return None
    partitions = {"num_partitions": max(1, rows // _ROWS_IN_A_PARTITION)}
    if (like or ("IVF_PQ" if rows >= QUANTISE_FROM else "IVF_FLAT")) == "IVF_PQ":
        return IndexPlan("IVF_PQ", ids, {**partitions, "num_sub_vectors": _sub_vectors(dimension)})
    return IndexPlan("IVF_FLAT", ids, partitions)


def _sub_vectors(dimension: int) -> int:
    return next(dimension // width for width in (16, 8, 4, 2, 1) if dimension % width == 0)

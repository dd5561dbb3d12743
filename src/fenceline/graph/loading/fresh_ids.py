"""Ids for rows that come without one: made of the load, the piece and the row's place in it.

So reading a piece again, on any machine, gives the same rows, and what is found wrong with one can be found again.
"""

from __future__ import annotations

import hashlib
from functools import cache
from typing import Any

import numpy as np
import pyarrow as pa  # type: ignore[import-untyped]
import pyarrow.compute as pc  # type: ignore[import-untyped]

from fenceline.seams import encode_id

_PLACE_BITS = 40


class FreshIds:
    """The ids of one piece; they look like those of `Seams.ids`, and sort by time as they do."""

    def __init__(self, milliseconds: int, load: str, piece: int) -> None:
        digest = hashlib.sha256(f"{load}/{piece}".encode()).digest()
        entropy = int.from_bytes(digest[:5]) << _PLACE_BITS
        self._prefix = encode_id(milliseconds, entropy)[:18]

    def at(self, place: int) -> str:
        pairs = _pairs()
        return (
            self._prefix
            + pairs[place >> 30 & 1023]
            + pairs[place >> 20 & 1023]
            + pairs[place >> 10 & 1023]
            + pairs[place & 1023]
        )

    def between(self, start: int, end: int) -> pa.Array:
        """For the places from `start` to before `end`."""
        places = np.arange(start, end, dtype=np.int64)[:, None]
        digits = places >> np.arange(35, -1, -5, dtype=np.int64) & 31
        text = _alphabet()[digits].reshape(-1).tobytes().decode("ascii")
        offsets = pa.array(np.arange(0, 8 * (end - start) + 1, 8, dtype=np.int32)).buffers()[1]
        ends = pa.StringArray.from_buffers(end - start, offsets, pa.py_buffer(text.encode("ascii")))
        return pc.binary_join_element_wise(pa.scalar(self._prefix), ends, "")


@cache
def _letters() -> str:
    return "".join(encode_id(0, n)[-1] for n in range(32))


@cache
def _pairs() -> tuple[str, ...]:
    letters = _letters()
    return tuple(one + other for one in letters for other in letters)


@cache
def _alphabet() -> Any:
    return np.frombuffer(_letters().encode("ascii"), dtype=np.uint8)

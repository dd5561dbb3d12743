"""One load as a value: what it reads, and how it publishes."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from fenceline.errors import ContractError
from fenceline.graph.bulk import Bulk
from fenceline.graph.graph import Graph
from fenceline.graph.loading.reading import PieceReader
from fenceline.graph.loading.result import Mode, OnProgress
from fenceline.graph.loading.sources import Piece

if TYPE_CHECKING:
    from pyspark.sql import DataFrame


@dataclass(frozen=True, slots=True)
class FrameSource:
    """A Spark frame whose rows are all of one type."""

    frame: DataFrame
    table: str
    mapping: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Job:
    graph: Graph
    ref: str
    """Where its schema is read, and what a dry run is checked against."""
    pieces: Sequence[Piece]
    reader: PieceReader
    mode: Mode
    dry_run: bool
    progress: OnProgress
    actor: str | None
    key: str | None
    message: str
    frames: Sequence[FrameSource] = ()

    @property
    def title(self) -> str:
        if self.message:
            return self.message
        if self.frames:
            return f"Load {', '.join(each.table for each in self.frames)} from frames ({self.mode})"
        files = [*dict.fromkeys(piece.path.rpartition("/")[2] for piece in self.pieces)]
        more = f" and {len(files) - 3} more" if len(files) > 3 else ""
        return f"Load {', '.join(files[:3])}{more} ({self.mode})"

    def refuse_other_schema(self, bulk: Bulk) -> None:
        """Rows were read for one schema; if it changed meanwhile, they have to be read again."""
        if bulk.snapshot.catalogue != self.reader.catalogue:
            raise ContractError("the schema changed while the input was read", hint="load again")

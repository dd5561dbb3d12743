"""Tables on Lance, in detached versions that only a pin names. The one package that calls Lance.

Every `stage_…` takes a pin and returns the pin of a new version built on it; the table's own head never moves. So
nothing is visible before a commit holds the pin, a crash leaves garbage and never drift, and any number of processes
may stage on one table at once. Lance fsyncs nothing: what was written is told to `note`, and the transaction that
noted it makes it durable before its seal (INV-2), or takes it back.
"""

from __future__ import annotations

from fenceline.graph.storage.columns import ColumnStaging
from fenceline.graph.storage.indices import IndexStaging
from fenceline.graph.storage.places import (
    Rows,
    TablePlace,
    open_place,
    write_fragments,
    write_fresh_fragments,
)
from fenceline.graph.storage.rows import RowStaging

__all__ = ["Rows", "TablePlace", "TableStore", "open_place", "write_fragments", "write_fresh_fragments"]


class TableStore(RowStaging, IndexStaging, ColumnStaging):
    """The tables of a repository, below `tables/`."""

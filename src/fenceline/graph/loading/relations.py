"""Where the rules of a load on Spark are checked: on Spark as well, or in this process while the columns fit.

Rules look at few columns. DuckDB over them is several times faster than Spark's shuffles, up to what memory holds.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING, Any, Protocol

from fenceline.graph.engine import Engine, Relation, SparkEngine, in_process
from fenceline.graph.loading.merging import replaced
from fenceline.graph.pins import Pin
from fenceline.graph.schema import TableType
from fenceline.graph.spark_frames import ADDRESS, frame
from fenceline.graph.storage import TableStore

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

MOST_IN_PROCESS = 20_000_000
"""Rows, pending and committed: about 100 bytes of memory each."""


class Relations(Protocol):
    """Rows of table versions as one engine takes them."""

    engine: Engine

    def rows(
        self,
        pin: Pin,
        table: TableType,
        columns: Sequence[str],
        fragments: Iterable[int] | None = None,
        *,
        addresses: bool = False,
    ) -> Relation: ...

    def replaced(self, table: TableType, pending: Relation, committed: Relation) -> Relation:
        """The committed rows that pending ones replace, with their addresses."""
        ...

    def distinct(self, rows: Relation) -> bool:
        """Whether no two rows have one id."""
        ...

    def addresses(self, rows: Relation) -> Any: ...

    def close(self) -> None: ...


class InProcess:
    def __init__(self, store: TableStore) -> None:
        self._store = store
        self.engine: Engine = in_process()

    def rows(
        self,
        pin: Pin,
        table: TableType,
        columns: Sequence[str],
        fragments: Iterable[int] | None = None,
        *,
        addresses: bool = False,
    ) -> Relation:
        version = self._store.open(pin)
        chosen = None if fragments is None else set(fragments)
        parts = [each for each in version.get_fragments() if chosen is None or each.fragment_id in chosen]
        return version.scanner(columns=list(columns), fragments=parts, with_row_address=addresses).to_table()

    def replaced(self, table: TableType, pending: Relation, committed: Relation) -> Relation:
        found = {"pending": pending.select(["id"]), "committed": committed}
        return self.engine.query(replaced(table, "pending", "committed", ADDRESS), found)

    def distinct(self, rows: Relation) -> bool:
        return len(self.engine.values([(rows, "id")])) == len(rows)

    def addresses(self, rows: Relation) -> Any:
        return rows[ADDRESS]

    def close(self) -> None:
        return


class OnSpark:
    """Frames that are read once for all rules."""

    def __init__(self, store: TableStore, session: SparkSession) -> None:
        self._store, self._session = store, session
        self._kept: list[DataFrame] = []
        self.engine: Engine = SparkEngine(session)

    def rows(
        self,
        pin: Pin,
        table: TableType,
        columns: Sequence[str],
        fragments: Iterable[int] | None = None,
        *,
        addresses: bool = False,
    ) -> Relation:
        found = frame(self._session, self._store, pin, table, columns, fragments=fragments, addresses=addresses)
        return self._keep(found)

    def replaced(self, table: TableType, pending: Relation, committed: Relation) -> Relation:
        return self._keep(committed.join(pending.select("id"), "id", "left_semi"))

    def distinct(self, rows: Relation) -> bool:
        counts = rows.selectExpr("count(*) AS n", "count(DISTINCT id) AS d").first()
        return bool(counts["n"] == counts["d"])

    def addresses(self, rows: Relation) -> Any:
        return rows.select(ADDRESS).toArrow().column(0)

    def close(self) -> None:
        for kept in self._kept:
            kept.unpersist()

    def _keep(self, rows: DataFrame) -> DataFrame:
        kept = rows.persist()
        self._kept.append(kept)
        return kept

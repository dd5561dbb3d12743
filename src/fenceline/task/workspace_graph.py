"""What a task is given of a graph: statements, loads and tables that publish with the task's files."""

from __future__ import annotations

import os
import tempfile
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeAlias, overload

import pyarrow as pa  # type: ignore[import-untyped]
import pyarrow.parquet as pq  # type: ignore[import-untyped]

from fenceline.errors import ContractError
from fenceline.graph.engine import in_process
from fenceline.graph.graph import TableView
from fenceline.graph.loading.job import FrameSource
from fenceline.graph.loading.result import MOST_REPORTED, LoadResult, Mode, OnError
from fenceline.graph.loading.sources import Source
from fenceline.graph.pending import Row
from fenceline.graph.predicates import Where
from fenceline.graph.schema import Catalogue
from fenceline.graph.staging import staged
from fenceline.graph.transaction import GraphTransaction
from fenceline.task.attempt_graph import AttemptGraph

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

Data: TypeAlias = "str | os.PathLike[str] | Source | FrameSource | DataFrame | pa.Table | pa.RecordBatch"
"""What can be loaded: a file or directory, a frame of Spark, Arrow."""


class WorkspaceTable(TableView):
    """The rows of one type, the attempt's own changes included; frames are of the attempt's session."""

    session: SparkSession | None = None

    def to_spark(self, session: SparkSession | None = None, columns: Sequence[str] | None = None) -> DataFrame:
        return super().to_spark(session or self.session, columns)


class WorkspaceGraph:
    """A graph of the workspace. Statements see what was done before them; the rules of the schema are checked when the
    body has ended, and by `load`. Tables are published with the files of the attempt, or not at all.
    """

    def __init__(self, graph: AttemptGraph, local: Path | None = None, session: SparkSession | None = None) -> None:
        self._graph, self._local, self._session = graph, local, session
        self._open: GraphTransaction | None = None

    @property
    def path(self) -> str:
        """The directory of the repository that holds it; '' for its root."""
        return self._graph.place.root

    @property
    def exists(self) -> bool:
        return self._graph.inner().stat(self._graph.place.manifest) is not None

    @property
    def schema(self) -> Catalogue:
        return self._graph.schema

    def init(self, schema: str) -> None:
        """Create the graph: an empty table for every type of the schema."""
        self._graph.init(schema)

    # --- reading ------------------------------------------------------------------------------------------------

    def table(self, name: str) -> TableView:
        """All rows of a node or edge type: `to_arrow()`, `to_pandas()`, `to_spark()`, `rows(where)`."""
        table, graph = self.schema.table(name), self._graph
        pin = graph.at(graph.branch).snapshot.pin(table.table_key)
        pending = self._open and self._open._pending.get(table.table_key)
        if pending and pending.changed:
            tx = graph.inner()
            tx.declare_table(pin.table)
            pin = staged(graph.store.noting(tx.wrote), pin, pending)
        view = WorkspaceTable(graph.store, in_process(), table, pin)
        view.session = self._session
        return view

    def rows(self, name: str, where: Where | None = None, *, id: Any = None) -> list[Row]:  # noqa: A002
        """Rows of a node or edge type that match, or of an id or key."""
        return self._statements().rows(name, where, id=id)

    def count(self, name: str, where: Where | None = None) -> int:
        return self._statements().count(name, where)

    # --- statements ---------------------------------------------------------------------------------------------

    @overload
    def insert(self, name: str, rows: Mapping[str, Any]) -> str: ...

    @overload
    def insert(self, name: str, rows: Iterable[Mapping[str, Any]]) -> list[str]: ...

    def insert(self, name: str, rows: Mapping[str, Any] | Iterable[Mapping[str, Any]]) -> str | list[str]:
        """New nodes; returns their ids."""
        return self._changing().insert(name, rows)

    def upsert(self, name: str, rows: Mapping[str, Any] | Iterable[Mapping[str, Any]]) -> int:
        """Change the nodes that are there in the properties that are given, and insert the others."""
        return self._changing().upsert(name, rows)

    def insert_edge(
        self,
        name: str,
        from_: Any,
        to: Any,
        data: Mapping[str, Any] | None = None,
        *,
        id: str | None = None,  # noqa: A002
    ) -> str:
        """A new edge between two nodes, named by id or key; returns its id."""
        return self._changing().insert_edge(name, from_, to, data, id=id)

    def insert_edges(self, name: str, rows: Iterable[Mapping[str, Any]]) -> list[str]:
        """New edges: `from`, `to` and their properties."""
        return self._changing().insert_edges(name, rows)

    def update(
        self,
        name: str,
        id: Any = None,  # noqa: A002
        set: Mapping[str, Any] | None = None,  # noqa: A002
        *,
        where: Where | None = None,
    ) -> int:
        """Set properties of the node with an id or key, or of all that match; returns how many there were."""
        return self._changing().update(name, id, set, where=where)

    def update_edge(
        self,
        name: str,
        id: str | None = None,  # noqa: A002
        set: Mapping[str, Any] | None = None,  # noqa: A002
        *,
        where: Where | None = None,
    ) -> int:
        return self._changing().update_edge(name, id, set, where=where)

    def delete(self, name: str, id: Any = None, *, where: Where | None = None) -> int:  # noqa: A002
        """Delete nodes, and with them every edge that leaves or enters them; returns how many nodes there were."""
        return self._changing().delete(name, id, where=where)

    def delete_edge(self, name: str, id: str | None = None, *, where: Where | None = None) -> int:  # noqa: A002
        return self._changing().delete_edge(name, id, where=where)

    def _statements(self) -> GraphTransaction:
        """The statements since the last load; they stand on what was staged before."""
        if self._open is None:
            graph = self._graph
            self._open = GraphTransaction(
                graph.repo, graph.inner, graph.branch, graph.place, graph.store, in_process(), tries=1
            ).__enter__()
        return self._open

    def _changing(self) -> GraphTransaction:
        self._graph.check_writable()
        return self._statements()

    def stage(self) -> None:
        """Check the rules for what the statements changed, and stage each touched table."""
        done, self._open = self._open, None
        if done is not None:
            done.__exit__(None, None, None)

    # --- loading ------------------------------------------------------------------------------------------------

    def load(
        self,
        data: Data | Mapping[str, Data] | Iterable[Data],
        *,
        table: str | None = None,
        mapping: Mapping[str, str] | None = None,
        mode: Mode = "append",
        on_error: OnError = "fail",
        most: int = MOST_REPORTED,
    ) -> LoadResult:
        """Load files, frames or Arrow: of one type (`table`), or of several by name, `{"Person": frame, …}`.

        Frames are loaded on Spark: executors write the tables. `append` inserts, `merge` changes the rows whose id is
        there and inserts the others, `overwrite` replaces all rows. If a row is wrong, `LoadRefused` names it.
        """
        from fenceline.graph.load import load

        self._graph.check_writable()
        self.stage()
        given = _listed(data, table)
        spark = any(isinstance(each, FrameSource) or hasattr(each, "sparkSession") for _, each in given)
        with tempfile.TemporaryDirectory(prefix="fenceline-load-") as scratch:
            sources = [
                self._source(each, named, mapping or {}, spark, Path(scratch, str(number)))
                for number, (named, each) in enumerate(given)
            ]
            return load(
                self._graph,
                sources,
                mode=mode,
                on_error=on_error,
                most=most,
                engine="spark" if spark else "auto",
                session=self._session if spark else None,
            )

    def _source(
        self, data: Any, table: str | None, mapping: Mapping[str, str], spark: bool, scratch: Path
    ) -> Source | FrameSource:
        if isinstance(data, Source | FrameSource):
            return data
        if isinstance(data, str | os.PathLike):
            return Source(self._file(os.fspath(data)), table, mapping)
        if table is None:
            raise ContractError(
                f"a {type(data).__name__} does not say of which type its rows are", hint="load(…, table='Person')"
            )
        if hasattr(data, "sparkSession"):
            return FrameSource(data, table, mapping)
        if not isinstance(data, pa.Table | pa.RecordBatch):
            raise ContractError(
                f"a {type(data).__name__} cannot be loaded", hint="give files, frames of Spark, or tables of Arrow"
            )
        whole = pa.Table.from_batches([data]) if isinstance(data, pa.RecordBatch) else data
        if spark and self._session is not None:
            return FrameSource(self._session.createDataFrame(whole), table, mapping)
        file = scratch / f"{table.rpartition(':')[2]}.parquet"
        file.parent.mkdir()
        pq.write_table(whole, file)
        return Source(str(file), table, mapping)

    def _file(self, path: str) -> str:
        if os.path.isabs(path):
            return path
        if self._local is None:
            raise ContractError(
                f"{path} is no file of this machine", hint="load(workspace.read.parquet(…), table=…), or name it whole"
            )
        return str(self._local / path)


def _listed(data: Any, table: str | None) -> list[tuple[str | None, Any]]:
    if isinstance(data, Mapping):
        if table is not None:
            raise ContractError("the types are named twice", hint="leave table= out")
        return list(data.items())
    one = isinstance(data, str | os.PathLike | Source | FrameSource | pa.Table | pa.RecordBatch)
    if one or hasattr(data, "sparkSession") or not isinstance(data, Iterable):
        return [(table, data)]
    return [(table, each) for each in data]

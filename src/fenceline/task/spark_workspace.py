"""The workspace that Spark tasks are given: that of `fenceline.spark`, with graphs."""

from __future__ import annotations

from typing import TYPE_CHECKING

from fenceline.repo.native.repository import NativeRepository
from fenceline.seams import Seams
from fenceline.spark.workspace import Metrics
from fenceline.spark.workspace import SparkWorkspace as WithoutGraphs
from fenceline.task.graphs import Graphs
from fenceline.txn.trying import Try

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from fenceline.task.workspace_graph import WorkspaceGraph


class SparkWorkspace(WithoutGraphs):
    """Reads at the attempt's commit, its own writes included; writes where they will be published."""

    def __init__(
        self,
        session: SparkSession,
        repo: NativeRepository,
        trying: Try,
        prefix: str,
        metrics: Metrics,
        seams: Seams,
        read_only: bool = False,
    ) -> None:
        super().__init__(session, repo, trying, prefix, metrics, seams, read_only)
        self._graphs = Graphs(repo, trying, self._prefix, read_only=read_only, session=session, lock=self._lock)

    def graph(self, path: str = "") -> WorkspaceGraph:
        """The graph at a path, on the attempt's commit; its tables publish with what else the task writes."""
        return self._graphs(path)

    def _stage(self) -> None:
        """Every write has staged its own files already; what statements changed in graphs is left."""
        self._graphs.stage()

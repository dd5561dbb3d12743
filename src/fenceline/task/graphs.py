"""The graphs that one attempt has opened, each once. Nothing of tables is imported before the first."""

from __future__ import annotations

import threading
from pathlib import Path
from typing import TYPE_CHECKING

from fenceline.graph.extra import graph_extra
from fenceline.repo.names import check_path
from fenceline.repo.native.repository import NativeRepository
from fenceline.txn.trying import Try

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from fenceline.task.workspace_graph import WorkspaceGraph


class Graphs:
    """Called with a path below the workspace's prefix, it opens the graph there."""

    def __init__(
        self,
        repo: NativeRepository,
        trying: Try,
        prefix: str,
        *,
        read_only: bool = False,
        local: Path | None = None,
        session: SparkSession | None = None,
        lock: threading.RLock | None = None,
    ) -> None:
        self._repo, self._try, self._prefix, self._read_only = repo, trying, prefix, read_only
        self._local, self._session, self._lock = local, session, lock or threading.RLock()
        self._known: dict[str, WorkspaceGraph] = {}
        self._written: list[set[str]] = []

    def __call__(self, path: str = "") -> WorkspaceGraph:
        with graph_extra():
            from fenceline.task.attempt_graph import AttemptGraph
            from fenceline.task.workspace_graph import WorkspaceGraph
        clean = path.removesuffix("/")
        where = "/".join(part for part in (self._prefix, check_path(clean) if clean else "") if part)
        if where not in self._known:
            graph = AttemptGraph(self._repo, self._try, where, self._lock, read_only=self._read_only)
            self._known[where] = WorkspaceGraph(graph, self._local, self._session)
            self._written.append(graph.written)
        return self._known[where]

    def stage(self) -> frozenset[str]:
        """Stage what their statements changed; the paths of all files that this attempt has staged for graphs."""
        for graph in self._known.values():
            graph.stage()
        return frozenset(path for each in self._written for path in each)

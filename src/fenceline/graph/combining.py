"""Graphs in merges and reverts of a repository. Their engine is loaded only where both sides changed a graph."""

from __future__ import annotations

import posixpath
from collections.abc import Iterable
from typing import TYPE_CHECKING

from fenceline.errors import ConfigError
from fenceline.graph.manifest import MANIFEST, SCHEMA, TABLES, Place
from fenceline.repo.merge import Strategy, Unit
from fenceline.repo.model import Commit, Entry
from fenceline.repo.native.pinned import SUFFIX
from fenceline.repo.native.repository import NativeRepository
from fenceline.txn.combine import Resolved
from fenceline.txn.transaction import Transaction

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from fenceline.graph.merging import GraphMerge
    from fenceline.graph.spark_start import EngineName


class GraphResolver:
    """See `fenceline.txn.combine.Resolve`."""

    def __init__(
        self, repo: NativeRepository, engine: EngineName = "auto", session: SparkSession | None = None
    ) -> None:
        self._repo, self._engine, self._session = repo, engine, session

    def __call__(self, base: Commit | None, ours: Commit, theirs: Commit, strategy: Strategy | None) -> Resolved:
        mine, other = list(self._repo.changes(base, ours)), list(self._repo.changes(base, theirs))
        merges: list[GraphMerge] = []
        whole: dict[str, Entry | None] = {}
        for root in sorted(_roots(mine) & _roots(other)):
            merge = self._merge(Place(root), (base, ours, theirs), strategy)
            if merge.run():
                merges.append(merge)
            elif strategy is not None:  # both made it, or no schema says what both say: one side's graph, never parts
                whole.update(self._one_side(root, mine, other, theirs if strategy == "theirs" else ours))
        return Resolved(
            frozenset(whole).union(*(merge.paths for merge in merges)),
            tuple(conflict for merge in merges for conflict in merge.conflicts),
            lambda tx: _apply(tx, merges, whole),
        )

    def _merge(
        self, place: Place, commits: tuple[Commit | None, Commit, Commit], strategy: Strategy | None
    ) -> GraphMerge:
        try:
            from fenceline.graph.merging import GraphMerge
        except ModuleNotFoundError as error:
            if error.name and error.name.partition(".")[0] == "fenceline":
                raise
            raise ConfigError(
                f"both sides changed the graph at {place.manifest}, and merging it needs {error.name}",
                hint="pip install 'fenceline[graph]'",
            ) from error
        return GraphMerge(self._repo, place, commits, strategy, self._engine, self._session)

    def _one_side(
        self, root: str, mine: Iterable[Unit], other: Iterable[Unit], winner: Commit
    ) -> dict[str, Entry | None]:
        paths = [unit.path for unit in (*mine, *other) if _root(unit.path) == root]
        return {path: self._repo.find(winner, path) for path in paths}


def _apply(tx: Transaction, merges: Iterable[GraphMerge], whole: dict[str, Entry | None]) -> None:
    if whole:
        tx.apply(whole.items())
    for merge in merges:
        merge.apply(tx)


def _roots(units: Iterable[Unit]) -> set[str]:
    return {root for unit in units if (root := _root(unit.path)) is not None}


def _root(path: str) -> str | None:
    """The directory of the graph that a file belongs to, by its name."""
    directory, name = posixpath.split(path)
    if name in (MANIFEST, SCHEMA):
        return directory
    if name.endswith(SUFFIX) and posixpath.basename(directory) == TABLES:
        return posixpath.dirname(directory)
    return None

"""The workspace of a Spark task on lakeFS: nothing is copied, and what it writes is on its staging branch at once."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import AbstractContextManager
from typing import Any, Literal

from fenceline.errors import StoreError
from fenceline.repo.lakefs.repository import LakeRepository
from fenceline.repo.lakefs.values import Change, ChangeKind
from fenceline.repo.merge import Unit
from fenceline.repo.model import Commit, Entry, Kind, Side
from fenceline.repo.pathset import PathSet
from fenceline.seams import Seams
from fenceline.spark.lake_workspace import LakeSparkWorkspace, Staging
from fenceline.spark.session import cancel, get_session, isolated, job_group, release
from fenceline.spark.settings import SparkSettings
from fenceline.spark.shipping import ship_module
from fenceline.task.guard import GuardVerdict, run_guards
from fenceline.task.patterns import glob_regex
from fenceline.task.spark_view import ViewOnSpark
from fenceline.task.spec import WorkspaceSpec
from fenceline.task.workspaces import Metrics
from fenceline.txn.lakefs.staging import StagingBranch


class LakeSparkSpace:
    """See `fenceline.task.spaces.Space` for what each method promises."""

    def __init__(
        self,
        spec: WorkspaceSpec,
        repo: LakeRepository,
        start: Commit,
        staging: StagingBranch,
        execution: str,
        seams: Seams,
        settings: SparkSettings | None = None,
        module: str = "__main__",
    ) -> None:
        self._spec, self._repo, self._start, self._staging = spec, repo, start, staging
        self.metrics = Metrics(seams.clock)
        self.reads = PathSet()
        self._session = isolated(get_session(settings))
        ship_module(self._session, module)
        hooked = spec.fence != "serial"
        ours = Staging(lambda: staging.name, lambda: staging.open(hooked), staging.remove, staging.wrote)
        self._workspace = LakeSparkWorkspace(
            self._session,
            repo.client,
            start.id,
            ours,
            execution,
            spec.prefix,
            self.metrics,
            seams,
            self.reads,
            spec.read_only,
        )

    @property
    def handle(self) -> LakeSparkWorkspace:
        return self._workspace

    def guard(self, phase: Literal["pre", "post"]) -> list[GuardVerdict]:
        guards: Any = self._spec.pre if phase == "pre" else self._spec.post
        with self.working():
            return run_guards(phase, guards, _View(self._workspace)) if guards else []

    def working(self) -> AbstractContextManager[None]:
        return job_group(self._session, self._workspace.job_group, "fenceline attempt")

    def stage(self) -> None:
        """Everything is on the branch already."""
        if self._workspace.damaged:
            raise StoreError(self._workspace.damaged, hint="the next attempt runs it again")

    def changes(self) -> list[Unit]:
        """What the staging branch has other than the input, told after the writes."""
        if self._staging.name is None:
            return []
        return [self._unit(change) for change in self._repo.client.uncommitted(self._staging.name)]

    def _unit(self, change: Change) -> Unit:
        left = None if change.kind is ChangeKind.ADDED else self._repo.find(self._start, change.path)
        right = Entry(change.path, Kind.FILE, change.size or 0, "", "none")
        side = Side(change.path, left, None if change.kind is ChangeKind.REMOVED else right)
        return Unit(side.path, False, side.left, side.right, (side,))

    def cancel(self) -> None:
        cancel(self._session, self._workspace.job_group)

    def close(self) -> None:
        release(self._session)


class _View(ViewOnSpark):
    """A Spark workspace as guards see it. What they look at counts as read."""

    _workspace: LakeSparkWorkspace

    def __init__(self, workspace: LakeSparkWorkspace) -> None:
        self._workspace = workspace

    def files(self, pattern: str | None = None) -> Iterator[tuple[str, int]]:
        matches = glob_regex(pattern).fullmatch if pattern is not None else None
        for path, size in self._workspace.sizes().items():
            if matches is None or matches(path):
                yield path, size

    def frame(self, path: str) -> Any:
        return self._workspace.read.dataset(path.strip("/"))

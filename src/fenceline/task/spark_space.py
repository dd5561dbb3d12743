"""The workspace of a Spark task: nothing is copied, and what it writes is staged as it is written."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any, Literal

from fenceline.repo.native.repository import NativeRepository
from fenceline.seams import Seams
from fenceline.spark.places import settings_for
from fenceline.spark.progress import OnProgress, watch
from fenceline.spark.session import cancel, get_session, isolated, job_group, release
from fenceline.spark.settings import SparkSettings
from fenceline.spark.shipping import ship_module
from fenceline.task.guard import GuardUnavailable, GuardVerdict, run_guards
from fenceline.task.patterns import glob_regex
from fenceline.task.spark_view import ViewOnSpark
from fenceline.task.spark_workspace import SparkWorkspace
from fenceline.task.spec import WorkspaceSpec
from fenceline.task.workspaces import Metrics
from fenceline.txn.trying import Try

FORMATS = {"parquet": "parquet", "orc": "orc", "json": "json", "jsonl": "json", "csv": "csv", "txt": "text"}


class SparkSpace:
    """A session of its own on the process's JVM, and a workspace over the attempt's tree."""

    def __init__(
        self,
        spec: WorkspaceSpec,
        repo: NativeRepository,
        trying: Try,
        seams: Seams,
        settings: SparkSettings | None = None,
        module: str = "__main__",
        on_progress: OnProgress | None = None,
    ) -> None:
        self._spec, self._seams, self._on_progress = spec, seams, on_progress
        self.metrics = Metrics(seams.clock)
        self._session = isolated(get_session(settings_for(repo.objects, settings)))
        ship_module(self._session, module)
        self._workspace = SparkWorkspace(
            self._session, repo, trying, spec.prefix, self.metrics, seams, read_only=spec.read_only
        )
        self._view = SparkView(self._workspace, trying)

    @property
    def handle(self) -> SparkWorkspace:
        return self._workspace

    def guard(self, phase: Literal["pre", "post"]) -> list[GuardVerdict]:
        guards: Any = self._spec.pre if phase == "pre" else self._spec.post
        with self.working():
            return run_guards(phase, guards, self._view) if guards else []

    @contextmanager
    def working(self) -> Iterator[None]:
        """Jobs started in here can be stopped, and are reported on; their description names no params."""
        group = self._workspace.job_group
        with job_group(self._session, group, "fenceline attempt"):
            if self._on_progress is None:
                yield
                return
            with watch(self._session, self._on_progress, self._seams, group):
                yield

    def stage(self) -> None:
        self._workspace._stage()

    def cancel(self) -> None:
        cancel(self._session, self._workspace.job_group)

    def close(self) -> None:
        """The session ends with the attempt; temporary views and settings go with it."""
        release(self._session)


class SparkView(ViewOnSpark):
    """A Spark workspace as guards see it. What they look at counts as read."""

    _workspace: SparkWorkspace

    def __init__(self, workspace: SparkWorkspace, trying: Try) -> None:
        self._workspace, self._try = workspace, trying

    def files(self, pattern: str | None = None) -> Iterator[tuple[str, int]]:
        matches = glob_regex(pattern).fullmatch if pattern is not None else None
        cut = len(self._workspace.prefix) + 1 if self._workspace.prefix else 0
        for entry in list(self._try.tree.below(self._workspace.prefix)):
            path = entry.path[cut:]
            if entry.dataset is None and (matches is None or matches(path)):
                yield path, entry.size

    def frame(self, path: str) -> Any:
        clean = path.strip("/")
        full = f"{self._workspace.prefix}/{clean}" if self._workspace.prefix else clean
        entry = self._try.tree.find(full)
        if entry is not None and entry.dataset is not None:
            return self._workspace.read.dataset(clean)
        names = [clean] if entry is not None else self._workspace.files(clean)
        formats = {FORMATS.get(name.rpartition(".")[2], "") for name in names}
        if len(formats) != 1 or not (chosen := formats.pop()):
            raise GuardUnavailable(f"{path}: it is not clear how to read it", hint="write it as a dataset")
        options: dict[str, object] = {"header": True, "inferSchema": True} if chosen == "csv" else {}
        return self._workspace.read.load(clean, chosen, None, options)

"""The workspace an attempt works in, whatever its kind: opened, guarded, staged and cleaned up the same way."""

from __future__ import annotations

from contextlib import AbstractContextManager, nullcontext
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, Protocol

from fenceline.errors import ContractError
from fenceline.repo.names import check_prefix
from fenceline.repo.native.repository import NativeRepository
from fenceline.seams import Seams
from fenceline.task.contract import TaskDefinition
from fenceline.task.graphs import Graphs
from fenceline.task.guard import GuardVerdict, run_guards
from fenceline.task.local_view import LocalView
from fenceline.task.materialise import materialise
from fenceline.task.orphans import sweep_orphans
from fenceline.task.spec import WorkspaceSpec
from fenceline.task.workspaces import Metrics, Workspace, cleanup, named
from fenceline.txn.step import StepIdentity
from fenceline.txn.trying import Try
from fenceline.txn.upload import Source, in_batches, read_source

if TYPE_CHECKING:
    from fenceline.spark.progress import OnProgress
    from fenceline.spark.settings import SparkSettings


class Space(Protocol):
    """What the attempt needs of a workspace."""

    @property
    def handle(self) -> Any:
        """What the task's function is given."""
        ...

    @property
    def metrics(self) -> Metrics: ...

    def guard(self, phase: Literal["pre", "post"]) -> list[GuardVerdict]:
        """Run the guards of a phase; raises with all violations together."""
        ...

    def working(self) -> AbstractContextManager[None]:
        """Entered around the body."""
        ...

    def stage(self) -> None:
        """Stage what the body changed and has not staged itself. Opens no intent where nothing changed."""
        ...

    def cancel(self) -> None:
        """Ask a running body to stop."""
        ...

    def close(self) -> None:
        """Clean up; never raises."""
        ...


def open_space(
    definition: TaskDefinition[Any, Any],
    repo: NativeRepository,
    trying: Try,
    root: Path,
    identity: StepIdentity,
    seams: Seams,
    spark: SparkSettings | None = None,
    on_progress: OnProgress | None = None,
) -> Space:
    """The workspace that a task's annotation asks for, at the attempt's input."""
    assert definition.spec is not None
    if definition.kind == "spark":
        from fenceline.task.spark_space import SparkSpace  # only here: everything else works without pyspark

        module = definition.function.__module__
        return SparkSpace(definition.spec, repo, trying, seams, spark, module, on_progress)
    return PathSpace(definition.kind == "path", definition.spec, repo, trying, root, identity, seams)


class PathSpace:
    """A materialised directory: what the body left in it is compared with what was put there."""

    def __init__(
        self,
        bare: bool,
        spec: WorkspaceSpec,
        repo: NativeRepository,
        trying: Try,
        root: Path,
        identity: StepIdentity,
        seams: Seams,
    ) -> None:
        self._spec, self._try, self._seams = spec, trying, seams
        prefix = check_prefix(spec.prefix)
        for path in spec.given:  # nobody knows what of it the body looks at
            trying.tree.reads.add(path)
        sweep_orphans(root, seams)
        self._workspace = materialise(
            repo,
            trying.input,
            prefix,
            root,
            trying.execution,
            identity.label,
            seams,
            only=None if spec.reads is None else spec.given,
        )
        self.metrics = Metrics(seams.clock)
        self._graphs = Graphs(repo, trying, prefix, read_only=spec.read_only, local=self._workspace.path)
        self._bare = bare

    @property
    def handle(self) -> Any:
        path = self._workspace.path
        if self._bare:
            return path
        return Workspace(path, self._try.input.id, self._spec.prefix, self.metrics, self._graphs)

    def guard(self, phase: Literal["pre", "post"]) -> list[GuardVerdict]:
        guards: Any = self._spec.pre if phase == "pre" else self._spec.post
        return run_guards(phase, guards, LocalView(self._workspace.path, self._workspace.datasets)) if guards else []

    def stage(self) -> None:
        own = self._graphs.stage()
        diff = self._workspace.diff()
        if diff.empty:
            return
        if twice := own.intersection((*diff.removed, *(change.path for change in (*diff.added, *diff.changed)))):
            raise ContractError(
                f"{named(sorted(twice))}: changed as a file, and by the graph's calls",
                hint="leave the graph's own files alone",
            )
        staging = self._try.staging()
        for path in diff.removed:
            self._try.tree.remove(staging, self._try.tree.matching(path))
        changes = {Source(c.local, c.size, c.mode or 0o644): c for c in (*diff.added, *diff.changed)}
        places = {source: self._try.tree.check_place(change.path) for source, change in changes.items()}
        for entry in in_batches(
            self._seams,
            changes,
            lambda source: read_source(source, lambda data: staging.file(places[source], data, changes[source].mode)),
            "stage",
            None,
            staging.far,
        ):
            self._try.tree.set(staging, entry)

    def working(self) -> AbstractContextManager[None]:
        return nullcontext()

    def cancel(self) -> None:
        """A plain Python body cannot be stopped from outside; what it does counts for nothing."""

    def close(self) -> None:
        cleanup(self._workspace)

"""The workspace of a task on lakeFS: a materialised directory, of which only what changed goes to the server."""

from __future__ import annotations

from contextlib import AbstractContextManager, nullcontext
from pathlib import Path
from typing import Any, Literal, NoReturn

from fenceline.errors import ContractError
from fenceline.repo.lakefs.hook import ACTIONS
from fenceline.repo.lakefs.repository import LakeRepository
from fenceline.repo.merge import Unit
from fenceline.repo.model import Commit, Entry, Kind, Side
from fenceline.repo.names import check_prefix
from fenceline.repo.pathset import PathSet
from fenceline.seams import Seams
from fenceline.task.guard import GuardVerdict, run_guards
from fenceline.task.local_view import LocalView
from fenceline.task.materialise import materialise
from fenceline.task.orphans import sweep_orphans
from fenceline.task.spec import WorkspaceSpec
from fenceline.task.workspaces import Change, Metrics, Workspace, WorkspaceDiff, cleanup, named
from fenceline.txn.lakefs.staging import StagingBranch, Upload
from fenceline.txn.step import StepIdentity


class LakeSpace:
    """See `fenceline.task.spaces.Space` for what each method promises."""

    def __init__(
        self,
        bare: bool,
        spec: WorkspaceSpec,
        repo: LakeRepository,
        start: Commit,
        staging: StagingBranch,
        execution: str,
        root: Path,
        identity: StepIdentity,
        seams: Seams,
    ) -> None:
        self._bare, self._spec, self._repo, self._start, self._staging = bare, spec, repo, start, staging
        prefix = check_prefix(spec.prefix)
        if f"{prefix}/".startswith(ACTIONS):
            raise ContractError(f"the prefix {spec.prefix} is where lakeFS keeps its hooks", hint="choose another")
        self.reads = PathSet(spec.given)  # nobody knows what of it the body looks at
        sweep_orphans(root, seams)
        self._workspace = materialise(
            repo,
            start,
            prefix,
            root,
            execution,
            identity.label,
            seams,
            only=None if spec.reads is None else spec.given,
        )
        self.metrics = Metrics(seams.clock)

    @property
    def handle(self) -> Any:
        path = self._workspace.path
        return path if self._bare else Workspace(path, self._start.id, self._spec.prefix, self.metrics, _no_graphs)

    def guard(self, phase: Literal["pre", "post"]) -> list[GuardVerdict]:
        guards: Any = self._spec.pre if phase == "pre" else self._spec.post
        return run_guards(phase, guards, LocalView(self._workspace.path)) if guards else []

    def working(self) -> AbstractContextManager[None]:
        return nullcontext()

    def stage(self) -> None:
        diff = self._diff()
        if diff.empty:
            return
        self._staging.open(hooked=self._spec.fence != "serial")
        self._staging.remove(diff.removed)
        self._staging.upload([Upload(c.path, c.local, c.size, c.mode) for c in (*diff.added, *diff.changed)])

    def changes(self) -> list[Unit]:
        """What staging would change, told without touching the server's branches."""
        diff = self._diff()
        found = [Side(path, self._before(path), None) for path in diff.removed]
        found += [Side(change.path, None, _entry(change)) for change in diff.added]
        found += [Side(change.path, self._before(change.path), _entry(change)) for change in diff.changed]
        return [Unit(side.path, False, side.left, side.right, (side,)) for side in sorted(found)]

    def _before(self, path: str) -> Entry | None:
        return self._repo.find(self._start, path)

    def _diff(self) -> WorkspaceDiff:
        diff = self._workspace.diff()
        hooks = [c.path for c in (*diff.added, *diff.changed) if c.path.startswith(ACTIONS)]
        if hooks:
            raise ContractError(
                f"{named(sorted(hooks))}: lakeFS keeps its hooks there, and a task may not write them",
                hint="change hooks in lakeFS, not in a task",
            )
        return diff

    def cancel(self) -> None:
        """A plain Python body cannot be stopped from outside; what it does counts for nothing."""

    def close(self) -> None:
        cleanup(self._workspace)


def _no_graphs(path: str) -> NoReturn:
    raise ContractError(
        f"a task on lakeFS has no graph at {path!r}", hint="keep graphs in a native repository (file://, s3://)"
    )


def _entry(change: Change) -> Entry:
    return Entry(change.path, Kind.FILE, change.size, "", "none", change.mode)

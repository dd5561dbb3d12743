"""`try_task`: one attempt of a task that publishes nothing, for notebooks and tests."""

from __future__ import annotations

import tempfile
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from pydantic import BaseModel

from fenceline.errors import ContractError, TransactionClosed
from fenceline.task.attempt import AttemptRunner
from fenceline.task.by_hand import ByHand, handed_out
from fenceline.task.contract import TaskDefinition
from fenceline.task.course import OnPhase
from fenceline.task.rehearsal import Rehearsal
from fenceline.views import CommitView

if TYPE_CHECKING:
    from fenceline.spark.settings import SparkSettings


def try_task(
    task: TaskDefinition[Any, Any],
    view: CommitView,
    params: BaseModel | Mapping[str, Any] | None = None,
    *,
    on_phase: OnPhase = lambda phase: None,
    spark: SparkSettings | None = None,
) -> Rehearsal:
    """Run a task on `repo.at(ref)`, guards included, and tell what it would change. Raises what went wrong.

    Nothing is published. What it wrote is staged like an attempt's, compared and removed, so a task that is not
    read-only wants a repository opened for writing.
    """
    if not isinstance(task, TaskDefinition):
        raise ContractError(f"{task!r} is no task", hint="put @fl.task(…) on the function")
    if task.spec is not None and not task.spec.read_only and not view.writable:
        raise TransactionClosed(
            f"cannot try {task.name}: {view.store.url} was opened read-only, and trying stages what the task writes",
            hint="open it with mode='rw'",
        )
    store = view.store
    with tempfile.TemporaryDirectory(prefix="fenceline-try-") as root:
        runner = AttemptRunner(
            lambda url: store, ByHand(), Path(root), seams=store.seams, on_phase=on_phase, spark=spark
        )
        return runner.rehearse(task, handed_out(task.name, _given(task, view, params or {}), store.seams))


def _given(task: TaskDefinition[Any, Any], view: CommitView, params: BaseModel | Mapping[str, Any]) -> dict[str, Any]:
    if task.kind == "none":
        return {"params": params}
    place = {"repository": view.store.url, "branch": view.branch, "ref_type": "commit", "ref": view.commit.id}
    return {"workspace": place, "params": params}

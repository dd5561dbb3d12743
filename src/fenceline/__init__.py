"""Fenceline: transactional data pipelines.

import fenceline as fl

repo = fl.open_repository("songs", create=True)
with repo.transaction("main", message="raw plays") as tx:
    tx.write("raw/plays.csv", b"song,count\\n")
print(repo.read("main", "raw/plays.csv"))
"""

from typing import TYPE_CHECKING, Any

from fenceline.api import IntentStatus, LogItem, Repository, open_repository
from fenceline.errors import (
    ConfigError,
    ConflictError,
    ContractError,
    FenceError,
    FencelineError,
    GuardError,
    MergeConflict,
    Outcome,
    OutcomeUnknown,
    PublishConflict,
    RecoveryError,
    StoreError,
)
from fenceline.pipeline.definition.dsl import Run, Step, pipeline
from fenceline.pipeline.embedded.runner import run
from fenceline.pipeline.embedded.runs import RunResult
from fenceline.rehearsing import try_task
from fenceline.repo.model import Commit, Dataset, Entry, Head, RefEntry
from fenceline.repo.native.gc import Retention
from fenceline.task.contract import TaskDefinition, task
from fenceline.task.guard import (
    Violation,
    expect,
    forbid_glob,
    require_dir,
    require_file,
    require_glob,
    require_max_bytes,
    require_rows,
    require_schema,
    require_unique,
)
from fenceline.task.rehearsal import Rehearsal
from fenceline.task.result import TaskFailed, TaskResult, TaskTerminalError
from fenceline.task.spec import PublishBudget, TaskControls, WorkspaceSpec
from fenceline.task.workspaces import Workspace
from fenceline.txn.transaction import Transaction, TransactionResult
from fenceline.txn.upload import ProgressEvent
from fenceline.views import CommitView

if TYPE_CHECKING:
    from fenceline.task.spark_workspace import SparkWorkspace

__version__ = "0.1.0"


def __getattr__(name: str) -> Any:
    """Names that need Spark are looked up when they are used: without the extra, everything else works."""
    if name == "SparkWorkspace":
        from fenceline.task.spark_workspace import SparkWorkspace

        return SparkWorkspace
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")


__all__ = [
    "Commit",
    "CommitView",
    "ConfigError",
    "ConflictError",
    "ContractError",
    "Dataset",
    "Entry",
    "FenceError",
    "FencelineError",
    "GuardError",
    "Head",
    "IntentStatus",
    "LogItem",
    "MergeConflict",
    "Outcome",
    "OutcomeUnknown",
    "ProgressEvent",
    "PublishBudget",
    "PublishConflict",
    "RecoveryError",
    "RefEntry",
    "Rehearsal",
    "Repository",
    "Retention",
    "Run",
    "RunResult",
    "SparkWorkspace",
    "Step",
    "StoreError",
    "TaskControls",
    "TaskDefinition",
    "TaskFailed",
    "TaskResult",
    "TaskTerminalError",
    "Transaction",
    "TransactionResult",
    "Violation",
    "Workspace",
    "WorkspaceSpec",
    "expect",
    "forbid_glob",
    "open_repository",
    "pipeline",
    "require_dir",
    "require_file",
    "require_glob",
    "require_max_bytes",
    "require_rows",
    "require_schema",
    "require_unique",
    "run",
    "task",
    "try_task",
]

"""The public list is short and pinned: a change of it is a decision, not an accident."""

from __future__ import annotations

import inspect
import subprocess
import sys

import fenceline
from fenceline import errors

PUBLIC = [
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


def test_the_public_names_are_these() -> None:
    assert fenceline.__all__ == PUBLIC
    assert all(hasattr(fenceline, name) for name in PUBLIC)


def test_every_public_name_is_documented_with_one_sentence_first() -> None:
    assert [name for name in PUBLIC if not inspect.getdoc(getattr(fenceline, name))] == []


def test_every_error_has_a_code_of_its_own_within_its_family() -> None:
    """Codes are stable: scripts match on them."""
    kinds = [k for k in vars(errors).values() if inspect.isclass(k) and issubclass(k, errors.FencelineError)]
    assert len({kind.code for kind in kinds}) == len(kinds) > 20
    families = (errors.ConfigError, errors.ConflictError, errors.FenceError, errors.RecoveryError, errors.StoreError)
    for family in families:
        for kind in kinds:
            assert issubclass(kind, family) == (kind.code.partition(".")[0] == family.code), kind


def test_an_error_is_readable_by_people_and_by_machines() -> None:
    error = errors.PublishConflict("main moved", branch="main", expected="a", actual="b", paths=["x"], hint="try again")
    assert str(error) == "main moved (try again)"
    assert error.as_dict() == {
        "code": "conflict.publish",
        "message": "main moved",
        "hint": "try again",
        "retryable": True,
        "outcome": "not_applied",
        "context": {"branch": "main", "expected": "a", "actual": "b", "paths": ["x"]},
    }


def test_the_decorator_is_not_hidden_by_the_package_of_its_name() -> None:
    """`fenceline.task` is also a package; `fl.task` must be what people decorate with, whatever was imported before."""
    script = "import fenceline.task.spec, fenceline as fl; assert callable(fl.task), fl.task"
    subprocess.run([sys.executable, "-c", script], check=True)


def test_spark_is_not_imported_before_it_is_used() -> None:
    script = "import sys, fenceline; assert 'pyspark' not in sys.modules"
    subprocess.run([sys.executable, "-c", script], check=True)

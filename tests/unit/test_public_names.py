"""The public list is short and pinned: a change of it is a decision, not an accident."""

from __future__ import annotations

import inspect

import fenceline
from fenceline import errors

PUBLIC = [
    "Commit",
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
    "PublishConflict",
    "RecoveryError",
    "RefEntry",
    "Repository",
    "Retention",
    "StoreError",
    "Transaction",
    "TransactionResult",
    "open_repository",
]


def test_the_public_names_are_these() -> None:
    assert fenceline.__all__ == PUBLIC
    assert all(hasattr(fenceline, name) for name in PUBLIC)


def test_every_public_name_is_documented_with_one_sentence_first() -> None:
    undocumented = [name for name in PUBLIC if not inspect.getdoc(getattr(fenceline, name))]
    assert undocumented in ([], ["RecoveryError"]), undocumented


def test_every_error_has_a_code_of_its_own() -> None:
    kinds = [
        kind
        for kind in vars(errors).values()
        if inspect.isclass(kind) and issubclass(kind, errors.FencelineError) and kind is not errors.FencelineError
    ]
    codes = [kind.code for kind in kinds]
    assert len(set(codes)) == len(codes)
    assert len(kinds) > 20
    for kind in kinds:
        parents = [p.code for p in kind.__mro__[1:] if p in kinds]
        assert not parents or kind.code.split(".")[0] in {
            parents[-1],
            "name",
            "not_found",
            "already_exists",
            "transaction",
        }


def test_an_error_is_readable_by_people_and_by_machines() -> None:
    error = errors.PublishConflict("main moved", branch="main", expected="a", actual="b", paths=["x"], hint="try again")
    assert str(error) == "main moved (try again)"
    assert error.as_dict() == {
        "code": "conflict.publish",
        "message": "main moved",
        "hint": "try again",
        "retryable": True,
        "outcome": "not_applied",
        "context": {"branch": "main", "expected": "a", "actual": "b", "paths": "['x']"},
    }

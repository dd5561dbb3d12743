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

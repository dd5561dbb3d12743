"""Fenceline: transactional data pipelines.

import fenceline as fl

repo = fl.open_repository("songs", create=True)
with repo.transaction("main", message="raw plays") as tx:
    tx.write("raw/plays.csv", b"song,count\\n")
print(repo.read("main", "raw/plays.csv"))
"""

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
from fenceline.repo.model import Commit, Dataset, Entry, Head, RefEntry
from fenceline.repo.native.gc import Retention
from fenceline.txn.transaction import Transaction, TransactionResult
from fenceline.txn.upload import ProgressEvent

__version__ = "0.1.0"

__all__ = [
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

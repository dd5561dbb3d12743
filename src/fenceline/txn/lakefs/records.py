"""How executions on lakeFS ended, where no commit on the branch says it: objects beside everything else.

They are uncommitted objects of a hidden branch of their own: they dirty nothing, move no head, and stay until somebody
removes them. A publication needs none: its commit names its execution.
"""

from __future__ import annotations

import json
import logging
from dataclasses import asdict

from fenceline import failpoints
from fenceline.errors import AlreadyExists, NotFound, StoreError
from fenceline.repo.lakefs.client import Client
from fenceline.repo.lakefs.notes import RECORDS
from fenceline.repo.lakefs.objects import WORKERS
from fenceline.repo.model import canonical
from fenceline.seams import Threads
from fenceline.txn.intent import Record

log = logging.getLogger(__name__)

PREFIX = "_fenceline/recoveries/"

RECORD = failpoints.effect(
    "lakefs.record",
    "the audit record of an execution that was ended without being published",
    before="its staging branch is gone, and only the server's own log says why",
    after="recorded; nothing is left to do",
)


def keep(client: Client, record: Record) -> None:
    """The first record of an execution stands. Losing one costs its line in `fenceline recoveries`, nothing else."""
    path = f"{PREFIX}{record.execution}.json"
    try:
        if client.find_branch(RECORDS) is None:
            _make_branch(client)
        elif client.stat(RECORDS, path) is not None:
            return
        with RECORD:
            client.put(RECORDS, path, canonical(asdict(record)))
    except (StoreError, NotFound) as error:
        log.warning("the end of execution %s could not be recorded: %s", record.execution, error)


def _make_branch(client: Client) -> None:
    try:
        client.create_branch(RECORDS, client.default_branch(), hidden=True)
    except AlreadyExists:
        pass  # another process was first


def kept(client: Client, threads: Threads) -> list[Record]:
    """Every record, oldest first; one that cannot be read is told and left out."""
    if client.find_branch(RECORDS) is None:
        return []

    def read(path: str) -> Record | None:
        try:
            return Record(**json.loads(client.read(RECORDS, path)))
        except (ValueError, TypeError) as error:
            log.warning("record %s cannot be read: %s", path, error)
            return None

    found = threads.map(read, [each.path for each in client.objects(RECORDS, PREFIX)], WORKERS)
    return sorted((record for record in found if record is not None), key=lambda record: record.time)

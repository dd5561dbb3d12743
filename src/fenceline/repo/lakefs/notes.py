"""What commits, objects and branch names of a lakeFS repository say about attempts, and how it is written down.

A commit's metadata carries what a ref entry carries on the native store. A staging branch's name carries what a sweep
must know before anything is committed there: branch, step, txn, owner, end of lease, execution.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from fenceline.errors import ContractError
from fenceline.repo.lakefs.hook import EXPECTED_HEAD, STAGED, STAGING_PREFIX
from fenceline.repo.lakefs.values import CommitInfo, ObjectInfo
from fenceline.repo.model import Commit, Entry, Kind, Op, RefEntry, canonical, digest
from fenceline.seams import Owner

KEY = "fenceline."
_TEXTS = ("execution", "by", "actor", "step", "txn", "attempt", "branch", "input")
_JSON = ("result", "reads", "rebase", "guards")

SHA256, MODE = "fenceline-sha256", "fenceline-mode"
"""User metadata of objects: what lets a later attempt tell without reading that a file has the same content."""

STAGING = STAGING_PREFIX
RECORDS = "fenceline-records"
"""The branch whose uncommitted objects are the audit records; nothing is ever committed there."""

MOST_METADATA = 256 * 1024
"""Bytes of a commit's metadata: key-value stores behind a server refuse records of more than 400 KB."""


# --- commits ----------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Note:
    """What a staged or published commit says of its attempt."""

    execution: str
    by: str
    """The execution that published it; of a staged commit its own."""
    actor: str
    step: str
    """Empty for a direct transaction, as is the attempt; its txn is empty too where it has no key."""
    txn: str
    attempt: str
    branch: str
    """The branch it is meant for."""
    input: str
    result: Any = None
    reads: tuple[str, ...] = ()
    rebase: bool = False
    guards: tuple[Any, ...] = ()
    more: Mapping[str, str] = field(default_factory=dict)
    """What a caller wants to say with the commit."""

    def to_metadata(self, expected_head: str | None = None, staged: str | None = None) -> dict[str, str]:
        """Of a publication also what the server's hook compares: the head it replaces, and the commit it publishes."""
        told = {name: value for name, value in self.more.items() if not name.startswith(KEY)}
        told |= {KEY + name: str(getattr(self, name)) for name in _TEXTS}
        told |= {KEY + name: canonical(getattr(self, name)).decode() for name in _JSON}
        size = sum(len(key.encode()) + len(value.encode()) for key, value in told.items())
        if size > MOST_METADATA:
            raise ContractError(
                f"the result of {self.step} and what it read take {size} bytes in the commit's metadata",
                hint=f"lakeFS holds {MOST_METADATA}: write what is large into a file of the workspace",
            )
        if expected_head is not None and staged is not None:  # small, and not counted: what was sealed can be published
            told |= {EXPECTED_HEAD: expected_head, STAGED: staged}
        return told


def note_of(commit: CommitInfo) -> Note | None:
    """None for a commit that no attempt made."""
    told = commit.metadata
    if not all(KEY + name in told for name in _TEXTS):
        return None
    try:
        plain = {name: json.loads(told[KEY + name]) for name in _JSON if KEY + name in told}
        texts = {name: told[KEY + name] for name in _TEXTS}
        return Note(
            **texts,
            result=plain.get("result"),
            reads=tuple(plain.get("reads") or ()),
            rebase=bool(plain.get("rebase")),
            guards=tuple(plain.get("guards") or ()),
            more={k: v for k, v in told.items() if not k.startswith((KEY, ".lakefs."))},
        )
    except (ValueError, TypeError):
        return None


def to_commit(found: CommitInfo) -> Commit:
    note = note_of(found)
    actor = note.actor if note else found.metadata.get(KEY + "actor") or found.committer
    rest = {k: v for k, v in found.metadata.items() if not k.startswith(".lakefs.") and (note is None or KEY not in k)}
    return Commit(
        id=found.id,
        parents=found.parents,
        tree=None,
        depth=found.generation,
        execution=note.execution if note else "",
        actor=actor,
        time=float(found.time),
        message=found.message,
        kind="step" if note and note.step else ("init" if not found.parents else "write"),
        step=(note.step or None) if note else None,
        txn=(note.txn or None) if note else None,
        attempt=(note.attempt or None) if note else None,
        result=note.result if note else None,
        metadata={**rest, **({"by": note.by} if note else {})},
    )


def entry_of(commit: Commit) -> RefEntry:
    """The commit as the entry that made it visible: there is no other record of that on lakeFS."""
    op = Op.CREATE if not commit.parents else Op.MERGE if len(commit.parents) > 1 else Op.PUBLISH
    return RefEntry(
        seq=commit.depth,
        op=op,
        commit=commit.id,
        by=str(commit.metadata.get("by", "")),
        actor=commit.actor,
        time=commit.time,
        output=commit.id,
        execution=commit.execution or None,
        step=commit.step,
        txn=commit.txn,
        attempt=commit.attempt,
        result=commit.result,
    )


def to_entry(url: str, commit: str, found: ObjectInfo) -> Entry:
    known = {name.lower(): value for name, value in found.metadata.items()}
    sha256, mode = known.get(SHA256), known.get(MODE, "")
    return Entry(
        found.path,
        Kind.FILE,
        found.size,
        f"{url}/{commit}/{found.path}",
        f"sha256:{sha256}" if sha256 else f"etag:{found.checksum}",
        int(mode, 8) if re.fullmatch(r"[0-7]{1,4}", mode) else None,
    )


# --- staging branches -------------------------------------------------------------------------------------------

_NAME = re.compile(
    STAGING + r"(?P<branch>[0-9a-f]{8})-(?P<step>[0-9a-f]{16})-(?P<txn>[0-9a-f]{16})"
    r"-(?P<shown>\w*)-(?P<host>[0-9a-f]{8})-(?P<pid>\d+)-(?P<started>\d*)-(?P<until>\d+)-(?P<execution>[0-9a-z]{26})"
)
_ALPHABET = "0123456789abcdefghjkmnpqrstvwxyz"
_SHOWN = 60


@dataclass(frozen=True, slots=True)
class StagingName:
    """A staging branch by its name: its existence is the intent, its deletion the fence."""

    name: str
    step: str
    txn: str
    host: str
    pid: int
    started: str
    until: float
    """When its lease runs out, in seconds since the epoch: nothing is written here to renew it."""
    execution: str

    @property
    def began(self) -> float:
        """When the attempt began: execution ids start with the time at which they were made."""
        milliseconds = 0
        for letter in self.execution[:10]:
            milliseconds = milliseconds << 5 | _ALPHABET.index(letter)
        return milliseconds / 1000


def staging_name(
    branch: str, step: str, txn: str, shown: str, owner: Owner, until: float, execution: str
) -> StagingName:
    """`shown` is for people: workflow, reference, seq, iteration, task id and retry count."""
    plain = re.sub(r"\W+", "_", shown, flags=re.ASCII)[:_SHOWN]
    parts = [_mark(branch, 8), _mark(step, 16), _mark(txn, 16), plain, host_mark(owner), str(owner.pid)]
    parts += [owner.started if owner.started.isdigit() else "", str(round(until)), execution]
    found = parse_staging(STAGING + "-".join(parts))
    if found is None:
        raise ContractError(f"no staging branch can be named for execution {execution}", hint="use fresh execution ids")
    return found


def parse_staging(name: str) -> StagingName | None:
    """None for a branch that is not a staging branch of ours."""
    found = _NAME.fullmatch(name)
    if found is None:
        return None
    part = found.groupdict()
    return StagingName(
        name,
        part["step"],
        part["txn"],
        part["host"],
        int(part["pid"]),
        part["started"],
        float(part["until"]),
        part["execution"],
    )


def step_prefix(branch: str, step: str) -> str:
    """What the names of all staging branches of a step begin with."""
    return f"{STAGING}{_mark(branch, 8)}-{_mark(step, 16)}-"


def txn_mark(txn: str) -> str:
    return _mark(txn, 16)


def host_mark(owner: Owner) -> str:
    return _mark(f"{owner.host} {owner.boot} {owner.pid_space}", 8)


def is_own_branch(name: str) -> bool:
    return name == RECORDS or parse_staging(name) is not None


def _mark(text: str, length: int) -> str:
    return digest(text.encode())[:length]

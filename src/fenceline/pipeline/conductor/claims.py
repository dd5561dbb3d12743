"""Which attempts the processes of this machine hold: so that a dead one's are given up at once, not when leases end.

A claim is a small file, written after the poll and removed after the report. Losing one costs time and nothing else.
"""

from __future__ import annotations

import json
import logging
import os
from collections.abc import Iterator
from dataclasses import asdict, dataclass
from pathlib import Path

from fenceline.repo.model import canonical, digest
from fenceline.seams import Owner, Seams
from fenceline.task.orchestrator import HandedOut
from fenceline.txn.step import StepIdentity

log = logging.getLogger(__name__)

_SUFFIX = ".claim"


@dataclass(frozen=True, slots=True)
class Claims:
    """Those kept in one directory, for one server."""

    directory: Path
    seams: Seams

    @classmethod
    def below(cls, root: Path, server: str, seams: Seams) -> Claims:
        directory = root / "claims" / digest(server.encode())[:12]
        directory.mkdir(parents=True, exist_ok=True)
        return cls(directory, seams)

    def take(self, attempt: HandedOut) -> None:
        claim = {
            "owner": self.seams.owner().as_dict(),
            "identity": asdict(attempt.identity),
            "task": attempt.task,
        }
        path = self._path(attempt)
        unready = path.with_suffix(f".{os.getpid()}.new")
        unready.write_bytes(canonical(claim))
        unready.replace(path)

    def drop(self, attempt: HandedOut) -> None:
        self._path(attempt).unlink(missing_ok=True)

    def of_the_dead(self) -> Iterator[HandedOut]:
        """Attempts whose process has certainly ended; without their input, which nobody needs any more."""
        for path in sorted(self.directory.glob(f"*{_SUFFIX}")):
            try:
                claim = json.loads(path.read_bytes())
                owner, identity = Owner(**claim["owner"]), StepIdentity(**claim["identity"])
            except FileNotFoundError:  # dropped meanwhile
                continue
            except (ValueError, KeyError, TypeError) as error:  # cut short by a power failure: its lease runs out
                log.warning("%s cannot be read and is removed: %s", path.name, error)
                path.unlink(missing_ok=True)
                continue
            if self.seams.proven_dead(owner):
                yield HandedOut(identity, claim["task"], None)

    def _path(self, attempt: HandedOut) -> Path:
        return self.directory / f"{digest(attempt.identity.task_id.encode())[:32]}{_SUFFIX}"

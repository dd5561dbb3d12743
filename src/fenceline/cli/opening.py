"""Opening the repository a command works on."""

from __future__ import annotations

from collections.abc import Sequence

from fenceline.api import Repository, open_repository
from fenceline.cli.output import counted, remark
from fenceline.txn.recover import Swept

QUIET_ENDINGS = ("live", "left")


def reading(url: str) -> Repository:
    """For commands that only look: never sweeps, never writes."""
    return open_repository(url, "r")


def unswept(url: str) -> Repository:
    """For writing without the sweep that opening does: `recover` shows what that sweep finds."""
    return open_repository(url, sweep=False)


def writing(url: str, as_json: bool) -> Repository:
    """For commands that change something. What dead writers left is finished first, and mentioned."""
    repo = open_repository(url)
    ended = [swept for swept in repo.swept if swept.ending not in QUIET_ENDINGS]
    if ended and not as_json:
        remark(_mention(ended))
    return repo


def _mention(ended: Sequence[Swept]) -> str:
    stuck = [swept for swept in ended if swept.ending == "quarantined"]
    if stuck:
        return f"note: {counted(len(stuck), 'intent')} in quarantine; fenceline intents shows why"
    return f"note: finished {counted(len(ended), 'transaction')} of dead writers; fenceline recoveries shows how"

"""Commits that garbage collection has announced it will delete (D3).

Whoever points at an old commit writes first and then looks here; the collector announces first and then looks at what
points. So at least one of the two sees the other, and nothing that is pointed at is deleted.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator
from dataclasses import asdict, dataclass

from fenceline import failpoints
from fenceline.errors import CondemnedCommit, ObjectMissing
from fenceline.repo.model import canonical
from fenceline.repo.native.objects import ObjectStore
from fenceline.seams import Owner

CONDEMN = failpoints.effect("gc.condemn", "the list of commits that garbage collection is about to delete")
ABSOLVE = failpoints.effect("gc.absolve", "the removal of that list when the collection is over")


@dataclass(frozen=True, slots=True)
class Condemned:
    """What one collection announced."""

    run: str
    owner: Owner
    created: float
    commits: tuple[str, ...]


def announce(objects: ObjectStore, condemned: Condemned) -> None:
    with CONDEMN:
        objects.create(f"condemned/{condemned.run}", canonical(asdict(condemned)))


def withdraw(objects: ObjectStore, run: str) -> None:
    with ABSOLVE:
        objects.delete([f"condemned/{run}"])


def announced(objects: ObjectStore) -> Iterator[Condemned]:
    for run in objects.children("condemned/"):
        try:
            value = json.loads(objects.get(f"condemned/{run}"))
        except ObjectMissing:
            continue  # that collection ended at this moment
        yield Condemned(run, Owner(**value["owner"]), value["created"], tuple(value["commits"]))


def refuse_condemned(objects: ObjectStore, commits: Iterable[str]) -> None:
    """Raise if any of these commits is about to be deleted."""
    wanted = set(commits)
    for condemned in announced(objects):
        doomed = sorted(wanted.intersection(condemned.commits))
        if doomed:
            raise CondemnedCommit(
                f"commit {doomed[0]} is being removed by garbage collection run {condemned.run}",
                hint="no branch, tag or kept entry reached it; start from another commit",
                commit=doomed[0],
            )

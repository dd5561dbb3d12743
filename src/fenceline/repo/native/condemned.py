"""Commits that garbage collection has announced it will delete (D3).

Whoever points a ref at an old commit reads the ref's last number, looks here, and then writes the next number. The
collector announces first, then takes a number on every ref, then looks at what points. A writer who looked here too
early thus loses the number, or is seen by the collector's second look. Nothing that is pointed at is deleted, and
nobody has anything to undo, wherever either of them dies.

Whoever reads an old commit for a transaction writes its intent first and then looks here; the collector reads the
intents again after its announcement.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator
from dataclasses import asdict, dataclass

from fenceline import failpoints
from fenceline.errors import CondemnedCommit, ObjectDamaged, ObjectMissing
from fenceline.repo.model import canonical
from fenceline.repo.native.objects import ObjectStore
from fenceline.seams import Owner, Threads

CONDEMN = failpoints.effect(
    "gc.condemn",
    "the list of commits that garbage collection is about to delete",
    before="nothing happened",
    after="announced: those commits cannot be tagged or branched from until a later "
    "collection withdraws the list of the dead one",
)
EXPIRE = failpoints.effect(
    "gc.expire",
    "the list of commits whose content retention gives up",
    before="announced, nothing deleted; the next collection starts anew",
    after="recorded as given up; the next collection deletes the content",
)
ABSOLVE = failpoints.effect(
    "gc.absolve",
    "the removal of that list when the collection is over",
    before="deleted, still announced; a later collection withdraws the list of the dead one",
    after="nothing is left to do",
)

_LOOKS_AT_ONCE = 4


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
        key = f"condemned/{run}"
        try:
            value = json.loads(objects.get(key))
            yield Condemned(run, Owner(**value["owner"]), value["created"], tuple(value["commits"]))
        except ObjectMissing:
            continue  # that collection ended at this moment
        except (ValueError, TypeError, KeyError) as error:
            raise _damaged(key, error) from error


def _damaged(key: str, error: Exception) -> ObjectDamaged:
    return ObjectDamaged(
        f"{key} cannot be read: {error}", hint="fenceline doctor says what it is for; nothing is deleted", address=key
    )


def record_expired(objects: ObjectStore, run: str, commits: Iterable[str]) -> None:
    """Remember, before it is deleted, whose content retention gives up: its absence is then no damage."""
    with EXPIRE:
        objects.create(f"expired/{run}", canonical(sorted(commits)))


def expired(objects: ObjectStore) -> set[str]:
    """The commits whose content retention gave up, ever; their records stay in the log."""
    found: set[str] = set()
    for info in objects.list("expired/"):
        try:
            found.update(json.loads(objects.get(info.key)))
        except ValueError as error:
            raise _damaged(info.key, error) from error
    return found


def refuse_condemned(objects: ObjectStore, commits: Iterable[str], threads: Threads) -> None:
    """Raise if the content of any of these commits is about to be deleted, or gone."""
    wanted = set(commits)
    announcements: list[Condemned] = []

    def look(commit: str | None) -> None:
        if commit is None:
            announcements.extend(announced(objects))
        elif objects.stat(f"commits/{commit}") is None:
            raise _gone(commit)

    for _ in threads.map(look, (None, *sorted(wanted)), _LOOKS_AT_ONCE):
        pass
    for condemned in announcements:
        doomed = sorted(wanted.intersection(condemned.commits))
        if doomed:
            raise CondemnedCommit(
                f"commit {doomed[0]} is being removed by garbage collection run {condemned.run}",
                hint="no branch, tag or kept entry reached it; start from another commit",
                commit=doomed[0],
            )
    # in this order: a collection withdraws its announcement only when the other list stands and all is deleted
    gone = sorted(wanted & expired(objects)) if wanted else []
    if gone:
        raise _gone(gone[0])


def _gone(commit: str) -> CondemnedCommit:
    return CondemnedCommit(
        f"the content of commit {commit} was removed by garbage collection",
        hint="its log entry stays, but nothing can be built on it; start from another commit",
        commit=commit,
    )

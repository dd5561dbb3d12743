"""Branches and tags: append-only logs of numbered entries.

Creating entry n+1 "only if absent" is the compare-and-set that the whole system rests on.
"""

from __future__ import annotations

from collections.abc import Iterator

from fenceline import failpoints
from fenceline.errors import ObjectDamaged, ObjectExists, ObjectMissing, OutcomeUnknown, StoreError
from fenceline.repo.model import Op, RefEntry
from fenceline.repo.names import decode_ref, encode_ref
from fenceline.repo.native.objects import ObjectStore
from fenceline.seams import Seams

ENTRY = {
    Op.CREATE: failpoints.effect(
        "entry.create",
        "the ref entry that creates a branch or tag",
        before="the branch or tag does not exist",
        after="it exists",
    ),
    Op.PUBLISH: failpoints.effect(
        "entry.publish",
        "the ref entry that makes a staged commit visible",
        before="sealed: the sweep publishes it for its owner if nothing it read or wrote "
        "has changed since, else fences it and deletes it",
        after="published: readers see all of it; the sweep writes its record; a retry with the same key adopts it",
    ),
    Op.MERGE: failpoints.effect(
        "entry.merge",
        "the ref entry that makes a merge visible",
        before="sealed: the sweep publishes the merge if the branch has not moved, else fences it and deletes it",
        after="merged: readers see all of it; the sweep writes its record",
    ),
    Op.RELOCATE: failpoints.effect(
        "entry.relocate",
        "the ref entry that points a branch at another commit",
        before="the branch is where it was",
        after="the branch is at its new commit",
    ),
    Op.FENCE: failpoints.effect(
        "entry.fence",
        "the ref entry after which an execution can never be published",
        before="sealed and undecided: the next sweep decides it",
        after="fenced: it can never be published; the next sweep deletes what was staged and records it",
    ),
    Op.ADOPT: failpoints.effect(
        "entry.adopt",
        "the ref entry with which a retry takes over what its step published before",
        before="the earlier outcome stands; the next attempt adopts it",
        after="adopted: the next attempt reports the same outcome",
    ),
    Op.NOOP: failpoints.effect(
        "entry.noop",
        "the ref entry of a step that changed nothing",
        before="no outcome yet; the next attempt runs the body again",
        after="the outcome stands: the next attempt adopts it",
    ),
    Op.RESERVE: failpoints.effect(
        "entry.reserve",
        "the ref entry that only takes a number, before a ref is pointed at an old commit or a collection deletes",
        before="nothing happened",
        after="a number is taken; the branch or tag is where it was, or does not exist yet",
    ),
    Op.DELETE: failpoints.effect(
        "entry.delete",
        "the ref entry that deletes a branch or tag",
        before="the branch or tag exists",
        after="it is deleted",
    ),
}
HINT = failpoints.effect(
    "hint.put",
    "the hint that says where the head was last seen",
    before="the entry stands; finding the head takes a few more reads",
    after="nothing",
)

_SETTLE_TRIES = 5
_CACHED_ENTRIES = 4096


class RefLog:
    """All refs of one kind (`refs` for branches, `tags` for tags) of a repository."""

    def __init__(self, objects: ObjectStore, seams: Seams, area: str) -> None:
        self._objects = objects
        self._seams = seams
        self._area = area
        self._cache: dict[str, RefEntry] = {}
        self._newest: dict[str, int] = {}  # the greatest number seen here: entries stay for good (R1)

    def names(self) -> Iterator[str]:
        """Every name that ever existed, deleted ones too."""
        for component in self._objects.children(f"{self._area}/"):
            yield decode_ref(component)

    def last(self, name: str) -> RefEntry | None:
        """The newest entry, in a constant number of reads, usually one; None if the name never existed.

        One read tells that nothing follows what was seen before; else the hint says where to go on. It may be stale,
        ahead of a restored backup, damaged or missing: it is only where the search starts.
        """
        seen = self._newest.get(name, 0)
        if not seen or self._exists(name, seen + 1):
            hint = self._read_hint(name)
            start = hint if hint > seen and self._exists(name, hint) else seen
            seen = self._search(name, start)
            self._saw(name, seen)
        return self.entry(name, seen) if seen else None

    def entry(self, name: str, seq: int) -> RefEntry:
        key = self.key(name, seq)
        found = self._cache.get(key)
        if found is None:
            found = self._keep(key, self._objects.get(key))
        return found

    def entries(self, name: str, after: int, upto: int) -> list[RefEntry]:
        """The entries numbered `after` + 1 to `upto`, oldest first."""
        return [self.entry(name, seq) for seq in range(after + 1, upto + 1)]

    def greatest(self, name: str) -> int:
        """The greatest number there is, holes or not: for verification."""
        numbers = [i.key.rpartition("/")[2] for i in self._objects.list(f"{self._area}/{encode_ref(name)}/")]
        return max((int(n) for n in numbers if n.isdigit()), default=0)

    def append(self, name: str, entry: RefEntry) -> bool:
        """Write the entry under its number; False if another entry has that number.

        An unknown outcome is settled by reading back (INV-3): ours → won; another → lost; absent → the same write
        again. What cannot be settled is raised as `OutcomeUnknown`.
        """
        key, data = self.key(name, entry.seq), entry.to_bytes()
        in_doubt = False
        for attempt in range(_SETTLE_TRIES):
            if attempt:
                self._seams.clock.sleep(0.05 * 2**attempt * (1 + self._seams.random.random()))
            try:
                with ENTRY[entry.op]:
                    self._objects.create(key, data)
                self._keep(key, data)
                self._saw(name, entry.seq)
                self._write_hint(name, entry.seq)
                return True
            except (ObjectExists, OutcomeUnknown) as doubt:
                in_doubt = in_doubt or isinstance(doubt, OutcomeUnknown)
                try:
                    if self._objects.get(key) != data:
                        return False
                    self._objects.persist([key])  # it is ours: it must outlive us before we say so (INV-6)
                    return True
                except ObjectMissing:
                    continue
                except StoreError:
                    in_doubt = True
            except StoreError:
                if not in_doubt:
                    raise
        raise OutcomeUnknown(
            f"it is not known whether entry {entry.seq} of {name} was written",
            hint=f"fenceline log {name} shows it once the store answers again",
            key=key,
            execution=entry.by,
        )

    def make_durable(self, name: str, seq: int) -> None:
        """Call before reporting someone else's entry as an outcome (INV-6)."""
        self._objects.persist([self.key(name, seq)])

    def key(self, name: str, seq: int) -> str:
        return f"{self._area}/{encode_ref(name)}/{seq:010}"

    def _keep(self, key: str, data: bytes) -> RefEntry:
        found = RefEntry.from_bytes(key, data)
        if len(self._cache) >= _CACHED_ENTRIES:
            self._cache.clear()
        self._cache[key] = found
        return found

    def _saw(self, name: str, seq: int) -> None:
        self._newest[name] = max(seq, self._newest.get(name, 0))

    def _exists(self, name: str, seq: int) -> bool:
        """Asked by reading it: whoever looks for the newest entry wants it."""
        try:
            self.entry(name, seq)
        except ObjectMissing:
            return False
        except ObjectDamaged:  # it is there; who needs its content learns the rest
            return True
        return True

    def _search(self, name: str, known: int) -> int:
        """The greatest number in use, given that `known` is in use (or 0): numbers have no holes."""
        step = 1
        while self._exists(name, known + step):
            known += step
            step *= 2
        while step > 1:
            step //= 2
            if self._exists(name, known + step):
                known += step
        return known

    def _read_hint(self, name: str) -> int:
        try:
            text = self._objects.get(f"hints/{self._area}/{encode_ref(name)}")
        except ObjectMissing:
            return 0
        return int(text) if text.isdigit() and len(text) < 12 else 0

    def _write_hint(self, name: str, seq: int) -> None:
        try:
            with HINT:
                self._objects.put(f"hints/{self._area}/{encode_ref(name)}", str(seq).encode())
        except StoreError:  # a hint may always be stale, and a reader may not be allowed to write
            return

"""Garbage collection: explain what nothing reaches any more, announce it, look again, delete.

Order (D3): list candidates → read intents → read refs and tags → announce the condemned → wait out the grace period →
read intents and refs again → delete. An object's execution has written its intent before the object, and keeps it until
a ref entry reaches the object, so a candidate is never missed by both readings. Files of tables carry no execution in
their names: an unfinished intent keeps the whole of every table that it declared.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field, replace

from fenceline import failpoints
from fenceline.errors import ContractError, ObjectDamaged, ObjectMissing
from fenceline.repo.model import CHANGES_HEAD, Commit, Entry, Head, Op, RefEntry
from fenceline.repo.native.condemned import Condemned, announce, announced, expired, record_expired, withdraw
from fenceline.repo.native.objects import ObjectInfo
from fenceline.repo.native.pinned import AREA, SUFFIX, NotFollowed, Pinned, owner_table, table_of
from fenceline.repo.native.refs import RefLog
from fenceline.repo.native.repository import NativeRepository
from fenceline.repo.native.tree import pack_of

DELETE = failpoints.effect(
    "gc.delete",
    "the deletion of condemned objects",
    before="nothing deleted; the next collection starts anew",
    after="some of it is deleted; the next collection deletes the rest",
)

KEEP_FLOOR = 3
KEEP_DEFAULT = 10
GRACE_DEFAULT = 10.0
TEMPORARY_AGE = 3600.0
_DELETE_BATCH = 1000


@dataclass(frozen=True, slots=True)
class Retention:
    """What of the past stays readable: by default everything a branch or tag reaches. Commit records always stay."""

    keep: int = KEEP_DEFAULT
    """The last heads of every branch, deleted and abandoned ones included, stay readable."""
    expire: bool = False
    """Also drop the content of commits behind the kept entries; the log goes on showing them."""
    older_than: float | None = None
    """With `expire`: only content of commits at least this many seconds old."""

    def __post_init__(self) -> None:
        if self.keep < KEEP_FLOOR:
            raise ContractError(
                f"keep={self.keep} is below the floor of {KEEP_FLOOR}", hint="recovery needs the last entries"
            )


@dataclass(frozen=True, slots=True)
class Protected:
    """What unfinished intents may still need."""

    executions: frozenset[str]
    commits: frozenset[str]
    tables: frozenset[str] = frozenset()
    """Tables that they declared: they may be written into at this moment."""


@dataclass(frozen=True, slots=True)
class Plan:
    """What a collection would delete, and why."""

    objects: tuple[ObjectInfo, ...]
    expired: tuple[str, ...]
    """Commits of the log whose content goes; their records stay."""
    dropped: tuple[str, ...]
    """Commits that nothing reaches at all."""
    kept_objects: int
    kept_bytes: int
    reasons: dict[str, int] = field(default_factory=dict)

    @property
    def bytes(self) -> int:
        return sum(info.size for info in self.objects)


class Collector:
    """One garbage collection of a repository."""

    def __init__(
        self,
        repo: NativeRepository,
        protected: Callable[[], Protected],
        retention: Retention,
        pinned: Pinned | None = None,
    ) -> None:
        self._repo = repo
        self._protected = protected
        self._retention = retention
        self._tables = _TablesKept(repo, pinned or NotFollowed())

    def plan(self) -> Plan:
        """What would go. Reads only."""
        candidates = list(self._candidates())  # first of all: see the module's docstring
        return self._judge(candidates)

    def collect(self, grace: float = GRACE_DEFAULT) -> Plan:
        """Announce, wait, look again, delete. Returns what was deleted."""
        dead = self._announced_by_the_dead()  # before listing: what they left is then among our candidates
        plan = self.plan()
        if not plan.objects and not plan.expired:
            self._withdraw(dead)
            return plan
        now = self._repo.seams.clock.now()
        run = self._repo.seams.ids.execution()
        announce(self._repo.objects, Condemned(run, self._repo.seams.owner(), now, (*plan.expired, *plan.dropped)))
        if plan.expired or plan.dropped:
            self._take_numbers(run)
        self._repo.seams.clock.sleep(grace)
        second = self._judge(plan.objects)
        # What expires only now was never announced, so nobody was warned off it: the next collection takes it.
        final = replace(
            second,
            expired=tuple(commit for commit in second.expired if commit in set(plan.expired)),
            kept_objects=plan.kept_objects + second.kept_objects,
            kept_bytes=plan.kept_bytes + second.kept_bytes,
        )
        if final.expired:
            record_expired(self._repo.objects, run, final.expired)
        for start in range(0, len(final.objects), _DELETE_BATCH):
            with DELETE:
                self._repo.objects.delete(info.key for info in final.objects[start : start + _DELETE_BATCH])
        self._withdraw([run, *dead])
        return final

    def _take_numbers(self, run: str) -> None:
        """Whoever looked at the announcements too early loses its write, looks again, and sees ours (D3).

        Tags cannot be moved, and a deleted name is reserved before it is created again: there is nothing to take.
        """
        for name in self._repo.branch_log.names():
            self._take_number(self._repo.branch_log, name, run)
        for name in self._repo.tag_log.names():
            last = self._repo.tag_log.last(name)
            if last is not None and last.op is Op.RESERVE:
                self._take_number(self._repo.tag_log, name, run)

    def _take_number(self, log: RefLog, name: str, run: str) -> None:
        while True:
            last = log.last(name)
            if last is None or last.op is Op.DELETE:
                return
            op = Op.DELETE if last.commit is None else Op.RESERVE  # a reservation left behind ends here
            seams = self._repo.seams
            entry = RefEntry(last.seq + 1, op, last.commit, run, seams.actor(), seams.clock.now(), note=f"gc {run}")
            if log.append(name, entry):
                return

    def _announced_by_the_dead(self) -> list[str]:
        """Collections that were killed. Only with proof: a paused one may still go on to delete."""
        seams = self._repo.seams
        return [other.run for other in announced(self._repo.objects) if seams.proven_dead(other.owner)]

    def _withdraw(self, runs: Iterable[str]) -> None:
        for run in runs:
            withdraw(self._repo.objects, run)

    def _candidates(self) -> Iterator[ObjectInfo]:
        for prefix in ("files/", "datasets/", AREA, "trees/", "commits/"):
            yield from self._repo.objects.list(prefix)
        now = self._repo.seams.clock.now()
        for prefix in ("tmp/", "beats/"):  # a last beat may land after its intent was finished
            for info in self._repo.objects.list(prefix):
                if now - info.modified > TEMPORARY_AGE:
                    yield info

    def _judge(self, candidates: Iterable[ObjectInfo]) -> Plan:
        protected = self._protected()  # intents before refs: a finished intent's entry is then already in the refs
        roots = Roots.read(self._repo, protected, self._retention)
        reached = self._reach(roots)
        doomed, reasons = [], defaultdict[str, int](int)
        kept = kept_bytes = 0
        for info in candidates:
            if info.key in reached or self._owned(info.key, protected):
                kept += 1
                kept_bytes += info.size
            else:
                doomed.append(info)
                reasons[_reason(info.key, roots)] += 1
        expired = sorted(c for c in roots.history if c not in roots.readable and c not in roots.expired)
        unreached = [i.key.removeprefix("commits/") for i in doomed if i.key.startswith("commits/")]
        return Plan(tuple(doomed), tuple(expired), tuple(unreached), kept, kept_bytes, dict(reasons))

    def _reach(self, roots: Roots) -> set[str]:
        """Every key that a readable commit needs; each range of tree entries is opened once."""
        reached = {f"commits/{commit}" for commit in roots.history}
        ranges: set[str] = set()
        for commit in roots.readable.values():
            for node in self._repo.trees.nodes(commit.tree, skip=lambda node: node.address in ranges):
                ranges.add(node.address)
                reached.add(pack_of(node.address))
                for entry in self._repo.trees.entries_of(node) if not node.height else ():
                    reached.add(entry.address)
                    if entry.path.endswith(SUFFIX):
                        self._tables.keep(entry)
        return reached

    def _owned(self, key: str, protected: Protected) -> bool:
        """Whether an unfinished intent's execution wrote it, or it is part of a table that is kept."""
        area, _, rest = key.partition("/")
        if area in ("files", "trees", "beats"):
            return rest.partition("/")[0] in protected.executions
        if area == "datasets":
            return rest.partition("/_fl=")[2].partition("-")[0] in protected.executions
        if area == "tables":
            return owner_table(key) in protected.tables or self._tables.keeps(key)
        if area == "commits":  # a rebase makes more than one commit for an execution
            try:
                return self._repo.commit(rest).execution in protected.executions
            except (ObjectMissing, ObjectDamaged):
                return False
        return False


class _TablesKept:
    """What pins keep. It only grows within a collection: what is let go of meanwhile, the next one takes."""

    def __init__(self, repo: NativeRepository, pinned: Pinned) -> None:
        self._repo, self._pinned = repo, pinned
        self._followed: set[str] = set()
        self._keys: set[str] = set()
        self._whole: set[str] = set()
        self._everything = False

    def keep(self, entry: Entry) -> None:
        """Follow a pin, once. Of one that cannot be followed nothing is deleted: fsck says what is broken."""
        if entry.address in self._followed:
            return
        self._followed.add(entry.address)
        try:
            content = self._repo.read(entry)
        except (ObjectMissing, ObjectDamaged):
            self._everything = True  # nobody knows which table it was for
            return
        table = table_of(content)
        if table is not None:
            try:
                self._keys.update(self._pinned.files(content))
            except (ObjectMissing, ObjectDamaged):
                self._whole.add(table)

    def keeps(self, key: str) -> bool:
        return self._everything or key in self._keys or owner_table(key) in self._whole


def _reason(key: str, roots: Roots) -> str:
    if key.startswith(("tmp/", "beats/")):
        return "leftover of an interrupted write"
    return "no longer retained, or never published" if roots.expiring else "reached by no branch, tag or kept entry"


@dataclass(frozen=True, slots=True)
class Roots:
    """Where reachability starts."""

    history: dict[str, Commit]
    """Every commit reachable through parents: their records stay."""
    readable: dict[str, Commit]
    """Those whose content stays."""
    expired: set[str]
    """Those whose content went in an earlier collection."""
    expiring: bool

    @classmethod
    def read(cls, repo: NativeRepository, protected: Protected, retention: Retention) -> Roots:
        kept: dict[str, Commit] = {}
        heads: list[Head] = []
        for log in (repo.branch_log, repo.tag_log):
            for name in log.names():
                for commit in _kept(repo, log, name, retention):
                    kept[commit.id] = commit
                head = repo.head_at(name, log.last(name))
                if head is not None:
                    heads.append(head)
        for commit_id in protected.commits:
            try:
                kept[commit_id] = repo.commit(commit_id)
            except ObjectMissing:
                continue  # a quarantined intent may name what is gone; there is nothing left to keep of it
        history = {commit.id: commit for commit in repo.history([*kept.values()])}
        gone = expired(repo.objects)
        if not retention.expire:
            return cls(history, {c: commit for c, commit in history.items() if c not in gone}, gone, expiring=False)
        readable = {**kept, **{c.id: c for c in _junctions(history, [h.commit.id for h in heads])}}
        if retention.older_than is not None:
            oldest = repo.seams.clock.now() - retention.older_than
            readable.update({c.id: c for c in history.values() if c.time > oldest})
        return cls(history, {c: commit for c, commit in readable.items() if c not in gone}, gone, expiring=True)


def _kept(repo: NativeRepository, log: RefLog, name: str, retention: Retention) -> Iterator[Commit]:
    """Where the branch is, and where its last moves led."""
    last = log.last(name)
    moves, seq = 0, last.seq if last else 0
    while last is not None and seq > 0 and moves < retention.keep:
        entry = log.entry(name, seq)
        moves += entry.op in CHANGES_HEAD
        seq -= 1
        if entry.commit is not None:
            try:
                yield repo.commit(entry.commit)
            except ObjectMissing:
                if entry.seq == last.seq:
                    raise  # a head must be there: fsck says what that breaks, and nothing may be deleted


def _junctions(history: dict[str, Commit], heads: list[str]) -> Iterator[Commit]:
    """Commits where the histories of two heads meet: merges need them as their base, so they stay readable."""
    reaches: dict[str, int] = dict.fromkeys(history, 0)
    for number, head in enumerate(sorted(set(heads))):
        waiting = [head]
        while waiting:
            reached = waiting.pop()
            if not reaches[reached] >> number & 1:
                reaches[reached] |= 1 << number
                waiting += history[reached].parents
    inherited = defaultdict[str, list[int]](list)
    for commit in history.values():
        for parent in commit.parents:
            inherited[parent].append(reaches[commit.id])
    for commit_id, mask in reaches.items():
        if mask.bit_count() > 1 and mask not in inherited[commit_id]:
            yield history[commit_id]

"""What people hold: a repository they can read, change, recover and look after."""

from __future__ import annotations

import os
import posixpath
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from types import TracebackType
from typing import TYPE_CHECKING, Literal, Self
from urllib.parse import unquote, urlsplit

from fenceline.errors import AlreadyExists, ConfigError, NotFound, ObjectDamaged, TransactionClosed
from fenceline.graph.extra import graph_extra
from fenceline.graph.following import FollowPins
from fenceline.repo.lakefs.repository import SCHEME as LAKEFS
from fenceline.repo.lakefs.repository import LakeRepository
from fenceline.repo.merge import Strategy, Unit
from fenceline.repo.model import DEFAULT_BRANCH, Commit, Entry, Head, RefEntry
from fenceline.repo.names import check_ref, is_commit_id
from fenceline.repo.native.fsck import Checker, Report, Step
from fenceline.repo.native.gc import GRACE_DEFAULT, Collector, Plan, Protected, Retention
from fenceline.repo.native.local import LocalObjects
from fenceline.repo.native.objects import ObjectStore
from fenceline.repo.native.remote.location import is_remote
from fenceline.repo.native.remote.objects import RemoteObjects
from fenceline.repo.native.repository import NativeRepository
from fenceline.repo.whole_file import written_whole
from fenceline.seams import Seams
from fenceline.txn import recover
from fenceline.txn.branches import RefAdmin
from fenceline.txn.combine import Combiner
from fenceline.txn.intent import DEFAULT_LEASE, IntentStore, Record
from fenceline.txn.recover import Sweeper, Swept
from fenceline.txn.transaction import OnConflict, Transaction, TransactionResult
from fenceline.txn.upload import Progress, ProgressEvent
from fenceline.views import CommitView, nothing_at

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from fenceline.graph.graph import Graph
    from fenceline.graph.spark_start import EngineName

Mode = Literal["r", "rw"]
SWEEP_INTERVAL = 10.0


@dataclass(frozen=True, slots=True)
class LogItem:
    """A commit, and the branch entry that made it visible; None for history from before the branch was created."""

    commit: Commit
    entry: RefEntry | None


@dataclass(frozen=True, slots=True)
class IntentStatus:
    """An unfinished transaction, for people."""

    execution: str
    state: str
    branch: str | None
    actor: str | None
    kind: str | None
    age: float | None
    expired: bool | None
    why: str


def open_repository(
    url: str | os.PathLike[str],
    mode: Mode = "rw",
    *,
    create: bool = False,
    sweep: bool = True,
    seams: Seams | None = None,
    options: Mapping[str, str] | None = None,
) -> Repository:
    """Open a repository: a path, or a URL: `file://`, `s3://bucket/prefix`, `gs://`, `az://`, `lakefs://`.

    `rw` first finishes what dead writers left, unless `sweep` is False; `r` never writes. `options` are for object
    stores: endpoint, region, keys; what is not said there is taken from the environment.
    """
    place = os.fspath(url)
    if place.startswith(f"{LAKEFS}://"):
        from fenceline.on_lakefs import LakeFSRepository  # only where it is meant

        return LakeFSRepository.open(place, mode, create=create, sweep=sweep, seams=seams)
    return Repository.on(store_at(place, options), mode, create=create, sweep=sweep, seams=seams)


def store_at(url: str, options: Mapping[str, str] | None = None) -> ObjectStore:
    """The object store behind a URL."""
    if is_remote(url):
        return RemoteObjects.at(url, options)
    if options:
        raise ConfigError(f"{url} takes no options", hint="they are for s3://, gs:// and az://")
    parts = urlsplit(url)
    if parts.scheme == "file":
        if parts.netloc not in ("", "localhost"):
            raise ConfigError(f"{url} names the host {parts.netloc!r}", hint="write file:///absolute/path")
        return LocalObjects(unquote(parts.path))
    if parts.scheme and "://" in url:
        raise ConfigError(
            f"cannot open {url}: no store for {parts.scheme}://", hint="use a path, file://, s3://, gs:// or az://"
        )
    return LocalObjects(url)


def check_mode(mode: str) -> None:
    if mode not in ("r", "rw"):
        raise ConfigError(f"mode is {mode!r}", hint="use 'r' or 'rw'")


class Repository:
    """A versioned repository. Use it as a context manager, or `close()` it, if you started a sweeper."""

    def __init__(self, native: NativeRepository, mode: Mode) -> None:
        self._native = native
        self._native.follow = lambda: FollowPins(native.objects)
        self._mode = mode
        self._intents = IntentStore(native.objects, native.seams)
        self._refs = RefAdmin(native, self._intents)
        self._sweeper: Sweeper | None = None
        self.swept: Sequence[Swept] = ()
        """What opening found and finished."""

    @classmethod
    def on(
        cls,
        objects: ObjectStore,
        mode: Mode = "rw",
        *,
        create: bool = False,
        sweep: bool = True,
        seams: Seams | None = None,
    ) -> Repository:
        """Open a repository on any object store; tests use it with `fenceline.testing.MemoryObjects`."""
        check_mode(mode)
        seams = seams or Seams()
        if create and mode == "rw":
            native = NativeRepository.create(objects, seams, seams.actor())
        else:
            native = NativeRepository.open(objects, seams)
        return cls(native, mode)._opened(sweep)

    def _opened(self, sweep: bool) -> Self:
        """A writer first finishes what dead ones left."""
        if self._mode == "rw" and sweep:
            self.swept = self.recover()
        return self

    @property
    def url(self) -> str:
        return self.store.url

    @property
    def id(self) -> str:
        return self.store.id

    @property
    def native(self) -> NativeRepository:
        """The repository below the transactions: for tools that look at objects and entries."""
        return self._native

    @property
    def store(self) -> NativeRepository | LakeRepository:
        """The same whatever its kind: attempts run on it, and it reads."""
        return self._native

    # --- reading ------------------------------------------------------------------------------------------------

    def head(self, branch: str = DEFAULT_BRANCH) -> Head:
        return self.store.head(branch)

    def branches(self) -> list[Head]:
        return self.store.branches()

    def tags(self) -> list[Head]:
        return self.store.tags()

    def commit(self, ref: str) -> Commit:
        """The commit that a ref names: a branch, tag or commit id, `main~3`, `main@12`."""
        return self.store.resolve(ref)

    def at(self, ref: str = DEFAULT_BRANCH) -> CommitView:
        """The repository as it is at the commit that a ref names now: for notebooks, Spark and other engines."""
        return CommitView(self.store, ref, self._mode == "rw")

    def list(self, ref: str, prefix: str = "") -> Iterator[Entry]:
        """Files and datasets below a directory, with the part files of datasets."""
        return self.at(ref).list(prefix)

    def stat(self, ref: str, path: str) -> Entry:
        """The file or dataset at a path."""
        return self.at(ref).stat(path)

    def read(self, ref: str, path: str) -> bytes:
        """A file's bytes, checked against their checksum."""
        return self.store.read(self.stat(ref, path))

    def chunks(self, ref: str, path: str) -> Iterator[bytes]:
        """A file's bytes in pieces, for large files; the checksum is known only at the end."""
        return self.store.chunks(self.stat(ref, path))

    def download(self, ref: str, path: str, local: str, progress: Progress | None = None) -> int:
        """Copy a file, or a directory with all below it, to the local disk; returns the number of files."""
        entries = [e for e in self.list(ref, path) if e.address]
        if not entries:
            raise nothing_at(path, ref)
        root = path.strip("/")
        total = sum(e.size for e in entries)

        def fetch(entry: Entry) -> int:
            relative = entry.path[len(root) :].lstrip("/")
            self._fetch(entry, posixpath.join(local, relative) if relative else local)
            return entry.size

        done_bytes = 0
        for done, size in enumerate(self.store.seams.threads.map(fetch, entries, 4), 1):
            done_bytes += size
            if progress:
                progress(ProgressEvent("download", done, len(entries), done_bytes, total))
        return len(entries)

    def _fetch(self, entry: Entry, target: str) -> None:
        if os.path.isdir(target):
            raise AlreadyExists(f"{target} is a directory", hint="name the file to write")
        with written_whole(target) as part:
            with open(part, "wb") as file:
                for piece in self.store.chunks(entry):
                    file.write(piece)
            if entry.mode is not None:
                os.chmod(part, entry.mode)

    def diff(self, left: str, right: str) -> Iterator[Unit]:
        """What differs between two refs, each dataset as one; equal parts of the trees are never read."""
        return self.store.changes(self.store.resolve(left), self.store.resolve(right))

    def log(self, ref: str = DEFAULT_BRANCH, *, full: bool = False, actor: str | None = None) -> Iterator[LogItem]:
        """Commits, newest first: along first parents, or with `full` through all of them.

        `actor` keeps those made by it, or made visible by it: what recovery rolled forward is found by its name.
        """
        head = self.store.resolve(ref)
        plain = not is_commit_id(ref) and "~" not in ref and "@" not in ref
        branch = self.store.find_head(ref) if plain else None
        entries = _EntryFinder(self, branch)
        for commit in self.store.history([head]) if full else self.store.line(head):
            entry = entries(commit.id)
            if actor is None or commit.actor == actor or (entry is not None and entry.actor == actor):
                yield LogItem(commit, entry)

    def given_up(self, commits: Iterable[str]) -> bool:
        """Whether garbage collection has given up the content of any of these commits."""
        return self._native.expired(commits)

    def entries(self, branch: str = DEFAULT_BRANCH) -> Iterator[RefEntry]:
        """Every entry of a branch, newest first: moves, fences, relocations, deletions."""
        log = self._native.branch_log
        last = log.last(check_ref(branch))
        if last is None:
            raise NotFound(f"there is no branch {branch!r}", hint="fenceline branch lists them")
        for seq in range(last.seq, 0, -1):
            yield log.entry(branch, seq)

    # --- writing ------------------------------------------------------------------------------------------------

    def transaction(
        self,
        branch: str = DEFAULT_BRANCH,
        *,
        actor: str | None = None,
        key: str | None = None,
        message: str = "",
        on_conflict: OnConflict = "fail",
        metadata: Mapping[str, str] | None = None,
        progress: Progress | None = None,
        lease: float = DEFAULT_LEASE,
    ) -> Transaction:
        """Changes to a branch that become visible together or not at all: publish on exit, cancel on an exception.

        The same `key` never applies twice on a branch. If the branch moves meanwhile, the transaction fails with both
        heads, or with `on_conflict="rebase"` goes on where nothing that it read or wrote was changed.
        """
        self._writable("begin a transaction")
        return Transaction(
            self._native,
            self._intents,
            branch,
            actor=actor or self._native.seams.actor(),
            key=key,
            message=message,
            on_conflict=on_conflict,
            metadata=metadata,
            progress=progress,
            lease=lease,
        )

    def graph(self, branch: str = DEFAULT_BRANCH, path: str = "") -> Graph:
        """The graph on a branch, in a directory of it: typed tables that change together with files."""
        with graph_extra():
            from fenceline.graph.graph import Graph
        return Graph(self._native, self._intents, branch, path, writable=self._mode == "rw")

    def merge(
        self,
        source: str,
        into: str = DEFAULT_BRANCH,
        *,
        actor: str | None = None,
        message: str = "",
        strategy: Strategy | None = None,
        key: str | None = None,
        engine: EngineName = "auto",
        session: SparkSession | None = None,
    ) -> TransactionResult:
        """Three-way merge as one commit with two parents. All conflicts are raised together as `MergeConflict`.

        The same `key` never applies twice on a branch: the earlier merge is reported, whatever became of the source.
        Tables of graphs are merged in this process or on Spark: as `engine` says, and `auto` takes Spark for large
        ones, or where a `session` is given.
        """
        self._writable("merge")
        combiner = self._combiner(engine, session)
        return combiner.merge(source, into, actor or self._native.seams.actor(), message, strategy, key)

    def revert(
        self, ref: str, branch: str = DEFAULT_BRANCH, *, actor: str | None = None, message: str = ""
    ) -> TransactionResult:
        """Undo what one commit changed, as a new commit."""
        self._writable("revert")
        return self._combiner().revert(ref, branch, actor or self._native.seams.actor(), message)

    def _combiner(self, engine: EngineName = "auto", session: SparkSession | None = None) -> Combiner:
        from fenceline.graph.combining import GraphResolver  # most processes never merge

        return Combiner(self._native, self._intents, self._refs, resolve=GraphResolver(self._native, engine, session))

    def create_branch(self, name: str, source: str = DEFAULT_BRANCH, *, actor: str | None = None) -> Head:
        self._writable("create a branch")
        return self._refs.create_branch(name, source, actor or self._native.seams.actor())

    def delete_branch(self, name: str, *, actor: str | None = None) -> None:
        self._writable("delete a branch")
        self._refs.delete_branch(name, actor or self._native.seams.actor())

    def relocate_branch(
        self, name: str, target: str, *, expected: str | None = None, actor: str | None = None, note: str = ""
    ) -> Head:
        """Point a branch at another published commit. What that leaves behind stays reachable as `name@seq`."""
        self._writable("relocate a branch")
        return self._refs.relocate(name, target, actor or self._native.seams.actor(), expected, note)

    def create_tag(self, name: str, source: str = DEFAULT_BRANCH, *, actor: str | None = None, note: str = "") -> Head:
        self._writable("create a tag")
        return self._refs.create_tag(name, source, actor or self._native.seams.actor(), note)

    def delete_tag(self, name: str, *, actor: str | None = None) -> None:
        self._writable("delete a tag")
        self._refs.delete_tag(name, actor or self._native.seams.actor())

    # --- looking after ------------------------------------------------------------------------------------------

    def recover(self) -> Sequence[Swept]:
        """Finish what dead writers left, now."""
        self._writable("recover")
        return recover.sweep(self._native, self._intents)

    def resolve_intent(
        self, execution: str, how: Literal["roll_back", "retry"] = "roll_back", *, actor: str | None = None
    ) -> Swept:
        """An operator's way out for an intent in quarantine."""
        self._writable("resolve an intent")
        return recover.resolve(self._native, self._intents, execution, how, actor or self._native.seams.actor())

    def start_sweeper(self, interval: float = SWEEP_INTERVAL) -> None:
        """Recover continuously, in the background, until the repository is closed."""
        self._writable("start a sweeper")
        if self._sweeper is None:
            self._sweeper = Sweeper(self.store.seams, self.recover, interval)

    def recoveries(self) -> Iterator[Record]:
        """The terminal record of every transaction that ended, oldest first."""
        return self._intents.records()

    def intents(self) -> Iterator[IntentStatus]:
        """Transactions that have not ended: running, left by the dead, or in quarantine."""
        now = self._native.seams.clock.now()
        for execution, intent, state, why in recover.unfinished(self._native, self._intents):
            if intent is None:
                yield IntentStatus(execution, state, None, None, None, None, None, why)
            else:
                expired = self._intents.expired(intent)
                yield IntentStatus(
                    execution, state, intent.branch, intent.actor, intent.kind, now - intent.created, expired, why
                )

    def plan_gc(self, retention: Retention | None = None) -> Plan:
        """What `gc` would delete, and why. Deletes nothing."""
        return self._collector(retention).plan()

    def gc(self, retention: Retention | None = None, *, grace: float = GRACE_DEFAULT) -> Plan:
        """Delete what nothing reaches any more; returns what was deleted."""
        self._writable("collect garbage")
        return self._collector(retention).collect(grace)

    def fsck(self, *, content: bool = True, step: Step | None = None) -> Report:
        """Verify every reachable object and, with `content`, every byte."""
        return Checker(self._native, step, content, FollowPins(self._native.objects)).run()

    def _collector(self, retention: Retention | None) -> Collector:
        pinned = FollowPins(self._native.objects)
        return Collector(self._native, lambda: protected(self._intents), retention or Retention(), pinned)

    # --- lifetime -----------------------------------------------------------------------------------------------

    def close(self) -> None:
        if self._sweeper is not None:
            self._sweeper.stop()
            self._sweeper = None

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def _writable(self, doing: str) -> None:
        if self._mode != "rw":
            raise TransactionClosed(f"cannot {doing}: {self.url} was opened read-only", hint="open it with mode='rw'")


def hold(store: NativeRepository | LakeRepository) -> Repository:
    """A repository on a store that is open already."""
    if isinstance(store, LakeRepository):
        from fenceline.on_lakefs import LakeFSRepository

        return LakeFSRepository(store, "rw")
    return Repository(store, "rw")


class _EntryFinder:
    """Finds the entry that made a commit visible on a branch; reads the log backwards, only as far as asked."""

    def __init__(self, repo: Repository, branch: Head | None) -> None:
        self._known: dict[str, RefEntry] = {}
        self._rest: Iterable[RefEntry] = iter(repo.entries(branch.name)) if branch else iter(())

    def __call__(self, commit: str) -> RefEntry | None:
        if commit not in self._known:
            for entry in self._rest:
                if entry.commit is not None and entry.op not in ("fence", "adopt", "noop"):
                    self._known.setdefault(entry.commit, entry)
                if entry.commit == commit and commit in self._known:
                    break
        return self._known.get(commit)


def protected(intents: IntentStore) -> Protected:
    """What garbage collection must keep for unfinished intents: heartbeat or not, quarantined or not."""
    executions: set[str] = set()
    commits: set[str] = set()
    tables: set[str] = set()
    for execution in intents.executions():
        executions.add(execution)
        tables.update(intents.tables(execution))
        try:
            intent = intents.find(execution)
            if intent is None:
                continue
            commits.update((intent.input, *intent.pins))
            verdict = intents.verdict(intent)
            if verdict is not None and verdict.commit is not None:
                commits.add(verdict.commit)
        except ObjectDamaged:  # all that can be kept of it are its own prefixes
            continue
    return Protected(frozenset(executions), frozenset(commits), frozenset(tables))

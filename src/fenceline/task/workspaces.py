"""Path workspaces: a directory that a task may change as it likes, and what it changed.

The diff looks at file metadata first. What `materialise` wrote is remembered with its size, mtime, ctime and inode;
a file for which all four are the same was not touched and is never read again.
"""

from __future__ import annotations

import contextlib
import hashlib
import math
import os
import re
import stat
import threading
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, ClassVar, NamedTuple

from fenceline.errors import ContractError, InvalidName, ObjectDamaged, ObjectMissing, store_error
from fenceline.repo.merge import PART_PREFIX
from fenceline.repo.model import Dataset, Entry
from fenceline.repo.names import check_path
from fenceline.seams import Clock, Seams, SystemClock
from fenceline.task.orphans import MARKER, WORKSPACE, remove_attempt

if TYPE_CHECKING:
    from fenceline.task.workspace_graph import WorkspaceGraph

NAMED = 10  # offenders that an error names; the rest is counted
HASH_BATCH = 16

_METRIC = re.compile(r"[a-z][a-z0-9_]*(\.[a-z0-9_]+)*")
_SPECIAL = {
    stat.S_IFLNK: "symbolic link",
    stat.S_IFSOCK: "socket",
    stat.S_IFIFO: "fifo",
    stat.S_IFCHR: "device",
    stat.S_IFBLK: "device",
}


class Stamp(NamedTuple):
    """What tells without reading it that a file was not touched."""

    size: int
    mtime_ns: int
    ctime_ns: int
    inode: int

    @classmethod
    def of(cls, found: os.stat_result) -> Stamp:
        return cls(found.st_size, found.st_mtime_ns, found.st_ctime_ns, found.st_ino)


class Known(NamedTuple):
    """A file as it was materialised, and the tree entry it stands for."""

    stamp: Stamp
    mode: int
    entry: Entry
    dataset: str | None = None
    """The local directory of the dataset it is a part of."""


class Change(NamedTuple):
    """A file to stage."""

    path: str
    """In the tree."""
    local: str
    size: int
    mode: int | None
    """None where the input had none and the file's was not touched."""


@dataclass(frozen=True, slots=True)
class WorkspaceDiff:
    """What a body changed, each list sorted. Apply `removed` first: a name may be a file here and a directory there."""

    added: tuple[Change, ...]
    changed: tuple[Change, ...]
    removed: tuple[str, ...]
    """Tree paths of files; a dataset, removed as a whole, by its root with a trailing slash."""
    unchanged: int
    hashed: int
    """How many files had to be read to know."""

    @property
    def empty(self) -> bool:
        return not (self.added or self.changed or self.removed)


class PathWorkspace:
    """The prefix of a commit in a directory of its own; made by `materialise`."""

    def __init__(
        self,
        directory: Path,
        marker: bytes,
        commit: str,
        prefix: str,
        known: Mapping[str, Known],
        datasets: Mapping[str, Entry],
        settled_ns: int,
        chunks: Callable[[Entry], Iterator[bytes]],
        seams: Seams,
        workers: int,
    ) -> None:
        self.directory = directory
        self.commit = commit
        self.prefix = prefix
        self._marker = marker
        self._known = known
        self._datasets = datasets
        self._settled_ns = settled_ns
        self._chunks = chunks
        self._seams = seams
        self._workers = workers

    @property
    def path(self) -> Path:
        """The directory given to the body."""
        return self.directory / WORKSPACE

    @property
    def datasets(self) -> dict[str, Dataset]:
        """The datasets in it by their local directory ('' for the workspace itself): how to read them."""
        return {place: entry.dataset for place, entry in self._datasets.items() if entry.dataset}

    def diff(self) -> WorkspaceDiff:
        """What was changed since materialising. Refuses what no repository can hold, naming it.

        Untouched files are not read. A touched one of the same size and mode is hashed, and is no change if its content
        is the input's. So is a file whose ctime is not older than the moment the workspace was handed over: on a file
        system with a coarse clock a write right after that moment could leave size, mtime and ctime as they were (git's
        rule for "racily clean" files). Empty directories do not count.
        """
        self._check_surroundings()
        try:
            seen = _Walk(str(self.path), self._known, self._datasets, self._settled_ns).run()
            seen.refuse_special()
            same, hashed = self._compare(seen.suspects)
        except FileNotFoundError as error:
            raise ContractError(
                f"{error.filename} went away while the workspace was compared",
                hint="something the task started still runs: wait for it in the body",
            ) from error
        except OSError as error:
            raise store_error(error, f"comparing the workspace {self.path}") from error
        changed = [suspect for suspect in seen.suspects if suspect.local not in same]
        removed = self._removed(seen, changed)
        added = [self._change(self._tree_path(place), place, found, None) for place, found in seen.added]
        self._check_names(change.path for change in added)
        self._check_surroundings()  # a sweep that took us for dead must not look like a body that deleted everything
        return WorkspaceDiff(
            added=tuple(sorted(added)),
            changed=tuple(sorted(self._change(s.known.entry.path, s.local, s.found, s.known) for s in changed)),
            removed=tuple(sorted(removed)),
            unchanged=seen.unchanged + len(same),
            hashed=hashed,
        )

    def _check_surroundings(self) -> None:
        """The attempt directory holds the marker and the workspace, and nothing else."""
        try:
            with os.scandir(self.directory) as entries:
                found = {entry.name: entry.is_dir(follow_symlinks=False) for entry in entries}
            marker = (self.directory / MARKER).read_bytes() if MARKER in found else b""
        except OSError as error:
            raise ContractError(
                f"the attempt directory {self.directory} cannot be read: {error.strerror}",
                hint="nothing is published: run the step again",
            ) from error
        if marker != self._marker or not found.get(WORKSPACE):
            raise ContractError(
                f"the attempt directory {self.directory} lost its {WORKSPACE if marker == self._marker else 'marker'}",
                hint="the body may empty its workspace, but not remove it or what is beside it",
            )
        outside = sorted(found.keys() - {MARKER, WORKSPACE})
        if outside:
            raise ContractError(
                f"files outside the workspace: {named(outside)}",
                hint=f"write below {self.path}, or to a temporary directory",
            )

    def _compare(self, suspects: Iterable[_Suspect]) -> tuple[set[str], int]:
        """Those of the suspects that have the content and mode of the input, and how many had to be read for it."""
        to_read = [s for s in suspects if s.may_be_same]

        def alike(batch: list[_Suspect]) -> list[str]:
            return [s.local for s in batch if self._same_content(s)]

        batches = [to_read[at : at + HASH_BATCH] for at in range(0, len(to_read), HASH_BATCH)]
        found = self._seams.threads.map(alike, batches, self._workers)
        return {local for batch in found for local in batch}, len(to_read)

    def _same_content(self, suspect: _Suspect) -> bool:
        with open(self.path / suspect.local, "rb") as file:
            mine = hashlib.file_digest(file, "sha256").hexdigest()
        entry = suspect.known.entry
        if entry.checksum.startswith("sha256:"):
            return entry.checksum == f"sha256:{mine}"
        theirs = hashlib.sha256()  # its content was never hashed: data in place, or Spark's
        try:
            for piece in self._chunks(entry):
                theirs.update(piece)
        except (ObjectDamaged, ObjectMissing):  # then it cannot be told to be the same
            return False
        return theirs.hexdigest() == mine

    def _removed(self, seen: _Walk, changed: Iterable[_Suspect]) -> list[str]:
        """Removed files and datasets; a dataset that changed in any other way is refused."""
        gone = {place for place in self._datasets if place not in seen.standing_datasets}
        touched = [place for place, _ in seen.added_to_datasets]
        touched += [s.local for s in changed if s.known.dataset is not None]
        touched += [place for place, k in seen.missing.items() if k.dataset is not None and k.dataset not in gone]
        if touched:
            raise ContractError(
                f"files of datasets were changed: {named(sorted(touched))}",
                hint="datasets change through put_dataset or a Spark workspace; here they can be read, "
                "or removed with their whole directory",
            )
        files = [known.entry.path for known in seen.missing.values() if known.dataset is None]
        return files + [self._datasets[place].path for place in gone]

    def _tree_path(self, place: str) -> str:
        return f"{self.prefix}/{place}" if self.prefix else place

    def _change(self, path: str, place: str, found: os.stat_result, known: Known | None) -> Change:
        mode = stat.S_IMODE(found.st_mode)
        kept = known is not None and known.mode == mode
        return Change(path, f"{self.path}/{place}", found.st_size, known.entry.mode if known and kept else mode)

    @staticmethod
    def _check_names(paths: Iterable[str]) -> None:
        refused = []
        for path in paths:
            try:
                check_path(path)
            except InvalidName as error:
                refused.append(error.message)
            else:
                if f"/{PART_PREFIX}" in f"/{path}":
                    refused.append(f"path {path!r} has a part that starts with {PART_PREFIX!r}, which marks datasets")
        if refused:
            raise InvalidName(named(sorted(refused)), hint="rename them in the body")


class _Suspect(NamedTuple):
    """A file whose metadata cannot prove that it is unchanged."""

    local: str
    found: os.stat_result
    known: Known

    @property
    def may_be_same(self) -> bool:
        known = self.known
        return self.found.st_size == known.stamp.size and stat.S_IMODE(self.found.st_mode) == known.mode


class _Walk:
    """One look at every file of a workspace."""

    def __init__(self, root: str, known: Mapping[str, Known], datasets: Mapping[str, Entry], settled_ns: int) -> None:
        self._root, self._datasets, self._settled_ns = root, datasets, settled_ns
        self.missing = dict(known)
        self.added: list[tuple[str, os.stat_result]] = []
        self.added_to_datasets: list[tuple[str, os.stat_result]] = []
        self.suspects: list[_Suspect] = []
        self.special: list[str] = []
        self.standing_datasets: set[str] = set()
        self.unchanged = 0

    def run(self) -> _Walk:
        waiting = [("", False)]
        while waiting:
            prefix, inside = waiting.pop()
            if (directory := prefix[:-1]) in self._datasets:
                self.standing_datasets.add(directory)
                inside = True
            with os.scandir(f"{self._root}/{prefix}") as entries:
                for entry in entries:
                    if entry.is_dir(follow_symlinks=False):
                        waiting.append((f"{prefix}{entry.name}/", inside))
                    else:
                        self._file(prefix + entry.name, entry.stat(follow_symlinks=False), inside)
        return self

    def _file(self, place: str, found: os.stat_result, inside: bool) -> None:
        if not stat.S_ISREG(found.st_mode):
            self.special.append(f"{place} ({_SPECIAL.get(stat.S_IFMT(found.st_mode), 'special file')})")
            return
        known = self.missing.pop(place, None)
        if known is None:
            (self.added_to_datasets if inside else self.added).append((place, found))
        elif known.stamp == Stamp.of(found) and known.stamp.ctime_ns < self._settled_ns:
            self.unchanged += 1
        else:
            self.suspects.append(_Suspect(place, found, known))

    def refuse_special(self) -> None:
        if self.special:
            raise ContractError(
                f"the workspace holds what a repository cannot: {named(sorted(self.special))}",
                hint="a repository holds files only: remove the link or special file, or copy it",
            )


def named(offenders: list[str]) -> str:
    more = len(offenders) - NAMED
    return "; ".join(offenders[:NAMED]) + (f"; and {more} more" if more > 0 else "")


def cleanup(workspace: PathWorkspace) -> None:
    """Remove a workspace that is done with. Best effort: it never replaces a result."""
    remove_attempt(workspace.directory)


# --- what a body is given ---------------------------------------------------------------------------------------


class Metrics:
    """Numbers a task author wants to see beside the attempt. Safe to use from several threads."""

    def __init__(self, clock: Clock | None = None) -> None:
        self._clock = clock or SystemClock()
        self._lock = threading.Lock()
        self._kinds: dict[str, str] = {}
        self._values: dict[str, float] = {}
        self._timed: dict[str, dict[str, float]] = {}

    def counter(self, name: str, value: float = 1) -> None:
        """Add to a number that only grows."""
        if _number(name, value) < 0:
            raise ContractError(f"counter {name} cannot go down by {value}", hint="use a gauge")
        with self._lock:
            self._check(name, "counter")
            self._values[name] = self._values.get(name, 0) + value

    def gauge(self, name: str, value: float) -> None:
        """Set a number; the last one counts."""
        _number(name, value)
        with self._lock:
            self._check(name, "gauge")
            self._values[name] = value

    @contextlib.contextmanager
    def timer(self, name: str) -> Iterator[None]:
        """Time a block, however it ends."""
        with self._lock:
            self._check(name, "timer")
        start = self._clock.monotonic()
        try:
            yield
        finally:
            seconds = self._clock.monotonic() - start
            with self._lock:
                timed = self._timed.setdefault(name, {"count": 0, "seconds": 0.0, "longest": 0.0})
                timed["count"] += 1
                timed["seconds"] += seconds
                timed["longest"] = max(timed["longest"], seconds)

    def collected(self) -> dict[str, float | dict[str, float]]:
        """Every value by name; of a timer the count, the sum and the longest in seconds."""
        with self._lock:
            return {**self._values, **{name: dict(timed) for name, timed in self._timed.items()}}

    def _check(self, name: str, kind: str) -> None:
        if not isinstance(name, str) or len(name) > 100 or not _METRIC.fullmatch(name):
            raise ContractError(
                f"metric name {name!r} cannot be used", hint="lower case letters, digits and _, parts joined by dots"
            )
        if self._kinds.setdefault(name, kind) != kind:
            raise ContractError(f"metric {name} is a {self._kinds[name]}, not a {kind}", hint="use another name")


def _number(name: str, value: float) -> float:
    if isinstance(value, bool) or not isinstance(value, int | float) or not math.isfinite(value):
        raise ContractError(f"metric {name} cannot be {value!r}", hint="give a finite number")
    return value


class Workspace:
    """A path workspace as a task body sees it."""

    __fenceline_workspace__: ClassVar[str] = "path-object"

    def __init__(
        self,
        path: Path,
        commit: str,
        prefix: str,
        metrics: Metrics | None = None,
        graphs: Callable[[str], WorkspaceGraph] | None = None,
    ) -> None:
        self._path, self._commit, self._prefix = path, commit, prefix
        self._metrics = metrics or Metrics()
        self._graphs = graphs

    @property
    def path(self) -> Path:
        """The directory to read and write; what is in it when the body returns is published."""
        return self._path

    @property
    def metrics(self) -> Metrics:
        return self._metrics

    def graph(self, path: str = "") -> WorkspaceGraph:
        """The graph at a path, on the attempt's commit; its tables publish with the files of the workspace."""
        if self._graphs is None:
            raise ContractError(
                "this workspace has no graphs",
                hint="they are in repositories of fenceline itself; for tests: fl.try_task",
            )
        return self._graphs(path)

    @property
    def commit(self) -> str:
        """The id of the commit the workspace was made from."""
        return self._commit

    @property
    def prefix(self) -> str:
        """The directory of the repository that the workspace shows; '' for all of it."""
        return self._prefix

    def __repr__(self) -> str:
        return f"Workspace({str(self._path)!r}, commit={self._commit[:12]!r}, prefix={self._prefix!r})"

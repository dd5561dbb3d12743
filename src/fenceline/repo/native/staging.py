"""What one execution writes before it is visible: files, part files, ranges and commits, all under its own id.

Nothing here is shared while it is written, so one rule (D1) decides who may delete it.
"""

from __future__ import annotations

import hashlib
import threading
from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Any

from fenceline import failpoints
from fenceline.repo.model import Commit, Entry, Kind, Node, Write
from fenceline.repo.native.objects import ObjectStore, is_far
from fenceline.repo.native.tree import TreeReader, TreeWriter
from fenceline.repo.pathset import ancestors

FILE = failpoints.effect(
    "stage.file",
    "a staged file's bytes",
    before="an open intent: the sweep aborts it",
    after="the same; the sweep deletes the file",
)
TREE = failpoints.effect(
    "stage.tree",
    "a staged pack of tree ranges",
    before="an open intent: the sweep aborts it (after a seal, in a rebase: the sweep decides the sealed commit)",
    after="the same",
)
COMMIT = failpoints.effect(
    "stage.commit",
    "a staged commit record",
    before="an open intent: the sweep aborts it (after a seal, in a rebase: the sweep decides the sealed commit)",
    after="the same; gc removes the commit record",
)
DISCARD = failpoints.effect(
    "stage.discard",
    "the removal of what an execution staged, under rule D1",
    before="the verdict or fence stands: the next sweep deletes it",
    after="deleted: the next sweep records it",
)


def job_prefix(dataset_id: str, execution: str, job: int | str) -> str:
    return f"datasets/{dataset_id}/_fl={execution}-{job}/"


class Staging:
    """The staging area of one execution."""

    def __init__(
        self,
        objects: ObjectStore,
        trees: TreeReader,
        execution: str,
        new_id: Callable[[], str],
        remember: Callable[[Commit], None] = lambda commit: None,
    ) -> None:
        self.execution = execution
        self._objects = objects
        self._remember = remember
        self._trees = TreeWriter(trees, lambda: f"trees/{execution}/{new_id()}", self._put_pack)
        self._written: dict[str, None] = {}
        self._names: set[str] = set()
        self._directories: set[str] = set()
        self._lock = threading.Lock()
        self.bytes = 0

    @property
    def far(self) -> bool:
        """Whether every file is a round trip: then many are staged at once."""
        return is_far(self._objects)

    def file(self, path: str, chunks: bytes | Iterable[bytes], mode: int | None = None) -> Entry:
        """Stage a plain file."""
        return self._stage(f"files/{self.execution}/{self._free_name(path)}", path, chunks, mode, None)

    def part(
        self,
        dataset: str,
        dataset_id: str,
        job: int,
        relative: str,
        chunks: bytes | Iterable[bytes],
        write: Write,
    ) -> Entry:
        """Stage a part file of the dataset at logical path `dataset`."""
        key = job_prefix(dataset_id, self.execution, job) + relative
        return self._stage(key, f"{dataset}/_fl={self.execution}-{job}/{relative}", chunks, None, write)

    def edit(self, root: Node | None, changes: Mapping[str, Entry | None]) -> Node | None:
        return self._trees.edit(root, changes)

    def commit(self, **values: Any) -> Commit:
        made = Commit.make(execution=self.execution, **values)
        key = f"commits/{made.id}"
        with COMMIT:
            self._objects.put(key, made.to_bytes())
        self._written[key] = None
        self._remember(made)
        return made

    def persist(self) -> None:
        """Make everything staged since the last call durable: before the seal, and before every ref entry (INV-2)."""
        written, self._written = self._written, {}
        if written:
            self._objects.persist(written)

    def adopt(self, keys: Iterable[str]) -> None:
        """Count objects that an engine wrote under this execution's id as staged: `persist` makes them durable too."""
        for key in keys:
            self._written[key] = None

    def _put_pack(self, key: str, data: bytes) -> None:
        with TREE:
            self._objects.put(key, data)
        self._written[key] = None

    def _stage(
        self, key: str, path: str, chunks: bytes | Iterable[bytes], mode: int | None, write: Write | None
    ) -> Entry:
        hashed = hashlib.sha256()
        size = 0

        def passing(pieces: Iterable[bytes]) -> Iterator[bytes]:
            nonlocal size
            for piece in pieces:
                hashed.update(piece)
                size += len(piece)
                yield piece

        with FILE:
            if isinstance(chunks, bytes):
                hashed.update(chunks)
                size = len(chunks)
                self._objects.put(key, chunks)
            else:
                self._objects.put(key, passing(chunks))
        self._written[key] = None
        with self._lock:
            self.bytes += size
        return Entry(path, Kind.FILE, size, key, f"sha256:{hashed.hexdigest()}", mode, write)

    def _free_name(self, path: str) -> str:
        """The path itself, or the path below `.2/`, `.3/` … where this execution has used the name already.

        Names are compared without case: 'A' and 'a' are one file on some disks.
        """
        number = 1
        with self._lock:
            while True:
                name = path if number == 1 else f".{number}/{path}"
                folded = name.casefold()
                above = list(ancestors(folded))
                if (
                    folded not in self._names
                    and folded not in self._directories
                    and not any(a in self._names for a in above)
                ):
                    self._names.add(folded)
                    self._directories.update(above)
                    return name
                number += 1


def discard(objects: ObjectStore, execution: str, datasets: Iterable[str], keys: Iterable[str] = ()) -> None:
    """Delete what an execution staged. Who may call this is decided by D1, not here."""
    prefixes = [
        f"files/{execution}/",
        f"trees/{execution}/",
        *(f"datasets/{d}/_fl={execution}-" for d in datasets),
    ]
    with DISCARD:
        for prefix in prefixes:
            objects.delete(info.key for info in objects.list(prefix))
        objects.delete(keys)

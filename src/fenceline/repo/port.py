"""The repository port: what transactions, recovery and people need of a versioned store.

`repo/native/` is the embedded implementation. The protocol in `txn/` is written against these few methods, so that
another store that can append a ref entry conditionally can stand in for it.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any, Protocol

from fenceline.repo.merge import Unit
from fenceline.repo.model import Commit, Entry, Head, Node, RefEntry, Side
from fenceline.seams import Seams


class RefLog(Protocol):
    """Branches or tags: append-only logs of numbered entries, without holes."""

    def names(self) -> Iterator[str]:
        """Every name that ever existed, deleted ones too."""
        ...

    def last(self, name: str) -> RefEntry | None:
        """The newest entry, in a constant number of reads."""
        ...

    def entry(self, name: str, seq: int) -> RefEntry: ...

    def entries(self, name: str, after: int, upto: int) -> Sequence[RefEntry]:
        """The entries numbered `after` + 1 to `upto`, oldest first."""
        ...

    def append(self, name: str, entry: RefEntry) -> bool:
        """THE conditional write: True if the entry now has its number, False if another has it (INV-3 settled)."""
        ...

    def make_durable(self, name: str, seq: int) -> None:
        """Before someone else's entry is reported as an outcome (INV-6)."""
        ...


class Staging(Protocol):
    """What one execution writes before it is visible; everything carries its id (D1)."""

    @property
    def execution(self) -> str: ...

    def edit(self, root: Node | None, changes: Mapping[str, Entry | None]) -> Node | None:
        """The tree with these entries set or removed; the cost follows the change."""
        ...

    def commit(self, **values: Any) -> Commit: ...

    def persist(self) -> None:
        """Everything staged so far is durable when this returns (INV-2)."""
        ...


class Repository(Protocol):
    """Immutable commits, and the logs that make them visible."""

    @property
    def id(self) -> str: ...

    @property
    def seams(self) -> Seams: ...

    @property
    def branch_log(self) -> RefLog: ...

    @property
    def tag_log(self) -> RefLog: ...

    def head(self, branch: str) -> Head: ...

    def find_head(self, branch: str) -> Head | None: ...

    def find_tag(self, tag: str) -> Head | None: ...

    def head_at(self, name: str, entry: RefEntry | None) -> Head | None:
        """The head that an entry says; None where it says that the branch is deleted."""
        ...

    def resolve(self, ref: str) -> Commit:
        """The commit that a branch, tag, commit id, `branch~3` or `branch@12` names."""
        ...

    def commit(self, commit_id: str) -> Commit: ...

    def line_since(self, head: Commit, start: Commit) -> Sequence[Commit] | None:
        """The commits behind `start` on the head's first-parent line, oldest first; None if it is not on it."""
        ...

    def stands(self, commit_id: str, head: Commit) -> bool:
        """Whether the commit is on the head's first-parent line."""
        ...

    def history(self, heads: Iterable[Commit]) -> Iterator[Commit]: ...

    def merge_base(self, one: Commit, other: Commit) -> Commit | None: ...

    def diff(self, left: Commit | None, right: Commit | None) -> Iterator[Side]:
        """What differs, entry by entry; the cost follows the difference."""
        ...

    def changes(self, left: Commit | None, right: Commit | None) -> Iterator[Unit]:
        """The same with every dataset as one."""
        ...

    def staging(self, execution: str) -> Staging: ...

    def check_staged(self, commit: Commit) -> None:
        """Raise unless everything that a staged commit's own execution wrote is there, before it is published."""
        ...

    def discard(self, execution: str, datasets: Iterable[str], keys: Iterable[str] = ()) -> None:
        """Delete what an execution staged, and `keys` it wrote elsewhere. Who may ask is decided by D1, not here."""
        ...

    def expired(self, commits: Iterable[str]) -> bool:
        """Whether retention gave up the content of any of these."""
        ...

    def refuse_condemned(self, commits: Iterable[str]) -> None:
        """Raise if garbage collection has announced the end of any of these (D3)."""
        ...

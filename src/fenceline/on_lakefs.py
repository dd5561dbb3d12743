"""`lakefs://…` as people hold it: reading, branches and tags, recovery. What lakeFS does by itself is left to it."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Literal, NoReturn, Self

from fenceline.api import IntentStatus, Mode, Repository, check_mode
from fenceline.errors import ConfigError, NotFound
from fenceline.repo.lakefs.notes import entry_of
from fenceline.repo.lakefs.repository import RUN_PREFIX, LakeRepository
from fenceline.repo.lakefs.sdk import Access
from fenceline.repo.merge import Strategy
from fenceline.repo.model import DEFAULT_BRANCH, Head, RefEntry
from fenceline.repo.native.repository import NativeRepository
from fenceline.seams import Seams
from fenceline.txn.intent import DEFAULT_LEASE, Record
from fenceline.txn.lakefs import combine
from fenceline.txn.lakefs import recover as lakefs_recover
from fenceline.txn.lakefs.explain import not_here
from fenceline.txn.lakefs.records import kept
from fenceline.txn.lakefs.transaction import LakeTransaction
from fenceline.txn.recover import Swept
from fenceline.txn.transaction import OnConflict, TransactionResult
from fenceline.txn.upload import Progress

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from fenceline.graph.spark_start import EngineName


class LakeFSRepository(Repository):
    """A lakeFS repository: tasks publish to it; people read, branch, tag and recover."""

    def __init__(self, lake: LakeRepository, mode: Mode) -> None:
        self._lake, self._mode = lake, mode
        self._sweeper = None
        self.swept: Sequence[Swept] = ()

    @classmethod
    def open(
        cls,
        url: str,
        mode: Mode = "rw",
        *,
        create: bool = False,
        sweep: bool = True,
        seams: Seams | None = None,
        access: Access | None = None,
    ) -> Self:
        check_mode(mode)
        if create:
            raise ConfigError(
                f"cannot create {url}", hint="create the repository in lakeFS, then run fenceline lakefs setup"
            )
        return cls(LakeRepository.open(url, seams, access), mode)._opened(sweep)

    @property
    def store(self) -> LakeRepository:
        return self._lake

    @property
    def native(self) -> NativeRepository:
        raise not_here("this tool", "it works on native repositories")

    # --- reading ------------------------------------------------------------------------------------------------

    def given_up(self, commits: Iterable[str]) -> bool:
        """lakeFS's own collection keeps what a commit shows for as long as its rules say; it is not told here."""
        return False

    def entries(self, branch: str = DEFAULT_BRANCH) -> Iterator[RefEntry]:
        """The branch's first-parent line as entries, newest first: lakeFS keeps no other record of its moves."""
        head = self._lake.head(branch)
        return (entry_of(commit) for commit in self._lake.line(head.commit))

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
    ) -> LakeTransaction:
        self._writable("begin a transaction")
        return LakeTransaction(
            self._lake,
            branch,
            actor=actor or self._lake.seams.actor(),
            key=key,
            message=message,
            on_conflict=on_conflict,
            metadata=metadata,
            progress=progress,
            lease=lease,
        )

    # --- refs ---------------------------------------------------------------------------------------------------

    def create_branch(self, name: str, source: str = DEFAULT_BRANCH, *, actor: str | None = None) -> Head:
        self._writable("create a branch")
        self._lake.client.create_branch(name, self._lake.resolve(source).id)
        return self._lake.head(name)

    def delete_branch(self, name: str, *, actor: str | None = None) -> None:
        self._writable("delete a branch")
        if not self._lake.client.delete_branch(name):
            raise NotFound(f"there is no branch {name!r}", hint="fenceline branch lists them", branch=name)

    def create_tag(self, name: str, source: str = DEFAULT_BRANCH, *, actor: str | None = None, note: str = "") -> Head:
        self._writable("create a tag")
        self._lake.client.create_tag(name, self._lake.resolve(source).id)
        found = self._lake.find_tag(name)
        assert found is not None
        return found

    def delete_tag(self, name: str, *, actor: str | None = None) -> None:
        self._writable("delete a tag")
        if not self._lake.client.delete_tag(name):
            raise NotFound(f"there is no tag {name!r}", hint="fenceline tag lists them", tag=name)

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
        self._writable("merge")
        if strategy is not None:
            raise not_here("a merge strategy", f"lakectl merge --strategy {self.url}/{source} {self.url}/{into}")
        return combine.merge(self._lake, source, into, actor or self._lake.seams.actor(), message, key)

    def relocate_branch(
        self, name: str, target: str, *, expected: str | None = None, actor: str | None = None, note: str = ""
    ) -> Head:
        """Of a run's own branch only: no hook fences a reset, and nobody but the run works there."""
        self._writable("relocate a branch")
        if not name.startswith(RUN_PREFIX):
            raise not_here("a relocation", "no hook fences a reset; with nobody writing: lakectl branch reset")
        combine.reset(self._lake, name, self._lake.resolve(target).id, expected)
        return self._lake.head(name)

    # --- looking after ------------------------------------------------------------------------------------------

    def recover(self) -> Sequence[Swept]:
        self._writable("recover")
        return lakefs_recover.sweep(self._lake)

    def recoveries(self) -> Iterator[Record]:
        """How executions ended that were not published by themselves; a publication is told by its commit."""
        return iter(kept(self._lake.client, self._lake.seams.threads))

    def intents(self) -> Iterator[IntentStatus]:
        now = self._lake.seams.clock.now()
        for left in lakefs_recover.unfinished(self._lake):
            note = left.note
            yield IntentStatus(
                left.name.execution,
                left.state,
                note.branch if note else None,
                note.actor if note else None,
                "step",
                now - left.name.began,
                left.expired,
                left.over,
            )

    # --- what is not here ---------------------------------------------------------------------------------------

    def graph(self, *given: Any, **more: Any) -> NoReturn:
        raise not_here("a graph", "keep graphs in a native repository (file://, s3://)")

    def revert(self, *given: Any, **more: Any) -> NoReturn:
        raise not_here("a revert", f"lakectl branch revert {self.url}/<branch> <commit>")

    def resolve_intent(
        self, execution: str, how: Literal["roll_back", "retry"] = "roll_back", *, actor: str | None = None
    ) -> NoReturn:
        raise not_here("a quarantine", "fenceline recover ends what can be ended; delete the staging branch otherwise")

    def plan_gc(self, *given: Any, **more: Any) -> NoReturn:
        raise not_here("garbage collection", "lakeFS has its own, with rules for each branch")

    def gc(self, *given: Any, **more: Any) -> NoReturn:
        raise not_here("garbage collection", "lakeFS has its own, with rules for each branch")

    def fsck(self, *given: Any, **more: Any) -> NoReturn:
        raise not_here("fsck", "the lakeFS server looks after its own storage")

"""Direct transactions on lakeFS: a staging branch that is read as it is written, and the same Confirm."""

from __future__ import annotations

import tempfile
from collections.abc import Iterable, Iterator, Mapping
from types import TracebackType
from typing import Any, NoReturn, Self

from fenceline.errors import (
    AlreadyExists,
    ContractError,
    FencelineError,
    NotFound,
    Outcome,
    OutcomeUnknown,
    TransactionClosed,
)
from fenceline.repo.lakefs.hook import ACTIONS
from fenceline.repo.lakefs.notes import Note, staging_name, to_entry
from fenceline.repo.lakefs.repository import LakeRepository
from fenceline.repo.model import Commit, Entry
from fenceline.repo.names import check_path, check_prefix
from fenceline.repo.pathset import PathSet, ancestors
from fenceline.txn import upload
from fenceline.txn.intent import EndKind, Record, key_txn
from fenceline.txn.lakefs.confirm import Outcome as Confirmed
from fenceline.txn.lakefs.confirm import Turn, confirm, published
from fenceline.txn.lakefs.explain import not_here
from fenceline.txn.lakefs.records import keep
from fenceline.txn.lakefs.staging import Staged, StagingBranch, Upload, discard, sha256_of
from fenceline.txn.transaction import OnConflict, Transaction, TransactionResult, check_asked
from fenceline.txn.upload import Progress

LEASE = 3600.0
"""How long an unsealed transaction is left alone where its process cannot be looked at, in seconds."""
MOST_READS = 1000


class LakeTransaction(Transaction):
    """Changes to one branch of a lakeFS repository that become visible together, or not at all."""

    def __init__(
        self,
        repo: LakeRepository,
        branch: str,
        *,
        actor: str,
        key: str | None = None,
        message: str = "",
        on_conflict: OnConflict = "fail",
        metadata: Mapping[str, str] | None = None,
        progress: Progress | None = None,
        lease: float = LEASE,
    ) -> None:
        check_asked(key, on_conflict)
        self._lake, self._message, self._more = repo, message, dict(metadata or {})
        self._reads, self._directories = PathSet(), {""}
        self._entered = self._closed = False
        self._applied: Commit | None = None
        self._result: TransactionResult | None = None
        self._lease = max(lease, LEASE)
        self._turn = Turn(
            execution=repo.seams.ids.execution(),
            actor=actor,
            branch=branch,
            input=repo.head(branch).commit,
            step="",
            txn=key_txn(repo.id, branch, key) if key is not None else "",
            attempt="",
            rebase=on_conflict == "rebase",
            serial=False,
            fence=lambda: None,
        )
        self._staging = StagingBranch(
            repo, self._turn.input, self._turn.execution, self._branch_name, before_first_byte=lambda: None
        )

    # --- what a caller may ask ----------------------------------------------------------------------------------

    @property
    def execution(self) -> str:
        return self._turn.execution

    @property
    def input(self) -> Commit:
        return self._turn.input

    @property
    def already_applied(self) -> bool:
        return self._applied is not None

    # --- reading ------------------------------------------------------------------------------------------------

    def read(self, path: str) -> bytes:
        entry = self.stat(path)
        if entry is None:
            raise NotFound(
                f"there is no file {path!r} at {self.input.id[:12]}", hint="fenceline ls lists them", path=path
            )
        return self._lake.read(entry)

    def stat(self, path: str) -> Entry | None:
        self._check_open()
        self._reads.add(check_path(path.removesuffix("/")))
        return self._at(path.removesuffix("/"))

    def list(self, prefix: str = "") -> Iterator[Entry]:
        self._check_open()
        self._reads.add(check_prefix(prefix))
        return self._below(check_prefix(prefix))

    @property
    def _ref(self) -> str:
        return self._staging.name or self.input.id

    def _at(self, path: str) -> Entry | None:
        found = self._lake.client.stat(self._ref, path)
        return None if found is None else to_entry(self._lake.url, self._ref, found)

    def _below(self, prefix: str) -> Iterator[Entry]:
        for found in self._lake.client.objects(self._ref, f"{prefix}/" if prefix else ""):
            if not found.path.endswith("/"):
                yield to_entry(self._lake.url, self._ref, found)

    # --- writing ------------------------------------------------------------------------------------------------

    def write(self, path: str, data: bytes | str | upload.Readable | Iterable[bytes], mode: int | None = None) -> None:
        if self._dropping():
            return
        place = self._place(path)
        if next(self._below(place), None) is not None:
            raise AlreadyExists(f"{path} is a directory", hint="delete it first in the same transaction", path=path)
        with tempfile.NamedTemporaryFile(prefix="fenceline-write-") as file:
            given = upload.content(data)
            file.writelines([given] if isinstance(given, bytes) else given)
            file.flush()
            self._stage([Upload(place, file.name, file.tell(), mode)], {place: self._at(place)})

    def upload(self, local: str, path: str, progress: Progress | None = None) -> int:
        if self._dropping():
            return 0
        sources = upload.collect(local, path)
        files = [Upload(self._place(place), s.path, s.size, s.mode) for s, place in sources.items()]
        target = check_prefix(path)
        known = {entry.path: entry for entry in self._below(target)}
        if target and (own := self._at(target)) is not None:
            known[target] = own
        self._stage(files, known)
        return len(files)

    def delete(self, path: str) -> int:
        if self._dropping():
            return 0
        place = check_prefix(path)
        if not place:
            raise ContractError("refusing to delete the whole tree", hint="name a directory")
        self._reads.add(place)
        own = None if path.endswith("/") else self._at(place)
        gone = [*filter(None, [own]), *self._below(place)]
        if not gone:
            raise NotFound(f"there is nothing at {path}", hint="fenceline ls lists what is there", path=path)
        self._staging.open(hooked=True)
        self._staging.remove(entry.path for entry in gone)
        self._directories = {""}
        return len(gone)

    def _stage(self, files: Iterable[Upload], known: Mapping[str, Entry | None]) -> None:
        """The same content as before is no change, but comparing it was a read."""
        changed = []
        for file in files:
            before = known.get(file.path)
            if before is not None and before.checksum == f"sha256:{sha256_of(file)}" and before.mode == file.mode:
                self._reads.add(file.path)
            else:
                changed.append(file)
        if changed:
            self._staging.open(hooked=True)
            self._staging.upload(changed)

    def _place(self, path: str) -> str:
        """Refuse a file below another file, and where the server keeps its hooks."""
        place = check_path(path)
        if place.startswith(ACTIONS):
            raise ContractError(f"{path}: lakeFS keeps its hooks there", hint="fenceline lakefs setup looks after them")
        for above in ancestors(place):
            if above not in self._directories:
                if self._at(above) is not None:
                    raise AlreadyExists(
                        f"{above} is a file, so nothing can be put below it", hint="delete it first", path=above
                    )
                self._directories.add(above)
        return place

    # --- the block ----------------------------------------------------------------------------------------------

    def __enter__(self) -> Self:
        if self._entered:
            raise TransactionClosed("a transaction runs once", hint="call repo.transaction(…) again")
        self._entered = True
        if self._turn.txn:  # the cost follows the branch's history: lakeFS has no index of metadata
            line = self._lake.line(self.input)
            self._applied = next((commit for commit in line if commit.txn == self._turn.txn), None)
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._closed = True
        if error is None:
            self._result = self._publish()
        else:
            self._staging.cancel(error, lambda why: self._record("aborted", why))

    def _publish(self) -> TransactionResult:
        if self._applied is not None:
            return TransactionResult(
                Outcome.APPLIED, "adopt", self._applied.id, self._applied.depth, self._applied.execution
            )
        sealed = self._seal() if self._staging.name is not None else None
        if sealed is None:
            return TransactionResult(Outcome.APPLIED, "noop", self.input.id, self.input.depth, None)
        try:
            outcome = confirm(self._lake, self._turn, sealed, None, self._reads)
        except OutcomeUnknown:
            raise
        except FencelineError as error:
            done = self._fence(sealed, error.message)
            if done is None:
                raise
            outcome = Confirmed("report", done.id, None, done.execution)
        ours = outcome.execution == self.execution
        discard(self._lake, sealed.branch, None if ours else self._record("rolled_back", "its key was applied"))
        commit = self._lake.commit(outcome.output)
        return TransactionResult(
            Outcome.APPLIED, "publish" if ours else "adopt", commit.id, commit.depth, outcome.execution
        )

    def _seal(self) -> Staged | None:
        turn = self._turn
        note = Note(
            execution=turn.execution,
            by=turn.execution,
            actor=turn.actor,
            step="",
            txn=turn.txn,
            attempt="",
            branch=turn.branch,
            input=turn.input.id,
            reads=tuple(self._reads.coarsened(MOST_READS)),
            rebase=turn.rebase,
            more=self._more,
        )
        try:
            sealed = self._staging.seal(self._message, note)
        except BaseException as error:
            self._staging.cancel(error, lambda why: self._record("aborted", why))
            raise
        if sealed is None:
            discard(self._lake, self._staging.name or "", self._record("aborted", "nothing changed"))
        return sealed

    def _fence(self, sealed: Staged, why: str) -> Commit | None:
        """`not_applied` is said only once nobody can publish it any more (D2); the commit if somebody has."""
        if self._lake.client.delete_branch(sealed.branch):
            self._lake.client.settle_merges(self._turn.branch)
        head = self._lake.find_head(self._turn.branch)
        done = published(self._lake, self._turn, self.execution, head.commit) if head else None
        if done is None:
            keep(self._lake.client, self._record("rolled_back", why))
        return done

    def _branch_name(self) -> str:
        seams, turn = self._lake.seams, self._turn
        until = seams.clock.now() + self._lease
        return staging_name(turn.branch, "", turn.txn, "direct", seams.owner(), until, turn.execution).name

    def _record(self, kind: EndKind, why: str) -> Record:
        turn, now = self._turn, self._lake.seams.clock.now()
        return Record(turn.execution, kind, turn.branch, turn.actor, turn.execution, now, why=why)

    def _dropping(self) -> bool:
        self._check_open()
        return self._applied is not None

    # --- what is not here ---------------------------------------------------------------------------------------

    def put_dataset(self, *given: Any, **more: Any) -> NoReturn:
        raise not_here("a dataset", "upload its files: engines read them as a directory")

    def import_in_place(self, *given: Any, **more: Any) -> NoReturn:
        raise not_here("registering data in place", "lakectl import does it on the server")

    def apply(self, *given: Any, **more: Any) -> NoReturn:
        raise not_here("a raw change", "write, upload or delete")

    def declare_table(self, *tables: str) -> NoReturn:
        raise not_here("a table", "keep graphs in a native repository (file://, s3://)")

    def overtaken(self) -> NoReturn:
        raise not_here("a graph", "keep graphs in a native repository (file://, s3://)")

    def withdraw(self, why: BaseException) -> NoReturn:
        raise not_here("a graph", "keep graphs in a native repository (file://, s3://)") from why

    def wrote(self, keys: Iterable[str]) -> NoReturn:
        raise not_here("a table", "keep graphs in a native repository (file://, s3://)")

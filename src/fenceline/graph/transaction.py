"""Transactions over the tables of a graph: statements in order, read-your-writes, one commit.

Statements change rows in memory only. When the block ends: the rules are checked, each touched table gets one more
version, and pins and files are published as one repository transaction. If the branch moved meanwhile, the same is
done again on its new head, as long as nothing that the block itself has looked at was changed; rows that were only
added are not written again, their fragments go into the version that is found there.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from types import TracebackType
from typing import Self

from fenceline.errors import ContractError, FencelineError, PublishConflict
from fenceline.graph.constraints import check
from fenceline.graph.engine import Engine
from fenceline.graph.manifest import SCHEMA_KEY, Place
from fenceline.graph.pending import arrow
from fenceline.graph.pins import Pin
from fenceline.graph.snapshot import Snapshot
from fenceline.graph.staging import staged
from fenceline.graph.statements import Statements
from fenceline.graph.storage import TableStore
from fenceline.graph.turns import Turn
from fenceline.graph.violations import ExpectedVersionMismatch
from fenceline.repo.native.repository import NativeRepository
from fenceline.txn.transaction import Transaction

TRIES = 5
_PAUSE, _LONGEST_PAUSE = 0.005, 0.2


class _Overtaken(Exception):
    """Someone else has published what this try builds on: it could only be refused."""


class GraphTransaction(Statements):
    """Changes to a graph, and to files beside it, that become visible together or not at all."""

    def __init__(
        self,
        repo: NativeRepository,
        begin: Callable[[], Transaction],
        branch: str,
        place: Place,
        store: TableStore,
        engine: Engine,
        tries: int = TRIES,
    ) -> None:
        if tries < 1:
            raise ContractError(f"tries is {tries}", hint="give 1 or more")
        super().__init__(repo, begin(), place, store, engine)
        self._begin, self._branch, self._tries = begin, branch, tries
        self._written: dict[str, list[str]] = {}
        """Fragments with the rows that are added to tables in which nothing else changes: good for every try."""
        self._number = 0
        self._turn = Turn(repo.objects, branch, repo.seams.clock)
        self._next: Transaction | None = None

    def __enter__(self) -> Self:
        self._tx.__enter__()
        self._open = True
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._open = False
        if error is not None:
            self._tx.__exit__(kind, error, trace)
            return
        try:
            for number in range(1, self._tries + 1):
                self._number = number
                try:
                    self._publish()
                    return
                except (PublishConflict, _Overtaken) as conflict:
                    self._begin_again(conflict)
        except BaseException as failure:
            if self._next is not None:
                self._next.__exit__(type(failure), failure, failure.__traceback__)
            raise
        finally:
            self._turn.give_back()

    def _publish(self) -> None:
        """Everything from the checks to the entry, inside the repository transaction: what fails here, it cancels."""
        self._tx.takes_over = self._take_over
        try:
            if not self._tx.already_applied:
                self._stage()
        except _Overtaken as overtaken:
            self._tx.withdraw(overtaken)
            raise
        except BaseException as error:
            self._tx.__exit__(type(error), error, error.__traceback__)
            raise
        self._tx.__exit__(None, None, None)

    def _stage(self) -> None:
        for pending in self._pending.values():
            pending.forget_unchanged()
        changed = {key: pending for key, pending in self._pending.items() if pending.changed}
        if changed:
            changes = {key: pending.change() for key, pending in changed.items()}
            check(self._engine, self.schema, changes, self._committed, cascaded=True)
        self._stop_if_overtaken()  # before there is anything to clean up
        bases = {key: self._snapshot.pin(key) for key in changed}
        if bases:
            self._tx.declare_table(*(base.table for base in bases.values()))
        store = self._store.noting(self._tx.wrote)
        for key, pending in changed.items():
            if not pending.gone and key not in self._written:
                self._written[key] = store.write(bases[key], arrow(pending.table, pending.rows.values()))
            pin = staged(store, bases[key], pending, self._written.get(key, ()))
            self._tx.write(self._place.pin(key), pin.to_bytes())
        self.files.apply(self._tx)
        self._stop_if_overtaken()  # before everything is made durable

    def _stop_if_overtaken(self) -> None:
        """Only saves time: what publishes looks again."""
        if self._more_tries and self._tx.overtaken():
            raise _Overtaken

    @property
    def _more_tries(self) -> bool:
        return self._number < self._tries

    def _begin_later(self) -> Transaction:
        """In turn, or after a pause, so that many who want the same do not keep each other from it."""
        seams = self._repo.seams
        if self._more_tries and not self._turn.take():
            seams.clock.sleep(min(_PAUSE * 2**self._number, _LONGEST_PAUSE) * seams.random.random())
        return self._begin()

    def _take_over(self) -> list[str]:
        """The next try begins before this one is cleaned up, so that its fragments are declared all the time."""
        if not self._more_tries or not self._written:
            return []
        tx = self._begin_later()
        if self._changed(tx) is not None:
            return []
        tables = {key: self._snapshot.pin(key).table for key in self._written}
        files = [self._store.fragment_files(tables[key], made) for key, made in self._written.items()]
        keys = [key for each in files for key in each]
        try:
            tx.__enter__()
            if not tx.already_applied:
                tx.declare_table(*tables.values())
                tx.wrote(keys)
        except FencelineError as error:  # the next try, which begins once more, says what is wrong
            tx.__exit__(type(error), error, error.__traceback__)
            return []
        self._next = tx
        return keys

    def _begin_again(self, conflict: PublishConflict | _Overtaken) -> None:
        """On the new head, if what the block has seen is still so. Else the conflict is the caller's."""
        tx, self._next = self._next, None
        if tx is None:
            self._written.clear()
            tx = self._begin_later()
            also = conflict.paths if isinstance(conflict, PublishConflict) and not self._more_tries else ()
            changed = self._changed(tx, also)
            if changed is not None:
                raise self._mismatch(changed, self._snapshot, tx) or conflict from conflict
            if not self._more_tries:
                raise conflict
            tx.__enter__()
        self._on(tx)

    def _changed(self, tx: Transaction, also: Iterable[str] = ()) -> str | None:
        """The first of the paths that the block depends on, and of these, that is another one at `tx`."""
        before = self._tx.input
        for path in sorted({*self._seen, *self.files.touched, self._place.manifest, *also}):
            one, other = self._repo.find(before, path), self._repo.find(tx.input, path)
            if one != other and (one is None or other is None or not one.same_content(other)):
                return path
        return None

    def _mismatch(self, path: str, old: Snapshot, tx: Transaction) -> ExpectedVersionMismatch | None:
        key = self._place.table_key(path)
        if key is None:
            return None

        def bytes_now(path: str) -> bytes | None:
            entry = self._repo.find(tx.input, path)
            return None if entry is None else self._repo.read(entry)

        new = Snapshot(bytes_now, self._place)
        if key == SCHEMA_KEY:
            return ExpectedVersionMismatch(key, old.manifest.published, new.manifest.published, branch=self._branch)
        raw = bytes_now(path)
        actual = Pin.from_bytes(raw, path).published if raw is not None else None
        return ExpectedVersionMismatch(key, old.pin(key).published, actual, branch=self._branch)

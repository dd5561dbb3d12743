"""Branches and tags by hand: each operation is one conditional entry, or several tries at one."""

from __future__ import annotations

from fenceline.errors import AlreadyExists, ConflictError, NotFound, PublishConflict, UnpublishedCommit
from fenceline.repo.model import DEFAULT_BRANCH, MOVES, Commit, Head, Op, RefEntry
from fenceline.repo.names import check_ref
from fenceline.repo.port import RefLog, Repository
from fenceline.txn.intent import IntentStore
from fenceline.txn.publish import settle


class RefAdmin:
    """Creates, deletes and relocates branches and tags."""

    def __init__(self, repo: Repository, intents: IntentStore) -> None:
        self._repo = repo
        self._intents = intents

    def create_branch(self, name: str, source: str, actor: str) -> Head:
        check_ref(name)
        if self._repo.find_tag(name):
            raise AlreadyExists(f"there is a tag {name!r}", hint="a branch and a tag cannot share a name")
        return self._create(self._repo.branch_log, name, "branch", source, actor)

    def create_tag(self, name: str, source: str, actor: str, note: str = "") -> Head:
        check_ref(name, "tag")
        if self._repo.find_head(name):
            raise AlreadyExists(f"there is a branch {name!r}", hint="a branch and a tag cannot share a name")
        return self._create(self._repo.tag_log, name, "tag", source, actor, note)

    def delete_branch(self, name: str, actor: str) -> None:
        if name == DEFAULT_BRANCH:
            raise ConflictError(
                f"{name} is the default branch", hint="relocate it instead: fenceline branch NAME --to REF"
            )
        self._delete(self._repo.branch_log, check_ref(name), "branch", actor)

    def delete_tag(self, name: str, actor: str) -> None:
        self._delete(self._repo.tag_log, check_ref(name, "tag"), "tag", actor)

    def relocate(self, branch: str, target: str, actor: str, expected: str | None = None, note: str = "") -> Head:
        """Point a branch at another published commit; `expected` is the head it must still have."""
        commit = self.published(self._repo.resolve(target))
        wanted = self._repo.resolve(expected).id if expected is not None else self._repo.head(branch).commit.id
        while True:
            head = self._repo.head(branch)
            if head.commit.id != wanted:
                raise PublishConflict(
                    f"{branch} is at {head.commit.id[:12]}, not at {expected or wanted[:12]}",
                    hint="look at the new head, then relocate again",
                    branch=branch,
                    expected=wanted,
                    actual=head.commit.id,
                )
            self._repo.refuse_condemned([commit.id])  # between the look at the log and the write: see `condemned.py`
            why = note or f"relocated from {head.commit.id}"
            entry = self._entry(head.seq + 1, Op.RELOCATE, commit.id, actor, why)
            if self._repo.branch_log.append(branch, entry):
                return Head(branch, entry.seq, commit, entry)

    def published(self, commit: Commit) -> Commit:
        """The same commit, if it was ever published (INV-12): what is only staged may be looked at, never built on."""
        if commit.kind != "init" and commit.id != self._published_as(commit.execution):
            raise UnpublishedCommit(
                f"commit {commit.id[:12]} of execution {commit.execution} was never published",
                hint="it can be inspected with show, diff and ls, but not merged, tagged, branched from or published",
                commit=commit.id,
            )
        return commit

    def _published_as(self, execution: str) -> str | None:
        """The commit under which an execution was published. Intent first: it goes only when the record stands."""
        intent = self._intents.find(execution)
        record = self._intents.record(execution)
        if record is not None:
            return record.commit
        decided = settle(self._repo, intent) if intent else None
        return decided.commit if decided is not None and decided.op in MOVES else None

    def _create(self, log: RefLog, name: str, what: str, source: str, actor: str, note: str = "") -> Head:
        commit = self.published(self._repo.resolve(source))
        while True:
            last = log.last(name)
            if last is not None and last.commit is not None:
                raise AlreadyExists(
                    f"{what} {name!r} exists already", hint=f"choose another name, or delete the {what} first"
                )
            if last is None or last.op is not Op.RESERVE:
                # A collection that starts now must find the name, so that it can take the next number. A deleted name
                # that is created again goes on with its numbers (R1).
                log.append(name, self._entry(last.seq + 1 if last else 1, Op.RESERVE, None, actor))
                continue
            self._repo.refuse_condemned([commit.id])
            entry = self._entry(last.seq + 1, Op.CREATE, commit.id, actor, note)
            if log.append(name, entry):
                return Head(name, entry.seq, commit, entry)

    def _delete(self, log: RefLog, name: str, what: str, actor: str) -> None:
        while True:
            last = log.last(name)
            if last is None or last.commit is None:
                raise NotFound(f"there is no {what} {name!r}", hint=f"fenceline {what} lists them")
            if log.append(name, self._entry(last.seq + 1, Op.DELETE, None, actor, f"was at {last.commit}")):
                return

    def _entry(self, seq: int, op: Op, commit: str | None, actor: str, note: str = "") -> RefEntry:
        return RefEntry(
            seq,
            op,
            commit,
            by=self._repo.seams.ids.execution(),
            actor=actor,
            time=self._repo.seams.clock.now(),
            note=note,
        )

"""Garbage collection: what it keeps, what it gives up, and that nothing pointed at is ever deleted."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable

import pytest

from fenceline import ConflictError, ContractError, Repository, Retention
from fenceline.errors import CondemnedCommit, NotFound, ObjectDamaged, ObjectMissing
from fenceline.repo.model import Op, RefEntry
from fenceline.repo.native import gc as gc_module
from fenceline.repo.native.condemned import Condemned, announce, announced, record_expired, withdraw
from fenceline.repo.native.gc import Plan
from fenceline.repo.native.objects import ObjectInfo
from fenceline.repo.native.repository import NativeRepository
from fenceline.seams import Owner, Seams
from fenceline.testing import HandClock, MemoryObjects, test_seams

Put = Callable[..., str]
Abandon = Callable[..., str]
EXPIRE = Retention(keep=3, expire=True)


@pytest.fixture
def repo(memory_repo: Repository) -> Repository:
    return memory_repo


def keys(memory: MemoryObjects, *areas: str) -> set[str]:
    return {i.key for area in areas or ("",) for i in memory.list(area)}


def grown(repo: Repository, put: Put, count: int, branch: str = "main") -> list[str]:
    return [put(repo, {"n": f"{branch} {n}".encode()}, branch=branch) for n in range(count)]


def fresh(memory: MemoryObjects, seams: Seams) -> Repository:
    """Another process, with nothing in its caches."""
    return Repository.on(memory, "r", seams=seams)


def readable(repo: Repository, ref: str) -> bool:
    try:
        for entry in repo.list(ref):
            if entry.address:
                repo.read(ref, entry.path)
    except (ObjectMissing, NotFound):
        return False
    return True


# --- retention --------------------------------------------------------------------------------------------------


def test_what_a_branch_reaches_is_never_collected(repo: Repository, memory: MemoryObjects, put: Put) -> None:
    """INV-13: by default everything in a branch's history stays, however long it is."""
    grown(repo, put, 30)
    before = keys(memory)
    plan = repo.gc(grace=0)
    assert plan.objects == ()
    assert keys(memory) == before


def test_the_floor_of_kept_entries() -> None:
    assert Retention().keep == 10
    assert Retention(keep=3).keep == 3
    with pytest.raises(ContractError, match="floor of 3"):
        Retention(keep=2)


def test_abandoned_commits_stay_while_their_entries_are_kept(
    repo: Repository, memory: MemoryObjects, seams: Seams, put: Put
) -> None:
    start = repo.head().commit.id
    abandoned = put(repo, {"a": b"abandoned"})
    repo.relocate_branch("main", start)
    assert repo.gc(Retention(keep=3), grace=0).objects == ()
    assert readable(fresh(memory, seams), abandoned)
    grown(repo, put, 3)
    plan = repo.gc(Retention(keep=3), grace=0)
    assert plan.dropped == (abandoned,)
    assert {info.key.split("/")[0] for info in plan.objects} == {"files", "trees", "commits"}
    assert not readable(fresh(memory, seams), abandoned)
    assert fresh(memory, seams).fsck().clean


def test_a_deleted_branch_stays_while_its_entries_are_kept(
    repo: Repository, memory: MemoryObjects, seams: Seams, put: Put
) -> None:
    repo.create_branch("dev")
    (kept,) = grown(repo, put, 1, "dev")
    repo.delete_branch("dev")
    assert repo.gc(Retention(keep=3), grace=0).objects == ()
    assert readable(fresh(memory, seams), "dev@2")
    assert readable(fresh(memory, seams), kept)


def test_a_dry_run_says_the_same_and_deletes_nothing(
    repo: Repository, memory: MemoryObjects, put: Put, abandon: Abandon, clock: HandClock
) -> None:
    abandon(repo, lambda tx: tx.write("a", b"1"), "sealed")
    put(repo, {"in the way": b"1"})
    clock.advance(60)
    repo.recover()
    grown(repo, put, 8)
    before = keys(memory)
    planned = repo.plan_gc(EXPIRE)
    assert keys(memory) == before
    assert planned.objects
    assert planned.bytes == sum(i.size for i in planned.objects)
    assert sum(planned.reasons.values()) == len(planned.objects)
    done = repo.gc(EXPIRE, grace=0)
    assert (done.objects, done.expired, done.dropped) == (planned.objects, planned.expired, planned.dropped)
    assert before - keys(memory) == {i.key for i in planned.objects}
    assert keys(memory, "condemned/") == set()
    again: Plan = repo.gc(EXPIRE, grace=0)
    assert (again.objects, again.expired) == ((), ())


def test_a_collection_reports_what_it_kept(repo: Repository, put: Put) -> None:
    grown(repo, put, 8)
    planned = repo.plan_gc(EXPIRE)
    assert planned.kept_objects
    done = repo.gc(EXPIRE, grace=0)
    assert (done.kept_objects, done.kept_bytes) == (planned.kept_objects, planned.kept_bytes)


def test_expire_gives_up_old_content_and_keeps_the_log(
    repo: Repository, memory: MemoryObjects, seams: Seams, put: Put
) -> None:
    commits = grown(repo, put, 8)
    repo.create_tag("v1", commits[1])
    repo.gc(EXPIRE, grace=0)
    later = fresh(memory, seams)
    assert [c for c in commits if readable(later, c)] == [commits[1], *commits[5:]]
    assert [item.commit.id for item in later.log()] == [*reversed(commits), later.commit("main~8").id]
    assert later.read("main", "n") == b"main 7"
    assert later.read("v1", "n") == b"main 1"
    assert later.fsck().clean


def test_expire_spares_what_is_young_enough(
    repo: Repository, memory: MemoryObjects, seams: Seams, put: Put, clock: HandClock
) -> None:
    old = grown(repo, put, 5)
    clock.advance(1000)
    young = grown(repo, put, 6)
    repo.gc(Retention(keep=3, expire=True, older_than=500), grace=0)
    assert [c for c in (*old, *young) if readable(fresh(memory, seams), c)] == young


def test_merge_bases_and_heads_stay_readable(repo: Repository, memory: MemoryObjects, seams: Seams, put: Put) -> None:
    """Two branches that parted long ago can still be merged, whatever was expired in between."""
    put(repo, {"base": b"b"})
    grown(repo, put, 3)
    for branch in ("one", "two"):
        repo.create_branch(branch)
        grown(repo, put, 1, branch)
        for n in range(6):
            put(repo, {branch: str(n).encode(), "n": None} if n == 0 else {branch: str(n).encode()}, branch=branch)
    grown(repo, put, 6)
    plan = repo.gc(EXPIRE, grace=0)
    assert plan.expired
    later = Repository.on(memory, seams=seams)
    later.merge("two", into="one")
    assert {e.path for e in later.list("one")} == {"base", "one", "two"}
    assert later.fsck().clean


def test_replaced_part_files_of_a_dataset_go_with_their_commits(
    repo: Repository, memory: MemoryObjects, put: Put, parts: Callable[..., str]
) -> None:
    for n in range(6):
        with repo.transaction() as tx:
            tx.put_dataset(parts({"p": str(n).encode()}), "d", mode="overwrite")
    assert len(keys(memory, "datasets/")) == 6
    repo.gc(EXPIRE, grace=0)
    assert len(keys(memory, "datasets/")) == 3


# --- unfinished work --------------------------------------------------------------------------------------------


@pytest.mark.parametrize("at", ["open", "sealed", "published"])
@pytest.mark.parametrize("quarantined", [False, True])
def test_unfinished_intents_keep_what_they_may_need(
    repo: Repository, memory: MemoryObjects, put: Put, abandon: Abandon, clock: HandClock, at: str, quarantined: bool
) -> None:
    """INV-13: heartbeat or not, quarantined or not: input, staged content and commits of an unfinished intent stay."""
    put(repo, {"a": b"1"})
    execution = abandon(repo, lambda tx: tx.write("b", b"2"), at)
    intent = repo._intents.get(execution)
    if quarantined:
        repo._intents.quarantine(execution, "by hand")
    clock.advance(10_000)
    grown(repo, put, 8)
    own = {k for k in keys(memory, "files/", "trees/") if execution in k}
    own |= {f"commits/{c}" for c in memory.children("commits/") if repo.commit(c).execution == execution}
    assert len(own) == (1 if at == "open" else 3)
    repo.gc(EXPIRE, grace=0)
    assert own <= keys(memory)
    assert readable(repo, intent.input)


def test_a_transaction_that_spans_a_collection_publishes(repo: Repository, put: Put) -> None:
    """INV-13: what a running transaction has staged, and its input, outlive a collection."""
    with repo.transaction() as tx:
        tx.write("a", b"1")
        assert repo.gc(Retention(keep=3), grace=0).objects == ()
        tx.write("b", b"2")
    assert {e.path for e in repo.list("main")} == {"a", "b"}
    assert repo.fsck().clean


def test_a_rebase_over_expired_commits_goes_on_or_conflicts(
    repo: Repository, memory: MemoryObjects, seams: Seams, put: Put
) -> None:
    """A slow transaction whose branch moved on, and was collected, is not told that the store is broken."""
    put(repo, {"a": b"1"})
    tx = repo.transaction(on_conflict="rebase")
    try:
        with tx:
            tx.write("mine", b"1")
            other = Repository.on(memory, seams=seams)
            grown(other, put, 8)
            other.gc(EXPIRE, grace=0)
    except ConflictError:
        assert "mine" not in {e.path for e in repo.list("main")}
    else:
        assert {e.path for e in repo.list("main")} == {"a", "mine", "n"}


def test_a_sealed_intent_behind_expired_commits_is_decided(
    repo: Repository, memory: MemoryObjects, seams: Seams, put: Put, abandon: Abandon, clock: HandClock
) -> None:
    """Retention at work is no contradiction: the sweep rolls it forward or back, it does not quarantine it."""
    abandon(repo, lambda tx: tx.write("mine", b"1"), "sealed", on_conflict="rebase")
    grown(repo, put, 8)
    repo.gc(EXPIRE, grace=0)
    clock.advance(60)
    (swept,) = Repository(repo.native.__class__.open(memory, seams), "rw").recover()
    assert swept.ending in ("rolled_forward", "rolled_back")


def test_leftovers_of_interrupted_writes_go_after_an_hour(
    repo: Repository, memory: MemoryObjects, clock: HandClock
) -> None:
    memory.put("tmp/leftover", b"x")
    clock.advance(time.time() - clock.now())  # the store stamps objects by its own clock
    assert repo.gc(grace=0).objects == ()
    clock.advance(gc_module.TEMPORARY_AGE + 60)
    assert [i.key for i in repo.gc(grace=0).objects] == ["tmp/leftover"]


def test_nothing_is_deleted_where_a_head_cannot_be_read(repo: Repository, memory: MemoryObjects, put: Put) -> None:
    grown(repo, put, 8)
    memory.damage(f"commits/{repo.head().commit.id}", b"broken")
    before = keys(memory)
    with pytest.raises(ObjectDamaged):
        Repository.on(memory, seams=test_seams()).gc(EXPIRE, grace=0)
    assert keys(memory) == before


# --- condemned --------------------------------------------------------------------------------------------------


def condemned(memory: MemoryObjects, *commits: str, run: str = "run") -> None:
    announce(memory, Condemned(run, Owner("test", "boot", "space", 1, "1"), 0.0, commits))


def test_a_condemned_commit_cannot_be_pointed_at(repo: Repository, memory: MemoryObjects, put: Put) -> None:
    """D3: whoever points a ref at an old commit asks first if it is condemned."""
    old, head = grown(repo, put, 2)
    condemned(memory, old)
    for build in (
        lambda: repo.create_tag("t", old),
        lambda: repo.create_branch("b", old),
        lambda: repo.relocate_branch("main", old),
        lambda: repo.revert(head),
    ):
        with pytest.raises(CondemnedCommit, match=old):
            build()
    assert [h.name for h in repo.branches()] == ["main"]
    assert repo.tags() == []
    assert repo.head().commit.id == head
    assert [str(e.op) for e in repo.entries()] == ["publish", "publish", "create"]
    assert list(repo.intents()) == []


POINTING: dict[str, Callable[[Repository, str], object]] = {
    "relocate": lambda repo, commit: repo.relocate_branch("main", commit),
    "branch": lambda repo, commit: repo.create_branch("b", commit),
    "tag": lambda repo, commit: repo.create_tag("t", commit),
}


@pytest.fixture
def just_asked(monkeypatch: pytest.MonkeyPatch) -> Callable[[Callable[[], object]], None]:
    """Do something right after the next writer found that its commit is not condemned."""

    def arrange(meanwhile: Callable[[], object]) -> None:
        ask = NativeRepository.refuse_condemned

        def asked(self: NativeRepository, commits: Iterable[str]) -> None:
            ask(self, commits)
            monkeypatch.setattr(NativeRepository, "refuse_condemned", ask)
            meanwhile()

        monkeypatch.setattr(NativeRepository, "refuse_condemned", asked)

    return arrange


@pytest.mark.parametrize("numbers", [True, False], ids=["kept", "left out"])
@pytest.mark.parametrize("how", POINTING)
def test_who_asked_too_early_asks_again(
    repo: Repository,
    memory: MemoryObjects,
    seams: Seams,
    put: Put,
    just_asked: Callable[[Callable[[], object]], None],
    monkeypatch: pytest.MonkeyPatch,
    how: str,
    numbers: bool,
) -> None:
    """D3: a whole collection between the question and the write takes the number. Without that, a ref is unreadable."""
    if not numbers:
        monkeypatch.setattr(gc_module.Collector, "_take_numbers", lambda self, run: None)
    commits = grown(repo, put, 8)
    just_asked(lambda: Repository.on(memory, seams=seams).gc(EXPIRE, grace=0))
    if numbers:
        with pytest.raises(CondemnedCommit):
            POINTING[how](repo, commits[0])
    else:
        POINTING[how](repo, commits[0])
    later = fresh(memory, seams)
    names = [head.name for head in (*later.branches(), *later.tags())]
    assert all(readable(later, name) for name in names) is numbers
    assert later.fsck().clean is numbers
    assert (later.head().commit.id == commits[-1]) or how == "relocate"


@pytest.mark.parametrize("how", POINTING)
def test_who_points_before_the_number_is_seen_by_the_second_look(
    repo: Repository, memory: MemoryObjects, seams: Seams, put: Put, monkeypatch: pytest.MonkeyPatch, how: str
) -> None:
    """The mirror: the write comes first, right after the announcement that its author did not see."""
    commits = grown(repo, put, 8)
    monkeypatch.setattr(NativeRepository, "refuse_condemned", lambda self, commits: None)
    take = gc_module.Collector._take_numbers

    def points(self: gc_module.Collector, run: str) -> None:
        POINTING[how](repo, commits[0])
        take(self, run)

    monkeypatch.setattr(gc_module.Collector, "_take_numbers", points)
    assert commits[0] not in Repository.on(memory, seams=seams).gc(EXPIRE, grace=0).expired
    later = fresh(memory, seams)
    assert all(readable(later, head.name) for head in (*later.branches(), *later.tags()))
    assert later.fsck().clean


def test_a_reservation_left_behind_is_no_branch_and_does_not_grow(repo: Repository, put: Put) -> None:
    """Whoever dies between reservation and creation leaves a name that does not exist."""
    reserved = RefEntry(1, Op.RESERVE, None, "someone", "me", 0.0)
    for log in (repo.native.branch_log, repo.native.tag_log):
        assert log.append("b", reserved)
    assert [head.name for head in repo.branches()] == ["main"]
    assert repo.tags() == []
    for _ in range(3):
        grown(repo, put, 4)
        repo.gc(EXPIRE, grace=0)
    last = repo.native.branch_log.last("b")
    assert last is not None
    assert (last.seq, last.op) == (2, Op.DELETE)
    assert repo.create_branch("b").commit == repo.head().commit
    assert repo.fsck().clean


def test_numbers_do_not_count_as_kept(repo: Repository, put: Put, memory: MemoryObjects, seams: Seams) -> None:
    """A collection takes a number every time: what was kept must not fall behind it."""
    kept = grown(repo, put, 3)
    for _ in range(5):
        repo.create_branch("short-lived")
        put(repo, {"x": b"1"}, branch="short-lived")
        repo.delete_branch("short-lived")
        repo.gc(EXPIRE, grace=0)
    assert all(readable(fresh(memory, seams), commit) for commit in kept)


def test_an_announcement_is_withdrawn_only_by_who_saw_what_the_dead_one_left(
    repo: Repository, memory: MemoryObjects, put: Put, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A collection that died after another had listed: its half-deleted commits stay condemned."""
    grown(repo, put, 8)
    old = list(repo.entries())[5].commit or ""
    judge, dying = gc_module.Collector._judge, list[str]()

    def judging(self: gc_module.Collector, candidates: Iterable[ObjectInfo]) -> Plan:
        plan = judge(self, candidates)
        if not dying:
            dying.append(old)
            announce(memory, Condemned("dead", Owner("test", "boot", "space", 1, "1"), 0.0, (old,)))
        return plan

    monkeypatch.setattr(gc_module.Collector, "_judge", judging)
    later = Repository.on(memory, seams=test_seams(dead=lambda owner: owner.pid == 1))
    later.gc(EXPIRE, grace=0)
    assert [other.run for other in announced(memory)] == ["dead"]
    later.gc(EXPIRE, grace=0)
    assert list(announced(memory)) == []


def test_a_condemned_source_cannot_be_merged(repo: Repository, memory: MemoryObjects, put: Put) -> None:
    """D3: the intent pins the source, then looks."""
    repo.create_branch("dev")
    (source,) = grown(repo, put, 1, "dev")
    condemned(memory, source)
    with pytest.raises(CondemnedCommit):
        repo.merge("dev")
    assert list(repo.intents()) == []
    assert repo.head().seq == 1


def test_others_are_not_touched_by_a_condemned_list(repo: Repository, memory: MemoryObjects, put: Put) -> None:
    """INV-11 in spirit: a collection stops only those who point at what it deletes."""
    old, _ = grown(repo, put, 2)
    condemned(memory, old)
    put(repo, {"x": b"1"})
    repo.create_tag("fine")
    withdraw(memory, "run")
    repo.create_tag("now", old)


def test_an_expired_commit_cannot_be_pointed_at(
    repo: Repository, memory: MemoryObjects, seams: Seams, put: Put
) -> None:
    commits = grown(repo, put, 8)
    repo.gc(EXPIRE, grace=0)
    later = Repository.on(memory, seams=seams)
    builds: list[Callable[[], object]] = [
        lambda: later.create_tag("t", commits[0]),
        lambda: later.create_branch("b", commits[0]),
        lambda: later.relocate_branch("main", commits[0]),
    ]
    for build in builds:
        with pytest.raises(CondemnedCommit, match="removed by garbage collection"):
            build()
    assert later.tags() == []
    assert later.head().commit.id == commits[-1]
    assert later.fsck().clean


def during_grace(monkeypatch: pytest.MonkeyPatch, clock: HandClock, action: Callable[[], object]) -> None:
    real = clock.sleep

    def sleep(seconds: float) -> None:
        real(seconds)
        if seconds == 17.0:
            action()

    monkeypatch.setattr(clock, "sleep", sleep)


def test_a_tag_made_in_the_grace_period_is_refused_or_kept(
    repo: Repository, memory: MemoryObjects, seams: Seams, put: Put, clock: HandClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    """D3: the collector announces and looks again; the tagger writes and then looks: one of them sees the other."""
    commits = grown(repo, put, 8)
    other = Repository.on(memory, seams=seams)

    def tag() -> None:
        with pytest.raises(CondemnedCommit):
            other.create_tag("t", commits[0])

    during_grace(monkeypatch, clock, tag)
    repo.gc(EXPIRE, grace=17.0)
    assert other.tags() == []
    assert fresh(memory, seams).fsck().clean


def test_a_tag_made_while_more_commits_expire_keeps_its_content(
    repo: Repository, memory: MemoryObjects, seams: Seams, put: Put, clock: HandClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    """INV-13, D3: what expires only in the second look was never announced, so this collection may not expire it."""
    commits = grown(repo, put, 8)
    other = Repository.on(memory, seams=seams)
    last_kept = commits[5]
    during_grace(monkeypatch, clock, lambda: put(other, {"one more": b"1"}))
    real, tagged = record_expired, []

    def record(*args: object) -> None:
        monkeypatch.setattr(gc_module, "record_expired", real)
        tagged.append(other.create_tag("t", last_kept))
        real(*args)  # type: ignore[arg-type]

    monkeypatch.setattr(gc_module, "record_expired", record)
    repo.gc(EXPIRE, grace=17.0)
    assert tagged, "the tag was acknowledged"
    repo.gc(EXPIRE, grace=0)
    later = fresh(memory, seams)
    assert readable(later, "t")
    assert not any(last_kept[:12] in note for note in later.fsck().notes)


def test_the_list_of_a_collection_that_died_is_withdrawn_with_proof_only(
    repo: Repository, memory: MemoryObjects, put: Put
) -> None:
    """D3: a paused collection may still go on to delete; only a dead one cannot."""
    old, _ = grown(repo, put, 2)
    condemned(memory, old)
    repo.gc(grace=0)
    assert [c.run for c in announced(memory)] == ["run"]
    Repository.on(memory, seams=test_seams(dead=lambda owner: True)).gc(grace=0)
    assert list(announced(memory)) == []


def test_a_collection_killed_before_deleting_is_done_by_the_next(
    repo: Repository, memory: MemoryObjects, seams: Seams, put: Put, monkeypatch: pytest.MonkeyPatch
) -> None:
    commits = grown(repo, put, 8)

    class Killed(BaseException):
        pass

    def die(*args: object) -> None:
        raise Killed

    with monkeypatch.context() as patch:
        patch.setattr(memory, "delete", die)
        with pytest.raises(Killed):
            repo.gc(EXPIRE, grace=0)
    assert fresh(memory, seams).fsck().clean
    repo.gc(EXPIRE, grace=0)
    later = fresh(memory, seams)
    assert not readable(later, commits[0])
    assert readable(later, "main")
    assert later.fsck().clean

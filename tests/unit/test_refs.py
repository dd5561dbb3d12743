"""Branch logs: finding the last entry, and settling a write whose answer was lost."""

from __future__ import annotations

import pytest

from fenceline.errors import ObjectMissing, Outcome, OutcomeUnknown, StoreError
from fenceline.repo.model import Op, RefEntry
from fenceline.repo.native.refs import RefLog
from fenceline.seams import Seams
from fenceline.testing import Fault, HandClock, MemoryObjects, test_seams

HINT = "hints/refs/main"


def entry(seq: int, by: str = "me", op: Op = Op.PUBLISH) -> RefEntry:
    return RefEntry(seq, op, f"commit-{seq}", by=by, actor="a", time=0.0)


@pytest.fixture
def objects() -> MemoryObjects:
    return MemoryObjects()


@pytest.fixture
def log(objects: MemoryObjects, seams: Seams) -> RefLog:
    return RefLog(objects, seams, "refs")


def filled(log: RefLog, count: int) -> RefLog:
    for seq in range(1, count + 1):
        assert log.append("main", entry(seq))
    return log


def another_process(objects: MemoryObjects) -> RefLog:
    return RefLog(objects, test_seams(), "refs")


# --- the last entry ---------------------------------------------------------------------------------------------


@pytest.mark.parametrize("count", [1, 2, 3, 7, 8, 9, 31])
@pytest.mark.parametrize(
    "hint",
    [None, b"1", b"2", b"0", b"", b"-3", b"999999", b"1e3", b"\xff\xff", b"99999999999999999999", "³".encode()],
    ids=str,
)
def test_the_last_entry_is_found_whatever_the_hint_says(
    objects: MemoryObjects, log: RefLog, count: int, hint: bytes | None
) -> None:
    """The hint may be stale, ahead of a restored backup, damaged or missing: it is only where the search starts."""
    filled(log, count)
    if hint is None:
        objects.delete([HINT])
    else:
        objects.put(HINT, hint)
    assert another_process(objects).last("main") == entry(count)


def test_finding_the_last_entry_costs_a_constant_number_of_reads(objects: MemoryObjects, log: RefLog) -> None:
    filled(log, 200)
    reader = another_process(objects)
    at = len(objects.calls)
    assert reader.last("main") == entry(200)
    assert len(objects.calls) - at <= 4
    objects.put(HINT, b"1")
    reader = another_process(objects)
    at = len(objects.calls)
    assert reader.last("main") == entry(200)
    assert len(objects.calls) - at <= 24


def test_a_name_that_never_existed_has_no_last_entry(log: RefLog, objects: MemoryObjects) -> None:
    assert log.last("none") is None
    objects.put("hints/refs/none", b"7")
    assert log.last("none") is None
    assert list(log.names()) == []


def test_entries_are_read_in_order(log: RefLog) -> None:
    filled(log, 5)
    assert [e.seq for e in log.entries("main", 2, 5)] == [3, 4, 5]
    assert log.entries("main", 5, 5) == []
    with pytest.raises(ObjectMissing):
        log.entry("main", 6)


def test_names_are_decoded(log: RefLog) -> None:
    for name in ("main", "a/1", "Ä"):
        assert log.append(name, entry(1, op=Op.CREATE))
    assert sorted(log.names()) == ["a/1", "main", "Ä"]


def test_branches_and_tags_are_apart(objects: MemoryObjects, seams: Seams, log: RefLog) -> None:
    filled(log, 2)
    assert RefLog(objects, seams, "tags").last("main") is None


# --- append -----------------------------------------------------------------------------------------------------


def test_a_number_is_given_once(log: RefLog, objects: MemoryObjects) -> None:
    """The compare-and-set of section 4."""
    assert log.append("main", entry(1))
    assert not another_process(objects).append("main", entry(1, by="other"))
    assert log.entry("main", 1).by == "me"


def test_a_lost_answer_about_our_own_entry_is_success(log: RefLog, objects: MemoryObjects) -> None:
    """INV-3: its `by` is this execution → success, and durable before it is said (INV-6)."""
    filled(log, 1)
    objects.inject(Fault("create", 1, "lose_answer", "refs/*"))
    assert log.append("main", entry(2))
    survivor = another_process(objects.power_failure())
    assert survivor.last("main") == entry(2)
    assert [c for c, k in objects.calls if k == "refs/main/0000000002" and c == "create"] == ["create"]


def test_a_lost_answer_with_another_entry_in_place_is_lost(objects: MemoryObjects, log: RefLog) -> None:
    """INV-3: another entry → lost; never a blind retry, never a delete."""
    filled(log, 1)
    real = objects.create

    def race(key: str, data: bytes) -> None:
        real(key, entry(2, by="other").to_bytes())
        raise OutcomeUnknown("no answer")

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(objects, "create", race)
        assert not log.append("main", entry(2))
    assert another_process(objects).entry("main", 2).by == "other"


@pytest.mark.parametrize("then", [OutcomeUnknown("no answer"), StoreError("refused")], ids=["unknown", "failed"])
def test_a_lost_request_is_written_again(
    objects: MemoryObjects, log: RefLog, clock: HandClock, monkeypatch: pytest.MonkeyPatch, then: StoreError
) -> None:
    """INV-3: absent → the same write again, after a pause; once in doubt, a plain failure does not end the doubt."""
    filled(log, 1)
    real, answers = objects.create, iter([OutcomeUnknown("no answer"), then])

    def flaky(key: str, data: bytes) -> None:
        for answer in answers:
            raise answer
        real(key, data)

    monkeypatch.setattr(objects, "create", flaky)
    before = clock.now()
    assert log.append("main", entry(2))
    assert another_process(objects).last("main") == entry(2)
    assert clock.now() > before


def test_what_cannot_be_settled_is_unknown(objects: MemoryObjects, log: RefLog) -> None:
    """INV-3, D2: never `not_applied` while it may have happened."""
    filled(log, 1)
    objects.inject(
        Fault("create", 1, "lose_answer", "refs/*"), *(Fault("get", n, "fail", "refs/*") for n in range(1, 20))
    )
    with pytest.raises(OutcomeUnknown) as raised:
        log.append("main", entry(2))
    assert raised.value.outcome is Outcome.UNKNOWN
    assert raised.value.context["execution"] == "me"
    assert objects.stat("refs/main/0000000002") is not None, "an unknown outcome never deletes"


def test_a_failure_that_certainly_did_nothing_is_not_in_doubt(objects: MemoryObjects, log: RefLog) -> None:
    filled(log, 1)
    objects.inject(Fault("create", 1, "fail", "refs/*"))
    with pytest.raises(StoreError) as raised:
        log.append("main", entry(2))
    assert raised.value.outcome is Outcome.NOT_APPLIED
    assert log.append("main", entry(2))


def test_a_hint_that_cannot_be_written_changes_nothing(objects: MemoryObjects, log: RefLog) -> None:
    objects.inject(*(Fault("put", n, "fail", "hints/*") for n in range(1, 9)))
    assert log.append("main", entry(1))
    assert log.append("main", entry(2))
    assert another_process(objects).last("main") == entry(2)


def test_make_durable_covers_an_entry_of_others(objects: MemoryObjects, log: RefLog) -> None:
    """INV-6: before someone else's entry is reported as an outcome."""
    objects.put("refs/main/0000000001", entry(1, by="other").to_bytes())
    log.make_durable("main", 1)
    assert another_process(objects.power_failure()).last("main") == entry(1, by="other")
    with pytest.raises(ObjectMissing):
        log.make_durable("main", 2)

"""An object store that is far away: lost answers are settled, errors say what happened, keys never show."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

import pytest
from lossy_proxy import Fate, LossyProxy
from s3_server import S3Server

from fenceline import Outcome, Repository, open_repository
from fenceline.errors import (
    AccessDenied,
    ConfigError,
    ObjectExists,
    ObjectMissing,
    OutcomeUnknown,
    StoreError,
)
from fenceline.repo.native.remote import objects as remote
from fenceline.repo.native.remote.location import Location, is_remote
from fenceline.repo.native.remote.objects import RemoteObjects
from fenceline.testing import HandClock


@pytest.fixture
def proxy(s3: S3Server) -> Iterator[LossyProxy]:
    with LossyProxy(s3.endpoint).running() as started:
        yield started


@pytest.fixture
def far(s3: S3Server, s3_url: str, proxy: LossyProxy, monkeypatch: pytest.MonkeyPatch) -> RemoteObjects:
    """The same place as `s3_objects`, through the proxy; it waits between its tries by a clock moved by hand."""
    monkeypatch.setattr(remote, "_CLIENT_RETRIES", 0)
    location = Location.parse(s3_url, {**s3.options, "endpoint": proxy.endpoint})
    return RemoteObjects(location, HandClock())


def creates(proxy: LossyProxy, ending: str) -> int:
    return sum(method == "PUT" and path.endswith(ending) for method, path in proxy.seen)


# --- create: INV-3 ----------------------------------------------------------------------------------------------


def test_a_create_whose_answer_was_lost_is_settled_by_reading(
    far: RemoteObjects, s3_objects: RemoteObjects, proxy: LossyProxy
) -> None:
    proxy.once("PUT", "/refs/main/1", "lose_answer")
    far.create("refs/main/1", b"ours")
    assert creates(proxy, "/refs/main/1") == 1, "what is there was read: the same bytes, so nothing is written again"
    assert s3_objects.get("refs/main/1") == b"ours"


@pytest.mark.parametrize("fate", ["lose_request", "busy"])
def test_a_create_that_never_arrived_is_written_again(far: RemoteObjects, proxy: LossyProxy, fate: Fate) -> None:
    proxy.once("PUT", "/k", fate)
    far.create("k", b"ours")
    assert creates(proxy, "/k") == 2
    assert far.get("k") == b"ours"


def test_a_create_in_doubt_loses_to_what_another_wrote_meanwhile(
    far: RemoteObjects, s3_objects: RemoteObjects, proxy: LossyProxy
) -> None:
    def rule(method: str, path: str) -> Fate:
        if method == "PUT" and path.endswith("/k") and not s3_objects.stat("k"):
            s3_objects.create("k", b"theirs")
            return "lose_request"
        return "pass"

    proxy.rule = rule
    with pytest.raises(ObjectExists) as raised:
        far.create("k", b"ours")
    assert raised.value.outcome is Outcome.NOT_APPLIED
    assert far.get("k") == b"theirs"


def test_a_create_that_cannot_be_settled_is_unknown(far: RemoteObjects, proxy: LossyProxy) -> None:
    proxy.rule = lambda method, path: "lose_answer" if method == "PUT" else "lose_request"
    with pytest.raises(OutcomeUnknown) as raised:
        far.create("k", b"ours")
    assert raised.value.outcome is Outcome.UNKNOWN


def test_a_busy_store_did_not_write(far: RemoteObjects, proxy: LossyProxy) -> None:
    """Only where no request was left unanswered may `not applied` be said; a 503 may hide a write."""
    proxy.rule = lambda method, path: "busy"
    with pytest.raises(OutcomeUnknown):
        far.create("k", b"ours")


def test_a_store_that_is_not_there_did_not_write(s3: S3Server, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(remote, "_CLIENT_RETRIES", 0)
    location = Location.parse("s3://b/p", {**s3.options, "endpoint": "http://127.0.0.1:1"})
    with pytest.raises(StoreError) as raised:
        RemoteObjects(location, HandClock()).create("k", b"")
    assert raised.value.outcome is Outcome.NOT_APPLIED
    assert raised.value.hint is not None


def test_a_publish_whose_answers_are_lost_is_applied_once(
    far: RemoteObjects, s3_objects: RemoteObjects, proxy: LossyProxy
) -> None:
    """Every conditional write of a transaction loses its first answer: intent, verdict, entry and record."""
    repo = Repository.on(far, create=True)
    lost: set[str] = set()

    def rule(method: str, path: str) -> Fate:
        conditional = any(f"/{area}/" in path for area in ("intents", "verdicts", "refs", "recoveries"))
        if method == "PUT" and conditional and "hints" not in path and path not in lost:
            lost.add(path)
            return "lose_answer"
        return "pass"

    proxy.rule = rule
    with repo.transaction("main", key="once") as tx:
        tx.write("a", b"1")
    assert len(lost) == 4
    assert (tx.result.outcome, tx.result.seq) == (Outcome.APPLIED, 2)
    fresh = Repository.on(s3_objects)
    assert next(item.commit.id for item in fresh.log("main")) == tx.result.commit
    assert fresh.head("main").seq == 2
    assert [record.kind for record in fresh.recoveries()] == ["published"]


# --- everything else --------------------------------------------------------------------------------------------


def test_reads_and_puts_are_repeated_by_the_client(
    s3: S3Server, s3_url: str, s3_objects: RemoteObjects, proxy: LossyProxy
) -> None:
    location = Location.parse(s3_url, {**s3.options, "endpoint": proxy.endpoint})
    patient = RemoteObjects(location)
    proxy.once("PUT", "/k", "busy")
    patient.put("k", b"1")
    proxy.once("GET", "/k", "busy")
    assert patient.get("k") == b"1"
    assert s3_objects.get("k") == b"1"


def test_a_big_object_goes_up_in_parts_and_is_never_seen_half(s3_objects: RemoteObjects) -> None:
    piece = bytes(range(256)) * 4096

    def pieces(count: int) -> Iterator[bytes]:
        for _ in range(count):
            assert s3_objects.stat("big") is None
            yield piece

    s3_objects.put("big", pieces(20))
    found = s3_objects.stat("big")
    assert found is not None
    assert found.size == 20 << 20
    assert s3_objects.get("big", (20 << 20) - 3, 100) == piece[-3:]
    assert s3_objects.get("big", 20 << 20, 1) == b""


def test_keys_are_never_shown(s3: S3Server, s3_url: str) -> None:
    wrong = replace(s3, secret="not-the-secret")
    store = RemoteObjects.at(s3_url, wrong.options)
    with pytest.raises(AccessDenied) as raised:
        store.get("k")
    shown = f"{raised.value} {raised.value.as_dict()} {store!r} {store.location!r} {store.location.access()!r}"
    assert "not-the-secret" not in shown
    assert s3.key + " " not in shown
    with pytest.raises(ConfigError) as refused:
        RemoteObjects.at(s3_url, {**s3.options, "no_such_option": "hidden-value"}).get("k")
    assert "no_such_option" in str(refused.value)
    assert "hidden-value" not in str(refused.value)
    assert s3.secret not in str(refused.value)


def test_a_repository_opens_by_its_url_and_the_environment(
    s3: S3Server, s3_url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    made = open_repository(s3_url, create=True, options=s3.options)
    for name, value in s3.environment.items():
        monkeypatch.setenv(name, value)
    assert open_repository(s3_url + "/").id == made.id
    assert open_repository(s3_url.replace("s3://", "s3a://"), "r").url == s3_url


def test_urls_of_stores() -> None:
    assert [url for url in ("s3://b", "gs://b/p", "az://c/p", "s3a://b") if not is_remote(url)] == []
    assert not is_remote("/tmp/s3")
    assert not is_remote("file:///x")
    assert Location.parse("s3://b//x/y/").url == "s3://b/x/y"
    assert Location.parse("s3://b", {"AWS_REGION": "eu"}).options == {"region": "eu"}
    for url in ("s3://", "s3://key:secret@b/x", "s3://b/x?versionId=1"):
        with pytest.raises(ConfigError) as raised:
            Location.parse(url)
        assert "secret" not in str(raised.value)


def test_what_to_install_is_said(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("fenceline.repo.native.remote.location.find_spec", lambda name: None)
    with pytest.raises(ConfigError) as raised:
        open_repository("s3://b/p")
    assert raised.value.hint == "pip install 'fenceline[object-store]'"


def test_missing_is_told_from_empty(s3_objects: RemoteObjects) -> None:
    with pytest.raises(ObjectMissing) as raised:
        s3_objects.get("none", 0, 0)
    assert raised.value.context["address"] == "none"


def test_google_and_azure_are_opened_by_their_own_options() -> None:
    for url, options in (("gs://b/p", {}), ("az://c/p", {"account_name": "a", "access_key": "a2V5"})):
        store = RemoteObjects.at(url, options)
        assert store.url == url
        assert "p" in repr(store._client)
    with pytest.raises(ConfigError, match="Account must be specified"):
        RemoteObjects.at("az://c/p").get("k")
    assert Location.parse("az://c/p", {"account_name": "a"}).storage_options() == {"azure_account_name": "a"}

"""The client's own promises: typed endings of lost answers, streams that stay small, and work in parallel."""

from __future__ import annotations

import hashlib
import os
import resource
import socket
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from fenceline.errors import ConfigError, NotFound, OutcomeUnknown, StoreError
from fenceline.repo.lakefs.client import Client
from fenceline.repo.lakefs.sdk import Access
from fenceline.repo.lakefs.values import MergeEnd
from fenceline.seams import OsThreads
from fenceline.testing.lakefs_standin import CallFault, StandIn

FULL = os.environ.get("FENCELINE_LAKEFS") == "full"


@pytest.fixture
def at_standin(standin: StandIn, repository_name: str) -> Client:
    client = Client(repository_name, standin.access)
    client.create("local://x")
    client.create_branch("work", "main")
    client.put("work", "a", b"1")
    client.commit("work", "Stage")
    return client


def test_a_merge_whose_answer_is_lost_is_unknown_and_not_repeated(standin: StandIn, at_standin: Client) -> None:
    before = at_standin.head("main")
    standin.inject(CallFault("merge", 1, "lose_answer"))
    outcome = at_standin.merge("work", "main", "Publish", {"fenceline.execution": "e1"})
    assert (outcome.end, outcome.commit) == (MergeEnd.UNKNOWN, None)
    assert standin.calls.count("merge") == 1
    (found,) = [commit for commit in at_standin.log("main", stop_at=before) if commit.id != before]
    assert found.metadata["fenceline.execution"] == "e1"


def test_a_merge_that_ends_in_a_server_error_is_unknown(standin: StandIn, at_standin: Client) -> None:
    standin.inject(CallFault("merge", 1, "fail"))
    assert at_standin.merge("work", "main", "Publish", {}).end is MergeEnd.UNKNOWN


def test_a_merge_that_takes_too_long_is_unknown(standin: StandIn, at_standin: Client) -> None:
    standin.inject(CallFault("merge", 1, "hang"))
    outcome = at_standin.merge("work", "main", "Publish", {}, timeout=0.2)
    assert outcome.end is MergeEnd.UNKNOWN
    standin.release()


@pytest.mark.parametrize("operation", ["create_branch", "upload", "commit", "delete_branch", "create_tag"])
def test_a_lost_answer_of_any_write_is_unknown(standin: StandIn, at_standin: Client, operation: str) -> None:
    at_standin.put("work", "b", b"2")
    calls: dict[str, Callable[[], object]] = {
        "create_branch": lambda: at_standin.create_branch("other", "main"),
        "upload": lambda: at_standin.put("work", "c", b"3"),
        "commit": lambda: at_standin.commit("work", "Again"),
        "delete_branch": lambda: at_standin.delete_branch("work"),
        "create_tag": lambda: at_standin.create_tag("v1", "main"),
    }
    standin.inject(CallFault(operation, 1, "lose_answer"))
    before = standin.calls.count(operation)
    with pytest.raises(OutcomeUnknown):
        calls[operation]()
    assert standin.calls.count(operation) == before + 1


def test_reads_are_repeated_when_an_answer_is_lost(standin: StandIn, at_standin: Client) -> None:
    standin.inject(CallFault("get_branch", 1, "lose_answer"), CallFault("get", 1, "lose_answer"))
    assert at_standin.head("work") == at_standin.commit_info("work").id
    assert at_standin.read("work", "a") == b"1"


def test_a_read_that_fails_on_the_server_is_no_unknown_outcome(standin: StandIn, at_standin: Client) -> None:
    standin.inject(CallFault("get_branch", 1, "fail"))
    with pytest.raises(StoreError) as raised:
        at_standin.head("work")
    assert not isinstance(raised.value, OutcomeUnknown)


def test_a_server_that_is_not_there_did_nothing(repository_name: str) -> None:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))  # bound and not listening: connections are refused
        client = Client(repository_name, Access(f"http://127.0.0.1:{taken.getsockname()[1]}", "key", "secret"))
        with pytest.raises(StoreError, match="cannot be reached") as raised:
            client.merge("work", "main", "Publish", {})
    assert not isinstance(raised.value, OutcomeUnknown)
    client.close()


def test_without_an_endpoint_the_error_says_what_to_set(
    repository_name: str, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    for name in list(os.environ):
        if name.startswith("LAKECTL_"):
            monkeypatch.delenv(name)
    monkeypatch.setenv("LAKECTL_CONFIG_FILE", str(tmp_path / "none.yaml"))
    with pytest.raises(ConfigError, match="LAKECTL_SERVER_ENDPOINT_URL"):
        Client(repository_name)


def test_the_environment_of_lakectl_applies(
    standin: StandIn, at_standin: Client, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setenv("LAKECTL_CONFIG_FILE", str(tmp_path / "none.yaml"))
    monkeypatch.setenv("LAKECTL_SERVER_ENDPOINT_URL", standin.endpoint)
    monkeypatch.setenv("LAKECTL_CREDENTIALS_ACCESS_KEY_ID", str(standin.access.key))
    monkeypatch.setenv("LAKECTL_CREDENTIALS_SECRET_ACCESS_KEY", str(standin.access.secret))
    client = Client(at_standin.repository)
    assert client.server().user == standin.access.key
    assert client.endpoint == standin.endpoint
    client.close()


def test_a_secret_is_never_shown() -> None:
    assert "hidden" not in repr(Access("http://localhost", "key", "hidden"))


def test_a_connection_that_was_left_half_read_does_no_harm(at_standin: Client) -> None:
    at_standin.put("work", "big", bytes(8 << 20))
    with at_standin.open("work", "big") as pieces:
        assert len(next(pieces)) > 0
    assert at_standin.read("work", "a") == b"1"
    with pytest.raises(NotFound), at_standin.open("work", "nothing"):
        pass
    assert at_standin.read("work", "a") == b"1"


def test_files_go_up_and_come_down_in_parallel(client: Client, tmp_path: Path) -> None:
    count = 1000 if FULL else 40
    source, target = tmp_path / "source", tmp_path / "target"
    source.mkdir()
    target.mkdir()
    for n in range(count):
        (source / f"{n}").write_bytes(hashlib.sha256(str(n).encode()).digest() * 320)
    pairs = [(f"data/{n}", str(source / f"{n}")) for n in range(count)]

    sent = list(client.upload_all("main", pairs, OsThreads()))
    assert {found.path for found in sent} == {path for path, _ in pairs}
    assert all(found.size == 10240 for found in sent)
    got = dict(client.download_all("main", ((path, str(target / path[5:])) for path, _ in pairs), OsThreads()))
    assert set(got.values()) == {10240}
    assert all((target / str(n)).read_bytes() == (source / str(n)).read_bytes() for n in range(count))


def test_a_target_file_that_exists_is_not_overwritten(client: Client, tmp_path: Path) -> None:
    client.put("main", "a", b"new")
    (tmp_path / "a").write_bytes(b"old")
    with pytest.raises(FileExistsError):
        client.download("main", "a", tmp_path / "a")
    assert (tmp_path / "a").read_bytes() == b"old"


@pytest.mark.slow
@pytest.mark.skipif(not FULL, reason="FENCELINE_LAKEFS=full moves a gigabyte")
def test_a_large_file_never_lies_in_memory(client: Client, tmp_path: Path) -> None:
    size = 1 << 30
    with open(tmp_path / "big", "wb") as file:
        file.truncate(size)
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    started = time.monotonic()
    assert client.upload("main", "big", tmp_path / "big").size == size
    up = time.monotonic() - started
    assert client.download("main", "big", tmp_path / "back") == size
    down = time.monotonic() - started - up
    print(f"1 GiB: {size / up / 2**20:.0f} MiB/s up, {size / down / 2**20:.0f} MiB/s down")
    if "stand-in" not in os.environ.get("PYTEST_CURRENT_TEST", ""):  # which keeps its objects in this process
        assert resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before < 100 * 1024


@pytest.mark.slow
@pytest.mark.skipif(not FULL, reason="FENCELINE_LAKEFS=full moves a thousand objects one by one")
def test_many_objects_move_five_times_faster_together(client: Client, tmp_path: Path) -> None:
    """1,000 objects of 10 KB, both ways. The stand-in, in this process, has no waiting that could be shared."""
    count = 1000
    (tmp_path / "source").mkdir()
    for n in range(count):
        (tmp_path / "source" / str(n)).write_bytes(os.urandom(10 * 1024))
    pairs = [(f"data/{n}", str(tmp_path / "source" / str(n))) for n in range(count)]
    took: dict[tuple[str, int], float] = {}
    for workers in (1, 32):
        branch, target = f"workers-{workers}", tmp_path / str(workers)
        client.create_branch(branch, "main")
        target.mkdir()
        started = time.monotonic()
        assert len(list(client.upload_all(branch, pairs, OsThreads(), workers))) == count
        took["up", workers] = time.monotonic() - started
        wanted = [(path, str(target / path[5:])) for path, _ in pairs]
        started = time.monotonic()
        assert len(list(client.download_all(branch, wanted, OsThreads(), workers))) == count
        took["down", workers] = time.monotonic() - started
    together = took["up", 32] + took["down", 32]
    alone = took["up", 1] + took["down", 1]
    print(
        {f"{way} {workers}": round(seconds, 2) for (way, workers), seconds in took.items()}, round(alone / together, 1)
    )
    if "stand-in" not in os.environ.get("PYTEST_CURRENT_TEST", ""):
        assert alone > 5 * together

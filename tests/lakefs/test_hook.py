"""The fence that the server keeps: installed by setup, tried by it, and one winner among many publishers."""

from __future__ import annotations

import os
import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from functools import partial

import pytest

from fenceline.errors import ConfigError, ConflictError
from fenceline.repo.lakefs import hook, setup
from fenceline.repo.lakefs.client import Client
from fenceline.repo.lakefs.errors import BranchProtected, HookMissing
from fenceline.repo.lakefs.sdk import Access
from fenceline.repo.lakefs.values import MergeEnd, MergeOutcome
from fenceline.seams import Seams
from fenceline.testing.lakefs_standin import CallFault, StandIn, lakefs_standin

PUBLISHERS = 4
ROUNDS = 50 if os.environ.get("FENCELINE_LAKEFS") == "full" else 5


def set_up(client: Client, branch: str = "main") -> str:
    seams = Seams()
    plan = setup.look(client, branch)
    head = plan.head if plan.done else setup.install(client, plan, seams)
    setup.verify(client, branch, seams)
    return head


def test_setup_installs_once_and_leaves_nothing_else(client: Client) -> None:
    assert setup.look(client, "main").hook is None
    head = set_up(client)
    assert setup.look(client, "main").done
    assert [found.path for found in client.objects("main")] == [hook.HOOK_PATH]
    assert [branch.name for branch in client.branches()] == ["main"]
    assert set_up(client) == head == client.head("main")
    hook.require(client, client.repository, head)


def test_setup_replaces_a_hook_that_was_changed(client: Client) -> None:
    set_up(client)
    client.put("main", hook.HOOK_PATH, hook.ACTION.replace("error(", "print(").encode())
    client.commit("main", "Tampered with")
    assert setup.look(client, "main").hook is False
    with pytest.raises(HookMissing, match="another"):
        hook.require(client, client.repository, client.head("main"))
    set_up(client)
    hook.require(client, client.repository, client.head("main"))


def test_a_commit_without_the_hook_is_not_to_be_staged_from(client: Client) -> None:
    before = client.head("main")
    set_up(client)
    with pytest.raises(HookMissing, match="fenceline lakefs setup"):
        hook.require(client, client.repository, before)


def test_setup_works_on_a_protected_branch(client: Client) -> None:
    setup.protect(client, "main")
    setup.protect(client, "main")
    assert client.protection() == ("main",)
    until_protected(client)
    set_up(client)
    assert setup.look(client, "main").protected


def until_protected(client: Client) -> None:
    """The server keeps the rule only after a while, and tells nobody when."""
    waiting = threading.Event()
    for _ in range(200):
        try:
            client.hard_reset("main", "main")
        except BranchProtected:
            return
        waiting.wait(0.05)
    raise AssertionError("never protected")


def test_setup_that_lost_against_a_publication_says_so(client: Client) -> None:
    plan = setup.look(client, "main")
    client.put("main", "a", b"1")
    client.commit("main", "Someone was faster")
    with pytest.raises(ConflictError, match="run setup again"):
        setup.install(client, plan, Seams())
    assert [branch.name for branch in client.branches()] == ["main"]


def test_setup_notices_a_server_that_runs_no_hooks(repository_name: str) -> None:
    with lakefs_standin(hooks=False) as server:
        client = Client(repository_name, server.access)
        client.create("local://x")
        with pytest.raises(ConfigError, match=r"actions\.enabled"):
            set_up(client)
        assert [branch.name for branch in client.branches()] == ["main"]
        client.close()


def test_setup_settles_a_lost_answer_by_reading(standin: StandIn, repository_name: str) -> None:
    client = Client(repository_name, standin.access)
    client.create("local://x")
    standin.inject(CallFault("merge", 1, "lose_answer"))
    assert set_up(client) == client.head("main")
    assert len(list(client.log("main"))) == 2
    client.close()


def test_what_a_killed_setup_left_is_swept(client: Client) -> None:
    client.create_branch(f"{setup.SCRATCH_PREFIX}dead", "main", hidden=True)
    assert setup.sweep(client) == 1
    assert [branch.name for branch in client.branches()] == ["main"]


def race(works: list[Callable[[], MergeOutcome]]) -> list[MergeOutcome]:
    """All of them at the same moment, as far as that can be had."""
    together = threading.Barrier(len(works))

    def start(work: Callable[[], MergeOutcome]) -> MergeOutcome:
        together.wait()
        return work()

    with ThreadPoolExecutor(len(works)) as pool:
        return list(pool.map(start, works))


def test_of_many_publishers_exactly_one_wins_each_round(client: Client, access: Access) -> None:
    """Their changes are disjoint: without the fence lakeFS would merge every one of them."""
    first = set_up(client)
    clients = [Client(client.repository, access) for _ in range(PUBLISHERS)]
    winners = []
    for turn in range(ROUNDS):
        head = client.head("main")
        works: list[Callable[[], MergeOutcome]] = []
        for who, publisher in enumerate(clients):
            name = f"{hook.STAGING_PREFIX}{turn}-{who}"
            publisher.create_branch(name, head, hidden=True)
            publisher.put(name, f"data/{turn}-{who}", b"x")
            staged = publisher.commit(name, "Stage").id
            metadata = {hook.EXPECTED_HEAD: head, hook.STAGED: staged, "fenceline.execution": name}
            works.append(partial(publisher.merge, name, "main", "Publish", metadata))
        outcomes = race(works)
        won = [who for who, outcome in enumerate(outcomes) if outcome.end is MergeEnd.MERGED]
        assert len(won) == 1, outcomes
        assert {outcome.end for outcome in outcomes} <= {MergeEnd.MERGED, MergeEnd.REFUSED, MergeEnd.BUSY}
        winners.append(f"{turn}-{won[0]}")
        assert client.head("main") == outcomes[won[0]].commit
    assert [found.path for found in client.objects("main", "data/")] == sorted(f"data/{name}" for name in winners)
    line = [commit for commit in client.log("main", stop_at=first) if commit.id != first]
    assert [c.metadata["fenceline.execution"] for c in reversed(line)] == [hook.STAGING_PREFIX + w for w in winners]
    for publisher in clients:
        publisher.close()


def test_without_the_fence_more_than_one_wins(client: Client) -> None:
    """What the hook prevents."""
    head = client.head("main")
    for name in ("one", "two"):
        client.create_branch(name, head)
        client.put(name, name, b"x")
        client.commit(name, "Stage")
    ends = [client.merge(name, "main", "Publish", {hook.EXPECTED_HEAD: head}).end for name in ("one", "two")]
    assert ends == [MergeEnd.MERGED, MergeEnd.MERGED]

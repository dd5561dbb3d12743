"""A zombie whose merge the server has begun: it must not land after the step reported another outcome (INV-8)."""

from __future__ import annotations

from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest
from lake_world import World, make_world, nothing, ref_of, writes

from fenceline.repo.lakefs.client import Client
from fenceline.testing.lakefs_standin import CallFault, StandIn


@pytest.fixture
def world(standin: StandIn, repository_name: str, tmp_path: Path) -> Iterator[World]:
    client = Client(repository_name, standin.access)
    client.create("local://x")
    yield make_world(client, tmp_path / "work")
    client.close()


def race(standin: StandIn, world: World) -> tuple[str, str]:
    """A first attempt's merge hangs in the server; a retry of other code changes nothing and reports. Their ends."""
    step = world.schedule()
    before = world.head
    standin.inject(CallFault("merge", 1, "hang_inside"))
    with ThreadPoolExecutor(1) as pool:
        zombie = pool.submit(world.run, world.task(writes(), version="1"), step, False)
        assert standin.hanging.wait(20)
        result = world.run(world.task(nothing, version="2"), world.orchestrator.retry(step))
        assert ref_of(result) == before
        standin.release()
        return before, zombie.result(30).status


def test_a_merge_under_way_does_not_land_after_a_no_op_was_reported(standin: StandIn, world: World) -> None:
    before, zombie = race(standin, world)
    assert zombie == "FAILED"
    assert world.head == before
    assert world.staging() == []


def test_without_settling_it_would(standin: StandIn, world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Client, "settle_merges", lambda self, target: None)
    before, _ = race(standin, world)
    assert world.head != before

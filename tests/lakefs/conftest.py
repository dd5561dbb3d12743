"""A lakeFS server for each test: the stand-in always, and a real one where the environment names it.

FENCELINE_TEST_LAKEFS_ENDPOINT, FENCELINE_TEST_LAKEFS_KEY and FENCELINE_TEST_LAKEFS_SECRET name it; each test makes
repositories of its own on it, below FENCELINE_TEST_LAKEFS_STORAGE (`local://fenceline-tests` unless set).
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator

import pytest

from fenceline.repo.lakefs.client import Client
from fenceline.repo.lakefs.sdk import Access
from fenceline.seams import Seams
from fenceline.testing.lakefs_standin import StandIn, lakefs_standin

REAL = os.environ.get("FENCELINE_TEST_LAKEFS_ENDPOINT")
STORAGE = os.environ.get("FENCELINE_TEST_LAKEFS_STORAGE", "local://fenceline-tests")

MakeClient = Callable[[], Client]


@pytest.fixture
def standin() -> Iterator[StandIn]:
    with lakefs_standin() as server:
        yield server


@pytest.fixture(params=["stand-in", "real"])
def access(request: pytest.FixtureRequest) -> Access:
    """Both servers in turn; what a test shows holds on each."""
    if request.param == "stand-in":
        server: StandIn = request.getfixturevalue("standin")
        return server.access
    if REAL is None:
        pytest.skip("FENCELINE_TEST_LAKEFS_ENDPOINT names no server")
    return Access(REAL, os.environ["FENCELINE_TEST_LAKEFS_KEY"], os.environ["FENCELINE_TEST_LAKEFS_SECRET"])


@pytest.fixture
def repository_name() -> str:
    return f"fl-{Seams().ids.execution()}"


@pytest.fixture
def client(access: Access, repository_name: str) -> Iterator[Client]:
    """A new, empty repository."""
    client = Client(repository_name, access)
    client.create(f"{STORAGE}/{repository_name}")
    yield client
    client.close()

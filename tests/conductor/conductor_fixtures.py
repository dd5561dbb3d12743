"""One real Conductor server for all tests here. Where none can be had they are skipped, and that is said loudly."""

from __future__ import annotations

import os
from collections.abc import Iterator

import pytest
from conductor_server import URL_ENV, CannotStart, find_jar, find_java, running

from fenceline.pipeline.conductor.api import ConductorApi

_missing: list[str] = []


@pytest.fixture(scope="session")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """The address of its API."""
    if URL_ENV in os.environ:
        yield os.environ[URL_ENV]
        return
    try:
        find_jar(), find_java()
    except CannotStart as why:
        _missing.append(str(why))
        pytest.skip(f"NO CONDUCTOR SERVER: {why}")
    with running(tmp_path_factory.mktemp("conductor")) as url:
        yield url


@pytest.fixture(scope="session")
def api(server: str) -> Iterator[ConductorApi]:
    made = ConductorApi.at(server)
    yield made
    made.close()


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    if _missing:
        terminalreporter.section("Conductor was NOT tested", red=True)
        terminalreporter.line(_missing[0])

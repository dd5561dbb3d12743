"""One real S3-speaking server for a test run. Where none can be had its tests are skipped, and that is said loudly."""

from __future__ import annotations

import itertools
from collections.abc import Iterator

import pytest
from s3_server import CannotStart, S3Server, running

from fenceline.repo.native.remote.objects import RemoteObjects

_missing: list[str] = []
_numbers = itertools.count()


@pytest.fixture(scope="session")
def s3(tmp_path_factory: pytest.TempPathFactory) -> Iterator[S3Server]:
    try:
        with running(tmp_path_factory.mktemp("s3")) as server:
            yield server
    except CannotStart as why:
        _missing.append(str(why))
        pytest.skip(f"NO S3 SERVER: {why}")


@pytest.fixture
def s3_url(s3: S3Server, tmp_path_factory: pytest.TempPathFactory) -> str:
    """A place of its own in the bucket; nothing lies there yet."""
    return s3.url(f"{tmp_path_factory.getbasetemp().name}/{next(_numbers)}")


@pytest.fixture
def s3_objects(s3: S3Server, s3_url: str) -> RemoteObjects:
    return RemoteObjects.at(s3_url, s3.options)


def say_what_was_not_tested(terminalreporter: pytest.TerminalReporter) -> None:
    if _missing:
        terminalreporter.section("S3 was NOT tested", red=True)
        terminalreporter.line(_missing[0])

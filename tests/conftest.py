"""Repositories for tests: on disk and in memory, in a world whose clock is moved by hand."""

from __future__ import annotations

import contextlib
import functools
import json
import os
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any, Literal

import pytest
from hypothesis import settings
from s3_fixtures import s3, s3_objects, s3_url, say_what_was_not_tested
from xdist.scheduler import LoadScopeScheduling  # type: ignore[import-untyped]

from fenceline import Repository, Transaction, open_repository
from fenceline.repo.native.local import LocalObjects
from fenceline.repo.native.objects import ObjectStore
from fenceline.seams import Seams
from fenceline.testing import HandClock, MemoryObjects, test_seams

__all__ = ["s3", "s3_objects", "s3_url"]

settings.register_profile("fenceline", deadline=None, database=None)
settings.load_profile("fenceline")

# Spark's JVMs live for seconds here: compiling what they run well would take longer than running it
os.environ.setdefault("SPARK_SUBMIT_OPTS", "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC")


_TOGETHER = {"spark": 0, "conductor": 1}
"""Directories whose tests share one JVM or server, and the order in which the longest work begins."""
_LONG = (
    "test_demo",
    "test_spark_attempts",
    "test_run_spark_terminated",
    "test_graph_crashes",
    "test_constraints",
    "test_crashes",
    "test_runner",
    "test_snippets",
)


def pytest_xdist_make_scheduler(config: pytest.Config, log: Any) -> LoadScopeScheduling:
    """For `-n 2`: a file stays on one worker, and so does what shares something expensive."""

    class Together(LoadScopeScheduling):  # type: ignore[misc]
        def _split_scope(self, nodeid: str) -> str:
            path = nodeid.partition("::")[0]
            directory = Path(path).parent.name
            return directory if directory in _TOGETHER else path

    return Together(config, log)


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """The longest work begins first."""

    def turn(item: pytest.Item) -> int:
        long = _LONG.index(item.path.stem) if item.path.stem in _LONG else len(_LONG)
        return _TOGETHER.get(item.path.parent.name, len(_TOGETHER) + long)

    items.sort(key=turn)


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    say_what_was_not_tested(terminalreporter)


class Crash(BaseException):
    """The process ends here: nothing in the package catches it."""


@pytest.fixture
def clock() -> HandClock:
    return HandClock()


@pytest.fixture
def seams(clock: HandClock) -> Seams:
    """Shared by every repository of a test, so that execution ids never repeat."""
    return test_seams(clock)


@pytest.fixture
def memory() -> MemoryObjects:
    return MemoryObjects()


@pytest.fixture
def memory_repo(memory: MemoryObjects, seams: Seams) -> Repository:
    return Repository.on(memory, create=True, seams=seams)


@pytest.fixture
def disk_repo(tmp_path: Path) -> Repository:
    """A repository on the local disk with the real clock, threads and ids."""
    return open_repository(tmp_path / "repo", create=True)


@pytest.fixture
def write(tmp_path: Path) -> Callable[..., str]:
    """Writes a file of lines, texts as they are and the rest as JSON; returns its path."""

    def written(name: str, *rows: Any) -> str:
        path = tmp_path / name
        path.write_text("".join((row if isinstance(row, str) else json.dumps(row)) + "\n" for row in rows))
        return str(path)

    return written


@pytest.fixture(params=["memory", "disk"])
def store(request: pytest.FixtureRequest, tmp_path: Path) -> ObjectStore:
    return MemoryObjects() if request.param == "memory" else LocalObjects(tmp_path / "store")


@pytest.fixture
def repo(store: ObjectStore, seams: Seams) -> Repository:
    """The same repository on every store."""
    return Repository.on(store, create=True, seams=seams)


@pytest.fixture
def put() -> Callable[..., str]:
    """Publish files, `None` deletes; returns the commit."""

    def publish(repo: Repository, files: Mapping[str, bytes | None], branch: str = "main", **options: Any) -> str:
        with repo.transaction(branch, **options) as tx:
            for path, data in files.items():
                if data is None:
                    tx.delete(path)
                else:
                    tx.write(path, data)
        return tx.result.commit

    return publish


@pytest.fixture
def parts(tmp_path: Path) -> Callable[[Mapping[str, bytes]], str]:
    """A new local directory with these files, as an engine leaves them."""
    numbers = iter(range(1000))

    def directory(files: Mapping[str, bytes]) -> str:
        root = tmp_path / f"parts-{next(numbers)}"
        root.mkdir()
        for name, data in files.items():
            (root / name).parent.mkdir(parents=True, exist_ok=True)
            (root / name).write_bytes(data)
        return str(root)

    return directory


@pytest.fixture
def abandon() -> Callable[..., str]:
    """A transaction whose process dies `open`, `sealed` or `published` but unfinished; returns its execution."""

    def die(
        repo: Repository,
        body: Callable[[Transaction], object],
        at: Literal["open", "sealed", "published"] = "sealed",
        branch: str = "main",
        **options: Any,
    ) -> str:
        tx = repo.transaction(branch, **options)
        tx.__enter__()
        body(tx)
        if at == "sealed":
            with _dying(repo.native.branch_log, "append"), contextlib.suppress(Crash):
                tx.__exit__(None, None, None)
        elif at == "published":
            with _dying(tx._intents, "finish"), contextlib.suppress(Crash):
                tx.__exit__(None, None, None)
        return tx.execution

    return die


@contextlib.contextmanager
def _dying(target: object, method: str) -> Iterator[None]:
    def crash(*args: object, **kwargs: object) -> None:
        raise Crash

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(target, method, functools.partial(crash))
        yield

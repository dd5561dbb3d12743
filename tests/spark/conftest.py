"""One Spark session for the whole run, and attempts made by hand.

FENCELINE_TEST_MASTER runs the same tests elsewhere than in this process's JVM, as test_spark_cluster.py and
test_spark_connect.py do.
"""

from __future__ import annotations

import json
import os
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import DataFrame, SparkSession

from fenceline import Repository, open_repository
from fenceline.repo.model import Dataset
from fenceline.spark import SparkSettings, SparkWorkspace, get_session, isolated, stop_session
from fenceline.spark.reader import Reader, at_commit
from fenceline.txn.intent import Intent, IntentStore
from fenceline.txn.publish import Candidate, Confirmed, confirm
from fenceline.txn.trying import Try

MASTER = os.environ.get("FENCELINE_TEST_MASTER", "local[2]")
CONF = json.loads(os.environ.get("FENCELINE_TEST_SPARK_CONF", "{}"))


class Numbers:
    """Metrics that nobody reads."""

    def counter(self, name: str, value: float = 1) -> None: ...

    def gauge(self, name: str, value: float) -> None: ...

    def timer(self, name: str) -> Any: ...


class Attempt:
    """One attempt on a branch: a workspace, and the way to its publication."""

    def __init__(self, repo: Repository, session: SparkSession, branch: str, prefix: str, read_only: bool) -> None:
        native = repo.native
        head = native.head(branch)
        self._native, self._intents = native, IntentStore(native.objects, native.seams)
        intent = Intent(
            execution=native.seams.ids.execution(),
            kind="task",
            actor="test",
            branch=branch,
            base=head.seq,
            input=head.commit.id,
            txn=None,
            rebase=False,
            created=native.seams.clock.now(),
            lease=30.0,
            owner=native.seams.owner(),
        )
        self.trying = Try(native, self._intents, intent, head.commit)
        self.workspace = SparkWorkspace(session, native, self.trying, prefix, Numbers(), native.seams, read_only)

    def publish(self) -> str:
        """Complete, seal, confirm, finish; the commit."""
        try:
            verdict = self.trying.complete("by hand")
            assert verdict is not None
            self.trying.seal(verdict)
            intent = self.trying.intent
            outcome = confirm(
                self._native, self._intents, Candidate(intent, verdict, intent.execution, "test", owner=True)
            )
            assert isinstance(outcome, Confirmed), outcome
            self.trying.finish(outcome.entry, verdict)
            return outcome.output
        finally:
            self.trying.close()


class Lab:
    """A repository with a Spark session."""

    def __init__(self, repo: Repository, session: SparkSession) -> None:
        self.repo, self.session = repo, session

    def attempt(self, branch: str = "main", prefix: str = "", read_only: bool = False) -> Attempt:
        return Attempt(self.repo, self.session, branch, prefix, read_only)

    def publish(self, body: Callable[[SparkWorkspace], object], branch: str = "main") -> str:
        attempt = self.attempt(branch)
        body(attempt.workspace)
        return attempt.publish()

    def put(self, df: DataFrame, path: str, branch: str = "main", **options: Any) -> str:
        return self.publish(lambda workspace: workspace.write(df, path, **options), branch)

    def read(self, ref: str = "main") -> Reader:
        return at_commit(self.session, self.repo.native, self.repo.commit(ref))

    def rows(self, path: str, ref: str = "main") -> list[tuple[Any, ...]]:
        return rows(self.read(ref).dataset(path))

    def dataset(self, path: str, ref: str = "main") -> Dataset:
        found = self.repo.stat(ref, path).dataset
        assert found is not None
        return found

    def collect(self, df: DataFrame) -> list[tuple[Any, ...]]:
        return rows(df)

    def frame(self, values: list[Any], schema: str) -> DataFrame:
        return self.session.createDataFrame(values, schema).coalesce(1)


def rows(df: DataFrame) -> list[tuple[Any, ...]]:
    return sorted((tuple(row) for row in df.collect()), key=repr)


@pytest.fixture(scope="session")
def settings() -> SparkSettings:
    quick = {"spark.sql.codegen.wholeStage": "false"}
    ours = {} if MASTER.startswith("sc://") else quick  # a server has its own
    return SparkSettings(master=MASTER, conf={**ours, "spark.sql.shuffle.partitions": "2", **CONF})


@pytest.fixture(scope="session")
def session(settings: SparkSettings) -> Iterator[SparkSession]:
    yield get_session(settings)
    stop_session()


@pytest.fixture
def spark(session: SparkSession) -> SparkSession:
    """Like an attempt's: nothing leaks from one test into the next."""
    return isolated(session)


@pytest.fixture
def lab(tmp_path: Path, spark: SparkSession) -> Lab:
    return Lab(open_repository(tmp_path / "repo", create=True), spark)

"""Sessions: one for each process, quiet, isolated from each other, and clear about what they need."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import textwrap
from pathlib import Path
from typing import TYPE_CHECKING, Any, cast

import pytest
from pyspark.sql import SparkSession

from fenceline.errors import ConfigError
from fenceline.seams import Seams
from fenceline.spark import SparkSettings, class_archive, get_session, isolated
from fenceline.spark.java import check_java
from fenceline.spark.progress import StageProgress, watch
from fenceline.spark.session import is_connect, job_group, log_file, runs_locally
from fenceline.spark.settings import GIB, driver_memory, is_local

if TYPE_CHECKING:
    from tests.spark.conftest import Lab

SRC = str(Path(__file__).parents[2] / "src")


def python(code: str, **env: str) -> subprocess.CompletedProcess[str]:
    full = {**os.environ, "PYTHONPATH": SRC, **env}
    return subprocess.run(
        [sys.executable, "-c", textwrap.dedent(code)], capture_output=True, text=True, env=full, timeout=200
    )


def test_one_session_for_a_process(session: SparkSession, settings: SparkSettings) -> None:
    assert get_session() is session
    assert get_session(settings) is session
    with pytest.raises(ConfigError, match=r"has a Spark session on .* stop_session"):
        get_session(SparkSettings(app_name="another"))


def test_temporary_views_and_settings_do_not_leak(session: SparkSession) -> None:
    one, two = isolated(session), isolated(session)
    one.range(3).createOrReplaceTempView("numbers")
    one.conf.set("spark.sql.shuffle.partitions", "77")
    assert one.sql("select count(*) from numbers").first() == (3,)
    assert not two.catalog.tableExists("numbers")
    assert not session.catalog.tableExists("numbers")
    assert two.conf.get("spark.sql.shuffle.partitions") == session.conf.get("spark.sql.shuffle.partitions") != "77"


def test_defaults_fit_the_machine(session: SparkSession) -> None:
    conf = session.sparkContext.getConf()
    assert GIB <= driver_memory() <= 8 * GIB
    assert conf.get("spark.driver.memory") == f"{driver_memory() >> 20}m"
    assert conf.get("spark.ui.enabled") == "false"
    assert conf.get("spark.driver.bindAddress") == "127.0.0.1"
    assert session.conf.get("spark.sql.execution.arrow.pyspark.enabled") == "true"
    assert not Path("spark-warehouse").exists()
    assert not Path("artifacts").exists()
    assert os.environ["PYSPARK_DRIVER_PYTHON"] == sys.executable


@pytest.mark.parametrize(
    ("master", "local"),
    [("local", True), ("local[*]", True), ("local-cluster[2,1,512]", False), ("spark://h:7077", False)],
)
def test_what_is_local(master: str, local: bool) -> None:
    settings = SparkSettings(master=master, conf={"spark.ui.enabled": "true", "x": "1"})
    assert is_local(master) == settings.is_local == local
    resolved = settings.resolved("/scratch")
    assert resolved["spark.ui.enabled"] == "true"
    assert ("spark.local.dir" in resolved) == local  # executors elsewhere have their own
    assert ("spark.driver.host" in resolved) == local


def test_a_master_is_needed() -> None:
    with pytest.raises(ConfigError, match="master is empty"):
        SparkSettings(master="")


def test_a_job_group_ends_with_its_block(session: SparkSession) -> None:
    context = session.sparkContext
    with job_group(session, "outer", "one"):
        with job_group(session, "inner", "two"):
            assert context.getLocalProperty("spark.jobGroup.id") == "inner"
        assert context.getLocalProperty("spark.jobGroup.id") == "outer"
    assert context.getLocalProperty("spark.jobGroup.id") is None


def test_progress_of_stages(lab: Lab) -> None:
    seen: list[StageProgress] = []
    with watch(lab.session, seen.append, Seams(), "counted", interval=0.05), job_group(lab.session, "counted", "x"):
        lab.session.range(0, 1000, 1, 5).repartition(3).count()
    with job_group(lab.session, "not watched", "x"):
        lab.session.range(10).count()
    assert {(p.done, p.total, p.failed) for p in seen} >= {(5, 5, 0), (3, 3, 0)}
    assert all(p.name for p in seen)
    assert len(set(seen)) == len(seen)  # each change once


def test_no_java(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.delenv("JAVA_HOME", raising=False)
    monkeypatch.setenv("PATH", str(tmp_path))
    with pytest.raises(
        ConfigError, match=r"there is none.*apt-get install openjdk-17-jre-headless.*brew install temurin"
    ):
        check_java()
    monkeypatch.setenv("JAVA_HOME", str(tmp_path))
    with pytest.raises(ConfigError, match="no bin/java in it"):
        check_java()


@pytest.mark.parametrize(
    ("said", "expected"),
    [
        ("echo 'openjdk version \"11.0.2\" 2019' >&2", "is Java 11; Spark needs 17"),
        ("echo 'java version \"1.8.0_202\"' >&2", "is Java 8; Spark needs 17"),
        ("exit 1", "is not a working Java"),
        ("echo 'openjdk version \"25\" 2025' >&2", None),
    ],
)
def test_old_java(monkeypatch: pytest.MonkeyPatch, tmp_path: Path, said: str, expected: str | None) -> None:
    java = tmp_path / "java"
    java.write_text(f"#!/bin/sh\n{said}\n")
    java.chmod(0o755)
    monkeypatch.delenv("JAVA_HOME", raising=False)
    monkeypatch.setenv("PATH", f"{tmp_path}:/bin:/usr/bin")
    if expected is None:
        assert check_java() == str(java)
    else:
        with pytest.raises(ConfigError, match=expected):
            check_java()


def test_without_java_a_process_is_told_what_to_install(tmp_path: Path) -> None:
    code = """
        from fenceline.spark import get_session
        from fenceline.errors import ConfigError
        try:
            get_session()
        except ConfigError as error:
            print(error)
    """
    done = python(code, PATH=str(tmp_path), JAVA_HOME="")
    assert "apt-get install openjdk-17-jre-headless" in done.stdout, done.stderr
    assert done.stderr == ""


def test_without_pyspark_a_process_is_told_what_to_install() -> None:
    code = """
        import sys
        sys.modules["pyspark"] = None
        import fenceline.spark
        from fenceline.errors import ConfigError
        try:
            fenceline.spark.get_session()
        except ConfigError as error:
            print(error)
    """
    done = python(code)
    assert done.stdout.strip() == "pyspark is not installed (pip install 'fenceline[spark]')", done.stderr


@pytest.mark.slow
def test_a_session_is_quiet_and_leaves_nothing(tmp_path: Path) -> None:
    code = """
        import os, sys
        from fenceline.spark import SparkSettings, get_session
        from fenceline.spark.session import log_file
        secret = 'se"cret \\\\ ü \\U0001f600='
        session = get_session(SparkSettings(conf={"spark.fenceline.token": secret}))
        assert session.conf.get("spark.fenceline.token") == secret
        print("noise", session.range(10).repartition(2).rdd.map(lambda row: row.id + 1).sum())
        print(log_file(), os.path.getsize(log_file()))
        with open(f"/proc/{session.sparkContext._gateway.proc.pid}/cmdline") as file:
            arguments = file.read()
        assert "SparkSubmit" in arguments and "spark.fenceline.token" not in arguments
        try:
            session.sql("select raise_error('x')").collect()
        except Exception:
            pass
    """
    os.makedirs(tmp_path / "tmp")
    done = python(code, TMPDIR=str(tmp_path / "tmp"))
    assert done.returncode == 0, done.stderr
    assert done.stderr == ""
    assert done.stdout.splitlines()[0] == "noise 55"
    assert int(done.stdout.split()[-1]) > 0  # what would have been noise
    assert list((tmp_path / "tmp").glob("fenceline-*")) == []


@pytest.mark.slow
def test_sessions_of_the_user_and_a_jvm_that_dies() -> None:
    code = """
        import os, signal
        from fenceline.errors import ConfigError
        from fenceline.spark import SparkSettings, get_session, stop_session
        from pyspark import SparkContext
        from pyspark.sql import SparkSession
        settings = SparkSettings(master="local[1]")

        def refused(settings):
            try:
                get_session(settings)
            except ConfigError as error:
                print(error)

        stop_session()  # nothing to stop
        refused(SparkSettings(master="nonsense"))
        mine = SparkSession.builder.master("local[1]").config("spark.ui.enabled", "false").getOrCreate()
        assert get_session() is mine
        refused(settings)
        mine.stop()
        one = get_session(settings)
        process = SparkContext._gateway.proc
        os.kill(process.pid, signal.SIGKILL)
        process.wait()
        two = get_session(settings)
        assert two is not one and two.range(3).count() == 3
    """
    done = python(code)
    assert done.returncode == 0, done.stderr
    assert (
        'Spark\'s JVM ended at once: Exception in thread "main" org.apache.spark.SparkException: Master' in done.stdout
    )
    assert "this process has a Spark session that was not started here" in done.stdout


def test_a_session_that_is_not_there_has_no_log() -> None:
    done = python("from fenceline.spark.session import log_file; print(log_file())")
    assert done.stdout.strip() == "None"


def test_the_session_of_these_tests(session: SparkSession) -> None:
    assert not is_connect(session)
    assert runs_locally(session) == ("FENCELINE_TEST_MASTER" not in os.environ)
    found = log_file()
    assert found is not None
    assert os.path.exists(found)
    assert json.dumps(SparkSettings().conf) == "{}"


def test_the_jvm_uses_the_archive_of_classes(session: SparkSession) -> None:
    archive = class_archive.find().path
    if not runs_locally(session) or not archive.exists():
        pytest.skip("no archive of this Spark's classes: `make setup` or `fenceline warm` makes it")
    process = cast(Any, session.sparkContext)._gateway.proc.pid
    assert str(archive) in Path(f"/proc/{process}/maps").read_text()

"""A real standalone cluster on loopback: the same tests, tasks tried again, speculation, disks that are not shared."""

from __future__ import annotations

import os
import re
import shutil
import socket
import subprocess
import sys
import textwrap
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path

import pyspark
import pytest

pytestmark = pytest.mark.slow

ROOT = Path(__file__).parents[2]
HERE = Path(__file__).parent
HOME = Path(pyspark.__file__).parent
SPECULATION = (
    '{"spark.speculation": "true", "spark.speculation.interval": "100ms", "spark.speculation.quantile": "0.5", '
    '"spark.speculation.minTaskRuntime": "2s", "spark.executor.memory": "512m", '
    '"spark.executor.extraJavaOptions": "-XX:TieredStopAtLevel=1"}'
)


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port: int = probe.getsockname()[1]
        return port


@contextmanager
def daemon(log: Path, ready: str, *command: str) -> Iterator[None]:
    """One of Spark's own processes, until the block ends."""
    env = {**os.environ, "SPARK_HOME": str(HOME), "PYSPARK_PYTHON": sys.executable, "SPARK_DAEMON_MEMORY": "512m"}
    with open(log, "wb") as output:
        process = subprocess.Popen(command, stdout=output, stderr=subprocess.STDOUT, env=env, cwd=log.parent)
    try:
        until = time.monotonic() + 60
        while not re.search(ready, log.read_text(errors="replace")):
            assert process.poll() is None, log.read_text(errors="replace")
            assert time.monotonic() < until, log.read_text(errors="replace")
            time.sleep(0.1)
        yield
    finally:
        process.terminate()
        try:
            process.wait(20)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()


def spark_class(name: str) -> tuple[str, ...]:
    return (str(HOME / "bin" / "spark-class"), f"org.apache.spark.deploy.{name}")


@contextmanager
def cluster(directory: Path, hidden: Path | None = None) -> Iterator[str]:
    """A master and two workers, each a host of its own; the second with an empty disk over `hidden`."""
    directory.mkdir(exist_ok=True)
    port = free_port()
    master = f"spark://127.0.0.1:{port}"
    with ExitStack() as stack:
        options = ("--host", "127.0.0.1", "--port", str(port), "--webui-port", "0")
        stack.enter_context(
            daemon(directory / "master.log", "I have been elected", *spark_class("master.Master"), *options)
        )
        for number in (1, 2):
            work = directory / f"work-{number}"
            # speculation never tries a task twice on one host, so each worker has an address
            command = (
                *(*spark_class("worker.Worker"), "--host", f"127.0.0.{number}", "--webui-port", "0"),
                *("--cores", "2", "--memory", "1g", "--work-dir", str(work), master),
            )
            if number == 2 and hidden is not None:
                mount = 'mount -t tmpfs tmpfs "$0" && exec "$@"'
                command = ("unshare", "-m", "sh", "-c", mount, str(hidden), *command)
            log = directory / f"worker-{number}.log"
            stack.enter_context(daemon(log, "Successfully registered with master", *command))
        yield master


def run(*command: str, **env: str) -> subprocess.CompletedProcess[str]:
    paths = os.pathsep.join((str(ROOT / "src"), str(ROOT)))
    return subprocess.run(
        command, capture_output=True, text=True, cwd=ROOT, env={**os.environ, "PYTHONPATH": paths, **env}, timeout=280
    )


def script(code: str, **env: str) -> subprocess.CompletedProcess[str]:
    return run(sys.executable, "-c", textwrap.dedent(code), **env)


@pytest.fixture(scope="module")
def master(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    with cluster(tmp_path_factory.mktemp("spark") / "cluster") as address:
        yield address


# The rest of the write and read tests differ from these in what the driver does, not in where tasks run.
ON_A_CLUSTER = (
    "failures or create_append or overwrite_partitions_replaces or replace_where_rewrites or computed_from "
    "or type or empty_frame or csv_options or read_your_writes or concurrent or part_is_live or hive_style"
)


def test_the_same_tests_on_a_cluster_with_speculation(tmp_path: Path, master: str) -> None:
    names = ("test_spark_failures.py", "test_spark_writes.py", "test_spark_reads.py")
    done = run(
        *(sys.executable, "-m", "pytest", *(str(HERE / name) for name in names)),
        *("-x", "-k", ON_A_CLUSTER, "-p", "no:cacheprovider", f"--basetemp={tmp_path / 'base'}"),
        FENCELINE_TEST_MASTER=master,
        FENCELINE_TEST_SPARK_CONF=SPECULATION,
    )
    assert done.returncode == 0, done.stdout[-5000:] + done.stderr[-1000:]
    assert "skipped" not in done.stdout  # what local mode skips runs here


def can_mount() -> bool:
    if shutil.which("unshare") is None:
        return False
    tried = subprocess.run(["unshare", "-m", "sh", "-c", "mount -t tmpfs tmpfs /mnt"], capture_output=True, check=False)
    return tried.returncode == 0


def test_a_worker_with_a_disk_of_its_own_is_found_before_the_first_write(tmp_path: Path) -> None:
    if not can_mount():
        pytest.skip("NOT TESTED: this system refuses `unshare -m`, so no worker can have a disk of its own")
    shared = tmp_path / "repo"
    shared.mkdir()
    code = """
        import os, sys
        from pathlib import Path
        from fenceline import open_repository
        from fenceline.errors import ConfigError, StoreError
        from fenceline.spark import SparkSettings, get_session, writer
        from tests.spark.conftest import Lab

        conf = {"spark.executor.memory": "512m", "spark.sql.shuffle.partitions": "2"}
        session = get_session(SparkSettings(master=os.environ["MASTER"], conf=conf))
        lab = Lab(open_repository(os.environ["REPO"], create=True), session)
        attempt = lab.attempt()
        try:
            attempt.workspace.write(session.range(0, 100, 1, 8), "t")
        except ConfigError as error:
            print("REFUSED", error)
        print("STARTED", attempt.trying.started, os.listdir(Path(os.environ["REPO"]) / "tmp"))

        writer.ensure_shared = lambda *_: None  # an executor that joined after the check
        for format in ("parquet", "json"):
            try:
                attempt.workspace.write(session.range(0, 100, 1, 8), "t", format=format)
            except StoreError as error:
                print("STOPPED", error)
        print("FILES", attempt.workspace.files())
    """
    with cluster(tmp_path / "cluster", hidden=shared) as master:
        done = script(code, MASTER=master, REPO=str(shared))
    assert done.returncode == 0, done.stdout + done.stderr
    lines = done.stdout.splitlines()
    assert re.match(
        r"REFUSED Spark executor .* does not see what the driver wrote below .*mount the same disk", lines[0]
    )
    assert lines[1] == "STARTED False []"
    assert re.match(r"STOPPED t: the job wrote 100 rows, but there are \d+ files with \d+ rows", lines[2])
    assert re.match(r"STOPPED t: the job wrote 100 rows, but there are \d+ files in", lines[3])
    assert lines[4] == "FILES []"


def test_a_task_module_is_shipped_to_executors(tmp_path: Path, master: str) -> None:
    code = """
        import os, sys
        modules = os.environ["MODULES"]
        os.makedirs(modules + "/pack/inner")
        for name, text in {
            "alone.py": "def twice(n): return n * 2",
            "pack/__init__.py": "",
            "pack/inner/__init__.py": "",
            "pack/inner/tools.py": "def thrice(n): return n * 3",
        }.items():
            with open(f"{modules}/{name}", "w") as file:
                file.write(text)
        sys.path.insert(0, modules)
        import alone, pack.inner.tools
        from pyspark.sql import functions as F
        from fenceline.spark import SparkSettings, get_session
        from fenceline.spark.checks import ship_module

        conf = {"spark.executor.memory": "512m", "spark.task.maxFailures": "1"}
        session = get_session(SparkSettings(master=os.environ["MASTER"], conf=conf))
        for module, function in ((alone, alone.twice), (pack.inner.tools, pack.inner.tools.thrice)):
            try:
                session.range(3).select(F.udf(function, "long")("id")).collect()
                print("works without")
            except Exception as error:
                print("ModuleNotFoundError" in str(error))
            shipped = ship_module(session, module)
            rows = session.range(3).select(F.udf(function, "long")("id")).collect()
            print(os.path.basename(shipped), [row[0] for row in rows])
        print(ship_module(session, "__main__"))
    """
    done = script(code, MASTER=master, MODULES=str(tmp_path / "modules"))
    assert done.returncode == 0, done.stdout + done.stderr
    assert done.stdout.splitlines() == ["True", "alone.py [0, 2, 4]", "True", "pack.zip [0, 3, 6]", "None"]


def test_spark_connect(tmp_path: Path) -> None:
    """Against a server of its own: write, read back, isolation, progress, cancel by tag."""
    port = free_port()
    conf = {
        "spark.connect.grpc.binding.port": str(port),
        "spark.connect.grpc.binding.address": "127.0.0.1",
        "spark.driver.host": "127.0.0.1",
        "spark.driver.bindAddress": "127.0.0.1",
        "spark.ui.enabled": "false",
        "spark.master": "local[2]",
        "spark.sql.warehouse.dir": str(tmp_path / "warehouse"),
        "spark.driver.memory": "1g",
    }
    options = [item for name, value in conf.items() for item in ("--conf", f"{name}={value}")]
    server = "org.apache.spark.sql.connect.service.SparkConnectServer"
    command = (*spark_class("SparkSubmit"), *options, "--class", server, "spark-internal")
    code = """
        import os, threading, time
        from fenceline import open_repository
        from fenceline.seams import Seams
        from fenceline.spark import SparkSettings, cancel, get_session, isolated, replace_where
        from fenceline.spark.progress import watch
        from fenceline.spark.session import is_connect, job_group, runs_locally
        from tests.spark.conftest import Lab

        session = get_session(SparkSettings(master=os.environ["REMOTE"]))
        assert is_connect(session) and not runs_locally(session) and get_session() is session
        one = isolated(session)
        one.range(3).createOrReplaceTempView("numbers")
        print("isolated", one.catalog.tableExists("numbers"), session.catalog.tableExists("numbers"))
        lab = Lab(open_repository(os.environ["REPO"], create=True), one)
        seen = []
        with watch(one, seen.append, Seams()):
            lab.put(one.range(0, 10, 1, 4).selectExpr("id", "id % 2 as k"), "t", partition_by=["k"])
        print("progress", any(p.total for p in seen))
        lab.put(one.range(5, 6).selectExpr("id", "1L as k"), "t", partition_by=["k"], mode=replace_where("k = 1"))
        lab.put(one.range(3), "c", format="csv")
        print("rows", lab.rows("t"), lab.rows("c"))

        def slowly(batches):
            import time
            for batch in batches:
                time.sleep(60)
                yield batch

        def soon():
            time.sleep(4)
            cancel(one, "stop-me")

        thread = threading.Thread(target=soon)
        thread.start()
        started = time.monotonic()
        try:
            with job_group(one, "stop-me", "x"):
                one.range(2).mapInArrow(slowly, "id bigint").collect()
        except Exception as error:
            print("cancelled", time.monotonic() - started < 30)
        thread.join()
    """
    with daemon(tmp_path / "connect.log", "Spark Connect server started at", *command):
        done = script(code, REMOTE=f"sc://127.0.0.1:{port}", REPO=str(tmp_path / "repo"))
    assert done.returncode == 0, done.stdout + done.stderr
    assert done.stdout.splitlines() == [
        "isolated True False",
        "progress True",
        "rows [(0, 0), (2, 0), (4, 0), (5, 1), (6, 0), (8, 0)] [(0,), (1,), (2,)]",
        "cancelled True",
    ]

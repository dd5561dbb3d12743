"""Spark's own processes on loopback, from the installed pyspark: a standalone cluster, a Connect server."""

from __future__ import annotations

import os
import re
import shutil
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path

import pyspark

HOME = Path(pyspark.__file__).parent
PATIENCE = 120.0  # seconds for a JVM to come up on a busy machine
QUICK = "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC"


@contextmanager
def daemon(log: Path, ready: str, *command: str, memory: str = "256m") -> Iterator[re.Match[str]]:
    """One of Spark's own processes, until the block ends; what it said when it was ready."""
    env = {**os.environ, "SPARK_HOME": str(HOME), "PYSPARK_PYTHON": sys.executable}
    env.update(SPARK_DAEMON_MEMORY=memory, SPARK_DAEMON_JAVA_OPTS=QUICK)
    with open(log, "wb") as output:
        process = subprocess.Popen(command, stdout=output, stderr=subprocess.STDOUT, env=env, cwd=log.parent)
    try:
        yield _until_said(process, log, ready)
    finally:
        process.terminate()
        try:
            process.wait(20)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()


def _until_said(process: subprocess.Popen[bytes], log: Path, ready: str) -> re.Match[str]:
    until = time.monotonic() + PATIENCE
    while (said := re.search(ready, log.read_text(errors="replace"))) is None:
        assert process.poll() is None, log.read_text(errors="replace")
        assert time.monotonic() < until, log.read_text(errors="replace")
        time.sleep(0.05)
    return said


def spark_class(name: str) -> tuple[str, ...]:
    return (str(HOME / "bin" / "spark-class"), f"org.apache.spark.{name}")


@contextmanager
def cluster(directory: Path) -> Iterator[str]:
    """A master and two workers, each a host of its own."""
    options = ("--host", "127.0.0.1", "--port", "0", "--webui-port", "0")
    ready = r"Starting Spark master at (spark://127\.0\.0\.1:\d+)[\s\S]*I have been elected"
    with ExitStack() as stack:
        command = (*spark_class("deploy.master.Master"), *options)
        master = stack.enter_context(daemon(directory / "master.log", ready, *command))[1]
        for number in (1, 2):
            stack.enter_context(worker(directory, number, master))
        yield master


@contextmanager
def worker(directory: Path, number: int, master: str, hidden: Path | None = None) -> Iterator[None]:
    """A worker with one core; with `hidden` it has an empty disk of its own over that directory.

    Speculation never tries a task twice on one host, so each worker has an address.
    """
    command = (
        *(*spark_class("deploy.worker.Worker"), "--host", f"127.0.0.{number}", "--webui-port", "0"),
        *("--cores", "1", "--memory", "1g", "--work-dir", str(directory / f"work-{number}"), master),
    )
    if hidden is not None:
        mount = 'mount -t tmpfs tmpfs "$0" && exec "$@"'
        command = ("unshare", "-m", "sh", "-c", mount, str(hidden), *command)
    with daemon(directory / f"worker-{number}.log", "Successfully registered with master", *command):
        yield


def can_mount() -> bool:
    """Whether a process may have a disk of its own here."""
    if shutil.which("unshare") is None:
        return False
    tried = subprocess.run(["unshare", "-m", "sh", "-c", "mount -t tmpfs tmpfs /mnt"], capture_output=True, check=False)
    return tried.returncode == 0


@contextmanager
def connect_server(directory: Path) -> Iterator[str]:
    """A Connect server that runs its jobs itself; its address."""
    port = _free_port()
    conf = {
        "spark.connect.grpc.binding.port": str(port),
        "spark.connect.grpc.binding.address": "127.0.0.1",
        "spark.driver.host": "127.0.0.1",
        "spark.driver.bindAddress": "127.0.0.1",
        "spark.ui.enabled": "false",
        "spark.master": "local[2]",
        "spark.sql.shuffle.partitions": "2",
        "spark.sql.warehouse.dir": str(directory / "warehouse"),
    }
    options = [item for name, value in conf.items() for item in ("--conf", f"{name}={value}")]
    server = "org.apache.spark.sql.connect.service.SparkConnectServer"
    command = (*spark_class("deploy.SparkSubmit"), *options, "--class", server, "spark-internal")
    with daemon(directory / "connect.log", "Spark Connect server started at", *command, memory="1g"):
        yield f"sc://127.0.0.1:{port}"


def _free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port: int = probe.getsockname()[1]
        return port

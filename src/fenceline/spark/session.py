"""One Spark session, and one JVM, for each process: started once, quiet, reused by every attempt."""

from __future__ import annotations

import atexit
import contextlib
import logging
import os
import shlex
import subprocess
import sys
import tempfile
import threading
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, cast
from weakref import WeakSet

from fenceline.errors import ConfigError
from fenceline.spark import class_archive
from fenceline.spark.settings import SparkSettings, is_local

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

log = logging.getLogger(__name__)


@dataclass(slots=True)
class _Held:
    settings: SparkSettings
    session: SparkSession
    scratch: tempfile.TemporaryDirectory[str]
    pid: int
    """A forked child must not use its parent's JVM."""


_lock = threading.RLock()
_held: _Held | None = None
_of_connect: WeakSet[SparkSession] = WeakSet()
"""Isolated ones: left open, they would hang in the interpreter's own shutdown."""


def get_session(settings: SparkSettings | None = None) -> SparkSession:
    """The session of this process; started at the first call, or again if its JVM has died.

    Without settings it is whatever session there is, one that the user made included.
    """
    global _held
    _require_pyspark()
    with _lock:
        if _held is not None and not _alive(_held):
            log.warning("the Spark session has ended on its own; a new one is started")
            _drop(_held)
            _held = None
        if _held is None and settings is None and (theirs := _made_by_user()) is not None:
            return theirs
        if _held is None:
            _held = _start(settings or SparkSettings())
        elif settings is not None and settings != _held.settings:
            raise ConfigError(
                f"this process has a Spark session on {_held.settings.master} with other settings",
                hint="a process has one: call stop_session() first, or ask for the same settings",
            )
        return _held.session


def stop_session() -> None:
    """End the session and its JVM. Nothing happens where there is none."""
    global _held
    with _lock:
        held, _held = _held, None
        if held is not None:
            _drop(held)


def log_file() -> str | None:
    """Where the JVM of this process writes what would otherwise go to the terminal."""
    return None if _held is None else _log_file(_held.scratch.name)


def is_connect(session: SparkSession) -> bool:
    """A Connect session has the same methods but is not an instance of the classic class."""
    return type(session).__module__.startswith("pyspark.sql.connect")


def runs_locally(session: SparkSession) -> bool:
    """Whether executors share this process's file system for certain: they run in its own JVM."""
    return not is_connect(session) and is_local(session.sparkContext.master or "")


def isolated(session: SparkSession) -> SparkSession:
    """A session of its own on the same JVM or server: temporary views, functions and settings do not leak.

    On Connect it is a new session of the same server; `release` ends it.
    """
    own = session.newSession()
    if is_connect(own):
        _of_connect.add(own)
    return own


def release(session: SparkSession) -> None:
    """End a session that `isolated` gave. On classic sessions there is nothing to end: the JVM is shared."""
    if is_connect(session):
        _of_connect.discard(session)
        _quietly(session.stop)


# --- cancelling -----------------------------------------------------------------------------------------------------


@contextlib.contextmanager
def job_group(session: SparkSession, group: str, description: str) -> Iterator[None]:
    """Put the jobs that this thread starts in the block into a group that `cancel` can stop."""
    if is_connect(session):
        if group in session.getTags():
            yield
            return
        session.addTag(group)
        try:
            yield
        finally:
            session.removeTag(group)
        return
    context = session.sparkContext
    before = {name: context.getLocalProperty(name) for name in _GROUP_PROPERTIES}
    context.setJobGroup(group, description, interruptOnCancel=True)
    try:
        yield
    finally:
        for name, value in before.items():
            # None removes a property; the stubs do not know
            context.setLocalProperty(name, cast(str, value))


_GROUP_PROPERTIES = ("spark.jobGroup.id", "spark.job.description", "spark.job.interruptOnCancel")


def cancel(session: SparkSession, group: str) -> None:
    """Stop the running jobs of a group, and on classic sessions those it starts later too; from any thread."""
    if is_connect(session):
        session.interruptTag(group)
        return
    context = session.sparkContext
    # interruptTag() stops nothing on classic sessions. Later jobs too: a body may catch the first failure and go on.
    cast(Any, context)._jsc.sc().cancelJobGroupAndFutureJobs(group)


# --- starting -------------------------------------------------------------------------------------------------------


def _require_pyspark() -> None:
    try:
        import pyspark  # noqa: F401
    except ImportError as error:
        raise ConfigError("pyspark is not installed", hint="pip install 'fenceline[spark]'") from error


def _start(settings: SparkSettings) -> _Held:
    scratch = tempfile.TemporaryDirectory(prefix="fenceline-spark-", ignore_cleanup_errors=True)
    try:
        started = _connect(settings) if settings.is_connect else _classic(settings, scratch.name)
    except BaseException:
        scratch.cleanup()
        raise
    atexit.unregister(stop_session)
    atexit.register(stop_session)
    return _Held(settings, started, scratch, os.getpid())


def _connect(settings: SparkSettings) -> SparkSession:
    from pyspark.sql import SparkSession

    try:
        builder = SparkSession.builder.remote(settings.master).appName(settings.app_name)
        for name, value in settings.conf.items():
            builder = builder.config(name, value)
        session = builder.create()
        session.version  # the first call that talks to the server
    except ImportError as error:
        raise ConfigError(
            f"Spark Connect cannot be used: {error}", hint="pip install 'fenceline[spark]' brings what it needs"
        ) from error
    except Exception as error:  # whatever its transport raises
        raise ConfigError(
            f"no Spark Connect server answers at {settings.master}: {error}", hint="check that it runs, and its address"
        ) from error
    return session


def _classic(settings: SparkSettings, scratch: str) -> SparkSession:
    from pyspark import SparkConf, SparkContext
    from pyspark.sql import SparkSession

    if SparkContext._active_spark_context is not None:
        raise ConfigError(
            "this process has a Spark session that was not started here",
            hint="call get_session() without settings to use it, or stop() it first",
        )
    conf = settings.resolved(scratch)
    if settings.is_local:
        os.environ["PYSPARK_PYTHON"] = sys.executable
    else:
        os.environ.setdefault("PYSPARK_PYTHON", sys.executable)  # a cluster may have its Python elsewhere
    os.environ["PYSPARK_DRIVER_PYTHON"] = sys.executable
    if SparkContext._gateway is None:
        SparkContext._gateway = _launch(conf, scratch)
        SparkContext._jvm = SparkContext._gateway.jvm
    try:
        context = SparkContext(conf=SparkConf(loadDefaults=True).setAll(list(conf.items())))
        return SparkSession(context)
    except Exception as error:  # Py4J wraps whatever went wrong in the JVM
        _shut_down(SparkContext._gateway)
        _forget()
        raise ConfigError(
            f"Spark does not start on {settings.master}: {_first_line(error)}", hint="check the master and its settings"
        ) from error


def _launch(conf: Mapping[str, str], scratch: str) -> Any:
    """Start the JVM with its output in a file, and its settings in another: arguments can be read by anyone."""
    from pyspark.errors import PySparkRuntimeError
    from pyspark.java_gateway import launch_gateway

    archived = class_archive.find().options
    properties = f"{scratch}/spark.properties"
    with open(os.open(properties, os.O_WRONLY | os.O_CREAT, 0o600), "w", encoding="latin-1") as file:
        file.writelines(f"{_escaped(name)}={_escaped(value)}\n" for name, value in conf.items())
    submit = os.environ.get("PYSPARK_SUBMIT_ARGS", "pyspark-shell")
    ours = {
        "PYSPARK_SUBMIT_ARGS": f"--properties-file {shlex.quote(properties)} --load-spark-defaults {submit}",
        "SPARK_SUBMIT_OPTS": f"{archived} {os.environ.get('SPARK_SUBMIT_OPTS', '')}".strip(),
    }
    try:
        with _environment(ours), open(_log_file(scratch), "ab") as output:
            return cast(Any, launch_gateway)(popen_kwargs={"stdout": output, "stderr": subprocess.STDOUT})
    except PySparkRuntimeError as error:
        raise ConfigError(
            f"Spark's JVM ended at once: {_complaint(_log_file(scratch)) or error}",
            hint="check the settings given to it",
        ) from error


@contextlib.contextmanager
def _environment(ours: Mapping[str, str]) -> Iterator[None]:
    """The launcher takes these from this process's environment only."""
    before = {name: os.environ.get(name) for name in ours}
    os.environ.update(ours)
    try:
        yield
    finally:
        for name, value in before.items():
            if value is None:
                del os.environ[name]
            else:
                os.environ[name] = value


def _escaped(text: str) -> str:
    """One side of a line in a Java properties file: UTF-16 units, plain where they can be."""
    data = text.encode("utf-16-be")
    units = (int.from_bytes(data[at : at + 2]) for at in range(0, len(data), 2))
    return "".join(chr(u) if u < 128 and (chr(u).isalnum() or chr(u) in "._-/") else f"\\u{u:04x}" for u in units)


def _log_file(scratch: str) -> str:
    return f"{scratch}/spark.log"


def _complaint(log_file: str) -> str:
    """The line of Spark's log that says why it ended."""
    with open(log_file, encoding="utf-8", errors="replace") as file:
        lines = [line.strip() for line in file if line.strip()]
    telling = [line for line in lines if "Exception" in line or line.startswith(("Error", "Caused by"))]
    return (telling or lines or [""])[-1]


def _first_line(error: Exception) -> str:
    return str(error).strip().partition("\n")[0]


# --- ending ---------------------------------------------------------------------------------------------------------


def _made_by_user() -> SparkSession | None:
    from pyspark import SparkContext
    from pyspark.sql import SparkSession

    return SparkSession.builder.getOrCreate() if SparkContext._active_spark_context is not None else None


def _alive(held: _Held) -> bool:
    if held.pid != os.getpid():
        return False
    if is_connect(held.session):
        return not cast(Any, held.session).is_stopped
    context = cast(Any, held.session.sparkContext)
    process = context._gateway.proc if context._gateway is not None else None
    return context._jsc is not None and (process is None or process.poll() is None)


def _drop(held: _Held) -> None:
    """End what can be ended. A JVM that is gone already is no error here."""
    if held.pid != os.getpid():
        _forget()  # it is the parent's
        return
    if is_connect(held.session):
        for own in list(_of_connect):
            release(own)
        _quietly(held.session.stop)
    else:
        gateway = cast(Any, held.session.sparkContext)._gateway
        process = gateway.proc if gateway is not None else None
        if process is None or process.poll() is None:
            _quietly(held.session.stop)
        _shut_down(gateway)
        _forget()
    held.scratch.cleanup()


def _shut_down(gateway: Any) -> None:
    if gateway is None:
        return
    _quietly(gateway.shutdown)
    if gateway.proc is not None:
        gateway.proc.stdin.close()  # the JVM ends when its input does
        try:
            gateway.proc.wait(10)
        except subprocess.TimeoutExpired:
            gateway.proc.kill()
            gateway.proc.wait()


def _forget() -> None:
    """What pyspark keeps of a JVM that is gone; without this it would go on calling it."""
    from pyspark import SparkContext
    from pyspark.sql import SparkSession

    SparkContext._gateway = SparkContext._jvm = SparkContext._active_spark_context = None
    SparkSession._instantiatedSession = SparkSession._activeSession = None


def _quietly(call: Any) -> None:
    try:
        call()
    except Exception as error:  # noqa: BLE001 — it is being ended: what fails is what was already gone
        log.debug("while stopping Spark: %s", error)

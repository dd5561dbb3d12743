"""`fenceline doctor`: is everything here that Fenceline needs, and is the repository in good order?"""

from __future__ import annotations

import contextlib
import os
import platform
import re
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from dataclasses import asdict
from typing import Literal

import typer

from fenceline.api import Repository, store_at
from fenceline.cli.doctor_remote import examine_store
from fenceline.cli.failure import PROBLEMS_FOUND
from fenceline.cli.finding import Finding
from fenceline.cli.opening import reading
from fenceline.cli.options import Json, Repo
from fenceline.cli.output import Column, counted, emit, notes, one_line, say, size, span, table
from fenceline.errors import ConfigError, FencelineError, ObjectExists, StoreError
from fenceline.repo.native.condemned import announced
from fenceline.repo.native.local import LocalObjects
from fenceline.repo.native.refs import RefLog
from fenceline.repo.native.remote.objects import RemoteObjects
from fenceline.repo.native.repository import FORMAT
from fenceline.seams import Seams

LAKEFS = "lakefs://"
PYTHON_NEEDED = (3, 11)
JAVA_NEEDED = 17
LITTLE_SPACE = 2 * 10**9
NO_SPACE = 200 * 10**6
CLOCK_OFF = 2.0
CLOCK_FAR_OFF = 15.0  # half a lease: beyond it, live writers look dead and dead ones alive

GET_JAVA = (
    "needed for Spark steps only. Debian and Ubuntu: sudo apt install openjdk-17-jre-headless; "
    "macOS: brew install --cask temurin@17; elsewhere: Temurin 17 from https://adoptium.net"
)


def doctor(repo: Repo = ".", as_json: Json = False) -> None:
    """Check this machine and the repository; exits with 10 if something fails."""
    findings = list(examine(repo))
    failed = any(finding.state == "fail" for finding in findings)
    if as_json:
        emit({"ok": not failed, "findings": [asdict(finding) for finding in findings]})
    else:
        columns = (Column("check"), Column("state", style="bold", fixed=True), Column("what"))
        table(columns, ((f.check, f.state, f.what) for f in findings))
        for finding in findings:
            if finding.next_step:
                say(f"{finding.check}: {one_line(finding.next_step)}")
    if failed:
        if not as_json:
            notes().print("something above fails", style="red")
        raise typer.Exit(PROBLEMS_FOUND)


def examine(url: str) -> Iterator[Finding]:
    """Every check; those that need a repository only where there is one."""
    yield python_version()
    yield java_version()
    yield from spark_start()
    if url.startswith(LAKEFS):
        from fenceline.cli.doctor_lakefs import examine_lakefs

        yield from examine_lakefs(url)
        return
    try:
        store = store_at(url)
        if isinstance(store, LocalObjects) and os.path.isdir(store.path("")):
            yield free_space(store.path(""))
            yield from file_system(store.path(""))
        elif isinstance(store, RemoteObjects):
            yield from examine_store(store, clock, Seams())
        opened = reading(url)
    except FencelineError as error:
        yield no_repository(error)
        return
    yield Finding("repository", "ok", f"{opened.url}, format {FORMAT}")
    yield from heads(opened)
    yield from unfinished(opened)
    yield from collections(opened)


def python_version() -> Finding:
    needed = ".".join(map(str, PYTHON_NEEDED))
    if sys.version_info < PYTHON_NEEDED:
        return Finding("python", "fail", platform.python_version(), f"install Python {needed} or newer")
    return Finding("python", "ok", f"{platform.python_version()}, {needed} or newer is needed")


def java_version() -> Finding:
    java = _find_java()
    if java is None:
        return Finding("java", "warn", f"no Java found; {JAVA_NEEDED} or newer is needed", GET_JAVA)
    try:
        answer = subprocess.run([java, "-version"], capture_output=True, text=True, timeout=20, check=False)
    except (OSError, subprocess.TimeoutExpired) as error:
        return Finding("java", "warn", f"{java} cannot be run: {error}", GET_JAVA)
    found = re.search(r'version "(?:1\.)?(\d+)[^"]*"', answer.stderr + answer.stdout)
    if found is None:
        return Finding("java", "warn", f"{java} does not say its version", GET_JAVA)
    if int(found[1]) < JAVA_NEEDED:
        return Finding("java", "warn", f"{java} is Java {found[1]}; {JAVA_NEEDED} or newer is needed", GET_JAVA)
    return Finding("java", "ok", f"{java} is Java {found[1]}")


def spark_start() -> Iterator[Finding]:
    """Nothing where there is no Spark or no Java: it starts no Spark then."""
    try:
        from fenceline.spark import class_archive

        archive = class_archive.find()
    except (ImportError, ConfigError):
        return
    if archive.path.exists():
        yield Finding("spark", "ok", f"its classes are archived: {archive.path}")
    else:
        yield Finding("spark", "ok", "its classes are not archived", "fenceline warm makes it start faster")


def _find_java() -> str | None:
    home = os.environ.get("JAVA_HOME")
    if home and os.access(os.path.join(home, "bin", "java"), os.X_OK):
        return os.path.join(home, "bin", "java")
    return shutil.which("java")


def no_repository(error: FencelineError) -> Finding:
    return Finding("repository", "fail", error.message, error.hint or "fenceline fsck shows what is broken")


def free_space(root: str) -> Finding:
    free = shutil.disk_usage(root).free
    if free < LITTLE_SPACE:
        state: Literal["warn", "fail"] = "fail" if free < NO_SPACE else "warn"
        return Finding("disk space", state, f"{size(free)} left", "free some, or run fenceline gc")
    return Finding("disk space", "ok", f"{size(free)} left")


def file_system(root: str) -> Iterator[Finding]:
    """Do what a publish does, in a directory of its own beside the repository's temporary files."""
    beside = os.path.join(root, "tmp") if os.path.isdir(os.path.join(root, "tmp")) else root
    try:
        with _scratch(beside) as scratch:
            probe = LocalObjects(scratch)
            before = time.time()
            probe.create("probe", b"first")
            after = time.time()
            yield _second_create(probe)
            written = probe.stat("probe")
            if written is not None:
                yield clock(before, written.modified, after)
    except OSError as error:
        yield Finding("file system", "warn", f"cannot be tried: {error}", "it can be read; to write, fix permissions")
    except (StoreError, ConfigError) as error:
        yield Finding("file system", "fail", error.message, error.hint or "")


@contextlib.contextmanager
def _scratch(beside: str) -> Iterator[str]:
    made = tempfile.mkdtemp(prefix="doctor-", dir=beside)
    try:
        yield made
    finally:
        shutil.rmtree(made, ignore_errors=True)


def _second_create(probe: LocalObjects) -> Finding:
    try:
        probe.create("probe", b"second")
    except ObjectExists:
        return Finding("file system", "ok", "creates only if absent, and makes it durable")
    return Finding(
        "file system",
        "fail",
        "let a second writer take a name that was taken",
        "put the repository on ext4, xfs, btrfs, APFS or tmpfs",
    )


def clock(before: float, written: float, after: float) -> Finding:
    """The disk's time against ours: leases compare the two."""
    off = max(before - written, written - after, 0.0)
    if off < CLOCK_OFF:
        return Finding("clock", "ok", "agrees with the store's clock")
    state: Literal["warn", "fail"] = "fail" if off > CLOCK_FAR_OFF else "warn"
    return Finding(
        "clock", state, f"{off:.1f} s away from the store's clock", "synchronise both machines' clocks (NTP)"
    )


def heads(repo: Repository) -> Iterator[Finding]:
    sound = 0
    for what, log in (("branch", repo.native.branch_log), ("tag", repo.native.tag_log)):
        for name in log.names():
            broken = _broken_head(repo, log, name)
            if broken is None:
                sound += 1
            else:
                yield Finding(f"{what} {name}", "fail", broken, "fenceline fsck shows what that breaks")
    yield Finding("heads", "ok", f"{counted(sound, 'head')} readable")


def _broken_head(repo: Repository, log: RefLog, name: str) -> str | None:
    try:
        head = repo.native.head_at(name, log.last(name))
        if head is not None and head.commit.tree is not None:
            repo.native.trees.load(head.commit.tree)
    except FencelineError as error:
        return error.message
    return None


def unfinished(repo: Repository) -> Iterator[Finding]:
    """Intents of the dead are finished by the next writer; those in quarantine wait for a person."""
    found = list(repo.intents())
    stuck = [status for status in found if status.state in ("quarantined", "unreadable")]
    dead = [status for status in found if status.expired and status not in stuck]
    for status in stuck:
        yield Finding(
            "quarantine",
            "fail",
            f"{status.execution}: {status.why}",
            f"fenceline recover --resolve {status.execution} gives it up; add --retry to look once more",
        )
    if dead:
        ages = max(status.age or 0.0 for status in dead)
        yield Finding(
            "intents",
            "warn",
            f"{counted(len(dead), 'transaction')} of dead writers, the oldest {span(ages)} ago",
            "fenceline recover finishes them",
        )
    elif not stuck:
        yield Finding("intents", "ok", f"{counted(len(found), 'transaction')} running, none left behind")


def collections(repo: Repository) -> Iterator[Finding]:
    """A collection that was killed still forbids pointing at the commits it announced."""
    native = repo.native
    dead = [condemned for condemned in announced(native.objects) if native.seams.proven_dead(condemned.owner)]
    if dead:
        commits = sum(len(condemned.commits) for condemned in dead)
        yield Finding(
            "collections",
            "warn",
            f"{counted(len(dead), 'collection')} died and left {counted(commits, 'commit')} condemned",
            "fenceline gc --yes ends it",
        )
    else:
        yield Finding("collections", "ok", "none left behind")

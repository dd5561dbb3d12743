"""Attempt directories: what they are called, whose they are, and when they may go.

Every one holds a marker with the process that made it. A directory goes when that process is done with it, or when it
is proven dead. The marker goes last, so that a removal cut short leaves something the next sweep understands.
"""

from __future__ import annotations

import contextlib
import json
import logging
import os
import re
from collections.abc import Mapping
from pathlib import Path

from fenceline.errors import ContractError, store_error
from fenceline.repo.model import canonical, digest
from fenceline.seams import Owner, Seams

log = logging.getLogger(__name__)

MARKER = ".fenceline-attempt.json"
WORKSPACE = "workspace"
IDENTITY = ("workflow", "reference", "seq", "iteration", "task_id", "retry_count")
UNKNOWN_FOR = 3600.0  # seconds for which a directory whose owner cannot be read is left alone

_ATTEMPT, _SWEPT = "attempt.", "swept."
_NAME = re.compile(r"attempt(\.[A-Za-z0-9_-]+){7}")
_DIRECTORY = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC
_LONGEST = {"seq": 12, "iteration": 12, "retry_count": 12}  # all fields together stay below the 255 of a file name
_LONGEST_ID = 36  # a UUID


def attempt_name(execution: str, identity: Mapping[str, str | int]) -> str:
    """The directory's name: `attempt.<workflow>.<reference>.<seq>.<iteration>.<task id>.<retry count>.<execution>`."""
    missing = [name for name in IDENTITY if name not in identity]
    if missing or not execution:
        raise ContractError(
            f"an attempt directory cannot be named without {', '.join(missing) or 'the execution id'}",
            hint=f"identity has the keys {', '.join(IDENTITY)}",
        )
    return ".".join(["attempt", *(_field(name, str(identity[name])) for name in IDENTITY), _field("", execution)])


def _field(name: str, text: str) -> str:
    """A piece of a file name; what had to be changed or cut is kept apart by a hash."""
    longest = _LONGEST.get(name, _LONGEST_ID)
    plain = re.sub(r"[^A-Za-z0-9_-]+", "_", text)
    if plain == text and 0 < len(text) <= longest:
        return text
    return f"{plain[: longest - 9]}-{digest(text.encode(errors='surrogateescape'))[:8]}"


def create_attempt(
    root: str | os.PathLike[str], execution: str, identity: Mapping[str, str | int], seams: Seams
) -> tuple[Path, bytes]:
    """A new attempt directory, closed to other users, with its marker. An existing one: fail closed."""
    directory = Path(os.path.abspath(root)) / attempt_name(execution, identity)
    marker = canonical({"execution": execution, "created": seams.clock.now(), "owner": seams.owner().as_dict()})
    try:
        directory.parent.mkdir(parents=True, exist_ok=True)
        directory.mkdir(mode=0o700)
        _write_marker(directory, marker)
    except FileExistsError as error:
        raise ContractError(
            f"{error.filename} exists already",
            hint="an execution has one directory: start a new execution, and leave this one to the sweep",
        ) from error
    except OSError as error:
        raise store_error(error, f"creating the attempt directory {directory}") from error
    return directory, marker


def _write_marker(directory: Path, marker: bytes) -> None:
    fd = os.open(directory / MARKER, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC, 0o600)
    try:
        os.write(fd, marker)
    finally:
        os.close(fd)


def read_owner(directory: str | os.PathLike[str]) -> Owner | None:
    """The process that made an attempt directory; None where its marker is missing or cannot be read."""
    try:
        fd = os.open(os.path.join(directory, MARKER), os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC)
        with open(fd, "rb") as file:
            value = json.loads(file.read(65536))["owner"]
        owner = Owner(**value)
    except (OSError, ValueError, KeyError, TypeError):
        return None
    texts = (owner.host, owner.boot, owner.pid_space, owner.started)
    return owner if type(owner.pid) is int and all(isinstance(text, str) for text in texts) else None


# --- sweeping ---------------------------------------------------------------------------------------------------


def sweep_orphans(root: str | os.PathLike[str], seams: Seams) -> list[Path]:
    """Remove the attempt directories of dead processes; returns those that this call removed.

    Never one whose owner lives or may live (another host, another pid namespace). One without a readable marker is
    reported in the log and left alone for an hour after its last change. Nothing but attempt directories is touched.
    Any number of sweeps may run at once and be killed: a directory is renamed first, which one of them wins, and a
    renamed one is free for anybody to finish.
    """
    removed = []
    try:
        with os.scandir(root) as entries:
            found = sorted((entry for entry in entries if entry.is_dir(follow_symlinks=False)), key=lambda e: e.name)
    except FileNotFoundError:
        return []
    except OSError as error:
        raise store_error(error, f"listing the workspace root {root}") from error
    for entry in found:
        condemned: str | None = None
        if entry.name.startswith(_SWEPT) and _NAME.fullmatch(_ATTEMPT + entry.name.removeprefix(_SWEPT)):
            condemned = entry.path
        elif _NAME.fullmatch(entry.name) and _abandoned(entry.path, seams):
            condemned = _claim(entry.path)
        if condemned and remove_attempt(condemned):
            removed.append(Path(entry.path))
    return removed


def _abandoned(directory: str, seams: Seams) -> bool:
    owner = read_owner(directory)
    if owner is not None:
        return seams.proven_dead(owner)
    try:
        found = os.lstat(directory)
    except OSError:  # gone meanwhile
        return False
    age = seams.clock.now() - max(found.st_mtime, found.st_ctime)
    if age < UNKNOWN_FOR:
        log.warning("%s has no readable marker, so it is left alone until it is an hour old", directory)
        return False
    return True


def _claim(directory: str) -> str | None:
    """Take the directory out of its owner's and every other sweep's sight; None where another sweep was faster."""
    parent, name = os.path.split(directory)
    target = os.path.join(parent, _SWEPT + name.removeprefix(_ATTEMPT))
    try:
        os.rename(directory, target)
    except FileNotFoundError:
        return None
    except OSError as error:
        log.warning("the orphan %s cannot be moved aside: %s", directory, error)
        return None
    return target


# --- removing ---------------------------------------------------------------------------------------------------


def remove_attempt(directory: str | os.PathLike[str]) -> bool:
    """Remove an attempt directory, its marker last. Best effort: what fails is logged, and left to a sweep."""
    try:
        _remove(os.fspath(directory))
    except (OSError, RecursionError) as error:
        log.warning("the attempt directory %s is left behind: %s", directory, error)
        return False
    return True


def _remove(directory: str) -> None:
    with contextlib.suppress(FileNotFoundError):
        fd = os.open(directory, _DIRECTORY)
        try:
            _empty(fd, last=MARKER)
        finally:
            os.close(fd)
        os.rmdir(directory)


def _empty(fd: int, last: str = "") -> None:
    """Remove all that is in an open directory. Links are removed, never followed; what is gone already is fine."""
    if os.fstat(fd).st_mode & 0o700 != 0o700:
        os.fchmod(fd, 0o700)
    with os.scandir(fd) as entries:
        found = sorted(entries, key=lambda e: e.name == last) if last else list(entries)
    for entry in found:
        with contextlib.suppress(FileNotFoundError):
            if entry.is_dir(follow_symlinks=False):
                _remove_child(fd, entry.name)
            else:
                os.unlink(entry.name, dir_fd=fd)


def _remove_child(fd: int, name: str) -> None:
    try:
        child = os.open(name, _DIRECTORY, dir_fd=fd)
    except PermissionError:
        os.chmod(name, 0o700, dir_fd=fd)  # the body may have closed its own directory
        child = os.open(name, _DIRECTORY, dir_fd=fd)
    try:
        _empty(child)
    finally:
        os.close(child)
    os.rmdir(name, dir_fd=fd)

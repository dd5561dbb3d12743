"""The version of a task's code: a part of the identity of what a step publishes.

A retry under the same version adopts what an earlier attempt published; under another version it computes again. The
version is the one given with `version=`, else a digest of the source of the function and of the module it stands in.

What the digest cannot see: helpers imported from other modules, values that a closure or a default captured, data
files, installed packages, environment variables. A change there alone leaves the version as it was: give `version=` and
raise it, or force a rerun. What it sees too well: comments and blank lines. Changing them changes the version, so that
the step is computed once more, which costs time and is never wrong.
"""

from __future__ import annotations

import hashlib
import inspect
import linecache
import os
import unicodedata
from types import FunctionType

from fenceline.errors import ContractError

MAX_VERSION_LENGTH = 100
_DIGEST_LENGTH = 32


class NoSource(ContractError):
    """A task whose source cannot be read, so that its version must be given."""

    code = "contract.no_source"


def code_version(function: FunctionType, explicit: str | None = None) -> str:
    """The explicit version, or `source:` and a digest that is the same in every process that reads the same source."""
    return _source_digest(function) if explicit is None else _checked(explicit)


def location(function: FunctionType) -> tuple[str, int]:
    """File and line of a function; the file as seen from the working directory, where it lies below it."""
    return shown_path(function.__code__.co_filename), function.__code__.co_firstlineno


def shown_path(path: str) -> str:
    relative = os.path.relpath(path) if os.path.isabs(path) else path
    return path if relative.startswith(os.pardir) else relative


def _checked(version: str) -> str:
    if not isinstance(version, str) or not version.strip() or len(version) > MAX_VERSION_LENGTH:
        raise ContractError(
            f"version is {version!r}", hint=f"give a text of 1 to {MAX_VERSION_LENGTH} characters, such as version='1'"
        )
    if any(unicodedata.category(character) in ("Cc", "Cs") for character in version):
        raise ContractError(f"version {version!r} holds a control character", hint="remove it")
    return version


def _source_digest(function: FunctionType) -> str:
    filename = function.__code__.co_filename
    where = function.__globals__
    if where.get("__name__") == "__main__" and "__file__" not in where:
        # a session has no module source: what was typed before this function would be missing from the digest
        raise _no_source(function, "it was defined interactively")
    linecache.checkcache(filename)  # a reloaded module must not be known by its old text
    lines = linecache.getlines(filename, where)
    if not lines:
        raise _no_source(function, f"{shown_path(filename)} cannot be read")
    block = inspect.getblock(lines[function.__code__.co_firstlineno - 1 :])
    digest = hashlib.sha256()
    for part in (function.__qualname__, "".join(block), "".join(lines)):
        data = part.encode("utf-8", "surrogatepass")
        digest.update(b"%d:" % len(data))
        digest.update(data)
    return f"source:{digest.hexdigest()[:_DIGEST_LENGTH]}"


def _no_source(function: FunctionType, why: str) -> NoSource:
    return NoSource(
        f"the code version of {function.__qualname__} cannot be derived: {why}",
        hint="give one: @task(…, version='1'), and raise it whenever the code changes",
    )

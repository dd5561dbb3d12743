"""Names of branches, tags and paths: checked before any write, encoded so that no store can confuse two of them."""

from __future__ import annotations

import re
import unicodedata
from urllib.parse import unquote

from fenceline.errors import InvalidName

MAX_PATH_BYTES = 1024
MAX_COMPONENT_BYTES = 240  # file systems stop at 255; the rest is room for temporary names
MAX_REF_BYTES = 200

_PLAIN = frozenset(b"abcdefghijklmnopqrstuvwxyz0123456789._-")
_COMMIT_ID = re.compile(r"[0-9a-f]{64}")
_REF_FORBIDDEN = re.compile(r"[~^:?*\[\]\\@\s]")


def _check_text(what: str, name: str) -> None:
    if not name:
        raise InvalidName(f"{what} name is empty", hint=f"give the {what} a name")
    for character in name:
        if unicodedata.category(character) in ("Cc", "Cs"):
            raise InvalidName(
                f"{what} {name!r} holds the control character U+{ord(character):04X}",
                hint="remove it",
                name=name,
            )
    normal = unicodedata.normalize("NFC", name)
    if normal != name:
        raise InvalidName(
            f"{what} {name!r} is not in Unicode normal form C, so it would look like {normal!r} and be another name",
            hint=f"use {normal!r}",
            name=name,
        )


def _check_components(what: str, name: str) -> None:
    if name.startswith("/"):
        raise InvalidName(f"{what} {name!r} is absolute", hint="start it below the root, without '/'", name=name)
    for part in name.split("/"):
        if part in ("", ".", ".."):
            raise InvalidName(
                f"{what} {name!r} has the component {part!r}, which could lead out of the repository",
                hint="remove it",
                name=name,
            )
        if len(part.encode()) > MAX_COMPONENT_BYTES:
            raise InvalidName(
                f"{what} {name[:40]!r}… has a component of {len(part.encode())} bytes",
                hint=f"at most {MAX_COMPONENT_BYTES} bytes each",
            )


def check_path(path: str) -> str:
    """The path of a file or dataset inside a repository, without a trailing slash."""
    _check_text("path", path)
    if len(path.encode()) > MAX_PATH_BYTES:
        raise InvalidName(f"path {path[:40]!r}… has {len(path.encode())} bytes", hint=f"at most {MAX_PATH_BYTES}")
    _check_components("path", path)
    return path


def check_prefix(prefix: str) -> str:
    """A directory inside a repository; '' and '/' mean its root. Returned without a trailing slash."""
    stripped = prefix.removesuffix("/")
    return check_path(stripped) if stripped else ""


def is_commit_id(text: str) -> bool:
    return _COMMIT_ID.fullmatch(text) is not None


def check_ref(name: str, what: str = "branch") -> str:
    """The name of a branch or tag."""
    _check_text(what, name)
    if len(encode_ref(name)) > MAX_REF_BYTES:
        raise InvalidName(
            f"{what} {name[:40]!r}… is too long", hint=f"at most {MAX_REF_BYTES} bytes once percent-encoded"
        )
    _check_components(what, name)
    bad = _REF_FORBIDDEN.search(name)
    if bad:
        raise InvalidName(
            f"{what} {name!r} holds {bad.group()!r}",
            hint="refs use that character for something else",
            name=name,
        )
    if name.startswith("-") or any(part.startswith(".") for part in name.split("/")):
        raise InvalidName(
            f"{what} {name!r} has a part that starts with '-' or '.'",
            hint="start it with a letter",
            name=name,
        )
    if is_commit_id(name):
        raise InvalidName(
            f"{what} {name!r} reads like a commit id",
            hint="choose a name with another letter in it",
            name=name,
        )
    return name


def encode_ref(name: str) -> str:
    """One path component for a ref name, the same on every store.

    Upper case is encoded too: 'Main' and 'main' must not meet on a case-insensitive disk.
    """
    return "".join(chr(byte) if byte in _PLAIN else f"%{byte:02x}" for byte in name.encode())


def decode_ref(component: str) -> str:
    return unquote(component)


def within(path: str, prefix: str) -> bool:
    """Whether `path` is `prefix` itself or lies below it, component by component."""
    return not prefix or path == prefix or path.startswith(prefix + "/")


def overlap(one: str, other: str) -> bool:
    """Whether a change at one path can matter to the other: they are equal, or one lies below the other."""
    return within(one, other) or within(other, one)

"""Patterns over the paths of a workspace.

`*` and `?` match within one path component, `**` alone as a component matches any number of directories
(none too, and at the end every file below), `[abc]` and `[!abc]` one character. Upper and lower case differ, hidden
files count, and only files are matched.
"""

from __future__ import annotations

import re

from fenceline.errors import ContractError


def glob_regex(pattern: str) -> re.Pattern[str]:
    """The pattern as a regular expression over whole relative paths; see the module for what patterns mean."""
    parts: list[str] = []
    for part in _check_pattern(pattern).split("/"):
        if part != "**" or parts[-1:] != ["**"]:
            parts.append(part)
    text = ""
    for at, part in enumerate(parts):
        last = at == len(parts) - 1
        if part == "**":
            text += ".+" if last else "(?:[^/]+/)*"
        else:
            text += _component_regex(part, pattern) + ("" if last else "/")
    return re.compile(text, re.DOTALL)


def _check_pattern(pattern: str) -> str:
    if not isinstance(pattern, str) or not pattern:
        raise ContractError(f"the pattern is {pattern!r}", hint="write one such as 'plays/**/*.parquet'")
    if "\0" in pattern or any(part in ("", ".", "..") for part in pattern.split("/")):
        raise ContractError(
            f"the pattern {pattern!r} is absolute, ends with '/' or leads out of the workspace",
            hint="write it relative to the workspace; 'plays/**' matches all files below plays",
        )
    if any("**" in part and part != "**" for part in pattern.split("/")):
        raise ContractError(f"the pattern {pattern!r} has '**' inside a name", hint="'**' stands alone between slashes")
    return pattern


_PIECE = re.compile(r"\*|\?|\[(!?)(\]?[^\]/]*)\]|[^*?\[]+|\[", re.DOTALL)


def _component_regex(part: str, pattern: str) -> str:
    text = ""
    for piece in _PIECE.finditer(part):
        found = piece.group()
        if found == "*":
            text += "[^/]*"
        elif found == "?":
            text += "[^/]"
        elif piece.group(2) is not None:
            inside = re.sub(r"([\\\[&~|^])", r"\\\1", piece.group(2))
            try:
                re.compile(f"[{inside}]")
            except re.error as error:
                raise ContractError(f"the pattern {pattern!r} has a bad class {found!r}", hint=str(error)) from error
            text += f"(?!/)[{'^' if piece.group(1) else ''}{inside}]"
        elif found == "[":
            raise ContractError(f"the pattern {pattern!r} has a '[' without ']'", hint="write [[] for the character")
        else:
            text += re.escape(found)
    return text


def is_pattern(text: str) -> bool:
    return any(character in text for character in "*?[")


def literal(path: str) -> str:
    """A pattern that matches this path only."""
    return re.sub(r"([*?\[])", r"[\1]", path)

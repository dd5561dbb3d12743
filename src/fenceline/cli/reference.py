"""Writes the reference of the command line from the commands themselves.

python -m fenceline.cli.reference > docs/reference/cli.md
"""

from __future__ import annotations

import sys
from collections.abc import Iterator
from typing import Any

import typer

from fenceline.cli.failure import EXIT_CODES
from fenceline.cli.main import PANELS, app, name_of

COMMON = ("--repo", "--json", "--help")
TABLE = ("| | |", "|---|---|")

HEAD = """\
# The `fenceline` command

<!-- Written by `python -m fenceline.cli.reference > docs/reference/cli.md`: change the commands, not this page. -->

Tables on a terminal, plain columns in a pipe, one JSON document with `--json`. Ids are short for people and whole in
JSON. Progress and remarks go to standard error. Commands that only look open the repository read-only.

A REF is a branch, a tag or a commit id (8 or more of its letters are enough), `main@12` for the branch as entry 12 left
it, and any of them with `~3` for three commits before it.
"""


def reference() -> str:
    """The whole page as Markdown."""
    group: Any = typer.main.get_command(app)
    root = group.context_class(group, info_name="fenceline")
    return "\n".join([HEAD, *_common(group, root), *_panels(group, root), *_exit_codes()])


def _common(group: Any, root: Any) -> Iterator[str]:
    yield "Every command has:\n"
    command = group.get_command(root, "log")
    yield from (*TABLE, *_rows(command, root, "option", common=True), "")


def _panels(group: Any, root: Any) -> Iterator[str]:
    for panel, commands in PANELS.items():
        yield f"## {panel}\n"
        for function in commands:
            command = group.get_command(root, name_of(function))
            context = command.context_class(command, info_name=command.name, parent=root)
            pieces = " ".join(piece.strip("{}") for piece in command.collect_usage_pieces(context))
            yield f"### `fenceline {command.name}`\n"
            yield f"{command.help}\n"
            yield f"```\nfenceline {command.name} {pieces}\n```\n"
            rows = [*_rows(command, root, "argument"), *_rows(command, root, "option")]
            if rows:
                yield from (*TABLE, *rows, "")


def _rows(command: Any, root: Any, kind: str, *, common: bool = False) -> Iterator[str]:
    context = command.context_class(command, info_name=command.name, parent=root)
    for parameter in command.get_params(context):
        record = parameter.get_help_record(context)
        if parameter.param_type_name != kind or record is None:
            continue
        is_common = any(option in COMMON for option in parameter.opts)
        if is_common is common:
            name, text = (_cell(value) for value in record)
            yield f"| `{name}` | {text} |"


def _cell(text: str) -> str:
    return text.replace("|", "\\|").replace(" <str>", "").replace("  [", " [")


def _exit_codes() -> Iterator[str]:
    yield "## Exit codes\n"
    yield from ("| code | meaning |", "|---|---|")
    for code, meaning in EXIT_CODES.items():
        yield f"| {code} | {meaning} |"
    yield ""


if __name__ == "__main__":
    sys.stdout.write(reference())

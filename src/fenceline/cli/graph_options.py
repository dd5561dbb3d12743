"""Options that the commands for graphs share."""

from __future__ import annotations

import sys
from typing import Annotated

import typer

from fenceline.errors import ContractError, store_error

Branch = Annotated[str, typer.Option("--branch", "-b", help="The branch to change.")]
At = Annotated[str, typer.Option("--graph", "-g", metavar="PATH", help="The graph's directory.", show_default="root")]
SchemaFile = Annotated[str, typer.Argument(metavar="SCHEMA", help="A file in the schema language; - is stdin.")]
Tables = Annotated[
    list[str] | None,
    typer.Option("--table", metavar="TYPE", help="Only this node or edge type; repeat it.", show_default="all"),
]


def text_of(path: str) -> str:
    """What a file, or stdin, says."""
    if path == "-":
        return sys.stdin.read()
    try:
        with open(path, encoding="utf-8") as file:
            return file.read()
    except FileNotFoundError as error:
        raise ContractError(f"there is no file {path}", hint="check the path") from error
    except UnicodeDecodeError as error:
        raise ContractError(f"{path} is no UTF-8", hint="save it as UTF-8") from error
    except OSError as error:
        raise store_error(error, f"reading {path}") from error

"""Options and arguments that several commands share, so that they read and behave alike everywhere."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Annotated, Any

import typer

from fenceline.cli.failure import JSON_MODE
from fenceline.errors import ContractError


def _remember(context: typer.Context, wanted: bool) -> bool:
    """An error is reported in the same form as the answer would have been."""
    context.meta[JSON_MODE] = wanted
    return wanted


Repo = Annotated[
    str,
    typer.Option(
        "--repo",
        envvar="FENCELINE_REPO",
        help="The repository: a path, or a URL: file://, s3://, gs://, az:// or lakefs://.",
        show_default="the current directory",
    ),
]
Json = Annotated[
    bool,
    typer.Option(
        "--json",
        callback=_remember,
        is_eager=True,
        help="Print one JSON document; errors as JSON on standard error.",
    ),
]
JsonLines = Annotated[
    bool,
    typer.Option(
        "--json",
        callback=_remember,
        is_eager=True,
        help="Print a JSON object a line: the events as they come, at last the run; errors as JSON on standard error.",
    ),
]
Actor = Annotated[
    str | None, typer.Option("--actor", help="Who makes the change.", show_default="the current user and host")
]
Message = Annotated[str, typer.Option("--message", "-m", help="What the change is for; shown by log.")]
Limit = Annotated[int | None, typer.Option("-n", "--limit", min=1, help="Show only the N newest.", metavar="N")]

RefArgument = Annotated[
    str, typer.Argument(metavar="REF", help="A branch, tag or commit id; main~3, main@12.", show_default=True)
]
BranchArgument = Annotated[str, typer.Argument(metavar="BRANCH", help="The branch to change.")]
PathArgument = Annotated[str, typer.Argument(metavar="PATH", help="A path in the repository.")]
PipelineArgument = Annotated[
    str, typer.Argument(metavar="MODULE[:PIPELINE]", help="package.module or path/to/file.py, and after ':' which one.")
]
Params = Annotated[str, typer.Option("--params", help="The params as JSON, or @FILE to read them from a file.")]
RunBranch = Annotated[str, typer.Option("--branch", help="The branch to start from and to publish to.")]


def read_params(text: str) -> Any:
    """What `--params` was given."""
    try:
        return json.loads(Path(text[1:]).read_text() if text.startswith("@") else text)
    except (OSError, ValueError) as error:
        raise ContractError(f"--params cannot be read: {error}", hint="give JSON, or @FILE") from error

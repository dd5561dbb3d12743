"""The reference page and the help texts keep up with the commands."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import typer
from typer.testing import CliRunner

import fenceline
from fenceline.cli.failure import EXIT_CODES
from fenceline.cli.main import PANELS, app, name_of
from fenceline.cli.reference import reference

PAGE = Path(__file__).parents[2] / "docs" / "reference" / "cli.md"
GROUP: Any = typer.main.get_command(app)


def test_page_is_up_to_date() -> None:
    assert PAGE.read_text() == reference(), "run: python -m fenceline.cli.reference > docs/reference/cli.md"


def test_page_has_every_command_and_every_exit_code() -> None:
    page = PAGE.read_text()
    assert {name_of(f) for commands in PANELS.values() for f in commands} == set(GROUP.commands)
    for name in GROUP.commands:
        assert f"### `fenceline {name}`" in page
    for code in EXIT_CODES:
        assert f"| {code} | " in page


@pytest.mark.parametrize("name", sorted(GROUP.commands))
def test_every_command_and_parameter_has_help(name: str) -> None:
    command = GROUP.commands[name]
    assert command.help
    assert command.help[0].isupper()
    context = command.context_class(command, info_name=name)
    for parameter in command.get_params(context):
        text = (parameter.get_help_record(context) or ("", ""))[1]
        assert len(text) > 5, f"{name}: {parameter.name} has no help"


# They look at code or at the machine, are told by each attempt, or make what is not yet a repository of ours.
WITHOUT_A_REPOSITORY = {"check", "deploy", "extract", "lakefs setup", "start", "warm"}


@pytest.mark.parametrize("name", sorted(GROUP.commands))
def test_every_command_takes_a_repository_and_speaks_json(name: str) -> None:
    options = {option for parameter in GROUP.commands[name].params for option in parameter.opts}
    wanted = {"--json"} if name in WITHOUT_A_REPOSITORY else {"--repo", "--json"}
    assert wanted <= options
    assert CliRunner().invoke(app, [name, "-h"]).exit_code == 0


def test_version() -> None:
    assert CliRunner().invoke(app, ["--version"]).stdout == f"fenceline {fenceline.__version__}\n"

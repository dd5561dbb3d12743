"""The command on a `lakefs://` repository: what reads works, what lakeFS does itself is refused with the way."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from lake_world import World, make_world, ref_of, writes
from typer.testing import CliRunner

import fenceline as fl
from fenceline.cli.main import app
from fenceline.repo.lakefs.client import Client
from fenceline.repo.lakefs.sdk import Access


class Cli:
    def __init__(self, url: str, access: Access) -> None:
        self._runner = CliRunner()
        self._environment = {
            "FENCELINE_REPO": url,
            "FORCE_COLOR": None,
            "TTY_COMPATIBLE": None,
            "LAKECTL_SERVER_ENDPOINT_URL": access.endpoint,
            "LAKECTL_CREDENTIALS_ACCESS_KEY_ID": access.key,
            "LAKECTL_CREDENTIALS_SECRET_ACCESS_KEY": access.secret,
        }

    def text(self, *arguments: str, code: int = 0) -> str:
        result = self._runner.invoke(app, list(arguments), env=self._environment, catch_exceptions=False)
        assert result.exit_code == code, f"{arguments}: {result.exit_code}\n{result.stdout}\n{result.stderr}"
        return result.stdout + result.stderr

    def json(self, *arguments: str) -> Any:
        return json.loads(self.text(*arguments, "--json"))


@pytest.fixture
def world(client: Client, tmp_path: Path) -> World:
    return make_world(client, tmp_path / "work")


@pytest.fixture
def cli(world: World, access: Access) -> Cli:
    return Cli(world.repo.url, access)


def test_reading_commands(world: World, cli: Cli, tmp_path: Path) -> None:
    start = world.head
    published = ref_of(world.run(world.task(writes("hello")), world.schedule()))
    assert [item["commit"]["id"] for item in cli.json("log", "main")[:2]] == [published, start]
    assert "build" in cli.text("log", "main")
    assert {row["path"] for row in cli.json("ls", "main", "--recursive")["entries"]} >= {"out.txt", "raw/a.txt"}
    assert cli.text("cat", "main", "out.txt") == "hello"
    cli.text("get", "main", "out.txt", str(tmp_path / "got.txt"))
    assert (tmp_path / "got.txt").read_text() == "hello"
    cli.text("get", start, "raw", str(tmp_path / "raw"))
    assert (tmp_path / "raw/a.txt").read_text() == "a"
    assert [(c["path"], c["status"]) for c in cli.json("diff", start, "main")["changes"]] == [("out.txt", "added")]
    assert cli.json("diff", "main~1", "main")["left"] == start
    shown = cli.json("show", "main")
    assert shown["commit"]["id"] == published
    assert [head["name"] for head in cli.json("branch")] == ["main"], "staging branches and records are not shown"
    assert cli.json("tag") == []


def test_branches_and_tags(world: World, cli: Cli) -> None:
    cli.text("branch", "dev")
    cli.text("tag", "v1")
    assert {head["name"] for head in cli.json("branch")} == {"dev", "main"}
    assert [head["name"] for head in cli.json("tag")] == ["v1"]
    assert cli.json("show", "v1")["commit"]["id"] == world.head
    cli.text("branch", "--delete", "dev")
    cli.text("tag", "--delete", "v1")
    assert [head["name"] for head in cli.json("branch")] == ["main"]


def test_care_commands(world: World, cli: Cli) -> None:
    world.client.create_branch("fenceline-staging-by-hand", world.head)
    assert "nothing to recover" in cli.text("recover"), "a branch that is not ours is left alone"
    assert "no unfinished transaction" in cli.text("intents")
    assert "no transaction has ended" in cli.text("recoveries")


def test_put_and_rm(world: World, cli: Cli, tmp_path: Path) -> None:
    (tmp_path / "x.txt").write_text("x")
    assert cli.json("put", "main", str(tmp_path / "x.txt"), "raw/x.txt")["op"] == "publish"
    assert world.content() == {"raw/a.txt": b"a", "raw/x.txt": b"x"}
    cli.text("rm", "main", "raw/x.txt")
    assert world.content() == {"raw/a.txt": b"a"}


@pytest.mark.parametrize("command", [["gc"], ["fsck"], ["revert", "main"]])
def test_what_is_not_there_says_what_to_do(cli: Cli, command: list[str]) -> None:
    assert "on lakeFS" in cli.text(*command, code=3)


def test_views_in_python(world: World, access: Access, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("LAKECTL_SERVER_ENDPOINT_URL", access.endpoint or "")
    monkeypatch.setenv("LAKECTL_CREDENTIALS_ACCESS_KEY_ID", access.key or "")
    monkeypatch.setenv("LAKECTL_CREDENTIALS_SECRET_ACCESS_KEY", access.secret or "")
    repo = fl.open_repository(world.repo.url)
    assert repo.head("main").commit.id == world.head
    assert repo.read("main", "raw/a.txt") == b"a"
    rehearsal = fl.try_task(world.task(writes()), repo.at("main"), {})
    assert [unit.path for unit in rehearsal.changes] == ["out.txt"]
    with pytest.raises(fl.FencelineError, match="there is no repository"):
        fl.open_repository("lakefs://not-there-at-all")

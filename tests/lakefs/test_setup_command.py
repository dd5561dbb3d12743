"""`fenceline lakefs setup` and what `fenceline doctor` says, as people use them."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

from fenceline.cli.main import app
from fenceline.repo.lakefs import hook, setup
from fenceline.repo.lakefs.client import Client
from fenceline.repo.lakefs.sdk import Access


@pytest.fixture
def named(access: Access, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """The server in the environment, as `lakectl` reads it."""
    monkeypatch.setenv("LAKECTL_CONFIG_FILE", str(tmp_path / "none.yaml"))
    monkeypatch.setenv("LAKECTL_SERVER_ENDPOINT_URL", str(access.endpoint))
    monkeypatch.setenv("LAKECTL_CREDENTIALS_ACCESS_KEY_ID", str(access.key))
    monkeypatch.setenv("LAKECTL_CREDENTIALS_SECRET_ACCESS_KEY", str(access.secret))
    monkeypatch.delenv("FENCELINE_REPO", raising=False)


def run(*words: str, code: int = 0) -> str:
    ended = CliRunner().invoke(app, list(words))
    assert ended.exit_code == code, ended.output
    return ended.output


def findings(repository: str, code: int = 0) -> dict[str, dict[str, Any]]:
    found = json.loads(run("doctor", "--repo", f"lakefs://{repository}", "--json", code=code))
    return {finding["check"]: finding for finding in found["findings"]}


@pytest.mark.usefixtures("named")
def test_setup_shows_first_and_does_it_when_told(client: Client) -> None:
    before = client.head("main")
    shown = run("lakefs", "setup", client.repository)
    assert f"install {hook.HOOK_PATH} on main" in shown
    assert "dry run" in shown
    assert client.head("main") == before

    assert "is fenced at" in run("lakefs", "setup", client.repository, "--yes")
    head = client.head("main")
    assert hook.installed(client, head)
    assert "already" in run("lakefs", "setup", f"lakefs://{client.repository}", "--yes")
    assert client.head("main") == head
    assert [branch.name for branch in client.branches()] == ["main"]


@pytest.mark.usefixtures("named")
def test_setup_protects_and_keeps_other_rules(client: Client) -> None:
    client.set_protection(["release-*"])
    told = json.loads(run("lakefs", "setup", client.repository, "--protect", "--yes", "--json"))
    assert (told["hook"], told["protected"], told["verified"]) == ("installed", True, True)
    assert sorted(client.protection()) == ["main", "release-*"]


@pytest.mark.usefixtures("named")
def test_setup_creates_a_repository_when_told(repository_name: str, access: Access) -> None:
    assert "--create" in run("lakefs", "setup", repository_name, code=3)
    storage = f"local://fenceline-tests/{repository_name}"
    assert "dry run" in run("lakefs", "setup", repository_name, "--create", storage)
    run("lakefs", "setup", repository_name, "--create", storage, "--yes")
    client = Client(repository_name, access)
    assert setup.look(client, "main").done
    client.close()


@pytest.mark.usefixtures("named")
def test_setup_of_a_name_that_is_none() -> None:
    assert "names no lakeFS repository" in run("lakefs", "setup", "lakefs://a/b", code=3)


@pytest.mark.usefixtures("named")
def test_doctor_says_what_the_fence_rests_on(client: Client) -> None:
    found = findings(client.repository)
    assert found["lakeFS"]["state"] == "ok"
    assert found["hook on main"]["state"] == "warn"
    assert "fence='serial'" in found["hook on main"]["what"]
    assert "lakefs setup" in found["hook on main"]["next_step"]
    assert found["protection"]["state"] == "warn"

    run("lakefs", "setup", client.repository, "--protect", "--yes")
    found = findings(client.repository)
    assert {check["state"] for name, check in found.items() if name != "java"} == {"ok"}


@pytest.mark.usefixtures("named")
def test_doctor_finds_what_stops_publications(client: Client) -> None:
    client.create_branch(f"{setup.SCRATCH_PREFIX}dead", "main", hidden=True)
    client.put("main", "left", b"1")
    found = findings(client.repository, code=10)
    assert found["uncommitted"]["state"] == "fail"
    assert "left" in found["uncommitted"]["what"]
    assert found["left behind"]["state"] == "warn"


@pytest.mark.usefixtures("named")
def test_doctor_of_a_repository_or_server_that_is_not_there(
    repository_name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert findings(repository_name, code=10)["repository"]["state"] == "fail"
    monkeypatch.setenv("LAKECTL_CREDENTIALS_SECRET_ACCESS_KEY", "wrong")
    assert "401" in findings(repository_name, code=10)["lakeFS"]["what"]

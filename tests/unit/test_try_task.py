"""`fl.try_task`: an attempt that tells what it would change, and leaves nothing."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest
from pydantic import BaseModel, ConfigDict

import fenceline as fl
from fenceline.errors import NotFound, TransactionClosed
from fenceline.task.contract import InvalidParams
from fenceline.task.guard import GuardViolations
from fenceline.task.result import Phase

Put = Callable[..., str]


class Params(BaseModel):
    model_config = ConfigDict(extra="forbid")
    text: str = "hello"


class Result(BaseModel):
    length: int


SPEC = fl.WorkspaceSpec(pre=[fl.require_file("old.txt")], post=[fl.require_file("new.txt")])


@fl.task(name="demo.rewrite", owner="data@example.com", workspace=SPEC, version="1")
def rewrite(workspace: Path, params: Params) -> Result:
    (workspace / "same.txt").write_text("same")
    (workspace / "old.txt").unlink()
    (workspace / "grown.txt").write_text(params.text)
    if params.text:
        (workspace / "new.txt").write_text(params.text)
    return Result(length=len(params.text))


@fl.task(name="demo.look", owner="data@example.com", workspace=fl.WorkspaceSpec(read_only=True), version="1")
def look(workspace: Path, params: Params) -> Result:
    return Result(length=len(list(workspace.iterdir())))


@fl.task(name="demo.free", owner="data@example.com", version="1")
def free(params: Params) -> Result:
    return Result(length=len(params.text))


@pytest.fixture
def songs(disk_repo: fl.Repository, put: Put) -> fl.Repository:
    put(disk_repo, {"old.txt": b"1", "grown.txt": b"1", "same.txt": b"same"})
    return disk_repo


def test_a_rehearsal_shows_the_diff(songs: fl.Repository) -> None:
    tried = fl.try_task(rewrite, songs.at("main"), Params(text="hi"))
    assert [(unit.status, unit.path) for unit in tried.changes] == [
        ("changed", "grown.txt"),
        ("added", "new.txt"),
        ("removed", "old.txt"),
    ]
    assert tried.result == {"length": 2}
    assert [verdict["status"] for verdict in tried.guards] == ["passed", "passed"]
    assert str(tried).splitlines() == [
        "changed  grown.txt  1 bytes → 2 bytes",
        "added    new.txt    2 bytes",
        "removed  old.txt    1 bytes",
        'result   {"length": 2}',
        "3 changes; nothing was published",
    ]


def test_a_rehearsal_leaves_nothing(songs: fl.Repository) -> None:
    before = songs.head("main")
    held = {str(path) for path in Path(songs.url.removeprefix("file://")).glob("files/*/**/*")}
    fl.try_task(rewrite, songs.at("main"))
    assert songs.head("main") == before
    assert list(songs.intents()) == []
    assert {str(path) for path in Path(songs.url.removeprefix("file://")).glob("files/*/**/*")} == held
    assert songs.fsck().clean


def test_it_runs_where_the_view_is(songs: fl.Repository, put: Put) -> None:
    put(songs, {"old.txt": None})
    with pytest.raises(GuardViolations, match=r"require_file old\.txt: found nothing"):
        fl.try_task(rewrite, songs.at("main"))
    assert len(fl.try_task(rewrite, songs.at("main~1")).changes) == 3
    assert len(fl.try_task(rewrite, songs.at(songs.commit("main~1").id)).changes) == 3


def test_what_goes_wrong_is_raised(songs: fl.Repository) -> None:
    with pytest.raises(GuardViolations, match="after the body"):
        fl.try_task(rewrite, songs.at("main"), {"text": ""})
    with pytest.raises(InvalidParams, match="did you mean text"):
        fl.try_task(rewrite, songs.at("main"), {"texts": ""})
    with pytest.raises(fl.ContractError, match="is no task"):
        fl.try_task(rewrite.function, songs.at("main"))  # type: ignore[arg-type]
    assert list(songs.intents()) == []


def test_tasks_that_publish_nothing_change_nothing(songs: fl.Repository) -> None:
    for task, length in ((look, 3), (free, 5)):
        tried = fl.try_task(task, songs.at("main"))
        assert (tried.result, tried.changes) == ({"length": length}, ())
        assert str(tried).endswith("no changes; nothing was published")


def test_a_repository_opened_for_reading_runs_only_those(songs: fl.Repository) -> None:
    reading = fl.open_repository(songs.url, "r").at("main")
    assert fl.try_task(look, reading).result == {"length": 3}
    with pytest.raises(TransactionClosed, match=r"cannot try demo\.rewrite"):
        fl.try_task(rewrite, reading)


def test_phases_are_told_as_they_pass(songs: fl.Repository) -> None:
    phases: list[Phase] = []
    fl.try_task(rewrite, songs.at("main"), on_phase=phases.append)
    assert phases == [
        Phase.MATERIALISE,
        Phase.PRE_GUARDS,
        Phase.BODY,
        Phase.RESULT_MODEL,
        Phase.POST_GUARDS,
        Phase.STAGE,
    ]


def test_a_view_of_nothing_is_refused_before_anything_runs(songs: fl.Repository) -> None:
    with pytest.raises(NotFound):
        fl.try_task(rewrite, songs.at("absent"))

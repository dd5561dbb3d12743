"""The input of an attempt: one commit or several, and which of them it works on."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from pydantic import BaseModel, ConfigDict

from fenceline import Repository, WorkspaceSpec, task
from fenceline.errors import ContractError, NotFound, PublishFenceError
from fenceline.task.given import chosen, read_place, validate


class Params(BaseModel):
    model_config = ConfigDict(extra="forbid")


class Out(BaseModel):
    pass


@task(name="given.work", owner="t@example.com", workspace=WorkspaceSpec())
def work(workspace: Path, params: Params) -> Out:
    return Out()


@task(name="given.serial", owner="t@example.com", workspace=WorkspaceSpec(fence="serial"))
def serial(workspace: Path, params: Params) -> Out:
    return Out()


def place(**more: Any) -> dict[str, Any]:
    return {"repository": "file:///r", "branch": "main", "ref_type": "commit", **more}


def test_one_ref_or_several() -> None:
    assert read_place(place(ref="a"), "t").refs == ("a",)
    assert read_place(place(refs=["a", None, "b"]), "t").refs == ("a", "b"), "of skipped steps they are null"
    found, _ = validate(work, {"workspace": place(refs=["a"], on_conflict="rebase"), "params": {}})
    assert found is not None
    assert (found.refs, found.on_conflict) == (("a",), "rebase")
    assert found.output("c") == {"repository": "file:///r", "branch": "main", "ref_type": "commit", "ref": "c"}


@pytest.mark.parametrize(
    "wrong",
    [
        None,
        {},
        place(),
        place(ref="a", refs=["a"]),
        place(refs=[]),
        place(refs=[None]),
        place(refs="a"),
        place(refs=[1]),
        place(ref=None),
        place(ref="a", on_conflict="maybe"),
        {**place(ref="a"), "ref_type": "branch"},
        {**place(ref="a"), "branch": None},
        {**place(ref="a"), "repository": ""},
    ],
)
def test_what_cannot_be_read_is_refused(wrong: Any) -> None:
    with pytest.raises(ContractError, match="workspace of given"):
        validate(work, {"workspace": wrong, "params": {}})


def test_a_serial_task_is_not_rebased() -> None:
    with pytest.raises(ContractError, match="serial"):
        validate(serial, {"workspace": place(ref="a", on_conflict="rebase"), "params": {}})


def test_the_commit_that_has_all_others_behind_it(memory_repo: Repository, put: Callable[..., str]) -> None:
    commits = [put(memory_repo, {f"{n}.txt": b"x"}) for n in range(3)]
    native = memory_repo.native
    assert chosen(native, [commits[1], commits[2], commits[0]]).id == commits[2]
    assert chosen(native, [commits[0], commits[0]]).id == commits[0]
    with pytest.raises(NotFound):
        chosen(native, ["0" * 64])


def test_commits_beside_each_other_fail_closed(memory_repo: Repository, put: Callable[..., str]) -> None:
    memory_repo.create_branch("dev", "main")
    one, two = put(memory_repo, {"a": b"a"}), put(memory_repo, {"b": b"b"}, branch="dev")
    with pytest.raises(PublishFenceError, match="not on one line"):
        chosen(memory_repo.native, [one, two])
    merged = memory_repo.merge("dev", into="main").commit
    assert chosen(memory_repo.native, [merged, one]).id == merged
    with pytest.raises(PublishFenceError):  # behind it, but not on its first-parent line
        chosen(memory_repo.native, [merged, two])

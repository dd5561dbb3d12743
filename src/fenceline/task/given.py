"""What an attempt is given: its input as JSON, checked, and the one commit among those it names to work on."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Protocol

from pydantic import BaseModel

from fenceline.errors import ContractError, PublishFenceError
from fenceline.repo.model import Commit
from fenceline.task.contract import TaskDefinition


@dataclass(frozen=True, slots=True)
class WorkspaceInput:
    """Which repository, branch and commits a workspace task is handed."""

    repository: str
    branch: str
    refs: tuple[str, ...]
    """The outputs of the steps it comes after; usually one."""
    on_conflict: str | None = None
    """`rebase` where the pipeline runs it beside other writers. No part of the transaction's identity."""

    def output(self, commit: str) -> dict[str, str]:
        return {"repository": self.repository, "branch": self.branch, "ref_type": "commit", "ref": commit}


def validate(definition: TaskDefinition[Any, Any], given: Any) -> tuple[WorkspaceInput | None, BaseModel]:
    """Exactly `workspace` and `params` for a workspace task, exactly `params` for a workspace-free one."""
    expected = {"params"} if definition.kind == "none" else {"workspace", "params"}
    if not isinstance(given, dict) or set(given) != expected:
        found = sorted(given) if isinstance(given, dict) else type(given).__name__
        raise ContractError(f"the input of {definition.name} has {found}", hint=f"it takes exactly {sorted(expected)}")
    params: BaseModel = definition.params_from(given["params"])
    if definition.kind == "none":
        return None, params
    place = read_place(given["workspace"], definition.name)
    if place.on_conflict == "rebase" and definition.spec is not None and definition.spec.fence == "serial":
        raise ContractError(
            f"{definition.name} is asked to rebase, and its spec says fence='serial'",
            hint="order it with the steps beside it, or take fence='serial' out of its spec",
        )
    return place, params


def read_place(place: Any, task: str) -> WorkspaceInput:
    """A workspace from its JSON: with one `ref`, or with `refs`, of which nulls count for nothing."""
    wanted = {"repository", "branch", "ref_type"}
    if not isinstance(place, dict) or not wanted <= set(place) or place["ref_type"] != "commit":
        raise _unreadable(task, f"it has {sorted(wanted)}, ref_type 'commit', and ref or refs")
    if ("ref" in place) == ("refs" in place):
        raise _unreadable(task, "it has either ref or refs")
    given = place["refs"] if "refs" in place else [place["ref"]]
    if not isinstance(given, list) or not all(ref is None or isinstance(ref, str) for ref in given):
        raise _unreadable(task, "refs are a list of commits")
    refs = tuple(ref for ref in given if ref)
    if not refs:
        raise _unreadable(task, "at least one of its refs is a commit")
    texts = [place["repository"], place["branch"]]
    if not all(isinstance(text, str) and text for text in texts):
        raise _unreadable(task, "repository and branch are text")
    on_conflict = place.get("on_conflict")
    if on_conflict not in (None, "fail", "rebase"):
        raise _unreadable(task, "on_conflict is 'fail' or 'rebase'")
    return WorkspaceInput(place["repository"], place["branch"], refs, on_conflict)


def _unreadable(task: str, hint: str) -> ContractError:
    return ContractError(f"the workspace of {task} cannot be read", hint=hint)


class Lines(Protocol):
    """Which commits have which behind them."""

    def resolve(self, ref: str) -> Commit: ...

    def stands(self, commit_id: str, head: Commit) -> bool: ...


def chosen(repo: Lines, refs: Sequence[str]) -> Commit:
    """The one commit that has all the others behind it on its first-parent line. Immutable: every retry finds it."""
    commits = {commit.id: commit for commit in map(repo.resolve, refs)}
    newest = max(commits.values(), key=lambda commit: commit.depth)
    beside = [commit.id[:12] for commit in commits.values() if not repo.stands(commit.id, newest)]
    if beside:
        raise PublishFenceError(
            f"the step comes after commits that are not on one line: {newest.id[:12]} does not have "
            f"{', '.join(beside)} behind it",
            hint="the branch was moved meanwhile: restart the run from the first step whose commit is gone "
            "(fenceline runs restart-from)",
            refs=sorted(commits),
        )
    return newest

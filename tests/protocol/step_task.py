"""The task that the attempt tests run: it writes one file, or nothing, and counts its runs."""

from __future__ import annotations

from pathlib import Path
from typing import Any, Literal, cast

from pydantic import BaseModel, ConfigDict

from fenceline.task.contract import TaskDefinition, task
from fenceline.task.spec import WorkspaceSpec


class Params(BaseModel):
    model_config = ConfigDict(extra="forbid")


class Result(BaseModel):
    text: str


def build_task(
    text: str, version: str, on_conflict: str, runs: Path, fence: str = "strict"
) -> TaskDefinition[Any, Any]:
    """`text` goes into out.txt below the prefix; an empty text changes nothing."""
    policy = cast(Literal["fail", "rebase"], on_conflict)
    kept = cast(Literal["strict", "serial"], fence)

    @task(
        name="build",
        owner="data@example.com",
        version=version,
        workspace=WorkspaceSpec(prefix="step", on_conflict=policy, fence=kept),
    )
    def build(workspace: Path, params: Params) -> Result:
        with runs.open("a") as file:
            file.write(f"{text}\n")
        if text:
            (workspace / "out.txt").write_text(text)
        return Result(text=text)

    return build

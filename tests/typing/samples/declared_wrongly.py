"""Declarations that are type errors: the checker must complain where a comment gives the code, and nowhere else."""
# mypy: ignore-errors

from dataclasses import dataclass
from pathlib import Path

from pydantic import BaseModel

from fenceline.task.contract import task
from fenceline.task.spec import PublishBudget, TaskControls, WorkspaceSpec


class Params(BaseModel, extra="forbid"):
    day: str


class Out(BaseModel):
    rows: int


@dataclass
class NotAModel:
    rows: int


SPEC = WorkspaceSpec()


@task(name="order", owner="data@example.com", workspace=SPEC)  # error: arg-type
def wrong_order(params: Params, workspace: Path) -> Out:
    return Out(rows=1)


@task(name="params", owner="data@example.com", workspace=SPEC)  # error: type-var
def params_without_model(workspace: Path, params: NotAModel) -> Out:
    return Out(rows=1)


@task(name="result", owner="data@example.com", workspace=SPEC)  # error: type-var
def result_without_model(workspace: Path, params: Params) -> NotAModel:
    return NotAModel(rows=1)


@task(name="dict", owner="data@example.com")  # error: type-var
def dictionaries(params: dict[str, str]) -> dict[str, str]:
    return params


@task(name="nothing", owner="data@example.com")  # error: type-var
def returns_nothing(params: Params) -> None: ...


@task(name="unannotated", owner="data@example.com", workspace=SPEC)
def no_return_annotation(workspace: Path, params: Params):  # error: no-untyped-def
    return Out(rows=1)


@task(name="text", owner="data@example.com", workspace=SPEC)  # error: type-var
def workspace_is_text(workspace: str, params: Params) -> Out:
    return Out(rows=1)


@task(name="names", owner="data@example.com", workspace=SPEC)  # error: arg-type
def other_names(place: Path, options: Params) -> Out:
    return Out(rows=1)


@task(name="undeclared", owner="data@example.com")  # error: arg-type
def workspace_without_spec(workspace: Path, params: Params) -> Out:
    return Out(rows=1)


@task(name="unused", owner="data@example.com", workspace=SPEC)  # error: arg-type
def spec_without_workspace(params: Params) -> Out:
    return Out(rows=1)


@task(name="third", owner="data@example.com", workspace=SPEC)  # error: arg-type
def three_parameters(workspace: Path, params: Params, more: int) -> Out:
    return Out(rows=1)


@task(name="async", owner="data@example.com")  # error: type-var
async def coroutine(params: Params) -> Out:
    return Out(rows=1)


@task(name="free", owner="data@example.com", budget=PublishBudget())  # error: call-overload, untyped-decorator
def budget_without_workspace(params: Params) -> Out:
    return Out(rows=1)


@task(owner="data@example.com")  # error: call-overload, untyped-decorator
def nameless(params: Params) -> Out:
    return Out(rows=1)


@task  # error: call-overload
def bare(params: Params) -> Out:
    return Out(rows=1)


WorkspaceSpec(fence="loose")  # error: arg-type
WorkspaceSpec(pre=["raw/**"])  # error: list-item
WorkspaceSpec(prefx="/")  # error: call-arg
TaskControls(retry_logic="SOMETIMES")  # error: arg-type
PublishBudget(stage_timeout_seconds="long")  # error: arg-type

"""What a type checker must accept: the declarations, and every way to call a task."""
# mypy: ignore-errors

from pathlib import Path
from typing import ClassVar, assert_type

from pydantic import BaseModel

from fenceline.task.contract import FreeTask, TaskDefinition, WorkspaceTask, task
from fenceline.task.spec import PublishBudget, TaskControls, WorkspaceSpec


class Params(BaseModel, extra="forbid"):
    day: str


class Out(BaseModel):
    rows: int


class Marked:
    __fenceline_workspace__: ClassVar[str] = "spark"


def tidy(workspace: object) -> None: ...


class Tidy:
    def check(self, workspace: object, deep: bool = False) -> bool:
        return deep


SPEC = WorkspaceSpec(prefix="/raw", pre=[tidy, Tidy()], post=(Tidy(),))


@task(name="path", owner="data@example.com", workspace=SPEC, budget=PublishBudget())
def on_path(workspace: Path, params: Params) -> Out:
    return Out(rows=len(params.day))


@task(name="spark", owner="data@example.com", workspace=SPEC, controls=TaskControls(retry_count=1), version="1")
def on_spark(workspace: Marked, params: Params) -> Out:
    return Out(rows=len(params.day))


@task(name="free", owner="data@example.com")
def free(params: Params) -> Out:
    return Out(rows=len(params.day))


def name_of(definition: TaskDefinition[Params, Out]) -> str:
    return definition.name


assert_type(on_path, WorkspaceTask[Path, Params, Out])
assert_type(on_spark, WorkspaceTask[Marked, Params, Out])
assert_type(free, FreeTask[Params, Out])
assert_type(on_path(Path(), Params(day="x")), Out)
assert_type(on_path(workspace=Path(), params=Params(day="x")), Out)
assert_type(free(params=Params(day="x")), Out)
assert_type(free.params_model, type[Params])
assert_type(free.params_from({}), Params)
assert_type(name_of(on_spark) + on_spark.__name__, str)

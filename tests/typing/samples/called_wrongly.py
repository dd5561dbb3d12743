"""Calls of a well declared task that are type errors."""
# mypy: ignore-errors

from pathlib import Path

from pydantic import BaseModel

from fenceline.task.contract import task
from fenceline.task.spec import WorkspaceSpec


class Params(BaseModel, extra="forbid"):
    day: str


class Other(BaseModel):
    day: str


class Out(BaseModel):
    rows: int


@task(name="build", owner="data@example.com", workspace=WorkspaceSpec())
def build(workspace: Path, params: Params) -> Out:
    return Out(rows=1)


@task(name="free", owner="data@example.com")
def free(params: Params) -> Out:
    return Out(rows=1)


build(Path(), Other(day="x"))  # error: arg-type
build(Path(), {"day": "x"})  # error: arg-type
build(Params(day="x"), Path())  # error: arg-type
build(Params(day="x"))  # error: call-arg, arg-type
build("raw", Params(day="x"))  # error: arg-type
build(Path(), Params(day="x"), 1)  # error: call-arg
free(Path(), Params(day="x"))  # error: call-arg, arg-type
free(Params(day="x")).row  # error: attr-defined
text: str = free(Params(day="x"))  # error: assignment
free.name = "other"  # error: misc

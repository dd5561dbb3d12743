"""What `@task` accepts, what it refuses at import and in which words, and how tasks are found again."""

from __future__ import annotations

import copy
import dataclasses
import functools
import importlib
import inspect
import json
import pickle
import sys
import traceback
import warnings
from collections.abc import Callable
from datetime import date
from pathlib import Path
from typing import Annotated, Any, ClassVar, Literal, NamedTuple, NewType

import pytest
from pydantic import (
    BaseModel,
    ConfigDict,
    Field,
    Secret,
    SecretBytes,
    SecretStr,
    field_serializer,
    field_validator,
    model_validator,
)
from typing_extensions import TypedDict

from fenceline.errors import ContractError, FencelineError
from fenceline.spark.workspace import SparkWorkspace
from fenceline.task import contract
from fenceline.task.contract import (
    FreeTask,
    InvalidParams,
    InvalidResult,
    LoadError,
    TaskContractError,
    TaskFailed,
    TaskTerminalError,
    WorkspaceTask,
    task,
)
from fenceline.task.loading import load
from fenceline.task.spec import BudgetWarning, PublishBudget, TaskControls, WorkspaceSpec
from fenceline.task.workspaces import Workspace

Writer = Callable[..., str]

OWNER = "data@example.com"
HIDDEN = "hunter2"


class Params(BaseModel, extra="forbid"):
    day: date
    rows: int = 3


class Out(BaseModel):
    rows: int


class PathObject:
    __fenceline_workspace__: ClassVar[str] = "path-object"


class Spark:
    __fenceline_workspace__: ClassVar[str] = "spark"


@task(name="on.path", owner=OWNER, workspace=WorkspaceSpec(prefix="/raw"))
def on_path(workspace: Path, params: Params) -> Out:
    """Counts files."""
    return Out(rows=len(workspace.parts) + params.rows)


@task(name="on.object", owner=OWNER, workspace=WorkspaceSpec(read_only=True))
def on_object(workspace: PathObject, params: Params) -> Out:
    return Out(rows=params.rows)


@task(name="on.spark", owner=OWNER, workspace=WorkspaceSpec(), budget=PublishBudget(), version="7")
def on_spark(workspace: Spark, params: Params) -> Out:
    return Out(rows=params.rows)


@task(name="free", owner=OWNER, controls=TaskControls(retry_count=1))
def free(params: Params) -> Out:
    return Out(rows=params.rows)


# --- what a task is -----------------------------------------------------------------------------------------------


def test_the_annotation_of_the_workspace_chooses_the_kind() -> None:
    kinds = {each.name: each.kind for each in (on_path, on_object, on_spark, free)}
    assert kinds == {"on.path": "path", "on.object": "path-object", "on.spark": "spark", "free": "none"}
    assert isinstance(on_spark, WorkspaceTask)
    assert isinstance(free, FreeTask)


def test_the_workspaces_of_this_package_are_known_by_their_mark() -> None:
    @task(name="directory", owner=OWNER, workspace=WorkspaceSpec())
    def directory(workspace: Workspace, params: Params) -> Out:
        return Out(rows=1)

    @task(name="frames", owner=OWNER, workspace=WorkspaceSpec())
    def frames(workspace: SparkWorkspace, params: Params) -> Out:
        return Out(rows=1)

    assert (directory.kind, frames.kind) == ("path-object", "spark")


def test_a_task_stays_a_plain_callable() -> None:
    params = Params(day=date(2026, 1, 1))
    assert on_path(Path("a/b"), params) == Out(rows=5)
    assert on_path(workspace=Path("a/b"), params=params) == Out(rows=5)
    assert free(params) == free(params=params) == Out(rows=3)


def test_a_task_looks_like_its_function() -> None:
    assert (on_path.__name__, on_path.__module__, on_path.__doc__) == ("on_path", __name__, "Counts files.")
    assert list(inspect.signature(on_path).parameters) == ["workspace", "params"]
    assert inspect.unwrap(on_path) is on_path.function
    assert repr(on_path) == f"<task on.path (path): {__name__}:on_path>"


def test_a_task_knows_what_was_declared() -> None:
    assert (on_path.owner, on_path.params_model, on_path.result_model) == (OWNER, Params, Out)
    assert on_path.spec == WorkspaceSpec(prefix="raw")
    assert free.spec is None
    assert free.controls.retry_count == 1
    assert on_spark.version == "7"
    assert on_path.version.startswith("source:")
    assert on_path.version != on_object.version


def test_a_task_is_frozen_hashable_and_pickled_by_reference() -> None:
    with pytest.raises(dataclasses.FrozenInstanceError):
        on_path.name = "other"  # type: ignore[misc]
    assert len({on_path, free, on_path}) == 2
    assert pickle.loads(pickle.dumps(on_path)) is on_path
    assert copy.deepcopy(free) is free


def test_the_lease_is_renewed_as_the_budget_says_or_well_within_it() -> None:
    assert on_spark.heartbeat_interval == PublishBudget().heartbeat_interval_seconds
    assert free.heartbeat_interval == 10

    @task(name="short", owner=OWNER, controls=TaskControls(response_timeout_seconds=6))
    def short(params: Params) -> Out:
        return Out(rows=1)

    assert short.heartbeat_interval == 2


def test_describe_is_json_and_says_it_all() -> None:
    described = json.loads(json.dumps(on_spark.describe()))
    assert described["name"] == "on.spark"
    assert described["kind"] == "spark"
    assert described["function"] == f"{__name__}:on_spark"
    assert described["params"]["properties"]["day"]["format"] == "date"
    assert described["params"]["additionalProperties"] is False
    assert described["result"]["required"] == ["rows"]
    assert described["workspace"]["prefix"] == "/"
    assert described["controls"]["retryCount"] == 3
    assert described["budget"]["total_seconds"] == PublishBudget().total_seconds
    assert free.describe()["workspace"] is None
    assert free.describe()["budget"] is None
    assert on_path.describe()["description"] == "Counts files."


def test_a_task_defined_in_a_function_finds_the_models_beside_it() -> None:
    class Local(BaseModel, extra="forbid"):
        text: str

    @task(name="local", owner=OWNER)
    def local(params: Local) -> Out:
        return Out(rows=len(params.text))

    assert local.params_model is Local
    assert local(Local(text="abc")).rows == 3


def test_a_decorator_between_does_not_hide_the_function(module: Writer) -> None:
    source = """
    def logged(function):
        @functools.wraps(function)
        def wrapper(*args, **kwargs):
            return function(*args, **kwargs)
        return wrapper

    @task(name="t", owner="o", workspace=WS)
    @logged
    def build(workspace: Spark, params: Params) -> Out:
        return Out(rows=4)
    """
    (found,) = load(module(source))
    assert found.kind == "spark"
    assert found.function(None, None).rows == 4


# --- what is refused at import ------------------------------------------------------------------------------------

REFUSED = {
    "swapped": (
        "def build(params: Params, workspace: Path) -> Out: ...",
        "workspace=WS",
        "the parameters are in the wrong order",
        "write `def build(workspace: Path, params: Params) -> Out`",
    ),
    "other names": (
        "def build(place: Spark, options: Params) -> Out: ...",
        "workspace=WS",
        "its parameters are (place, options)",
        "write `def build(workspace: Spark, params: Params) -> Out`",
    ),
    "one other name": (
        "def build(options: Params) -> Out: ...",
        "",
        "its parameters are (options)",
        "write `def build(params: Params) -> Out`",
    ),
    "none": ("def build() -> Out: ...", "", "its parameters are ()", "write `def build(params: Params) -> Out`"),
    "three": (
        "def build(workspace: Path, params: Params, more: int = 1) -> Out: ...",
        "workspace=WS",
        "its parameters are (workspace, params, more)",
        "write `def build(workspace: Path, params: Params) -> Out`",
    ),
    "varargs": (
        "def build(*args: Any) -> Out: ...",
        "",
        "it takes *args or **kwargs",
        "write `def build(params: Params) -> Out`",
    ),
    "kwargs": (
        "def build(params: Params, **more: Any) -> Out: ...",
        "",
        "it takes *args or **kwargs",
        "write `def build(params: Params) -> Out`",
    ),
    "keyword-only": (
        "def build(workspace: Path, *, params: Params) -> Out: ...",
        "workspace=WS",
        "it has keyword-only parameters",
        "write `def build(workspace: Path, params: Params) -> Out`",
    ),
    "params not annotated": (
        "def build(params) -> Out: ...",
        "",
        "the parameter params has no annotation",
        "write `def build(params: Params) -> Out`",
    ),
    "result not annotated": (
        "def build(params: Params): ...",
        "",
        "the result has no annotation",
        "write `def build(params: Params) -> Result`",
    ),
    "nothing annotated": (
        "def build(workspace, params): ...",
        "workspace=WS",
        "the parameter workspace and the parameter params and the result have no annotation",
        "write `def build(workspace: Path, params: Params) -> Result`",
    ),
    "params not a model": (
        "def build(params: dict) -> Out: ...",
        "",
        "the params is annotated with dict, not with a model of its own",
        "declare `class Params(BaseModel)` with pydantic and annotate the params with it",
    ),
    "result not a model": (
        "def build(params: Params) -> None: ...",
        "",
        "the result is annotated with NoneType, not with a model of its own",
        "declare `class Result(BaseModel)` with pydantic and annotate the result with it",
    ),
    "result a union": (
        "def build(params: Params) -> Out | None: ...",
        "",
        "Out | None, not with a model of its own",
        "declare `class Result(BaseModel)`",
    ),
    "result the base model": (
        "def build(params: Params) -> BaseModel: ...",
        "",
        "the result is annotated with BaseModel, not with a model of its own",
        "declare `class Result(BaseModel)`",
    ),
    "params accept anything": (
        "class Loose(BaseModel):\n    day: str\ndef build(params: Loose) -> Out: ...",
        "",
        "the model Loose accepts unknown fields",
        'add `model_config = ConfigDict(extra="forbid")` to the class Loose',
    ),
    "secret default in plain text": (
        "class Login(BaseModel):\n    token: SecretStr | None = 'hunter2'\n"
        "class Odd(BaseModel, extra='forbid'):\n    logins: list[Login] = []\n"
        "def build(params: Odd) -> Out: ...",
        "",
        "the default of the secret Login.token is plain text, which logs would show",
        "write SecretStr(…) around the default of Login.token",
    ),
    "params a root model": (
        "class Days(RootModel[list[str]]): ...\ndef build(params: Days) -> Out: ...",
        "",
        "params are the RootModel Days",
        "make them a BaseModel with fields",
    ),
    "params not JSON": (
        "class Odd(BaseModel):\n"
        "    model_config = ConfigDict(extra='forbid', arbitrary_types_allowed=True)\n"
        "    spark: Spark\n"
        "def build(params: Odd) -> Out: ...",
        "",
        "params cannot travel as JSON: Odd",
        "give its fields types that JSON has",
    ),
    "model incomplete": (
        "class Half(BaseModel, extra='forbid'):\n    other: Later\ndef build(params: Half) -> Out: ...",
        "",
        "the model Half refers to a class that is not defined yet",
        "define the classes that Half refers to above the task",
    ),
    "forward reference": (
        "def build(params: Later) -> Out: ...",
        "",
        "the annotation 'Later' cannot be resolved",
        "import or define Later above the task, and not only under `if TYPE_CHECKING:`",
    ),
    "unreadable annotation": (
        "def build(params: 'Params[') -> Out: ...",
        "",
        "an annotation cannot be read",
        "annotate with classes",
    ),
    "workspace of another kind": (
        "def build(workspace: str, params: Params) -> Out: ...",
        "workspace=WS",
        "the parameter workspace is a str",
        "annotate it with pathlib.Path, fenceline.Workspace or fenceline.SparkWorkspace",
    ),
    "workspace with an unknown mark": (
        "class Odd:\n    __fenceline_workspace__ = 'cloud'\ndef build(workspace: Odd, params: Params) -> Out: ...",
        "workspace=WS",
        "the parameter workspace is a Odd",
        "annotate it with pathlib.Path",
    ),
    "workspace without spec": (
        "def build(workspace: Path, params: Params) -> Out: ...",
        "",
        "it takes a workspace, but none is declared",
        "add workspace=WorkspaceSpec() to @task(…), or remove the parameter",
    ),
    "spec without workspace": (
        "def build(params: Params) -> Out: ...",
        "workspace=WS",
        "workspace=WorkspaceSpec(…) is given, but the function takes no workspace",
        "write `def build(workspace: Path, params: Params) -> Out`, or remove workspace=",
    ),
    "budget without workspace": (
        "def build(params: Params) -> Out: ...",
        "budget=PublishBudget()",
        "a task without a workspace publishes nothing",
        "remove budget=",
    ),
    "heartbeat too slow": (
        "def build(workspace: Path, params: Params) -> Out: ...",
        "workspace=WS, budget=PublishBudget(), controls=TaskControls(response_timeout_seconds=20)",
        "heartbeat_interval_seconds=10 is too long for response_timeout_seconds=20",
        "lower it to 6.66667 or less",
    ),
    "async": (
        "async def build(params: Params) -> Out: ...",
        "",
        "it is async",
        "write `def`, without async",
    ),
    "async generator": ("async def build(params: Params) -> Out:\n    yield Out()", "", "it is async", "write `def`"),
    "generator": (
        "def build(params: Params) -> Out:\n    yield Out()",
        "",
        "it is a generator",
        "return the result instead of yielding",
    ),
    "empty version": (
        "def build(params: Params) -> Out: ...",
        "version=''",
        "version is ''",
        "give a text of 1 to 100 characters",
    ),
    "spec not a spec": (
        "def build(workspace: Path, params: Params) -> Out: ...",
        "workspace='/raw'",
        "workspace= is a str",
        "write workspace=WorkspaceSpec(…)",
    ),
    "controls missing": (
        "def build(params: Params) -> Out: ...",
        "controls=None",
        "controls= is a NoneType",
        "write controls=TaskControls(…)",
    ),
}


NEEDS_TEXT = ("forward reference", "model incomplete")  # as types, Python itself refuses a name that is not defined


@pytest.mark.parametrize(
    ("case", "annotations"),
    [*((case, "as text") for case in REFUSED), *((case, "as types") for case in REFUSED if case not in NEEDS_TEXT)],
)
def test_refused_at_import_with_the_exact_fix(case: str, annotations: str, module: Writer) -> None:
    function, extra, wrong, fix = REFUSED[case]
    start = function.rfind("\ndef ") + 1
    file = Path(module(f"{function[:start]}@task(name='t.x', owner='o', {extra})\n{function[start:]}\n"))
    text = file.read_text()
    if annotations == "as types":
        file.write_text(text.replace("from __future__ import annotations\n", "#\n"))
    line = text[: text.index("@task(")].count("\n") + 1
    with pytest.raises(TaskContractError) as refused:
        load(str(file))
    error = refused.value
    assert wrong in error.message
    assert fix in (error.hint or "")
    assert HIDDEN not in str(error)
    assert f"task 't.x', build in tasks_of_a_test.py:{line}: " in error.message
    assert (error.code, error.context["line"], error.context["function"]) == ("contract.task", line, "build")
    assert isinstance(error, ContractError)


@pytest.mark.parametrize("name", ["", "1st", "with space", "a/b", "x" * 201, None, 5])
def test_a_name_that_cannot_be_used_everywhere_is_refused(name: Any) -> None:
    with pytest.raises(TaskContractError, match="the name is"):

        @task(name=name, owner=OWNER)
        def build(params: Params) -> Out:
            return Out(rows=1)


@pytest.mark.parametrize("owner", ["", "  ", None])
def test_a_task_without_an_owner_is_refused(owner: Any) -> None:
    with pytest.raises(TaskContractError, match="who answers for the task"):

        @task(name="t", owner=owner)
        def build(params: Params) -> Out:
            return Out(rows=1)


def test_what_is_no_plain_function_is_refused() -> None:
    declare: Any = task(name="t", owner=OWNER)

    class Holder:
        def method(self, params: Params) -> Out:
            return Out(rows=1)

    refused = {
        "a lambda has no annotations": lambda params: params,
        "it is defined in the class test_what_is_no_plain_function_is_refused.<locals>.Holder": Holder.method,
        "staticmethod is not a plain function": staticmethod(free.function),
        "method is not a plain function": Holder().method,
        "Params is not a plain function": Params,
        "is a task already": free,
        "int is not a plain function": 3,
        "function is not a plain function": functools.wraps(functools.partial(free))(lambda params: params),
    }
    for message, thing in refused.items():
        with pytest.raises(TaskContractError) as error:
            declare(thing)
        assert message in error.value.message
        assert error.value.hint


def test_a_decorator_without_parentheses_is_told_how_to_write_it() -> None:
    with pytest.raises(TaskContractError, match=r"write @task\(name='…', owner='…'\)"):
        task(free.function)  # type: ignore[call-overload]


def test_two_tasks_of_one_name_in_a_module_are_refused(module: Writer) -> None:
    source = """
    @task(name="same", owner="o")
    def one(params: Params) -> Out: ...

    @task(name="same", owner="o")
    def two(params: Params) -> Out: ...
    """
    with pytest.raises(TaskContractError, match=r"two in .*: one in line 21 has the same task name"):
        load(module(source))


def test_two_tasks_of_one_name_made_by_a_function_are_found_when_loaded(module: Writer) -> None:
    source = """
    def make(name):
        @task(name=name, owner="o")
        def made(params: Params) -> Out: ...
        return made

    one, other, again = make("one"), make("other"), make("one")
    """
    with pytest.raises(TaskContractError, match="two tasks named 'one'"):
        load(module(source))


def test_several_tasks_in_a_module_and_a_reload_of_it_are_fine(module: Writer) -> None:
    source = """
    @task(name="one", owner="o")
    def one(params: Params) -> Out: ...

    @task(name="two", owner="o", workspace=WS)
    def two(workspace: Path, params: Params) -> Out: ...
    """
    path = module(source)
    first = load(path)
    assert [each.name for each in first] == ["one", "two"]
    module(f"\n\n{source}")
    reloaded = importlib.reload(sys.modules["tasks_of_a_test"])
    assert reloaded.one.version != first[0].version


def test_names_of_a_type_checking_block_are_explained(module: Writer) -> None:
    source = """
    if TYPE_CHECKING:
        from somewhere import Missing

    @task(name="t", owner="o", workspace=WS)
    def build(workspace: Missing, params: Params) -> Out: ...
    """
    with pytest.raises(TaskContractError, match="not only under `if TYPE_CHECKING:`"):
        load(module(source))


# --- budgets ------------------------------------------------------------------------------------------------------


def test_a_budget_on_a_read_only_task_is_ignored_with_one_warning() -> None:
    with pytest.warns(BudgetWarning, match="task 't': the budget is ignored") as caught:

        @task(name="t", owner=OWNER, workspace=WorkspaceSpec(read_only=True), budget=PublishBudget())
        def look(workspace: Path, params: Params) -> Out:
            return Out(rows=1)

    assert len(caught) == 1
    assert caught[0].filename == __file__
    assert look.budget is None
    assert len(look.warnings) == 1


def test_a_lease_shorter_than_the_budget_warns_and_says_by_how_much() -> None:
    budget = PublishBudget(stage_timeout_seconds=100)
    with pytest.warns(BudgetWarning, match="response_timeout_seconds=120 is smaller than the publish budget of 155 s"):

        @task(
            name="t",
            owner=OWNER,
            workspace=WorkspaceSpec(),
            budget=budget,
            controls=TaskControls(response_timeout_seconds=120),
        )
        def build(workspace: Path, params: Params) -> Out:
            return Out(rows=1)

    assert build.budget == budget
    assert build.describe()["warnings"] == list(build.warnings)
    assert build.warnings


def test_a_lease_as_long_as_the_budget_does_not_warn() -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("error")

        @task(
            name="t",
            owner=OWNER,
            workspace=WorkspaceSpec(),
            budget=PublishBudget(stage_timeout_seconds=100),
            controls=TaskControls(response_timeout_seconds=155),
        )
        def build(workspace: Path, params: Params) -> Out:
            return Out(rows=1)

    assert build.warnings == ()


# --- params and results -------------------------------------------------------------------------------------------


def test_params_come_from_json() -> None:
    assert free.params_from({"day": "2026-01-01"}) == Params(day=date(2026, 1, 1))
    given = Params(day=date(2026, 1, 2))
    assert free.params_from(given) is given


@pytest.mark.parametrize(
    ("data", "told"),
    [
        ({"day": "2026-01-01", "row": 1}, "row: there is no such field, did you mean rows?"),
        ({}, "day: is missing"),
        ({"day": "soon", "rows": "x"}, "day: input should be a valid date.*; rows: input should be a valid integer"),
        ([], "input should be an object"),
        ({"day": object()}, "TypeError while they were validated"),
    ],
)
def test_params_that_are_refused_are_told_field_by_field(data: object, told: str) -> None:
    with pytest.raises(InvalidParams, match=f"params of free: {told}") as refused:
        free.params_from(data)
    assert refused.value.code == "contract.params"


def test_results_are_what_the_task_says() -> None:
    assert free.result_from(Out(rows=1)) == Out(rows=1)
    with pytest.raises(InvalidResult, match=r"free returned dict \(return Out\(…\)\)"):
        free.result_from({"rows": 1})
    with pytest.raises(InvalidResult, match="free returned NoneType"):
        free.result_from(None)
    with pytest.raises(InvalidResult, match="cannot be written as JSON: in rows"):
        free.result_from(Out.model_construct(rows="many"))


def test_a_long_result_is_refused_before_anything_is_published(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(contract, "LARGEST_RESULT", 13)
    assert free.result_from(Out(rows=123)) == Out(rows=123)
    with pytest.raises(InvalidResult, match=r"returned is 14 characters of JSON; 13 is the most \(write data into"):
        free.result_from(Out(rows=1234))


def test_what_a_body_may_raise() -> None:
    assert (TaskFailed.retryable, TaskFailed.code) == (True, "task.failed")
    assert (TaskTerminalError.retryable, TaskTerminalError.code) == (False, "task.terminal")
    assert str(TaskFailed("no rows", hint="load them")) == "no rows (load them)"
    assert issubclass(TaskFailed, FencelineError)
    assert issubclass(TaskTerminalError, FencelineError)


# --- secrets ------------------------------------------------------------------------------------------------------


class Login(BaseModel):
    token: SecretStr

    @field_serializer("token")
    def _reveal(self, token: SecretStr) -> str:
        return token.get_secret_value()


@dataclasses.dataclass
class Boxed:
    token: SecretStr = dataclasses.field(default_factory=lambda: SecretStr(HIDDEN))
    other: SecretStr | None = None


class Typed(TypedDict):
    token: SecretStr


class Named(NamedTuple):
    token: SecretStr


Alias = NewType("Alias", SecretStr)


class Secretive(BaseModel):
    model_config = ConfigDict(extra="forbid", json_schema_extra={"examples": [{"plain": HIDDEN}]})
    plain: SecretStr = SecretStr(HIDDEN)
    checked: SecretStr = Field(default=HIDDEN, validate_default=True)
    maybe: SecretStr | None = Field(default=SecretStr(HIDDEN), examples=[HIDDEN])
    octets: SecretBytes = SecretBytes(HIDDEN.encode())
    generic: Secret[str] = Secret(HIDDEN)
    login: Login = Login(token=SecretStr(HIDDEN))
    logins: list[Login] = [Login(token=SecretStr(HIDDEN))]
    boxed: Boxed = Boxed()
    typed: Typed = {"token": SecretStr(HIDDEN)}
    named: Named = Named(SecretStr(HIDDEN))
    renamed: SecretStr = Field(default=SecretStr(HIDDEN), alias="other-name")
    alias: Alias = Alias(SecretStr(HIDDEN))
    noted: Annotated[SecretStr, Field(description="the key")] = SecretStr(HIDDEN)
    kind: Literal["a", "b"] = "a"
    rows: int = 7

    @field_validator("plain", mode="before")
    @classmethod
    def _long_enough(cls, value: Any) -> Any:
        if value == "short":
            raise ValueError(f"too short: {value}")
        return value

    @field_validator("rows")
    @classmethod
    def _positive(cls, rows: int) -> int:
        if rows < 0:
            raise ValueError("rows must not be negative")
        if rows == 99:
            raise RuntimeError(HIDDEN)
        return rows

    @model_validator(mode="before")
    @classmethod
    def _whole(cls, data: Any) -> Any:
        if isinstance(data, dict) and data.get("plain") == "whole":
            raise ValueError(f"refused: {data}")
        return data


@task(name="secretive", owner=OWNER)
def secretive(params: Secretive) -> Out:
    return Out(rows=params.rows)


def test_describe_has_no_value_of_a_secret_and_all_of_the_rest() -> None:
    described = secretive.describe()
    assert HIDDEN not in json.dumps(described)
    assert "examples" not in described["params"]
    assert described["params"]["properties"]["rows"]["default"] == 7
    assert described["params"]["properties"]["kind"]["default"] == "a"
    assert described["params"]["properties"]["noted"]["description"] == "the key"
    assert set(described["params"]["properties"]) == {
        field.alias or name for name, field in Secretive.model_fields.items()
    }


def test_reprs_have_no_secret() -> None:
    params = secretive.params_from({"plain": "s3cr3t-one"})
    for text in (repr(secretive), str(secretive), repr(params), repr(secretive.params_model)):
        assert HIDDEN not in text
        assert "s3cr3t-one" not in text


@pytest.mark.parametrize(
    ("data", "told"),
    [
        ({"plain": "short"}, "plain: refused (value_error); the details could quote a secret"),
        ({"plain": "whole"}, "all together: refused (value_error); the details could quote a secret"),
        ({"plain": ["short"]}, "plain: refused"),
        ({"rows": -1}, "rows: rows must not be negative"),
        ({"rows": 99}, "RuntimeError while they were validated"),
        ({"rows": "hunter2"}, "rows: input should be a valid integer"),
        ({"plian": "hunter2"}, "plian: there is no such field, did you mean plain?"),
        ({"login": {"token": ["hunter2"]}}, "login.token: refused"),
        ({"login": {"token": "x", "more": 1}, "rows": "whole"}, "rows: input"),
    ],
)
def test_errors_have_no_secret_in_text_context_or_chain(data: dict[str, Any], told: str) -> None:
    with pytest.raises(InvalidParams) as refused:
        secretive.params_from(data)
    error = refused.value
    shown = [str(error), json.dumps(error.as_dict()), "".join(traceback.format_exception(error))]
    assert told in error.message
    assert error.__cause__ is None
    assert error.__context__ is None
    for text in shown:
        assert HIDDEN not in text
        assert "too short" not in text
        assert "whole'" not in text


def test_a_default_that_json_cannot_hold_is_not_quoted_in_a_warning() -> None:
    class Odd(BaseModel, extra="forbid", arbitrary_types_allowed=True):
        value: Secret[complex] = Secret(complex(4, 2))

    with warnings.catch_warnings():
        warnings.simplefilter("error")

        @task(name="odd", owner=OWNER)
        def odd(params: Odd) -> Out:
            return Out(rows=1)

    assert "4" not in json.dumps(odd.describe()["params"])


# --- finding tasks ------------------------------------------------------------------------------------------------

TWO = """
@task(name="features.build", owner="o")
def build(params: Params) -> Out: ...

@task(name="features.check", owner="o")
def verify(params: Params) -> Out: ...

plain = 3
"""


@pytest.mark.parametrize(
    ("reference", "names"),
    [
        ("tasks_of_a_test", ["features.build", "features.check"]),
        ("tasks_of_a_test.py", ["features.build", "features.check"]),
        ("./tasks_of_a_test.py", ["features.build", "features.check"]),
        ("tasks_of_a_test:features.check", ["features.check"]),
        ("tasks_of_a_test:verify", ["features.check"]),
        ("tasks_of_a_test.py:build", ["features.build"]),
    ],
)
def test_references_lead_to_tasks(reference: str, names: list[str], module: Writer) -> None:
    module(TWO)
    assert [each.name for each in load(reference)] == names


def test_a_file_in_a_package_is_imported_by_its_whole_name(module: Writer) -> None:
    module("", "package_of_a_test/__init__.py", head="")
    module("", "package_of_a_test/inner/__init__.py", head="")
    module("NEEDED = 1\n", "package_of_a_test/inner/beside.py", head="")
    path = module("from .beside import NEEDED\n" + TWO, "package_of_a_test/inner/tasks.py")
    by_file = load(path)
    assert by_file[0].__module__ == "package_of_a_test.inner.tasks"
    assert load("package_of_a_test.inner.tasks") == by_file


def test_a_module_that_defines_none_stands_for_those_it_imports(module: Writer) -> None:
    module(TWO)
    module("from tasks_of_a_test import build\n", "front_of_a_test.py", head="")
    assert [each.name for each in load("front_of_a_test")] == ["features.build"]
    module(
        """
        from tasks_of_a_test import build as imported
        @task(name="own", owner="o")
        def own(params: Params) -> Out: ...
        """,
        "mixed_of_a_test.py",
    )
    assert [each.name for each in load("mixed_of_a_test")] == ["own"]
    assert [each.name for each in load("mixed_of_a_test:imported")] == ["features.build"]


@pytest.mark.parametrize(
    ("reference", "told", "hint"),
    [
        ("", "'' names no tasks", "write package.module"),
        (":build", "names no tasks", "write package.module"),
        ("tasks_of_a_test:", "names no tasks", "write package.module"),
        ("not a module", "is not the name of a module", "path/to/file.py"),
        ("absent_of_a_test.inner", "there is no module 'absent_of_a_test'", "install its package"),
        ("absent.py", "there is no file absent.py", "name a Python file"),
        ("tasks_of_a_test:buidl", "has no task 'buidl'", "did you mean tasks_of_a_test:build?"),
        ("tasks_of_a_test:zzz", "has no task 'zzz'", "it has features.build, features.check"),
        ("tasks_of_a_test:plain", "plain in tasks_of_a_test is not a task", "put @task("),
        ("empty_of_a_test", "empty_of_a_test has no tasks", "put @task("),
        ("broken_of_a_test", "ZeroDivisionError: division by zero, at broken_of_a_test.py:2", "correct the module"),
        ("syntax_of_a_test", "SyntaxError", "correct the module"),
        ("leaving_of_a_test", "SystemExit: 4, at leaving_of_a_test.py:2", "correct the module"),
        ("needing_of_a_test", "ModuleNotFoundError: No module named 'absent_of_a_test'", "correct the module"),
        ("json.py", "the module name of json.py, json, is taken by", "rename the file"),
        ("with-dash.py", "with-dash.py cannot be imported as with-dash", "rename it"),
    ],
)
def test_references_that_lead_nowhere_say_why(reference: str, told: str, hint: str, module: Writer) -> None:
    module(TWO)
    module("", "empty_of_a_test.py", head="")
    module("x = 1\n1 / 0\n", "broken_of_a_test.py", head="")
    module("def (:\n", "syntax_of_a_test.py", head="")
    module("import sys\nsys.exit(4)\n", "leaving_of_a_test.py", head="")
    module("import absent_of_a_test\n", "needing_of_a_test.py", head="")
    module("", "json.py", head="")
    module("", "with-dash.py", head="")
    with pytest.raises(LoadError) as refused:
        load(reference)
    assert told in refused.value.message
    assert hint in (refused.value.hint or "")
    assert refused.value.code == "contract.load"


def test_a_name_that_means_two_tasks_is_refused(module: Writer) -> None:
    source = """
    @task(name="two", owner="o")
    def one(params: Params) -> Out: ...

    @task(name="three", owner="o")
    def two(params: Params) -> Out: ...
    """
    with pytest.raises(LoadError, match=r"is the name of the task .*tasks_of_a_test:one or tasks_of_a_test:three"):
        load(f"{module(source).removesuffix('.py')}:two")


def test_a_contract_error_at_import_is_told_as_it_is(module: Writer) -> None:
    path = module("@task(name='t', owner='o')\ndef build(params: dict) -> Out: ...\n")
    with pytest.raises(TaskContractError, match="the params is annotated with dict"):
        load(path)

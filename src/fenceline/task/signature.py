"""What is read off a task's function when its module is imported: its signature, and each thing wrong with it."""

from __future__ import annotations

import inspect
import warnings
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from types import FunctionType
from typing import Any, Literal, TypeAlias, get_type_hints

from pydantic import BaseModel, RootModel
from pydantic.errors import PydanticUserError
from pydantic.json_schema import JsonSchemaMode

from fenceline.errors import ContractError
from fenceline.task.result import open_defaults, schema_of
from fenceline.task.spec import BudgetWarning, WorkspaceSpec
from fenceline.task.version import location

Kind: TypeAlias = Literal["none", "path", "path-object", "spark"]

_WORKSPACES = "pathlib.Path, fenceline.Workspace or fenceline.SparkWorkspace"
_MARKED: dict[str, Kind] = {"path-object": "path-object", "spark": "spark"}


class TaskContractError(ContractError):
    """A task that is declared wrongly; raised when its module is imported."""

    code = "contract.task"


@dataclass(frozen=True, slots=True)
class Signature:
    """What a function says of itself: which workspace it takes, and its models."""

    kind: Kind
    params: type[BaseModel]
    result: type[BaseModel]


def read_signature(
    function: FunctionType, spec: WorkspaceSpec | None, names: Mapping[str, Any], refuse: Refusals
) -> Signature:
    """The signature, if it is one of a task and agrees with the spec. `names` are those around the function."""
    hints = _hints(function, names, refuse)
    parameters = _check_parameters(function, hints, refuse)
    kind = _kind(hints["workspace"], spec, refuse) if "workspace" in parameters else "none"
    if kind == "none" and spec is not None:
        raise refuse(
            "workspace=WorkspaceSpec(…) is given, but the function takes no workspace",
            f"write {refuse.signature(hints, workspace=True)}, or remove workspace=",
        )
    params = _check_model("params", hints["params"], "validation", names, refuse)
    result = _check_model("result", hints["return"], "serialization", names, refuse)
    _check_params(params, refuse)
    return Signature(kind, params, result)


class Refusals:
    """Makes errors that name the task, its function and where it stands."""

    def __init__(self, task: str, function: FunctionType) -> None:
        self._task, self._function = task, function
        self._file, self._line = location(inspect.unwrap(function))

    def __call__(self, wrong: str, fix: str) -> TaskContractError:
        return TaskContractError(
            f"task {self._task!r}, {self._function.__qualname__} in {self._file}:{self._line}: {wrong}",
            hint=fix,
            task=self._task,
            function=self._function.__qualname__,
            file=self._file,
            line=self._line,
        )

    def warn(self, remark: str) -> None:
        inner = inspect.unwrap(self._function)
        code, where = inner.__code__, inner.__globals__
        registry = where.setdefault("__warningregistry__", {})
        text = f"task {self._task!r}: {remark}"
        warnings.warn_explicit(text, BudgetWarning, code.co_filename, code.co_firstlineno, self._task, registry)

    def signature(self, hints: Mapping[str, Any], *, workspace: bool) -> str:
        """The `def` line as it should be, with the types that are known."""
        known = list(hints.values())
        place = next((_spelled(each) for each in known if _kind_of(each)), "Path")
        params, result = _model_name(hints.get("params"), "Params"), _model_name(hints.get("return"), "Result")
        taken = f"workspace: {place}, params: {params}" if workspace else f"params: {params}"
        return f"`def {self._function.__name__}({taken}) -> {result}`"


def plain_function(given: Any, name: str) -> FunctionType:
    """The function itself, if it is one that a worker can call and find again."""
    if not isinstance(given, FunctionType) or not isinstance(inspect.unwrap(given), FunctionType):
        what = _spelled(given) if isinstance(given, type) else type(given).__name__
        raise TaskContractError(
            f"task {name!r}: {what} is not a plain function",
            hint="put @task on a plain function of a module, and above other decorators",
        )
    refuse, inner = Refusals(name, given), inspect.unwrap(given)
    if given.__name__ == "<lambda>":
        raise refuse("a lambda has no annotations", "write it as a function with def")
    if inspect.iscoroutinefunction(inner) or inspect.isasyncgenfunction(inner):
        raise refuse("it is async, and an attempt runs in a thread of its own", "write `def`, without async")
    if inspect.isgeneratorfunction(inner):
        raise refuse("it is a generator", "return the result instead of yielding")
    owner = given.__qualname__.rpartition(".")[0]
    if owner and not owner.endswith("<locals>"):
        raise refuse(f"it is defined in the class {owner}", "move it out of the class, and remove self")
    return given


# --- the annotations ----------------------------------------------------------------------------------------------


def _hints(function: FunctionType, names: Mapping[str, Any], refuse: Refusals) -> dict[str, Any]:
    """The annotations as types; those written as text are looked up where the function was defined."""
    try:
        return get_type_hints(function, localns=dict(names))
    except NameError as error:
        raise refuse(
            f"the annotation {error.name!r} cannot be resolved",
            f"import or define {error.name} above the task, and not only under `if TYPE_CHECKING:`",
        ) from None
    except (AttributeError, TypeError, SyntaxError) as error:
        raise refuse(f"an annotation cannot be read: {error}", "annotate with classes") from None


def _check_parameters(function: FunctionType, hints: dict[str, Any], refuse: Refusals) -> tuple[str, ...]:
    """The names of the parameters, if they are those of a task, each with an annotation."""
    inner = inspect.unwrap(function)
    code = inner.__code__
    names: tuple[str, ...] = code.co_varnames[: code.co_argcount]
    workspace = len(names) > 1 or any(_kind_of(hint) for hint in hints.values())
    fix = f"write {refuse.signature(hints, workspace=workspace)}"
    if code.co_flags & (inspect.CO_VARARGS | inspect.CO_VARKEYWORDS):
        raise refuse("it takes *args or **kwargs", fix)
    if code.co_kwonlyargcount:
        raise refuse("it has keyword-only parameters", fix)
    if names == ("params", "workspace"):
        raise refuse("the parameters are in the wrong order", fix)
    if names not in (("params",), ("workspace", "params")):
        raise refuse(f"its parameters are ({', '.join(names)})", fix)
    missing = [name for name in (*names, "return") if name not in hints]
    if missing:
        what = " and ".join("the result" if name == "return" else f"the parameter {name}" for name in missing)
        raise refuse(f"{what} {'has' if len(missing) == 1 else 'have'} no annotation", fix)
    return names


def _kind_of(annotation: Any) -> Kind | None:
    if annotation is Path:
        return "path"
    mark = getattr(annotation, "__fenceline_workspace__", None) if isinstance(annotation, type) else None
    return _MARKED.get(mark) if isinstance(mark, str) else None


def _kind(annotation: Any, spec: WorkspaceSpec | None, refuse: Refusals) -> Kind:
    kind = _kind_of(annotation)
    if kind is None:
        raise refuse(f"the parameter workspace is a {_spelled(annotation)}", f"annotate it with {_WORKSPACES}")
    if spec is None:
        raise refuse(
            "it takes a workspace, but none is declared",
            "add workspace=WorkspaceSpec() to @task(…), or remove the parameter",
        )
    if kind == "spark" and spec.reads is not None:
        raise refuse("a Spark workspace knows what is read from it", "remove reads= from its WorkspaceSpec")
    return kind


def _check_model(
    what: str, annotation: Any, mode: JsonSchemaMode, names: Mapping[str, Any], refuse: Refusals
) -> type[BaseModel]:
    shown = _spelled(annotation)
    if not _is_model(annotation) or annotation is BaseModel:
        raise refuse(
            f"the {what} is annotated with {shown}, not with a model of its own",
            f"declare `class {what.capitalize()}(BaseModel)` with pydantic and annotate the {what} with it",
        )
    model: type[BaseModel] = annotation
    if what == "params" and issubclass(model, RootModel):
        raise refuse(f"params are the RootModel {shown}, without names", "make them a BaseModel with fields")
    model.model_rebuild(raise_errors=False, _types_namespace=dict(names))
    if not model.__pydantic_complete__:
        raise refuse(
            f"the model {shown} refers to a class that is not defined yet",
            f"define the classes that {shown} refers to above the task",
        )
    try:
        schema_of(model, mode)
    except PydanticUserError as error:
        raise refuse(
            f"{what} cannot travel as JSON: {shown}: {str(error).splitlines()[0]}",
            "give its fields types that JSON has",
        ) from None
    return model


def _check_params(params: type[BaseModel], refuse: Refusals) -> None:
    if params.model_config.get("extra") != "forbid":
        raise refuse(
            f"the model {params.__name__} accepts unknown fields, so that a misspelt one would go unnoticed",
            f'add `model_config = ConfigDict(extra="forbid")` to the class {params.__name__}',
        )
    readable_secrets = open_defaults(params)
    if readable_secrets:
        raise refuse(
            f"the default of the secret {readable_secrets[0]} is plain text, which logs would show",
            f"write SecretStr(…) around the default of {readable_secrets[0]}, or better give it none",
        )


def _spelled(annotation: Any) -> str:
    return str(getattr(annotation, "__name__", annotation))


def _is_model(annotation: Any) -> bool:
    return isinstance(annotation, type) and issubclass(annotation, BaseModel)


def _model_name(annotation: Any, otherwise: str) -> str:
    return _spelled(annotation) if _is_model(annotation) else otherwise

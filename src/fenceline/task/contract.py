"""`@task`: a typed function, what is declared about it, and the checks that run when its module is imported."""

from __future__ import annotations

import functools
import inspect
import json
import re
import sys
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from types import FunctionType
from typing import (
    TYPE_CHECKING,
    Any,
    ClassVar,
    Generic,
    Protocol,
    TypeVar,
    overload,
)

from pydantic import BaseModel, ValidationError

from fenceline.errors import ContractError
from fenceline.task.result import TaskFailed as TaskFailed
from fenceline.task.result import TaskTerminalError as TaskTerminalError
from fenceline.task.result import refusal_of, schema_of
from fenceline.task.signature import Kind, Refusals, plain_function, read_signature
from fenceline.task.signature import TaskContractError as TaskContractError
from fenceline.task.spec import PublishBudget, SpecError, TaskControls, WorkspaceSpec
from fenceline.task.version import code_version

DEFAULT_HEARTBEAT = 10.0
LARGEST_RESULT = 1_000_000
_NAME = re.compile(r"[A-Za-z][A-Za-z0-9_.-]{0,199}")
_REGISTRY = "__fenceline_tasks__"


# --- what can go wrong --------------------------------------------------------------------------------------------


class InvalidParams(ContractError):
    """Params that the task's model does not accept."""

    code = "contract.params"


class InvalidResult(ContractError):
    """A body that returned something other than the task says."""

    code = "contract.result"


class LoadError(ContractError):
    """A reference to tasks that leads nowhere, or to a module that cannot be imported."""

    code = "contract.load"


# --- what a task is -----------------------------------------------------------------------------------------------


class WorkspaceLike(Protocol):
    """`fenceline.Workspace` and `fenceline.SparkWorkspace`, known by their mark: this module imports neither."""

    __fenceline_workspace__: ClassVar[str]


W = TypeVar("W", bound=Path | WorkspaceLike)
P = TypeVar("P", bound=BaseModel)
R = TypeVar("R", bound=BaseModel)
_W_contra = TypeVar("_W_contra", bound=Path | WorkspaceLike, contravariant=True)
_P_contra = TypeVar("_P_contra", bound=BaseModel, contravariant=True)
_R_co = TypeVar("_R_co", bound=BaseModel, covariant=True)


class _WorkspaceFunction(Protocol[_W_contra, _P_contra, _R_co]):
    def __call__(self, workspace: _W_contra, params: _P_contra) -> _R_co: ...


class _FreeFunction(Protocol[_P_contra, _R_co]):
    def __call__(self, params: _P_contra) -> _R_co: ...


@dataclass(frozen=True, eq=False, repr=False)
class TaskDefinition(Generic[P, R]):
    """A task: still the function that it was, and what the runtime must know to run it."""

    function: Callable[..., R]
    name: str
    owner: str
    version: str
    """The code version: a part of the identity of what a step publishes."""
    kind: Kind
    """Which workspace the function takes."""
    params_model: type[P]
    result_model: type[R]
    spec: WorkspaceSpec | None
    controls: TaskControls
    budget: PublishBudget | None
    warnings: tuple[str, ...] = ()
    """What was warned of when the task was declared."""

    if TYPE_CHECKING:

        @property
        def __name__(self) -> str: ...
        @property
        def __qualname__(self) -> str: ...

    def __post_init__(self) -> None:
        names: Iterable[str] = functools.WRAPPER_ASSIGNMENTS
        kept = {name: getattr(self.function, name) for name in names if name != "__annotate__"}
        vars(self).update(kept, __wrapped__=self.function)  # what functools.wraps does, on a frozen object

    def __call__(self, *args: Any, **kwargs: Any) -> R:
        return self.function(*args, **kwargs)

    def __repr__(self) -> str:
        return f"<task {self.name} ({self.kind}): {self.__module__}:{self.__qualname__}>"

    def __reduce__(self) -> str:
        return self.__qualname__  # by reference, as functions are pickled

    @property
    def heartbeat_interval(self) -> float:
        """How often a worker renews the lease of an attempt, in seconds."""
        if self.budget is not None:
            return self.budget.heartbeat_interval_seconds
        return min(DEFAULT_HEARTBEAT, self.controls.response_timeout_seconds / 3)

    def params_from(self, data: object) -> P:
        """Params from JSON as the orchestrator hands it out. What is refused is told without the values."""
        if isinstance(data, self.params_model):
            return data
        problem = ""
        try:
            return self.params_model.model_validate_json(json.dumps(data))
        except ValidationError as error:
            problem = refusal_of(error, self.params_model)
        except Exception as error:  # noqa: BLE001 - a validator may raise anything, and quote a secret in it
            problem = f"{type(error).__name__} while they were validated"
        # raised here, outside the handler: the original error quotes its input and must not be chained to this one
        raise InvalidParams(f"params of {self.name}: {problem}", hint=f"they are a {self.params_model.__name__}")

    def result_from(self, value: object) -> R:
        """What the body returned, if it is what the task says it returns and can be written as JSON that is not long.

        Found out before anything is published: an orchestrator would refuse the report of what was published.
        """
        expected = self.result_model.__name__
        if not isinstance(value, self.result_model):
            raise InvalidResult(f"{self.name} returned {type(value).__name__}", hint=f"return {expected}(…)")
        try:
            told = json.dumps(value.model_dump(mode="json", warnings="error"))
        except Exception as error:  # noqa: BLE001 - serialisers are the user's code, and may quote a secret
            names = re.findall(r"field_name='(\w+)'", str(error))
            problem = f"cannot be written as JSON: {'in ' + ', '.join(names) if names else type(error).__name__}"
            hint = "give every field a value of its declared type"
        else:
            if len(told) <= LARGEST_RESULT:
                return value
            problem = f"is {len(told):,} characters of JSON; {LARGEST_RESULT:,} is the most"
            hint = "write data into the workspace, and return where it is"
        raise InvalidResult(f"the {expected} that {self.name} returned {problem}", hint=hint)

    def describe(self) -> dict[str, Any]:
        """All of it as JSON can hold it, without the values of secrets."""
        return {
            "name": self.name,
            "owner": self.owner,
            "version": self.version,
            "kind": self.kind,
            "function": f"{self.__module__}:{self.__qualname__}",
            "description": inspect.getdoc(self.function),
            "params": schema_of(self.params_model, "validation"),
            "result": schema_of(self.result_model, "serialization"),
            "workspace": self.spec.describe() if self.spec else None,
            "controls": self.controls.as_taskdef(),
            "budget": self.budget.describe() if self.budget else None,
            "warnings": list(self.warnings),
        }


class WorkspaceTask(TaskDefinition[P, R], Generic[W, P, R]):
    """A task that works in a workspace: `(workspace, params) -> Result`."""

    def __call__(self, workspace: W, params: P) -> R:
        return self.function(workspace, params)


class FreeTask(TaskDefinition[P, R]):
    """A task that needs no repository: `(params) -> Result`."""

    def __call__(self, params: P) -> R:
        return self.function(params)


@overload
def task(
    *,
    name: str,
    owner: str,
    workspace: WorkspaceSpec,
    controls: TaskControls = ...,
    budget: PublishBudget | None = None,
    version: str | None = None,
) -> Callable[[_WorkspaceFunction[W, P, R]], WorkspaceTask[W, P, R]]: ...
@overload
def task(
    *,
    name: str,
    owner: str,
    workspace: None = None,
    controls: TaskControls = ...,
    budget: None = None,
    version: str | None = None,
) -> Callable[[_FreeFunction[P, R]], FreeTask[P, R]]: ...
def task(
    *bare: object,
    name: str = "",
    owner: str = "",
    workspace: WorkspaceSpec | None = None,
    controls: TaskControls = TaskControls(),
    budget: PublishBudget | None = None,
    version: str | None = None,
) -> Any:
    """Declare a task: `(workspace, params) -> Result`, or without a workspace `(params) -> Result`.

    The annotation of `workspace` chooses what the function is given: `pathlib.Path`, a materialised directory;
    `fenceline.Workspace`, the same with metrics; `fenceline.SparkWorkspace`, for Spark, without a copy. Params and
    result are pydantic models; params forbid unknown fields. A wrong declaration is refused when the module is
    imported. `owner` is who answers for the task; Conductor wants an e-mail address.
    """
    if bare:
        raise TaskContractError("@task takes no positional argument", hint="write @task(name='…', owner='…')")

    def decorate(function: Any) -> TaskDefinition[Any, Any]:
        declared = _Declared(name, owner, workspace, controls, budget, version)
        return _define(function, declared, sys._getframe(1).f_locals)

    return decorate


# --- the checks at import -----------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class _Declared:
    name: str
    owner: str
    spec: WorkspaceSpec | None
    controls: TaskControls
    budget: PublishBudget | None
    version: str | None


def _define(given: Any, declared: _Declared, names: Mapping[str, Any]) -> TaskDefinition[Any, Any]:
    if isinstance(given, TaskDefinition):
        raise TaskContractError(f"{given!r} is a task already", hint=f"remove the second @task(name={declared.name!r})")
    function = plain_function(given, declared.name)
    refuse = Refusals(declared.name, function)
    _check_declared(declared, refuse)
    signature = read_signature(function, declared.spec, names, refuse)
    budget, remarks = _check_budget(signature.kind, declared, refuse)
    try:
        version = code_version(inspect.unwrap(function), declared.version)
    except ContractError as error:
        raise refuse(error.message, error.hint or "") from None
    _register(declared.name, function, refuse)
    for remark in remarks:
        refuse.warn(remark)
    made = FreeTask if signature.kind == "none" else WorkspaceTask
    return made(
        function=given,
        name=declared.name,
        owner=declared.owner,
        version=version,
        kind=signature.kind,
        params_model=signature.params,
        result_model=signature.result,
        spec=declared.spec,
        controls=declared.controls,
        budget=budget,
        warnings=tuple(remarks),
    )


def _check_declared(declared: _Declared, refuse: Refusals) -> None:
    if not isinstance(declared.name, str) or not _NAME.fullmatch(declared.name):
        raise refuse(
            f"the name is {declared.name!r}", "give name= letters, digits, '_', '.' and '-', beginning with a letter"
        )
    if not isinstance(declared.owner, str) or not declared.owner.strip():
        raise refuse(f"the owner is {declared.owner!r}", "say with owner= who answers for the task, by e-mail address")
    for name, value, kind in (
        ("workspace", declared.spec, WorkspaceSpec),
        ("controls", declared.controls, TaskControls),
        ("budget", declared.budget, PublishBudget),
    ):
        if not isinstance(value, kind) and (value is not None or name == "controls"):
            raise refuse(f"{name}= is a {type(value).__name__}", f"write {name}={kind.__name__}(…)")


def _check_budget(kind: Kind, declared: _Declared, refuse: Refusals) -> tuple[PublishBudget | None, list[str]]:
    """The budget that applies, and what is to be warned of."""
    if declared.budget is None:
        return None, []
    if kind == "none" or declared.spec is None:
        raise refuse("a task without a workspace publishes nothing", "remove budget=")
    if declared.spec.read_only:
        return None, ["the budget is ignored, because a read-only task publishes nothing: remove budget="]
    try:
        misfit = declared.budget.misfit(declared.controls)
    except SpecError as error:
        raise refuse(error.message, error.hint or "") from None
    return declared.budget, [misfit] if misfit else []


def _register(name: str, function: FunctionType, refuse: Refusals) -> None:
    """Refuse a second task of the same name in a module. A reloaded module, or a cell run again, begins anew."""
    if function.__qualname__ != function.__name__:
        return  # made by a function, maybe many times; `load` looks again
    where, code = function.__globals__, inspect.unwrap(function).__code__
    seen: dict[str, tuple[object, str, int, str]] = where.setdefault(_REGISTRY, {})
    module, file, line, other = seen.get(name, (None, "", 0, ""))
    if module is where.get("__spec__") and file == code.co_filename and line != code.co_firstlineno:
        raise refuse(f"{other} in line {line} has the same task name", "give one of them another name=")
    seen[name] = (where.get("__spec__"), code.co_filename, code.co_firstlineno, function.__qualname__)

"""A pipeline as data: its elements, what each is given, and what each comes after."""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Generic, Literal, TypeAlias, TypeVar

from pydantic import BaseModel, SecretBytes, SecretStr, ValidationError
from pydantic_core import to_jsonable_python

from fenceline.errors import ContractError
from fenceline.pipeline.definition.fitting import holds_secret
from fenceline.pipeline.form.expressions import written
from fenceline.task.contract import InvalidParams, TaskDefinition
from fenceline.task.result import refusal_of
from fenceline.task.version import shown_path

P = TypeVar("P", bound=BaseModel | None)

Publish: TypeAlias = Literal["run", "step"]
Operator: TypeAlias = Literal["==", "!=", "<", "<=", ">", ">="]
Value: TypeAlias = Any
"""JSON, with a `Source` wherever the value is known only when the pipeline runs."""

RUN_PARAMS = ("workflow", "input", "params")
_HERE = f"{Path(__file__).parent}{os.sep}"


class PipelineError(ContractError):
    """A pipeline that is declared wrongly; raised when its module is imported."""

    code = "contract.pipeline"


def called_from() -> str:
    """File and line of the call that led into this package."""
    frame = sys._getframe(1)
    while frame.f_back is not None and frame.f_code.co_filename.startswith(_HERE):
        frame = frame.f_back
    return f"{shown_path(frame.f_code.co_filename)}:{frame.f_lineno}"


@dataclass(frozen=True, slots=True)
class Source:
    """Where a value comes from: the run's params, or the result of a step."""

    path: tuple[str | int, ...]
    """As in an expression: `("raw", "output", "result", "rows")`."""
    annotation: Any = field(compare=False, repr=False)

    @property
    def step(self) -> str | None:
        """The reference name of the step; None if it is the run's own params."""
        return None if self.path[: len(RUN_PARAMS)] == RUN_PARAMS else str(self.path[0])

    @property
    def expression(self) -> str:
        return f"${{{written(self.path)}}}"

    def __str__(self) -> str:
        """As people wrote it."""
        first, rest = (("run", "params"), 3) if self.step is None else ((self.step, "result"), 3)
        return written((*first, *self.path[rest:]))


@dataclass(frozen=True, slots=True)
class StepElement:
    """A task with its params."""

    name: str
    task: TaskDefinition[Any, Any]
    params: Mapping[str, Value]
    after: frozenset[str]
    """The elements beside it that it waits for."""
    where: str


@dataclass(frozen=True, slots=True)
class WhenElement:
    """What runs only if the condition holds, and what runs otherwise."""

    name: str
    left: Value
    operator: Operator
    right: Value
    then: Elements
    otherwise: Elements
    after: frozenset[str]
    where: str


@dataclass(frozen=True, slots=True)
class EachElement:
    """A task once for each item of a list."""

    name: str
    items: Source | None
    """None if the items are constants: then all the steps run."""
    steps: tuple[StepElement, ...]
    after: frozenset[str]
    where: str


Element: TypeAlias = StepElement | WhenElement | EachElement
Elements: TypeAlias = tuple[Element, ...]


def steps_in(elements: Elements) -> Iterator[StepElement]:
    """Every step, in the order in which they were declared."""
    for element in elements:
        if isinstance(element, StepElement):
            yield element
        elif isinstance(element, EachElement):
            yield from element.steps
        else:
            yield from steps_in(element.then)
            yield from steps_in(element.otherwise)


@dataclass(frozen=True, eq=False, repr=False)
class PipelineDefinition(Generic[P]):
    """A pipeline: what `@pipeline` makes of a function."""

    function: Callable[..., None]
    name: str
    owner: str
    description: str
    publish: Publish
    version: int
    """The number of the WorkflowDef."""
    timeout_seconds: int
    params_model: type[BaseModel] | None
    elements: Elements

    def __post_init__(self) -> None:
        vars(self).update({name: getattr(self.function, name) for name in ("__module__", "__qualname__", "__doc__")})

    def __call__(self, *args: Any, **kwargs: Any) -> None:
        raise PipelineError(f"{self!r} cannot be called", hint="fenceline.run(…) runs it; its tasks can be called")

    def __repr__(self) -> str:
        return f"<pipeline {self.name}: {self.__module__}:{vars(self)['__qualname__']}>"

    @property
    def steps(self) -> tuple[StepElement, ...]:
        return tuple(steps_in(self.elements))

    @property
    def tasks(self) -> tuple[TaskDefinition[Any, Any], ...]:
        """Each task that the pipeline uses, once."""
        return tuple({step.task.name: step.task for step in self.steps}.values())

    def params_from(self, data: object) -> P:
        """The run's params from JSON. What is refused is told without the values."""
        model = self.params_model
        if model is None:
            if data in (None, {}):
                return None  # type: ignore[return-value]
            raise InvalidParams(f"pipeline {self.name} takes no params", hint="leave them out")
        if isinstance(data, model):
            return data  # type: ignore[return-value]
        try:
            return model.model_validate_json(_as_json(data))  # type: ignore[return-value]
        except ValidationError as error:
            problem = refusal_of(error, model)
        except Exception as error:  # noqa: BLE001 - a validator may raise anything, and quote a secret in it
            problem = f"{type(error).__name__} while they were validated"
        # raised outside the handler: the original error quotes its input and must not be chained to this one
        raise InvalidParams(f"params of pipeline {self.name}: {problem}", hint=f"they are a {model.__name__}")

    def workflow_input(self, repository: str, branch: str, params: object = None) -> dict[str, Any]:
        """What a run of the WorkflowDef is started with: defaults are filled in, secrets are in plain text."""
        checked = self.params_from({} if params is None else params)
        return {"repository": repository, "branch": branch, "params": _plain(checked) if checked is not None else {}}


def _plain(params: BaseModel) -> Any:
    if not holds_secret(type(params)):
        return params.model_dump(mode="json")
    return to_jsonable_python(_revealed(params.model_dump()))


def _as_json(data: object) -> str:
    return json.dumps(to_jsonable_python(_revealed(data)))


def _revealed(value: Any) -> Any:
    """The orchestrator must be given secrets as they are: a step could not use the mask."""
    if isinstance(value, SecretStr | SecretBytes):
        return value.get_secret_value()
    if isinstance(value, Mapping):
        return {name: _revealed(each) for name, each in value.items()}
    if isinstance(value, list | tuple | set | frozenset):
        return [_revealed(each) for each in value]
    return value

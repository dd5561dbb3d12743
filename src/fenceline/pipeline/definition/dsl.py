"""`@pipeline`: a function that wires tasks, traced once when its module is imported.

The function is not run again: what it declared is all there is, and it compiles to one WorkflowDef.
"""

from __future__ import annotations

import inspect
import re
from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager
from types import FunctionType
from typing import TYPE_CHECKING, Any, Generic, TypeAlias, TypeVar, get_args, get_origin, get_type_hints

from pydantic import BaseModel

from fenceline.pipeline.definition.building import Case, Drawing, Drawn, Place
from fenceline.pipeline.definition.flow import Flow
from fenceline.pipeline.definition.model import (
    RUN_PARAMS,
    P,
    PipelineDefinition,
    PipelineError,
    Publish,
    Source,
)
from fenceline.pipeline.definition.references import Reference
from fenceline.task.contract import TaskDefinition
from fenceline.task.version import location

R = TypeVar("R", bound=BaseModel)
T = TypeVar("T")

_PIPELINE_NAME = re.compile(r"[A-Za-z][A-Za-z0-9_-]{0,199}")


class Step(Generic[R]):
    """A step of a pipeline, to refer to: its result's fields, or the step itself in `after=`."""

    def __init__(self, drawn: Drawn, source: Source, run: object) -> None:
        self._drawn = drawn
        self._result = Reference(source, run)

    @property
    def name(self) -> str:
        """Its reference name in the run."""
        return self._drawn.name

    if TYPE_CHECKING:

        @property
        def result(self) -> R: ...

    else:

        @property
        def result(self) -> Reference:
            """What the task will have returned: a reference, with the fields of the result model."""
            return self._result

    def __repr__(self) -> str:
        return f"<step {self.name}>"


class Block:
    """Steps that run together or not at all: what `run.when` and `run.foreach` give, for `after=`."""

    def __init__(self, drawn: Drawn) -> None:
        self._drawn = drawn

    @property
    def name(self) -> str:
        return self._drawn.name

    def __repr__(self) -> str:
        return f"<block {self.name}>"


class _Opened(AbstractContextManager[Block]):
    """Steps that are added meanwhile stand in the block."""

    def __init__(self, drawing: Drawing, block: Block, case: Case) -> None:
        self._drawing, self._block, self._case = drawing, block, case
        self._outer: Place = ()

    def __enter__(self) -> Block:
        self._outer = self._drawing.enter(self._block._drawn, self._case)
        return self._block

    def __exit__(self, kind: object, error: object, traceback: object) -> None:
        if kind is None:
            self._drawing.leave(self._block._drawn, self._case, self._outer)


After: TypeAlias = Step[Any] | Block | Sequence[Step[Any] | Block] | None


class Run(Generic[P]):
    """What a pipeline's function is given: the run's params, and the ways to add steps."""

    def __init__(self, drawing: Drawing, params_model: type[BaseModel] | None) -> None:
        self._drawing = drawing
        self._params_model = params_model

    if TYPE_CHECKING:

        @property
        def params(self) -> P: ...

    else:

        @property
        def params(self) -> Reference:
            """What the run will be started with: a reference, with the fields of the params model."""
            if self._params_model is None:
                raise self._drawing.refuse("its run has no params", "annotate it with Run[Params] to give it some")
            return Reference(Source(RUN_PARAMS, self._params_model), self._drawing)

    def step(
        self,
        task: TaskDefinition[Any, R],
        fields: Mapping[str, object] | None = None,
        /,
        *,
        name: str | None = None,
        after: After = None,
        **params: object,
    ) -> Step[R]:
        """Add a step: a task, and its params as constants or references.

        It waits for the steps that it refers to and for those in `after`, and for nothing else. `name` is its name in
        the run, by default the last part of the task's name. Params whose fields are called `name` or `after` are given
        in a dict, as the second argument.
        """
        given = {**(fields or {}), **params}
        drawn = self._drawing.step(task, name, self._befores(after), given)
        return Step(drawn, Source((drawn.name, "output", "result"), drawn.task.result_model), self._drawing)

    def when(self, condition: bool, *, name: str | None = None, after: After = None) -> AbstractContextManager[Block]:
        """`with run.when(raw.result.rows > 0) as block:` the steps in it run only if the condition holds.

        A condition is a boolean reference, or a comparison of a reference with a constant or with another one.
        """
        return _Opened(self._drawing, Block(self._drawing.when(condition, name, self._befores(after))), "then")

    def otherwise(self, block: Block) -> AbstractContextManager[Block]:
        """`with run.otherwise(block):` the steps in it run only if the condition of that block does not hold."""
        self._drawing.otherwise(getattr(block, "_drawn", None))
        return _Opened(self._drawing, block, "otherwise")

    def foreach(
        self,
        items: Sequence[T],
        task: TaskDefinition[Any, Any],
        params: Callable[[T], Mapping[str, object]],
        /,
        *,
        most: int | None = None,
        name: str | None = None,
        after: After = None,
    ) -> Block:
        """Add a step for each item, all at once: `run.foreach(days, build, lambda day: {"day": day}, most=31)`.

        `items` is a list, or a reference to one; then `most` says how many there can be, and a run with more fails. The
        steps are called `name_0`, `name_1` and so on.
        """
        return Block(self._drawing.foreach(items, task, params, most, name, self._befores(after)))

    def _befores(self, after: After) -> tuple[Drawn, ...]:
        if after is None:
            return ()
        listed = after if isinstance(after, list | tuple) else (after,)
        for each in listed:
            if not isinstance(each, Step | Block):
                raise self._drawing.refuse(
                    f"after= has {each!r}", "give it what run.step, run.when or run.foreach gave, or a list of these"
                )
        return tuple(each._drawn for each in listed)


def pipeline(
    *,
    name: str,
    publish: Publish = "run",
    owner: str | None = None,
    description: str | None = None,
    version: int = 1,
    timeout_seconds: int = 0,
) -> Callable[[Callable[[Run[P]], None]], PipelineDefinition[P]]:
    """Declare a pipeline: `def daily(run: Run[Params]) -> None`, or `Run[None]` if it takes no params.

    With `publish="run"` its steps work on a branch of the run's own, which becomes visible at the end, all of it; with
    `"step"` each step publishes to the target branch. `owner` is by default that of the first task. `version` is the
    number under which Conductor keeps the definition. After `timeout_seconds` a run is ended; 0 is never.
    """

    def decorate(function: Callable[[Run[P]], None]) -> PipelineDefinition[P]:
        where = _where(function)

        def refuse(wrong: str, fix: str) -> PipelineError:
            return PipelineError(f"pipeline {name!r}, {where}: {wrong}", hint=fix, pipeline=name)

        _check_settings(name, publish, version, timeout_seconds, refuse)
        model = _params_model(function, inspect.currentframe(), refuse)
        drawing = Drawing(name)
        try:
            returned: object = function(Run(drawing, model))  # type: ignore[func-returns-value]
        except PipelineError:
            raise
        except Exception as error:
            error.add_note(f"pipeline {name!r} was being traced: its values are known only when it runs")
            raise
        if returned is not None:
            raise refuse(f"it returned a {type(returned).__name__}", "return nothing: each step's result is kept")
        elements = drawing.finished(refuse)
        Flow(elements)  # refuses writers that cannot be beside each other
        return PipelineDefinition(
            function=function,
            name=name,
            owner=owner or drawing.first_owner,
            description=(description if description is not None else inspect.getdoc(function)) or "",
            publish=publish,
            version=version,
            timeout_seconds=timeout_seconds,
            params_model=model,
            elements=elements,
        )

    return decorate


_Refuse: TypeAlias = Callable[[str, str], PipelineError]


def _where(function: Any) -> str:
    inner = inspect.unwrap(function) if callable(function) else function
    return "{}:{}".format(*location(inner)) if isinstance(inner, FunctionType) else repr(function)


def _check_settings(name: object, publish: object, version: object, timeout: object, refuse: _Refuse) -> None:
    if not isinstance(name, str) or not _PIPELINE_NAME.fullmatch(name):
        raise refuse("that name cannot be used", "give name= letters, digits, '_' and '-', beginning with a letter")
    if publish not in ("run", "step"):
        raise refuse(f"publish is {publish!r}", "write publish='run' or publish='step'")
    for what, value, least in (("version", version, 1), ("timeout_seconds", timeout, 0)):
        if not isinstance(value, int) or isinstance(value, bool) or value < least:
            raise refuse(f"{what} is {value!r}", f"give a whole number of at least {least}")


def _params_model(function: Any, frame: Any, refuse: _Refuse) -> type[BaseModel] | None:
    """The model of `run: Run[Model]`."""
    if not isinstance(function, FunctionType):
        raise refuse("it is not a plain function", "put @pipeline on a function of a module")
    fix = f"write `def {function.__name__}(run: Run[Params]) -> None`"
    names = frame.f_back.f_locals if frame is not None and frame.f_back is not None else {}
    try:
        hints = get_type_hints(function, localns=dict(names))
    except NameError as error:
        raise refuse(f"the annotation {error.name!r} cannot be resolved", f"define {error.name} above it") from None
    parameters = list(inspect.signature(function).parameters)
    annotation = hints.get(parameters[0]) if len(parameters) == 1 else None
    if get_origin(annotation) is not Run:
        raise refuse("it does not take exactly one run", fix)
    (model,) = get_args(annotation)
    if model is type(None):
        return None
    if not isinstance(model, type) or not issubclass(model, BaseModel) or model is BaseModel:
        raise refuse(f"the params of its run are {model!r}", f"{fix}, with a pydantic model, or Run[None]")
    if model.model_config.get("extra") != "forbid":
        raise refuse(
            f"the model {model.__name__} accepts unknown fields, so that a misspelt one would go unnoticed",
            f'add `model_config = ConfigDict(extra="forbid")` to the class {model.__name__}',
        )
    return model

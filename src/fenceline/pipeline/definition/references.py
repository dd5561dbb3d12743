"""What a pipeline's function handles in place of values: they are known only when the pipeline runs.

A reference has the fields that its value will have. Comparing it gives a condition for `run.when`; using it as if the
value were there already is an error that says what to do instead.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any, NoReturn

from fenceline.pipeline.definition.fitting import NoSuchPart, field_of, item_of, spelled
from fenceline.pipeline.definition.model import Operator, PipelineError, Source, called_from

_QUOTES = frozenset("'\\{}$")
_BRANCH = "write `with run.when(reference > 3):` and the steps below it"
_COMPUTE = "compute it in a task, and refer to that task's result"
_LOOP = "write run.foreach(reference, task, lambda item: {…}, most=N)"


def _misuse(how: str, instead: str) -> Callable[..., NoReturn]:
    def refuse(self: Reference | Condition, *_: object) -> NoReturn:
        raise PipelineError(f"{called_from()}: {self!r} is known only when the pipeline runs: {how}", hint=instead)

    return refuse


class Reference:
    """The value of a field, when the pipeline runs."""

    __slots__ = ("_run", "_source")

    def __init__(self, source: Source, run: object) -> None:
        self._source, self._run = source, run

    def __getattr__(self, name: str) -> Reference:
        if name.startswith("_"):  # Python's own protocols ask for such names
            raise AttributeError(name)
        try:
            keys, annotation = field_of(self._source.annotation, name)
        except NoSuchPart as error:
            raise PipelineError(f"{called_from()}: {self._source}.{name}: {error}", hint="name one of these") from None
        return self._inside(keys, annotation)

    def __getitem__(self, key: object) -> Reference:
        if not isinstance(key, str | int) or isinstance(key, bool) or (isinstance(key, str) and _QUOTES & {*key}):
            raise PipelineError(
                f"{called_from()}: {self._source}[{key!r}] cannot be referred to",
                hint=f"use a plain text or a number that is not negative, or {_COMPUTE}",
            )
        try:
            annotation = item_of(self._source.annotation, key)
        except NoSuchPart as error:
            raise PipelineError(f"{called_from()}: {self._source}[{key!r}]: {error}", hint=_COMPUTE) from None
        return self._inside((key,), annotation)

    def _inside(self, keys: tuple[str | int, ...], annotation: Any) -> Reference:
        return Reference(replace(self._source, path=(*self._source.path, *keys), annotation=annotation), self._run)

    def __eq__(self, other: object) -> Condition:  # type: ignore[override]
        return Condition(self, "==", other)

    def __ne__(self, other: object) -> Condition:  # type: ignore[override]
        return Condition(self, "!=", other)

    def __lt__(self, other: object) -> Condition:
        return Condition(self, "<", other)

    def __le__(self, other: object) -> Condition:
        return Condition(self, "<=", other)

    def __gt__(self, other: object) -> Condition:
        return Condition(self, ">", other)

    def __ge__(self, other: object) -> Condition:
        return Condition(self, ">=", other)

    def __repr__(self) -> str:
        return f"{self._source} ({spelled(self._source.annotation)})"

    __bool__ = _misuse("`if`, `and`, `or` and `not` cannot look at it", _BRANCH)
    __str__ = _misuse("it cannot become a part of a text", _COMPUTE)
    __format__ = _misuse("it cannot become a part of a text", _COMPUTE)
    __iter__ = _misuse("it cannot be iterated over", _LOOP)
    __len__ = _misuse("its length is not known", _COMPUTE)
    __contains__ = _misuse("what is in it is not known", _COMPUTE)
    __call__ = _misuse("it has fields, and no methods", _COMPUTE)
    __hash__ = _misuse("it cannot be in a set or be the key of a dict", _COMPUTE)
    __int__ = __index__ = __float__ = _misuse("it is no number yet", _COMPUTE)
    __add__ = __radd__ = __sub__ = __rsub__ = __mul__ = __rmul__ = _misuse("it cannot be computed with", _COMPUTE)
    __truediv__ = __rtruediv__ = __floordiv__ = __rfloordiv__ = __mod__ = __rmod__ = __add__
    __pow__ = __rpow__ = __neg__ = __pos__ = __abs__ = __round__ = __add__
    __and__ = __rand__ = __or__ = __ror__ = __xor__ = __rxor__ = __invert__ = __add__


class Condition:
    """A comparison, decided when the pipeline runs."""

    __slots__ = ("left", "operator", "right")

    def __init__(self, left: Reference, operator: Operator, right: object) -> None:
        self.left, self.operator, self.right = left, operator, right

    def __repr__(self) -> str:
        return f"{self.left._source} {self.operator} {self.right!r}"

    __bool__ = _misuse("`if`, `and`, `or`, `not` and `a < b < c` cannot look at it", _BRANCH)
    __and__ = __rand__ = __or__ = __ror__ = __xor__ = __invert__ = _misuse(
        "conditions cannot be combined", f"put one run.when inside another, or {_COMPUTE}"
    )


@dataclass(frozen=True, slots=True)
class Found:
    """A reference within a value that a step is given."""

    source: Source
    run: object


def found_in(value: object) -> Found | None:
    """What a reference refers to; None for anything else."""
    return Found(value._source, value._run) if isinstance(value, Reference) else None


def has_reference(value: object) -> bool:
    """Whether a value is a reference, or a list or dict with one in it."""
    if isinstance(value, dict):
        return any(has_reference(each) for each in value.values())
    if isinstance(value, list | tuple):
        return any(has_reference(each) for each in value)
    return isinstance(value, Reference)

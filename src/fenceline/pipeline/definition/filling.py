"""What a step is given, checked against its task's params model when the pipeline is declared."""

from __future__ import annotations

import difflib
import json
from collections.abc import Callable, Mapping
from typing import Any, get_args, get_origin

from pydantic import BaseModel, TypeAdapter, ValidationError
from pydantic_core import PydanticSerializationError, to_jsonable_python

from fenceline.errors import FencelineError
from fenceline.pipeline.definition.fitting import (
    NoSuchPart,
    fits,
    holds_secret,
    input_key,
    item_of,
    members,
    spelled,
    without_none,
)
from fenceline.pipeline.definition.model import Source, Value
from fenceline.pipeline.definition.references import Condition, Reference, has_reference
from fenceline.pipeline.form.expressions import escaped

Visible = Callable[[Reference], Source]
"""The source of a reference, if it may be used here."""


class Unfit(Exception):
    """What is wrong with a value, and where."""

    def __init__(self, where: str, wrong: str) -> None:
        super().__init__(f"{where}: {wrong}" if where else wrong)


def filled(model: type[BaseModel], given: Mapping[str, object], visible: Visible, where: str = "") -> dict[str, Value]:
    """The params as they stand in the definition, or `Unfit`."""
    fields = model.model_fields
    for name in given:
        if name not in fields:
            close = difflib.get_close_matches(name, fields, n=1)
            known = f"did you mean {close[0]}?" if close else f"it has {', '.join(fields) or 'no fields'}"
            raise Unfit(_in(where, name), f"{model.__name__} has no such field; {known}")
    missing = [name for name, field in fields.items() if field.is_required() and name not in given]
    if missing:
        raise Unfit(_in(where, missing[0]), "is missing")
    values: dict[str, Value] = {}
    constants: dict[str, Any] = {}
    for name, value in given.items():
        field, place = fields[name], _in(where, name)
        key = input_key(model, name, field)
        if key is None:
            raise Unfit(place, "has an alias path, which a step cannot fill")
        if has_reference(value):
            values[key] = mixed(value, field.annotation, visible, place)
        else:
            constants[key] = constant(value, field.annotation, place)
            values[key] = escaped(constants[key])
    _validate(model, constants, where, complete=len(constants) == len(given))
    return values


def constant(value: object, annotation: Any, where: str) -> Any:
    """A constant as JSON holds it. Secrets are refused: the definition is shown to everyone."""
    if isinstance(value, Condition):
        raise Unfit(where, f"{value!r} is a condition: it can be used in run.when only")
    if holds_secret(annotation) and value is not None:
        raise Unfit(where, "is a secret, and would stand in the definition: give it as a param of the run")
    try:
        plain = to_jsonable_python(value)
        json.dumps(plain, allow_nan=False)
    except (PydanticSerializationError, ValueError, TypeError) as error:
        raise Unfit(where, f"a {type(value).__name__} cannot be written as JSON: {error}") from None
    return plain


def _validate(model: type[BaseModel], constants: Mapping[str, Any], where: str, *, complete: bool) -> None:
    """By the model itself. With references among the params, only what is said about the constants counts."""
    problems: list[Any] = []
    try:
        model.model_validate_json(json.dumps(constants))
    except ValidationError as error:
        problems = error.errors(include_url=False, include_input=False, include_context=False)
    except FencelineError:
        raise
    except Exception:  # a validator that misses the fields that are not known yet; the task validates again
        if complete:
            raise
    for problem in problems:
        at = problem["loc"]
        if complete or (at and at[0] in constants):
            raise Unfit(_in(where, ".".join(map(str, at))), problem["msg"])


def mixed(value: object, annotation: Any, visible: Visible, where: str) -> Value:
    """A value with references in it, each checked against the annotation of its place."""
    if isinstance(value, Reference):
        source = visible(value)
        if not fits(source.annotation, annotation):
            raise Unfit(where, f"takes {spelled(annotation)}, but {source} is {spelled(source.annotation)}")
        return source.expression
    if not has_reference(value):
        plain = constant(value, annotation, where)
        _validate_alone(plain, annotation, where)
        return escaped(plain)
    refused: Unfit | None = None
    for kind in members(without_none(annotation)[0]):
        try:
            return _mixed_container(value, kind, visible, where)
        except Unfit as error:
            refused = refused or error
    raise refused or Unfit(where, f"takes {spelled(annotation)}")


def _mixed_container(value: object, kind: Any, visible: Visible, where: str) -> Value:
    origin = get_origin(kind) or kind
    if isinstance(value, dict) and isinstance(origin, type) and issubclass(origin, BaseModel):
        return filled(origin, value, visible, where)
    if isinstance(value, dict) and (kind is Any or (isinstance(origin, type) and issubclass(origin, Mapping))):
        inner = (get_args(kind) or (Any, Any))[1]
        return {str(name): mixed(each, inner, visible, _in(where, str(name))) for name, each in value.items()}
    if isinstance(value, list | tuple):
        return [mixed(each, _element(kind, at, where), visible, f"{where}[{at}]") for at, each in enumerate(value)]
    raise Unfit(where, f"takes {spelled(kind)}, not a {type(value).__name__}")


def _element(kind: Any, at: int, where: str) -> Any:
    try:
        return item_of(kind, at)
    except NoSuchPart:
        raise Unfit(where, f"takes {spelled(kind)}, not a list of more than {at}") from None


def _validate_alone(plain: Any, annotation: Any, where: str) -> None:
    try:
        TypeAdapter(annotation).validate_json(json.dumps(plain))
    except ValidationError as error:
        problem = error.errors(include_url=False, include_input=False, include_context=False)[0]
        raise Unfit(where, str(problem["msg"])) from None


def compared(value: object, visible: Visible) -> tuple[Value, Any]:
    """One side of a condition, and its annotation."""
    if isinstance(value, Reference):
        source = visible(value)
        return source.expression, source.annotation
    if not isinstance(value, str | int | float | bool | None) and not hasattr(value, "isoformat"):
        raise Unfit(
            "", f"a {type(value).__name__} cannot be compared with: use a text, a number, a date, True or False"
        )
    return escaped(constant(value, Any, "")), type(value)


def _in(where: str, name: str) -> str:
    return f"{where}.{name}" if where and name else where or name

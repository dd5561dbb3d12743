"""Annotations of fields: what is inside a value, and whether one value can be given where another is taken.

Values travel as JSON, so it is their JSON that must fit: a date fits a text, a text does not surely fit a date.
"""

from __future__ import annotations

import datetime
import decimal
import enum
import ipaddress
import pathlib
import types
import uuid
from collections.abc import Collection, Iterable, Mapping, Sequence, Set
from dataclasses import fields as dataclass_fields
from dataclasses import is_dataclass
from typing import Annotated, Any, Literal, Required, TypeVar, Union, get_args, get_origin, get_type_hints

from pydantic import BaseModel, RootModel, Secret, SecretBytes, SecretStr
from pydantic.aliases import AliasChoices
from pydantic.fields import FieldInfo

_AS_TEXT = (
    datetime.date,
    datetime.time,
    datetime.timedelta,
    decimal.Decimal,
    ipaddress.IPv4Address,
    ipaddress.IPv6Address,
    pathlib.PurePath,
    uuid.UUID,
    bytes,
)
_SCALARS = (str, bool, int, float, *_AS_TEXT)
_SECRETS = (SecretStr, SecretBytes, Secret)
_LISTS = (list, tuple, set, frozenset)
_LIST_KINDS = (Collection, Iterable, Sequence, Set, *_LISTS)


class NoSuchPart(Exception):
    """What was asked for is not inside a value of this type."""


def plain(annotation: Any) -> Any:
    """The annotation without what does not change the JSON: metadata, aliases, new types."""
    while True:
        origin = get_origin(annotation)
        if origin is Annotated or origin is Required:
            annotation = get_args(annotation)[0]
        elif hasattr(annotation, "__supertype__"):
            annotation = annotation.__supertype__
        elif hasattr(annotation, "__value__"):
            annotation = annotation.__value__
        else:
            return type(None) if annotation is None else annotation


def members(annotation: Any) -> tuple[Any, ...]:
    """The alternatives of a union; of anything else itself."""
    kind = plain(annotation)
    if get_origin(kind) in (Union, types.UnionType):
        return tuple(member for each in get_args(kind) for member in members(each))
    return (kind,)


def without_none(annotation: Any) -> tuple[Any, bool]:
    """The annotation without None, and whether there was one."""
    found = members(annotation)
    some = tuple(each for each in found if each is not type(None))
    return (Union[some] if some else type(None)), len(some) < len(found)  # noqa: UP007 - a union of unknown size


def optional_if(annotation: Any, optional: bool) -> Any:
    return annotation | None if optional and annotation is not Any else annotation


def spelled(annotation: Any) -> str:
    """An annotation for people."""
    kinds = members(annotation)
    if len(kinds) > 1:
        return " | ".join(spelled(each) for each in kinds)
    kind = kinds[0]
    if kind is type(None):
        return "None"
    if get_args(kind) or not isinstance(kind, type):
        return str(kind).replace("typing.", "")
    return kind.__name__


# --- looking inside -----------------------------------------------------------------------------------------------


def field_of(annotation: Any, name: str) -> tuple[tuple[str, ...], Any]:
    """A field: how its JSON is reached, and its annotation."""
    kind, optional = without_none(annotation)
    if kind is Any:
        return (name,), Any
    if isinstance(kind, type) and issubclass(kind, RootModel) and name == "root":
        return (), optional_if(kind.model_fields["root"].annotation, optional)
    found = _attributes(kind)
    if name not in found:
        has = f"it has {', '.join(sorted(found))}" if found else "it has no fields"
        raise NoSuchPart(f"{spelled(annotation)} has no field {name!r}: {has}")
    key, inner = found[name]
    return (key,), optional_if(inner, optional)


def item_of(annotation: Any, key: str | int) -> Any:
    """The annotation of `value[key]`."""
    kind, optional = without_none(annotation)
    origin, arguments = get_origin(kind) or kind, get_args(kind)
    if kind is Any:
        return Any
    if isinstance(key, str) and _is_typed_dict(kind):
        hints = get_type_hints(kind)
        if key in hints:
            return optional_if(hints[key], optional)
    elif isinstance(key, str) and _is(origin, Mapping):
        return optional_if(arguments[1] if arguments else Any, optional)
    if isinstance(key, int) and key >= 0 and _is_list(origin):
        if origin is tuple and arguments and arguments[-1] is not Ellipsis:
            if key < len(arguments):
                return optional_if(arguments[key], optional)
        else:
            return optional_if(arguments[0] if arguments else Any, optional)
    raise NoSuchPart(f"{spelled(annotation)} has no part [{key!r}]")


def _attributes(kind: Any) -> dict[str, tuple[str, Any]]:
    if not isinstance(kind, type):
        return {}
    if issubclass(kind, BaseModel):
        by_alias = kind.model_config.get("serialize_by_alias", False)
        found = {
            name: ((by_alias and (info.serialization_alias or info.alias)) or name, info.annotation)
            for name, info in kind.model_fields.items()
        }
        for name, computed in kind.model_computed_fields.items():
            found[name] = ((by_alias and computed.alias) or name, computed.return_type)
        return found
    if is_dataclass(kind):
        hints = get_type_hints(kind)
        return {each.name: (each.name, hints[each.name]) for each in dataclass_fields(kind)}
    return {}


def input_key(model: type[BaseModel], name: str, field: FieldInfo) -> str | None:
    """The name that a field's value must have in JSON to be accepted; None if it has none of its own."""
    alias = field.validation_alias or field.alias
    if alias is None or model.model_config.get("populate_by_name") or model.model_config.get("validate_by_name"):
        return name
    choices = alias.choices if isinstance(alias, AliasChoices) else [alias]
    return next((each for each in choices if isinstance(each, str)), None)


# --- fitting ------------------------------------------------------------------------------------------------------


def fits(source: Any, target: Any) -> bool:
    """Whether the JSON of any `source` value is one of a `target` value. What cannot be told is let pass."""
    return _fits(source, target, frozenset())


def _fits(source: Any, target: Any, seen: frozenset[Any]) -> bool:
    targets = members(target)
    return all(any(_one_fits(each, wanted, seen) for wanted in targets) for each in members(source))


def _one_fits(source: Any, target: Any, seen: frozenset[Any]) -> bool:
    if target in (Any, object) or source in (Any, object) or isinstance(source, TypeVar) or isinstance(target, TypeVar):
        return True
    if source == target:
        return True
    if get_origin(source) is Literal:
        return all(_value_fits(value, target, seen) for value in get_args(source))
    if get_origin(target) is Literal:
        return False
    origin, wanted = get_origin(source) or source, get_origin(target) or target
    if not isinstance(origin, type) or not isinstance(wanted, type):
        return True
    if issubclass(origin, enum.Enum):
        return _enum_fits(origin, wanted, seen, target)
    if origin is type(None) or wanted is type(None) or issubclass(wanted, enum.Enum):
        return origin is wanted
    if _fields_like(origin) or _fields_like(wanted):
        return _structure_fits(source, target, seen)
    if _is(origin, Mapping) or _is(wanted, Mapping):
        return _is(origin, Mapping) and _is(wanted, Mapping) and _fits(_argument(source, 1), _argument(target, 1), seen)
    if _is_list(origin) or _is_list(wanted):
        return _is_list(origin) and _is_list(wanted) and _elements_fit(source, target, seen)
    return _scalar_fits(origin, wanted)


def _value_fits(value: Any, target: Any, seen: frozenset[Any]) -> bool:
    if get_origin(target) is Literal:
        return value in get_args(target)
    return _one_fits(type(value), target, seen)


def _enum_fits(source: type[enum.Enum], wanted: type, seen: frozenset[Any], target: Any) -> bool:
    if issubclass(wanted, enum.Enum):
        return source is wanted
    return all(_one_fits(type(member.value), target, seen) for member in source)


def _scalar_fits(source: type, target: type) -> bool:
    if issubclass(source, _SECRETS):
        return issubclass(source, target)
    if issubclass(target, SecretStr | SecretBytes):
        return issubclass(source, str)
    if not issubclass(source, _SCALARS) or not issubclass(target, _SCALARS):
        return True
    if target is str:
        return issubclass(source, (str, *_AS_TEXT))
    if target in (float, decimal.Decimal):
        return issubclass(source, int | float | decimal.Decimal if target is decimal.Decimal else int | float)
    if datetime.datetime in (source, target):
        return source is target or source is datetime.date
    if issubclass(source, pathlib.PurePath) and issubclass(target, pathlib.PurePath):
        return True
    return issubclass(source, target)


def _elements_fit(source: Any, target: Any, seen: frozenset[Any]) -> bool:
    mine, theirs = _fixed(source), _fixed(target)
    if theirs is not None:
        return mine is not None and len(mine) == len(theirs) and all(map(fits, mine, theirs))
    wanted = _argument(target, 0)
    return all(_fits(each, wanted, seen) for each in (mine if mine is not None else (_argument(source, 0),)))


def _fixed(annotation: Any) -> tuple[Any, ...] | None:
    """The types of a tuple of a fixed length."""
    arguments = get_args(annotation)
    fixed = get_origin(annotation) is tuple and bool(arguments) and arguments[-1] is not Ellipsis
    return arguments if fixed else None


def _structure_fits(source: Any, target: Any, seen: frozenset[Any]) -> bool:
    """Models by their fields, whatever their classes: only the JSON is seen."""
    if (source, target) in seen:
        return True
    seen |= {(source, target)}
    if isinstance(source, type) and issubclass(source, RootModel):
        return _fits(source.model_fields["root"].annotation, target, seen)
    if isinstance(target, type) and issubclass(target, RootModel):
        return _fits(source, target.model_fields["root"].annotation, seen)
    if not _fields_like(source):
        return _is(get_origin(source) or source, Mapping)  # if it has the right keys cannot be told
    given = dict(_attributes(source).values()) or get_type_hints(source)
    if not _fields_like(target):
        wanted = get_origin(target) or target
        return _is(wanted, Mapping) and all(_fits(each, _argument(target, 1), seen) for each in given.values())
    if not issubclass(target, BaseModel):
        return True
    taken = {input_key(target, name, info): info for name, info in target.model_fields.items()}
    if target.model_config.get("extra") == "forbid" and not given.keys() <= taken.keys():
        return False
    return all(
        _fits(given[key], info.annotation, seen) if key in given else not info.is_required()
        for key, info in taken.items()
        if key is not None
    )


def _fields_like(kind: Any) -> bool:
    return isinstance(kind, type) and (issubclass(kind, BaseModel) or is_dataclass(kind) or _is_typed_dict(kind))


def _is_typed_dict(kind: Any) -> bool:
    return isinstance(kind, type) and hasattr(kind, "__required_keys__")  # of `typing` or of `typing_extensions`


def _argument(annotation: Any, number: int) -> Any:
    arguments = get_args(annotation)
    return arguments[number] if number < len(arguments) else Any


def _is(kind: Any, wanted: Any) -> bool:
    return isinstance(kind, type) and issubclass(kind, wanted)


def _is_list(kind: Any) -> bool:
    return isinstance(kind, type) and (kind in _LIST_KINDS or issubclass(kind, _LISTS))


def comparable(left: Any, right: Any, *, ordered: bool) -> bool:
    """Whether the JSON of two values can be compared so that it means what their values mean."""
    sides = [each for side in (left, right) for each in members(side) if each not in (Any, object)]
    if not ordered:
        return fits(left, right) or fits(right, left) or any(fits(a, b) for a in members(left) for b in members(right))
    kinds = {_ordered_as(each) for each in sides}
    return len(kinds) <= 1 and None not in kinds


def _ordered_as(kind: Any) -> str | None:
    """As what the JSON of a value is ordered; texts of moments, of spans and of decimals are not in order."""
    if get_origin(kind) is Literal:
        found = {_ordered_as(type(value)) for value in get_args(kind)}
        return found.pop() if len(found) == 1 else None
    if _is(kind, int | float) and not _is(kind, bool):
        return "number"
    return "text" if _is(kind, str) or kind is datetime.date else None


# --- secrets ------------------------------------------------------------------------------------------------------


def holds_secret(annotation: Any, seen: frozenset[Any] = frozenset()) -> bool:
    """Whether a value of this type has a secret in it."""
    for kind in members(annotation):
        if kind in seen or get_origin(kind) is Literal:
            continue
        inner = [*get_args(kind), *(each for _, each in _attributes(kind).values())]
        if _is(get_origin(kind) or kind, _SECRETS) or any(holds_secret(each, seen | {kind}) for each in inner):
            return True
    return False

"""`${step.output.field[0]}`: what the inputs of a WorkflowDef's tasks are written in, read as Conductor reads it."""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Iterator, Mapping
from typing import Any

from fenceline.errors import ContractError


class WorkflowError(ContractError):
    """A WorkflowDef that cannot be run here."""

    code = "contract.workflow"


_EXPRESSION = re.compile(r"(?<!\$)\$\{([^{}]*)\}")
_ROOT = re.compile(r"\s*([A-Za-z_][A-Za-z0-9_-]*)")
_PART = re.compile(r"\.([^.\[\]'\"]+)|\[(\d+)\]|\['([^']*)'\]")


def resolve(template: Any, context: Mapping[str, Any]) -> Any:
    """The template with every `${a.b[0].c}` replaced from the context.

    A text that is one expression becomes the value itself; within other text a value is written as text. What is not
    there is null. `$${` stands for `${`. Values that are put in are not looked at again.
    """
    if isinstance(template, str):
        return _resolve_text(template, context)
    if isinstance(template, Mapping):
        return {name: resolve(value, context) for name, value in template.items()}
    if isinstance(template, list | tuple):
        return [resolve(value, context) for value in template]
    return template


def _resolve_text(template: str, context: Mapping[str, Any]) -> Any:
    whole = _EXPRESSION.fullmatch(template)
    if whole:
        return look_up(whole[1], context)
    pieces, end = [], 0
    for found in _EXPRESSION.finditer(template):
        pieces += [literal(template[end : found.start()]), as_text(look_up(found[1], context))]
        end = found.end()
    return "".join([*pieces, literal(template[end:])])


def literal(text: str) -> str:
    """Text of a template without expressions, as it is meant."""
    return text.replace("$${", "${")


def escaped(value: Any) -> Any:
    """A constant as a template that gives it back."""
    if isinstance(value, str):
        return value.replace("${", "$${")
    if isinstance(value, dict):
        return {name: escaped(each) for name, each in value.items()}
    return [escaped(each) for each in value] if isinstance(value, list) else value


def look_up(expression: str, context: Mapping[str, Any]) -> Any:
    """What an expression (without `${` and `}`) stands for; None if there is no such thing."""
    root, parts = parse(expression)
    value: Any = context.get(root)
    for part in parts:
        if isinstance(part, int):
            value = value[part] if isinstance(value, list | tuple) and part < len(value) else None
        else:
            value = value.get(part) if isinstance(value, Mapping) else None
    return value


def parse(expression: str) -> tuple[str, tuple[str | int, ...]]:
    """`a.b[0]['c d']` as its root and the parts behind it."""
    found = _ROOT.match(expression)
    parts: list[str | int] = []
    at = found.end() if found else 0
    rest = expression.rstrip()
    while found and at < len(rest):
        part = _PART.match(rest, at)
        if part is None:
            found = None
            break
        parts.append(int(part[2]) if part[2] is not None else part[1] if part[1] is not None else part[3])
        at = part.end()
    if found is None:
        raise WorkflowError(f"the expression ${{{expression}}} cannot be read", hint="write ${step.output.field[0]}")
    return found[1], tuple(parts)


_PLAIN_PART = re.compile(r"[A-Za-z_][A-Za-z0-9_-]*")


def written(path: Iterable[str | int]) -> str:
    """The parts of a path as an expression: `a.b[0]['c d']`."""
    text = ""
    for part in path:
        if isinstance(part, int):
            text += f"[{part}]"
        elif _PLAIN_PART.fullmatch(part):
            text += f".{part}" if text else part
        else:
            text += f"['{part}']"
    return text


def as_text(value: Any) -> str:
    """A value within other text: as JSON writes it, but for texts, which stay as they are."""
    return value if isinstance(value, str) else json.dumps(value, ensure_ascii=False, sort_keys=True)


def roots(template: Any) -> Iterator[str]:
    """The steps (or `workflow`) that a template refers to."""
    if isinstance(template, str):
        for found in _EXPRESSION.finditer(template):
            yield parse(found[1])[0]
    elif isinstance(template, Mapping):
        yield from _roots_of(template.values())
    elif isinstance(template, list | tuple):
        yield from _roots_of(template)


def _roots_of(templates: Iterable[Any]) -> Iterator[str]:
    for each in templates:
        yield from roots(each)

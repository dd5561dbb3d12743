"""How an attempt ended, and what is told about it: never the secrets of its params."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence, Set
from dataclasses import dataclass, fields, is_dataclass
from enum import StrEnum
from typing import TYPE_CHECKING, Any, Literal, Self, TypeAlias, get_args, get_origin, get_type_hints

from pydantic import BaseModel, Secret, SecretBytes, SecretStr, ValidationError
from pydantic.json_schema import GenerateJsonSchema, JsonSchemaMode, JsonSchemaValue

from fenceline.errors import FencelineError, GuardError
from fenceline.task.spec import readable

if TYPE_CHECKING:
    from pydantic_core import core_schema

Status: TypeAlias = Literal["COMPLETED", "FAILED", "FAILED_WITH_TERMINAL_ERROR"]

REASON_LIMIT = 500
"""Where reasons are cut: Conductor keeps no more of them."""
UNEXPECTED = "task.exception"
"""The code of an exception that is not one of this package's."""
_MASK = "**********"


class TaskFailed(FencelineError):
    """Raise it in a task's body to fail the attempt; the orchestrator retries it."""

    code = "task.failed"
    retryable = True


class TaskTerminalError(FencelineError):
    """Raise it in a task's body to fail the step for good: a retry could not help."""

    code = "task.terminal"


class Phase(StrEnum):
    """Where an attempt is, in the order of its life."""

    VALIDATE = "validate"
    LOOK_BACK = "look_back"
    MATERIALISE = "materialise"
    PRE_GUARDS = "pre_guards"
    BODY = "body"
    RESULT_MODEL = "result_model"
    POST_GUARDS = "post_guards"
    FENCE = "fence"
    NOOP_CHECK = "noop_check"
    STAGE = "stage"
    PUBLISH = "publish"
    CLEANUP = "cleanup"


_SHOWN_BY_INPUT = (Phase.PRE_GUARDS, Phase.BODY, Phase.STAGE)
"""Where a broken rule says something about the input: a retry would get the same."""


def status_of(phase: Phase, error: BaseException, standing: Status = "COMPLETED") -> Status:
    """The failure table: what an error in a phase makes of the attempt, whose status so far is `standing`.

    An input that breaks its rules, rows that break those of a graph's schema, or a task that says so, end the step;
    anything else may go better next time, so that the orchestrator retries it. So does a pre guard that could not run:
    it has shown nothing about the input. A cleanup that failed is logged and changes nothing.
    """
    if phase is Phase.CLEANUP:
        return standing
    if isinstance(error, TaskTerminalError):
        return "FAILED_WITH_TERMINAL_ERROR"
    if phase in _SHOWN_BY_INPUT and isinstance(error, GuardError) and not error.retryable:
        return "FAILED_WITH_TERMINAL_ERROR"
    return "FAILED"


@dataclass(frozen=True, slots=True)
class TaskResult:
    """What the orchestrator is told about an attempt."""

    status: Status
    output: dict[str, Any]
    """`{"workspace": …, "result": …}`, of a workspace-free task `{"result": …}`; empty if the attempt failed."""
    reason: str | None = None
    """Why it failed, cut to `REASON_LIMIT`; the log has all of it."""
    code: str | None = None
    """The stable code of the error."""

    @classmethod
    def completed(cls, workspace: Mapping[str, str] | None, result: BaseModel | Mapping[str, Any]) -> Self:
        """The attempt's outcome stands: the published, adopted or unchanged workspace, and the task's result."""
        value = result.model_dump(mode="json") if isinstance(result, BaseModel) else dict(result)
        return cls(
            "COMPLETED", {"result": value} if workspace is None else {"workspace": {**workspace}, "result": value}
        )

    @classmethod
    def failed(
        cls, status: Status, error: BaseException, *, phase: Phase | None = None, secrets: Collection[str] = ()
    ) -> Self:
        """The attempt failed. `secrets` (see `secrets_of`) are blotted out: an exception's text may quote them."""
        if status == "COMPLETED":
            raise ValueError("a failed attempt cannot be COMPLETED")
        text = _told(error, redact(str(error), secrets))
        code = error.code if isinstance(error, FencelineError) else UNEXPECTED
        return cls(status, {}, cut(f"{phase}: {text}" if phase else text), code)


def _told(error: BaseException, text: str) -> str:
    text = " ".join(text.split())
    if isinstance(error, FencelineError):
        return text
    return f"{type(error).__name__}: {text}" if text else type(error).__name__


def cut(text: str, limit: int = REASON_LIMIT) -> str:
    return text if len(text) <= limit else text[: limit - 1] + "…"


# --- secrets ------------------------------------------------------------------------------------------------------


def redact(text: str, secrets: Collection[str]) -> str:
    """The text without the secrets; the longest first, because one may be a part of another."""
    for secret in sorted(secrets, key=len, reverse=True):
        text = text.replace(secret, _MASK)
    return text


def secrets_of(value: object) -> frozenset[str]:
    """The text of every secret within a value, also as it appears in a `repr`."""
    found = {text for text in _secrets(value) if text}
    return frozenset(found | {repr(text)[1:-1] for text in found})


def _secrets(value: object) -> Iterator[str]:
    if isinstance(value, SecretStr | SecretBytes | Secret):
        hidden = value.get_secret_value()
        yield hidden.decode("utf-8", "replace") if isinstance(hidden, bytes) else str(hidden)
    elif isinstance(value, BaseModel):
        for _, each in value:
            yield from _secrets(each)
    elif is_dataclass(value) and not isinstance(value, type):
        for each in fields(value):
            yield from _secrets(getattr(value, each.name))
    elif isinstance(value, Mapping):
        for key, each in value.items():
            yield from _secrets(key)
            yield from _secrets(each)
    elif isinstance(value, Sequence | Set) and not isinstance(value, str | bytes):
        for each in value:
            yield from _secrets(each)


class _DiscreetSchema(GenerateJsonSchema):
    """JSON schemas without any value of a field that holds a secret."""

    ignored_warning_kinds = {"skipped-choice", "non-serializable-default"}  # noqa: RUF012 - they quote the default

    def model_schema(self, schema: core_schema.ModelSchema) -> JsonSchemaValue:
        return _without_values(super().model_schema(schema), schema["cls"])

    def dataclass_schema(self, schema: core_schema.DataclassSchema) -> JsonSchemaValue:
        return _without_values(super().dataclass_schema(schema), schema["cls"])


def schema_of(model: type[BaseModel], mode: JsonSchemaMode) -> dict[str, Any]:
    """The JSON schema of a model. Defaults and examples of secret fields are left out."""
    return model.model_json_schema(mode=mode, schema_generator=_DiscreetSchema)


def _without_values(schema: JsonSchemaValue, model: type[Any]) -> JsonSchemaValue:
    safe = _safe_names(model)
    unsafe = [described for name, described in schema.get("properties", {}).items() if name not in safe]
    for described in [*unsafe, schema] if unsafe else ():
        for key in ("default", "example", "examples", "const", "enum"):
            described.pop(key, None)
    return schema


def refusal_of(error: ValidationError, model: type[BaseModel]) -> str:
    """What is wrong with params; a validator's own words are left out where they could quote a secret."""
    safe, names = _safe_names(model), set(model.model_fields)
    return readable(error, names, lambda at: not names <= safe and not (at and at[0] in safe))


def _safe_names(model: type[Any]) -> set[str]:
    """Every name that a field without a secret goes by; what is not among them is treated as secret."""
    names: set[str] = set()
    for name, annotation in _annotations(model).items():
        if not _holds_secret(annotation):
            field = getattr(model, "__pydantic_fields__", {}).get(name)
            aliases = (getattr(field, kind, None) for kind in ("alias", "validation_alias", "serialization_alias"))
            names.update((name, *(alias for alias in aliases if isinstance(alias, str))))
    return names


def _annotations(kind: type[Any]) -> dict[str, Any]:
    """The fields of a model, dataclass, typed dictionary or named tuple; of other classes none."""
    known = getattr(kind, "__pydantic_fields__", None)
    if known is not None:
        return {name: field.annotation for name, field in known.items()}
    if is_dataclass(kind) or hasattr(kind, "__required_keys__") or hasattr(kind, "_field_defaults"):
        try:
            return get_type_hints(kind)
        except NameError:  # nothing is known about them
            return dict.fromkeys(kind.__annotations__, SecretStr)
    return {}


def open_defaults(model: type[BaseModel]) -> list[str]:
    """Secret fields, of the model and of those within it, whose default is plain text: a `repr` would show it."""
    return [
        f"{kind.__name__}.{name}"
        for kind in _classes(model, set())
        for name, field in getattr(kind, "__pydantic_fields__", {}).items()
        if isinstance(field.default, str | bytes) and _holds_secret(field.annotation) and not _validated(kind, field)
    ]


def _validated(kind: type[Any], field: Any) -> bool:
    chosen = field.validate_default
    return bool(getattr(kind, "model_config", {}).get("validate_default") if chosen is None else chosen)


def _holds_secret(annotation: Any) -> bool:
    return any(issubclass(kind, SecretStr | SecretBytes | Secret) for kind in _classes(annotation, set()))


def _classes(annotation: Any, seen: set[Any]) -> Iterator[type]:
    """Every class that a value of this type may hold."""
    kind = get_origin(annotation) or annotation
    if kind is Literal:  # its arguments are values
        return
    inner = [*get_args(annotation), *(getattr(annotation, name, None) for name in ("__value__", "__supertype__"))]
    if isinstance(kind, type) or hasattr(kind, "__value__"):
        if kind in seen and not get_args(annotation):
            return
        if isinstance(kind, type) and kind not in seen:
            yield kind
            inner += _annotations(kind).values()
        seen.add(kind)
    for each in inner:
        if each is not None:
            yield from _classes(each, seen)

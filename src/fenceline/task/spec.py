"""What is declared about a task besides its function: its workspace, its controls, its publish budget."""

from __future__ import annotations

import difflib
import functools
import inspect
from collections.abc import Callable, Iterable, Sequence
from typing import Annotated, Any, Literal, Protocol, Self, TypeAlias

from pydantic import BaseModel, ConfigDict, Field, PlainValidator, ValidationError, field_validator, model_validator

from fenceline.errors import ContractError
from fenceline.repo.names import check_path, check_prefix

BEATS_PER_LEASE = 3
"""A lease must outlive this many heartbeat intervals: one beat may be lost and one late."""


class SpecError(ContractError):
    """A spec that contradicts itself or another one."""

    code = "contract.spec"


class BudgetWarning(UserWarning):
    """A publish budget that does not fit its task, or that the task does not need."""


Location: TypeAlias = tuple[int | str, ...]


def readable(
    error: ValidationError, fields: Iterable[str] = (), secret: Callable[[Location], bool] = lambda at: False
) -> str:
    """What is wrong with each field, in one line.

    Never the input itself: it may be a secret. Where `secret` says so, not even the words of the refusal.
    """
    found = error.errors(include_url=False, include_input=False, include_context=False)
    return "; ".join(_problem(each["loc"], each["type"], each["msg"], list(fields), secret) for each in found)


def _problem(at: Location, kind: str, message: str, fields: Sequence[str], secret: Callable[[Location], bool]) -> str:
    where = ".".join(str(part) for part in at)
    if kind == "extra_forbidden":
        close = difflib.get_close_matches(str(at[-1]), fields, n=1) if len(at) == 1 else []
        return f"{where}: there is no such field" + (f", did you mean {close[0]}?" if close else "")
    if kind == "missing":
        return f"{where}: is missing"
    if secret(at):
        return f"{where or 'all together'}: refused ({kind}); the details could quote a secret"
    text = message.removeprefix("Value error, ").removeprefix("Assertion failed, ")
    text = text[:1].lower() + text[1:] if text.startswith("Input ") else text
    return f"{where}: {text}" if where else text


class _Spec(BaseModel):
    """Frozen, without unknown fields, and refused with readable text."""

    model_config = ConfigDict(
        frozen=True, extra="forbid", strict=True, validate_default=True, use_attribute_docstrings=True
    )

    def __init__(self, **fields: Any) -> None:
        try:
            super().__init__(**fields)
        except ValidationError as error:
            problem = readable(error, type(self).model_fields)
            raise SpecError(f"{type(self).__name__}: {problem}", hint="change it where the task is declared") from None


# --- the workspace ------------------------------------------------------------------------------------------------


class HasCheck(Protocol):
    """A guard that is an object rather than a function."""

    def check(self, *args: Any, **kwargs: Any) -> Any: ...


Guard: TypeAlias = Callable[..., object] | HasCheck


def _guard(value: Any) -> Any:
    if isinstance(value, type):
        raise ValueError(f"{value.__name__} is a class: make an instance, {value.__name__}(…)")  # noqa: TRY004
    if not callable(value) and not callable(getattr(value, "check", None)):
        raise ValueError(f"a guard is callable or has a method check; this is a {type(value).__name__}")  # noqa: TRY004
    return value


def guard_name(guard: object) -> str:
    """What violations call a guard: its `name`, or what it was called when it was defined."""
    for attribute in ("name", "__name__"):
        if isinstance(found := getattr(guard, attribute, None), str) and found:
            return found
    return guard_name(guard.func) if isinstance(guard, functools.partial) else type(guard).__name__


def guard_text(guard: Guard) -> str:
    """A guard with its module or its arguments, for documents: the same text in every process."""
    if isinstance(guard, functools.partial):
        return guard_text(guard.func)
    if inspect.isroutine(guard):
        return f"{guard.__module__}.{guard.__qualname__}"
    kind = type(guard)
    return repr(guard) if kind.__repr__ is not object.__repr__ else f"{kind.__module__}.{kind.__qualname__}"


class WorkspaceSpec(_Spec):
    """The part of the repository that a task works in, and under which rules what it wrote is published."""

    prefix: str = "/"
    """The directory that the task sees; '/' is all of it. Kept as the repository spells it: without outer slashes."""
    reads: Sequence[str] | None = None
    """The files and directories below the prefix that a task on a directory is given; None is all of it.

    It sees nothing else, may write anywhere below the prefix, and does not mind what others change outside of these.
    Spark workspaces know what is read from them and have no use for it.
    """
    read_only: bool = False
    """Complete with the input commit: nothing is compared, fenced or published, and local writes are dropped."""
    pre: Sequence[Annotated[Guard, PlainValidator(_guard)]] = ()
    """Guards over what the task is given. A violation ends the step for good: a retry would get the same input.

    One that could not run fails the attempt only: it has shown nothing about the input."""
    post: Sequence[Annotated[Guard, PlainValidator(_guard)]] = ()
    """Guards over what the task leaves. A violation fails the attempt; nothing is published."""
    fence: Literal["strict", "serial"] = "strict"
    """`strict` never drops a commit that is not this step's own; `serial` replaces any single commit on the input."""
    on_conflict: Literal["fail", "rebase"] = "fail"
    """`rebase` publishes on a branch that moved, where nothing that was read or written here was changed there."""

    @field_validator("prefix")
    @classmethod
    def _normalise(cls, prefix: str) -> str:
        return check_prefix(prefix.removeprefix("/"))

    @field_validator("reads", mode="before")
    @classmethod
    def _paths(cls, reads: Any) -> Any:
        if reads is None:
            return None
        if isinstance(reads, str | bytes) or not isinstance(reads, Iterable):
            raise ValueError("paths are given as a list, ['raw', 'songs.csv']")  # noqa: TRY004 - pydantic wants it
        return tuple(check_path(str(path).removesuffix("/")) for path in reads)

    @field_validator("pre", "post", mode="before")
    @classmethod
    def _as_tuple(cls, guards: Any) -> Any:
        if isinstance(guards, str | bytes) or not isinstance(guards, Iterable):
            raise ValueError("guards are given as a list, [guard, …]")  # noqa: TRY004 - pydantic wants it
        return tuple(guards)

    @model_validator(mode="after")
    def _make_sense(self) -> Self:
        publishing = [name for name in ("fence", "on_conflict") if name in self.model_fields_set]
        if self.read_only and publishing:
            raise ValueError(f"read_only=True publishes nothing: remove {' and '.join(publishing)}")
        if self.fence == "serial" and self.on_conflict == "rebase":
            raise ValueError(
                "fence='serial' drops the one commit that on_conflict='rebase' would build on: remove one of them"
            )
        return self

    @property
    def given(self) -> tuple[str, ...]:
        """The paths of the repository that a directory is made from; all count as read."""
        if self.reads is None:
            return (self.prefix,)
        return tuple(f"{self.prefix}/{path}" if self.prefix else path for path in self.reads)

    def describe(self) -> dict[str, object]:
        """The spec as JSON can hold it; guards by their names."""
        return {
            "prefix": f"/{self.prefix}",
            "reads": None if self.reads is None else list(self.reads),
            "read_only": self.read_only,
            "pre": [guard_text(guard) for guard in self.pre],
            "post": [guard_text(guard) for guard in self.post],
            "fence": None if self.read_only else self.fence,
            "on_conflict": None if self.read_only else self.on_conflict,
        }


# --- what the orchestrator is told --------------------------------------------------------------------------------


def _camel(name: str) -> str:
    first, *rest = name.split("_")
    return first + "".join(part.capitalize() for part in rest)


class TaskControls(_Spec):
    """How the orchestrator retries, times out and limits a task: the fields and defaults of a Conductor TaskDef."""

    retry_count: int = Field(default=3, ge=0)
    """How often a failed attempt is tried again."""
    retry_logic: Literal["FIXED", "LINEAR_BACKOFF", "EXPONENTIAL_BACKOFF"] = "FIXED"
    """How the delay grows: not at all, by retry × backoff_scale_factor, or doubled each time."""
    retry_delay_seconds: int = Field(default=60, ge=0)
    """The delay before the first retry."""
    backoff_scale_factor: int = Field(default=1, ge=1)
    """The factor of LINEAR_BACKOFF."""
    response_timeout_seconds: int = Field(default=3600, ge=1)
    """The lease: an attempt not heard of for this long is given up. Heartbeats renew it."""
    timeout_seconds: int = Field(default=0, ge=0)
    """The longest an attempt may take altogether; 0 is no limit."""
    timeout_policy: Literal["RETRY", "TIME_OUT_WF", "ALERT_ONLY"] = "TIME_OUT_WF"
    """After timeout_seconds: retry the task, end the workflow, or only count it."""
    poll_timeout_seconds: int | None = Field(default=None, ge=0)
    """The longest that a task may wait for a worker; None or 0 is no limit."""
    concurrent_exec_limit: int | None = Field(default=None, ge=0)
    """How many attempts of this task may run at once; None or 0 is no limit."""
    rate_limit_per_frequency: int | None = Field(default=None, ge=0)
    """How many attempts may start within rate_limit_frequency_in_seconds; None or 0 is no limit."""
    rate_limit_frequency_in_seconds: int | None = Field(default=None, ge=1)
    """The length of the window that rate_limit_per_frequency counts in; Conductor takes 1 second if not given."""

    @model_validator(mode="after")
    def _agree(self) -> Self:
        problems = []
        if 0 < self.timeout_seconds < self.response_timeout_seconds:
            problems.append(
                f"response_timeout_seconds={self.response_timeout_seconds} is longer than the whole attempt may take, "
                f"timeout_seconds={self.timeout_seconds}: lower the one or raise the other"
            )
        if self.backoff_scale_factor != 1 and self.retry_logic != "LINEAR_BACKOFF":
            problems.append(
                f"backoff_scale_factor={self.backoff_scale_factor} has no effect with retry_logic={self.retry_logic}: "
                "remove it, or write retry_logic='LINEAR_BACKOFF'"
            )
        if self.timeout_policy == "RETRY" and self.retry_count == 0:
            problems.append("timeout_policy='RETRY' with retry_count=0 retries nothing: raise retry_count")
        if self.rate_limit_frequency_in_seconds is not None and not self.rate_limit_per_frequency:
            problems.append("rate_limit_frequency_in_seconds has no effect without rate_limit_per_frequency: give both")
        if problems:
            raise ValueError("; ".join(problems))
        return self

    def as_taskdef(self) -> dict[str, int | str]:
        """The fields as Conductor's JSON names them; limits that are not set are left out."""
        return {_camel(name): value for name, value in self if value is not None}


# --- the time that publishing may take ----------------------------------------------------------------------------


class PublishBudget(_Spec):
    """How long publishing may take, from the end of the body to an accepted result.

    A bound on time, not a quota of files or bytes: what would take longer fails instead of outliving its lease.
    """

    observed_p99_seconds: float = Field(default=1.0, gt=0, allow_inf_nan=False)
    """What Confirm took in 99 of 100 publications on the store in use. Measure it: the rest is sized by it."""
    safety_margin: float = Field(default=3.0, ge=1, allow_inf_nan=False)
    """The factor by which confirm_timeout_seconds exceeds that at least."""
    stage_timeout_seconds: float = Field(default=600.0, gt=0, allow_inf_nan=False)
    """The longest that Try may take: writing what changed, tree and commit, up to `sealed`."""
    confirm_timeout_seconds: float = Field(default=30.0, gt=0, allow_inf_nan=False)
    """The longest that Confirm may take, both fences included."""
    completion_reserve_seconds: float = Field(default=15.0, gt=0, allow_inf_nan=False)
    """Kept for telling the orchestrator the result once it stands."""
    shutdown_grace_seconds: float = Field(default=60.0, gt=0, allow_inf_nan=False)
    """How long a worker that is asked to stop waits for a publication under way."""
    heartbeat_interval_seconds: float = Field(default=10.0, gt=0, allow_inf_nan=False)
    """How often the lease is renewed, from poll to the end of the result update."""

    @model_validator(mode="after")
    def _agree(self) -> Self:
        problems = []
        needed = self.observed_p99_seconds * self.safety_margin
        if self.confirm_timeout_seconds < needed:
            problems.append(
                f"confirm_timeout_seconds={self.confirm_timeout_seconds:g} is below observed_p99_seconds × "
                f"safety_margin: raise it to {needed:g} or more"
            )
        ending = self.confirm_timeout_seconds + self.completion_reserve_seconds
        if self.shutdown_grace_seconds < ending:
            problems.append(
                f"shutdown_grace_seconds={self.shutdown_grace_seconds:g} would cut a publication off: raise it to "
                f"confirm_timeout_seconds + completion_reserve_seconds = {ending:g} or more"
            )
        if self.heartbeat_interval_seconds >= self.total_seconds - self.heartbeat_interval_seconds:
            problems.append(
                f"heartbeat_interval_seconds={self.heartbeat_interval_seconds:g} is as long as all of publishing: "
                f"lower it below {self.total_seconds - self.heartbeat_interval_seconds:g}"
            )
        if problems:
            raise ValueError("; ".join(problems))
        return self

    @property
    def total_seconds(self) -> float:
        """From the end of the body to an accepted result, if each part takes all it may and one heartbeat is late."""
        return (
            self.stage_timeout_seconds
            + self.confirm_timeout_seconds
            + self.completion_reserve_seconds
            + self.heartbeat_interval_seconds
        )

    def misfit(self, controls: TaskControls) -> str | None:
        """Why a lease may run out while publishing; raises if it could run out between two heartbeats."""
        lease = controls.response_timeout_seconds
        if self.heartbeat_interval_seconds * BEATS_PER_LEASE > lease:
            raise SpecError(
                f"PublishBudget: heartbeat_interval_seconds={self.heartbeat_interval_seconds:g} is too long for "
                f"response_timeout_seconds={lease}: one lost heartbeat would lose the lease",
                hint=f"lower it to {lease / BEATS_PER_LEASE:g} or less, or raise response_timeout_seconds",
            )
        if lease < self.total_seconds:
            return (
                f"response_timeout_seconds={lease} is smaller than the publish budget of {self.total_seconds:g} s: the "
                "lease can run out while publishing if heartbeats fail; raise the one or lower the other"
            )
        return None

    def describe(self) -> dict[str, float]:
        return {**self.model_dump(), "total_seconds": self.total_seconds}

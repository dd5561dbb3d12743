"""The failure table, row by row, and what an orchestrator is told."""

from __future__ import annotations

import dataclasses
import json
from typing import Any, Literal, cast

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pydantic import BaseModel, Secret, SecretBytes, SecretStr

from fenceline.errors import (
    ContractError,
    GuardError,
    InvalidName,
    OutcomeUnknown,
    PublishFenceError,
    StaleAttemptError,
    StoreError,
    StoreFull,
)
from fenceline.task.contract import InvalidParams, InvalidResult
from fenceline.task.guard import GuardFunction, GuardView, GuardViolations, run_guards
from fenceline.task.result import (
    REASON_LIMIT,
    Phase,
    Status,
    TaskFailed,
    TaskResult,
    TaskTerminalError,
    redact,
    secrets_of,
    status_of,
)

TERMINAL: Status = "FAILED_WITH_TERMINAL_ERROR"


def violations(phase: Literal["pre", "post"], *statuses: Literal["violated", "could_not_run"]) -> GuardViolations:
    """What guards that end like this raise together."""

    def guard(status: str) -> GuardFunction:
        def check(view: GuardView) -> str:
            if status == "violated":
                return "raw/ is empty"
            raise OSError("the disk failed")

        return check

    with pytest.raises(GuardViolations) as raised:
        run_guards(phase, map(guard, statuses), cast(GuardView, None))
    return raised.value


TABLE: list[tuple[Phase, BaseException, Status, str]] = [
    (Phase.VALIDATE, InvalidParams("day: is missing"), "FAILED", "contract.params"),
    (Phase.VALIDATE, ContractError("the input has no workspace"), "FAILED", "contract"),
    (Phase.LOOK_BACK, PublishFenceError("abc is in the way"), "FAILED", "fence.publish"),
    (Phase.LOOK_BACK, StoreError("the disk failed"), "FAILED", "store"),
    (Phase.MATERIALISE, StoreFull("no room left"), "FAILED", "store.full"),
    (Phase.MATERIALISE, OSError("broken"), "FAILED", "task.exception"),
    (Phase.PRE_GUARDS, GuardError("raw/ is empty"), TERMINAL, "guard"),
    (Phase.PRE_GUARDS, violations("pre", "violated"), TERMINAL, "guard.violations"),
    (Phase.PRE_GUARDS, violations("pre", "violated", "could_not_run"), TERMINAL, "guard.violations"),
    (Phase.PRE_GUARDS, violations("pre", "could_not_run"), "FAILED", "guard.did_not_run"),
    (Phase.PRE_GUARDS, TaskTerminalError("a guard says never"), TERMINAL, "task.terminal"),
    (Phase.PRE_GUARDS, OSError("Spark is gone"), "FAILED", "task.exception"),
    (Phase.BODY, TaskFailed("no rows"), "FAILED", "task.failed"),
    (Phase.BODY, TaskTerminalError("never"), TERMINAL, "task.terminal"),
    (Phase.BODY, ValueError("anything"), "FAILED", "task.exception"),
    (Phase.BODY, KeyboardInterrupt(), "FAILED", "task.exception"),
    (Phase.BODY, StaleAttemptError("the lease is lost"), "FAILED", "fence.stale_attempt"),
    (Phase.RESULT_MODEL, InvalidResult("returned None"), "FAILED", "contract.result"),
    (Phase.POST_GUARDS, GuardError("rows: 0"), "FAILED", "guard"),
    (Phase.POST_GUARDS, TaskTerminalError("a guard says never"), TERMINAL, "task.terminal"),
    (Phase.FENCE, StaleAttemptError("given up"), "FAILED", "fence.stale_attempt"),
    (Phase.NOOP_CHECK, PublishFenceError("abc is in the way"), "FAILED", "fence.publish"),
    (Phase.STAGE, InvalidName("a symlink"), "FAILED", "name.invalid"),
    (Phase.STAGE, StoreError("the disk failed"), "FAILED", "store"),
    (Phase.PUBLISH, StaleAttemptError("given up meanwhile"), "FAILED", "fence.stale_attempt"),
    (Phase.PUBLISH, PublishFenceError("abc is in the way"), "FAILED", "fence.publish"),
    (Phase.PUBLISH, OutcomeUnknown("no answer"), "FAILED", "store.outcome_unknown"),
]


@pytest.mark.parametrize(("phase", "error", "status", "code"), TABLE)
def test_failure_table(phase: Phase, error: BaseException, status: Status, code: str) -> None:
    assert status_of(phase, error) == status
    result = TaskResult.failed(status_of(phase, error), error, phase=phase)
    assert (result.status, result.code, result.output) == (status, code, {})
    assert result.reason is not None
    assert result.reason.startswith(f"{phase}: ")
    assert str(error) in result.reason


def test_the_table_has_every_phase_but_cleanup() -> None:
    assert {phase for phase, *_ in TABLE} == set(Phase) - {Phase.CLEANUP}


@pytest.mark.parametrize("standing", ["COMPLETED", "FAILED", TERMINAL])
@pytest.mark.parametrize("error", [StoreError("cannot delete"), TaskTerminalError("never")])
def test_a_cleanup_that_failed_leaves_the_result(standing: Status, error: Exception) -> None:
    assert status_of(Phase.CLEANUP, error, standing) == standing


@pytest.mark.parametrize("phase", [phase for phase in Phase if phase is not Phase.CLEANUP])
def test_an_error_never_leaves_a_result_standing(phase: Phase) -> None:
    assert status_of(phase, RuntimeError("x"), "COMPLETED") != "COMPLETED"


def test_phases_are_named_for_logs_in_the_order_of_an_attempt() -> None:
    assert [str(phase) for phase in Phase] == [
        "validate",
        "look_back",
        "materialise",
        "pre_guards",
        "body",
        "result_model",
        "post_guards",
        "fence",
        "noop_check",
        "stage",
        "publish",
        "cleanup",
    ]


# --- completed ----------------------------------------------------------------------------------------------------

PLACE = {"repository": "songs", "branch": "main", "ref_type": "commit", "ref": "abc"}


class Out(BaseModel):
    rows: int
    token: SecretStr = SecretStr("hunter2")


def test_output_of_a_workspace_task() -> None:
    result = TaskResult.completed(PLACE, {"rows": 1})
    assert (result.status, result.reason, result.code) == ("COMPLETED", None, None)
    assert result.output == {"workspace": PLACE, "result": {"rows": 1}}
    assert result.output["workspace"] is not PLACE


def test_output_of_a_workspace_free_task_is_json_of_the_model() -> None:
    result = TaskResult.completed(None, Out(rows=1))
    assert result.output == {"result": {"rows": 1, "token": "**********"}}
    json.dumps(result.output)


def test_a_result_is_frozen() -> None:
    with pytest.raises(dataclasses.FrozenInstanceError):
        TaskResult.completed(None, {}).status = "FAILED"  # type: ignore[misc]


# --- failed -------------------------------------------------------------------------------------------------------


def test_a_failure_cannot_be_completed() -> None:
    with pytest.raises(ValueError, match="cannot be COMPLETED"):
        TaskResult.failed("COMPLETED", RuntimeError("x"))


@pytest.mark.parametrize(
    ("error", "reason"),
    [
        (ValueError("bad\n  day"), "ValueError: bad day"),
        (KeyError("day"), "KeyError: 'day'"),
        (RuntimeError(), "RuntimeError"),
        (TaskFailed("no rows", hint="load them first"), "no rows (load them first)"),
    ],
)
def test_reasons_are_one_line_that_names_the_error(error: Exception, reason: str) -> None:
    assert TaskResult.failed("FAILED", error).reason == reason


@pytest.mark.parametrize("length", [REASON_LIMIT - 30, REASON_LIMIT, REASON_LIMIT * 10])
def test_reasons_are_cut(length: int) -> None:
    reason = TaskResult.failed("FAILED", TaskFailed("x" * length), phase=Phase.BODY).reason
    assert reason is not None
    whole = f"body: {'x' * length}"
    assert reason == (whole if len(whole) <= REASON_LIMIT else whole[: REASON_LIMIT - 1] + "…")


# --- secrets ------------------------------------------------------------------------------------------------------


@dataclasses.dataclass
class Box:
    inner: SecretStr


class Params(BaseModel, extra="forbid"):
    token: SecretStr
    key: SecretBytes = SecretBytes(b"in bytes")
    pin: Secret[int] = Secret(40961)
    empty: SecretStr = SecretStr("")
    many: list[dict[str, SecretStr]] = [{"a": SecretStr("in a list")}]
    box: Box = Box(SecretStr("in a box"))
    name: str = "not secret"


def test_every_secret_of_params_is_found() -> None:
    params = Params(token=SecretStr("quoted'\n"))
    assert secrets_of(params) == {"quoted'\n", "quoted'\\n", "in bytes", "40961", "in a list", "in a box"}
    assert secrets_of(Out(rows=1)) == {"hunter2"}
    assert secrets_of({"a": 1, "b": ["text"]}) == frozenset()


def test_a_reason_never_quotes_a_secret() -> None:
    params = Params(token=SecretStr("hunter2"))
    error = RuntimeError(f"login of {params.name} failed with {params.token.get_secret_value()}, in bytes, 40961")
    result = TaskResult.failed("FAILED", error, phase=Phase.BODY, secrets=secrets_of(params))
    assert result.reason == "body: RuntimeError: login of not secret failed with **********, **********, **********"


def test_a_secret_is_blotted_out_before_the_reason_is_cut() -> None:
    error = TaskFailed("x" * (REASON_LIMIT - 4) + "hunter2")
    reason = TaskResult.failed("FAILED", error, secrets={"hunter2"}).reason
    assert reason is not None
    assert "hun" not in reason


def test_a_secret_across_a_line_end_is_blotted_out() -> None:
    error = RuntimeError("key: one\ntwo three")
    assert TaskResult.failed("FAILED", error, secrets={"one\ntwo three"}).reason == "RuntimeError: key: **********"


@given(st.text(), st.sets(st.text(alphabet="abc*", min_size=1), max_size=4))
def test_redacted_text_has_no_secret_left(text: str, secrets: set[str]) -> None:
    shown = redact(text + "".join(secrets), secrets)
    assert [secret for secret in secrets if secret in shown and "*" not in secret] == []


def test_one_secret_within_another() -> None:
    assert redact("abcd ab", {"ab", "abcd"}) == "********** **********"


def test_any_value_can_be_looked_through() -> None:
    values: list[Any] = [None, 3, "text", b"bytes", Params, Box, {SecretStr("a key")}, object()]
    assert secrets_of(values) == {"a key"}

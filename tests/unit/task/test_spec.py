"""Specs: what they accept, what contradicts what, and what an orchestrator is told."""

from __future__ import annotations

import functools
import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pydantic import BaseModel, ValidationError

from fenceline.errors import ContractError, InvalidName
from fenceline.task.spec import (
    BEATS_PER_LEASE,
    BudgetWarning,
    PublishBudget,
    SpecError,
    TaskControls,
    WorkspaceSpec,
    guard_text,
)

SPECS = (WorkspaceSpec, TaskControls, PublishBudget)


def tidy(workspace: object) -> None: ...


class Tidy:
    def check(self, workspace: object) -> None: ...


class Shown(Tidy):
    def __repr__(self) -> str:
        return "Shown(deep=True)"


# --- all of them --------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("spec", SPECS)
def test_every_field_is_documented(spec: type[BaseModel]) -> None:
    assert [name for name, field in spec.model_fields.items() if not field.description] == []


@pytest.mark.parametrize("spec", SPECS)
def test_specs_are_frozen_comparable_and_complete_by_default(spec: type[BaseModel]) -> None:
    made = spec()
    assert made == spec()
    assert hash(made) == hash(spec())
    with pytest.raises(ValidationError, match="frozen"):
        setattr(made, next(iter(spec.model_fields)), None)


@pytest.mark.parametrize(
    ("spec", "fields", "told"),
    [
        (WorkspaceSpec, {"prefx": "/"}, "WorkspaceSpec: prefx: there is no such field, did you mean prefix?"),
        (WorkspaceSpec, {"fence": "loose"}, "WorkspaceSpec: fence: input should be 'strict' or 'serial'"),
        (WorkspaceSpec, {"read_only": "yes"}, "read_only: input should be a valid boolean"),
        (TaskControls, {"retry_count": -1}, "retry_count: input should be greater than or equal to 0"),
        (TaskControls, {"retry_count": "3"}, "retry_count: input should be a valid integer"),
        (TaskControls, {"retry_count": True}, "retry_count: input should be a valid integer"),
        (TaskControls, {"response_timeout_seconds": 0}, "response_timeout_seconds: input should be greater than"),
        (TaskControls, {"timeout_policy": "x", "retry_logic": "y"}, r"retry_logic: .*; timeout_policy: .*"),
        (PublishBudget, {"safety_margin": 0.5}, "safety_margin: input should be greater than or equal to 1"),
        (PublishBudget, {"stage_timeout_seconds": float("inf")}, "stage_timeout_seconds: input should be a finite"),
        (PublishBudget, {"observed_p99_seconds": float("nan")}, "observed_p99_seconds: input should be"),
    ],
)
def test_wrong_fields_are_contract_errors_in_readable_words(
    spec: type[BaseModel], fields: dict[str, Any], told: str
) -> None:
    with pytest.raises(SpecError, match=told) as refused:
        spec(**fields)
    assert refused.value.code == "contract.spec"
    assert isinstance(refused.value, ContractError)
    assert "pydantic" not in str(refused.value)
    with pytest.raises(SpecError, match=told):
        spec.model_validate(fields)


# --- the workspace ------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("given", "kept"), [("/", ""), ("", ""), ("raw", "raw"), ("raw/", "raw"), ("/raw/plays/", "raw/plays")]
)
def test_prefixes_are_kept_as_the_repository_spells_them(given: str, kept: str) -> None:
    assert WorkspaceSpec(prefix=given).prefix == kept
    assert WorkspaceSpec(prefix=given).describe()["prefix"] == f"/{kept}"


@pytest.mark.parametrize("prefix", ["..", "raw/../..", "//raw", "raw//plays", "raw/\x00"])
def test_a_prefix_that_leads_elsewhere_is_refused(prefix: str) -> None:
    with pytest.raises(InvalidName):
        WorkspaceSpec(prefix=prefix)


def test_the_default_prefix_is_the_whole_repository() -> None:
    assert WorkspaceSpec().prefix == ""


def test_guards_are_callables_or_have_a_check_and_are_kept_as_tuples() -> None:
    shown = Shown()
    spec = WorkspaceSpec(pre=[tidy, Tidy()], post=iter([shown, functools.partial(tidy, None)]))  # type: ignore[arg-type]
    assert isinstance(spec.pre, tuple)
    assert spec.post[0] is shown
    assert spec.describe()["pre"] == [f"{__name__}.tidy", f"{__name__}.Tidy"]
    assert spec.describe()["post"] == ["Shown(deep=True)", f"{__name__}.tidy"]
    json.dumps(spec.describe())


def test_the_text_of_a_bound_method_says_whose_it_is() -> None:
    assert guard_text(Tidy().check) == f"{__name__}.Tidy.check"


@pytest.mark.parametrize(
    ("guards", "told"),
    [
        ([3], "a guard is callable or has a method check; this is a int"),
        ([Tidy], r"Tidy is a class: make an instance, Tidy\(…\)"),
        (tidy, "guards are given as a list"),
        ("raw/**", "guards are given as a list"),
    ],
)
def test_what_is_no_guard_is_refused(guards: Any, told: str) -> None:
    with pytest.raises(SpecError, match=told):
        WorkspaceSpec(pre=guards)
    with pytest.raises(SpecError, match=told):
        WorkspaceSpec(post=guards)


@pytest.mark.parametrize(
    ("fields", "told"),
    [
        ({"fence": "serial"}, "read_only=True publishes nothing: remove fence"),
        ({"fence": "strict"}, "read_only=True publishes nothing: remove fence"),
        ({"on_conflict": "rebase"}, "read_only=True publishes nothing: remove on_conflict"),
        ({"fence": "strict", "on_conflict": "fail"}, "remove fence and on_conflict"),
    ],
)
def test_rules_of_publishing_make_no_sense_on_read_only(fields: dict[str, Any], told: str) -> None:
    with pytest.raises(SpecError, match=told):
        WorkspaceSpec(read_only=True, **fields)


def test_guards_make_sense_on_read_only() -> None:
    spec = WorkspaceSpec(read_only=True, pre=[tidy], post=[tidy])
    assert (spec.describe()["fence"], spec.describe()["on_conflict"]) == (None, None)


def test_serial_and_rebase_contradict_each_other() -> None:
    with pytest.raises(SpecError, match="fence='serial' drops the one commit that on_conflict='rebase' would build on"):
        WorkspaceSpec(fence="serial", on_conflict="rebase")
    assert WorkspaceSpec(fence="serial").on_conflict == "fail"
    assert WorkspaceSpec(on_conflict="rebase").fence == "strict"


# --- controls -----------------------------------------------------------------------------------------------------


def test_defaults_are_those_of_a_conductor_taskdef() -> None:
    assert TaskControls().as_taskdef() == {
        "retryCount": 3,
        "retryLogic": "FIXED",
        "retryDelaySeconds": 60,
        "backoffScaleFactor": 1,
        "responseTimeoutSeconds": 3600,
        "timeoutSeconds": 0,
        "timeoutPolicy": "TIME_OUT_WF",
    }


def test_every_field_has_its_name_in_a_taskdef() -> None:
    controls = TaskControls(
        retry_count=5,
        retry_logic="LINEAR_BACKOFF",
        retry_delay_seconds=2,
        backoff_scale_factor=3,
        response_timeout_seconds=60,
        timeout_seconds=600,
        timeout_policy="RETRY",
        poll_timeout_seconds=30,
        concurrent_exec_limit=4,
        rate_limit_per_frequency=10,
        rate_limit_frequency_in_seconds=5,
    )
    assert controls.as_taskdef() == {
        "retryCount": 5,
        "retryLogic": "LINEAR_BACKOFF",
        "retryDelaySeconds": 2,
        "backoffScaleFactor": 3,
        "responseTimeoutSeconds": 60,
        "timeoutSeconds": 600,
        "timeoutPolicy": "RETRY",
        "pollTimeoutSeconds": 30,
        "concurrentExecLimit": 4,
        "rateLimitPerFrequency": 10,
        "rateLimitFrequencyInSeconds": 5,
    }
    assert len(controls.as_taskdef()) == len(TaskControls.model_fields)


@pytest.mark.parametrize(
    ("fields", "told"),
    [
        (
            {"response_timeout_seconds": 61, "timeout_seconds": 60},
            "response_timeout_seconds=61 is longer than the whole attempt may take, timeout_seconds=60",
        ),
        ({"backoff_scale_factor": 2}, "backoff_scale_factor=2 has no effect with retry_logic=FIXED"),
        (
            {"backoff_scale_factor": 2, "retry_logic": "EXPONENTIAL_BACKOFF"},
            "backoff_scale_factor=2 has no effect with retry_logic=EXPONENTIAL_BACKOFF",
        ),
        ({"timeout_policy": "RETRY", "retry_count": 0}, "timeout_policy='RETRY' with retry_count=0 retries nothing"),
        ({"rate_limit_frequency_in_seconds": 5}, "has no effect without rate_limit_per_frequency"),
        (
            {"rate_limit_frequency_in_seconds": 5, "rate_limit_per_frequency": 0},
            "has no effect without rate_limit_per_frequency",
        ),
    ],
)
def test_controls_that_contradict_one_another_are_refused(fields: dict[str, Any], told: str) -> None:
    with pytest.raises(SpecError, match=told):
        TaskControls(**fields)


@pytest.mark.parametrize(
    "fields",
    [
        {"response_timeout_seconds": 60, "timeout_seconds": 60},
        {"response_timeout_seconds": 9999, "timeout_seconds": 0},
        {"retry_count": 0},
        {"rate_limit_per_frequency": 5},
    ],
)
def test_controls_that_agree_are_accepted(fields: dict[str, Any]) -> None:
    assert TaskControls(**fields).model_dump(exclude_unset=True) == fields


def test_all_contradictions_are_told_at_once() -> None:
    with pytest.raises(SpecError) as refused:
        TaskControls(timeout_seconds=60, backoff_scale_factor=2)
    assert "timeout_seconds=60" in refused.value.message
    assert "backoff_scale_factor=2" in refused.value.message


# --- the publish budget -------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("fields", "told"),
    [
        (
            {"observed_p99_seconds": 12.0},
            "confirm_timeout_seconds=30 is below observed_p99_seconds × safety_margin: raise it to 36 or more",
        ),
        (
            {"shutdown_grace_seconds": 44.0},
            r"shutdown_grace_seconds=44 would cut a publication off: raise it to .* = 45 or more",
        ),
        (
            {"stage_timeout_seconds": 5.0, "heartbeat_interval_seconds": 50.0},
            "heartbeat_interval_seconds=50 is as long as all of publishing: lower it below 50",
        ),
    ],
)
def test_budgets_that_cannot_hold_are_refused_with_the_number_that_would(fields: dict[str, Any], told: str) -> None:
    with pytest.raises(SpecError, match=told):
        PublishBudget(**fields)


def test_the_total_is_the_parts_in_a_row_and_one_late_heartbeat() -> None:
    budget = PublishBudget(
        stage_timeout_seconds=100,
        confirm_timeout_seconds=20,
        completion_reserve_seconds=5,
        heartbeat_interval_seconds=3,
    )
    assert budget.total_seconds == 128
    assert budget.describe()["total_seconds"] == 128


seconds = st.floats(min_value=0.01, max_value=1000)


@given(
    st.fixed_dictionaries({name: seconds for name in PublishBudget.model_fields if name != "safety_margin"}),
    st.floats(min_value=1, max_value=10),
)
def test_an_accepted_budget_leaves_time_for_each_of_its_parts(fields: dict[str, float], margin: float) -> None:
    try:
        budget = PublishBudget(**fields, safety_margin=margin)
    except SpecError:
        publishing = sum(
            fields[f"{part}_seconds"] for part in ("stage_timeout", "confirm_timeout", "completion_reserve")
        )
        assert (
            fields["confirm_timeout_seconds"] < fields["observed_p99_seconds"] * margin
            or fields["shutdown_grace_seconds"]
            < fields["confirm_timeout_seconds"] + fields["completion_reserve_seconds"]
            or fields["heartbeat_interval_seconds"] >= publishing * 0.999999
        )
    else:
        assert budget.confirm_timeout_seconds >= budget.observed_p99_seconds * margin
        assert budget.shutdown_grace_seconds >= budget.confirm_timeout_seconds + budget.completion_reserve_seconds
        assert budget.total_seconds > 2 * budget.heartbeat_interval_seconds * 0.999999


def test_a_lease_that_covers_the_budget_fits() -> None:
    budget = PublishBudget(stage_timeout_seconds=100)
    exact = TaskControls(response_timeout_seconds=int(budget.total_seconds))
    assert budget.misfit(exact) is None
    short = budget.misfit(TaskControls(response_timeout_seconds=int(budget.total_seconds) - 1))
    assert short is not None
    assert "response_timeout_seconds=154 is smaller than the publish budget of 155 s" in short


def test_a_heartbeat_must_be_well_below_the_lease() -> None:
    budget = PublishBudget(heartbeat_interval_seconds=10)
    assert budget.misfit(TaskControls(response_timeout_seconds=10 * BEATS_PER_LEASE)) is not None
    with pytest.raises(SpecError, match="one lost heartbeat would lose the lease") as refused:
        budget.misfit(TaskControls(response_timeout_seconds=10 * BEATS_PER_LEASE - 1))
    assert refused.value.hint == "lower it to 9.66667 or less, or raise response_timeout_seconds"


def test_a_budget_warning_can_be_told_from_others() -> None:
    assert issubclass(BudgetWarning, UserWarning)

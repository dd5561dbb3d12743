"""`fenceline backfill`: a run for each value, those that failed again, those that completed not."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from pydantic import BaseModel, ConfigDict
from run_by_command import Place

import fenceline as fl
from fenceline.cli.backfill import plan, read_values
from fenceline.errors import ContractError


@pytest.fixture
def place(tmp_path: Path) -> Place:
    return Place(tmp_path)


def test_backfill_goes_on_after_a_failure_and_runs_only_what_is_left(place: Place) -> None:
    backfill = ("backfill", "plays.py", "--over", "day=2026-01-01..2026-01-04", "--params", place.params(None))
    (place.root / "bad").write_text("2026-01-02")
    done = place.call(*backfill, "--parallel", "2", code=9)
    assert "4 values: 3 completed, 1 failed" in done.stdout.replace("1 failed, 3 completed", "3 completed, 1 failed")
    assert " of 4: 2026-01-02 failed: songs: post_guards: " in done.stderr
    assert len(place.files()) == 9
    (place.root / "bad").unlink()
    told = place.json(*backfill)
    assert [item["state"] for item in told["items"]] == ["done before", "completed", "done before", "done before"]
    assert [ran for ran in place.ran() if ran.endswith("songs")].count("2026-01-02 songs") == 2
    assert len([ran for ran in place.ran() if ran.endswith("fetch")]) == 5
    assert len(place.files()) == 12


def test_fail_fast_starts_no_more(place: Place) -> None:
    (place.root / "bad").write_text("2026-01-01")
    arguments = ("backfill", "plays.py", "--over", "day=2026-01-01,2026-01-02", "--params", place.params(None))
    told = place.json(*arguments, "--fail-fast", code=9)
    assert [item["state"] for item in told["items"]] == ["failed", "not run"]


def test_every_value_is_checked_before_anything_starts(place: Place) -> None:
    arguments = ("backfill", "plays.py", "--over", "day=2026-01-01,soon", "--params", place.params(None))
    done = place.call(*arguments, code=3)
    assert "nothing was started; the value is day=soon" in done.stderr
    assert place.ran() == []
    assert not (place.root / "repo" / "runner").exists()


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ("2026-02-27..2026-03-01", ["2026-02-27", "2026-02-28", "2026-03-01"]),
        ("8..10", ["8", "9", "10"]),
        ("-1..1", ["-1", "0", "1"]),
        ("a, b", ["a", "b"]),
        ("7", ["7"]),
    ],
)
def test_values(text: str, shown: list[str]) -> None:
    assert [str(forms[-1]) for forms in read_values(text)] == shown


@pytest.mark.parametrize("text", ["2026-01-02..2026-01-01", "3..1", "a..c", "1..1000000", "a,,b", "2026-01-01..7"])
def test_values_that_cannot_be(text: str) -> None:
    with pytest.raises(ContractError):
        read_values(text)


class Strict(BaseModel):
    model_config = ConfigDict(extra="forbid", strict=True)
    number: int = 0
    label: str = ""
    on: bool = False


class Nothing(BaseModel):
    pass


@fl.task(name="b.nothing", owner="a@example.com")
def nothing(params: Strict) -> Nothing:
    return Nothing()


@fl.pipeline(name="strict")
def strict(run: fl.Run[Strict]) -> None:
    run.step(nothing, number=run.params.number, label=run.params.label, on=run.params.on)


@pytest.mark.parametrize(
    ("over", "values"),
    [
        ("number=1..2", [1, 2]),
        ("number=1,2", [1, 2]),
        ("label=1..2", ["1", "2"]),
        ("label=1,x", ["1", "x"]),
        ("on=true,false", [True, False]),
    ],
)
def test_values_are_what_the_params_model_takes(over: str, values: list[Any]) -> None:
    name = over.partition("=")[0]
    items = plan(strict, over, {}, "main")
    assert [item.params[name] for item in items] == values
    assert len({item.key for item in items}) == len(values)


@pytest.mark.parametrize("over", ["number", "=1", "number=", "other=1", "number=x", "number=1,1"])
def test_what_cannot_be_gone_over(over: str) -> None:
    with pytest.raises(ContractError):
        plan(strict, over, {}, "main")
    with pytest.raises(ContractError):
        plan(strict, "number=1", {"number": 2}, "main")

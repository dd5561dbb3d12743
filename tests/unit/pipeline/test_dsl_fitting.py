"""Whether a value of one type can be given where another is taken, and what is inside it."""

from __future__ import annotations

import datetime
import decimal
import enum
import json
import uuid
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Annotated, Any, Literal, NewType, Optional

import pytest
from pydantic import BaseModel, Field, RootModel, SecretStr, TypeAdapter, ValidationError, computed_field
from typing_extensions import TypedDict

from fenceline.pipeline.definition.fitting import NoSuchPart, comparable, field_of, fits, holds_secret, item_of, spelled

UserId = NewType("UserId", int)
Positive = Annotated[int, Field(gt=0)]


class Colour(enum.Enum):
    RED = "red"


class Level(enum.IntEnum):
    LOW = 1


class Stats(BaseModel):
    rows: int
    name: str = ""


class StrictStats(BaseModel, extra="forbid"):
    rows: int


class WideStats(Stats):
    more: int = 0


class FloatStats(BaseModel):
    rows: float


class Tree(BaseModel):
    children: list[Tree] = []


class Names(RootModel[list[str]]):
    pass


class Typed(TypedDict):
    rows: int


@pytest.mark.parametrize(
    ("source", "target"),
    [
        (int, int),
        (int, float),
        (bool, int),
        (int, Optional[int]),  # noqa: UP045 - both spellings
        (int, int | str),
        (int | bool, int),
        (Any, int),
        (str, Any),
        (UserId, int),
        (int, UserId),
        (Positive, int),
        (int, Positive),
        (datetime.date, str),
        (datetime.datetime, str),
        (uuid.UUID, str),
        (Path, str),
        (Path, Path),
        (datetime.date, datetime.datetime),
        (Colour, Colour),
        (Colour, str),
        (Level, int),
        (Literal["a"], str),
        (Literal["a"], Literal["a", "b"]),
        (list[int], list[float]),
        (list[int], tuple[int, ...]),
        (list[int], Sequence[int]),
        (list[int], set[int]),
        (tuple[int, str], list[int | str]),
        (list[int], list[Any]),
        (dict[str, int], dict[str, float]),
        (dict[str, int], Mapping[str, int]),
        (Stats, Stats),
        (WideStats, Stats),
        (StrictStats, Stats),
        (Stats, FloatStats),
        (Stats, dict[str, Any]),
        (dict[str, int], Stats),
        (Typed, Stats),
        (Tree, Tree),
        (Names, list[str]),
        (list[str], Names),
        (str, SecretStr),
        (SecretStr, SecretStr),
        (None, Optional[int]),  # noqa: UP045
    ],
)
def test_fits(source: Any, target: Any) -> None:
    assert fits(source, target)


@pytest.mark.parametrize(
    ("source", "target"),
    [
        (str, int),
        (int, str),
        (int, bool),
        (float, int),
        (str, datetime.date),
        (datetime.datetime, datetime.date),
        (Optional[int], int),  # noqa: UP045
        (int | str, int),
        (str, Colour),
        (Colour, int),
        (str, Literal["a"]),
        (Literal["a", "c"], Literal["a", "b"]),
        (list[str], list[int]),
        (list[int], int),
        (int, list[int]),
        (list[int], dict[str, int]),
        (list[int], tuple[int, int]),
        (dict[str, str], dict[str, int]),
        (Stats, int),
        (Stats, StrictStats),
        (FloatStats, Stats),
        (Stats, dict[str, int]),
        (Names, list[int]),
        (SecretStr, str),
        (None, int),
        (decimal.Decimal, int),
    ],
)
def test_does_not_fit(source: Any, target: Any) -> None:
    assert not fits(source, target)


@pytest.mark.parametrize(
    ("value", "kind"),
    [
        (3, int),
        (2.5, float),
        (datetime.date(2026, 1, 1), datetime.date),
        (decimal.Decimal("1.5"), decimal.Decimal),
        (Path("a"), Path),
        (True, bool),
        ([1, 2], list[int]),
        (Stats(rows=1), Stats),
        (StrictStats(rows=1), StrictStats),
        (Level.LOW, Level),
    ],
)
@pytest.mark.parametrize(
    "target",
    [
        int,
        float,
        str,
        bool,
        datetime.date,
        Path,
        list[int],
        tuple[float, ...],
        Stats,
        FloatStats,
        dict[str, Any],
        Level,
    ],
)
def test_what_fits_is_accepted_by_the_model(value: Any, kind: Any, target: Any) -> None:
    """The rule itself: its JSON is one of the target's."""
    if fits(kind, target):
        TypeAdapter(target).validate_json(TypeAdapter(kind).dump_json(value))


def test_what_does_not_fit_may_fail_when_it_runs() -> None:
    with pytest.raises(ValidationError):
        TypeAdapter(StrictStats).validate_json(json.dumps({"rows": 1, "name": ""}))


class Deep(BaseModel):
    stats: Stats
    maybe: Stats | None = None
    days: list[datetime.date] = []
    pair: tuple[int, str] = (1, "a")
    counts: dict[str, int] = {}
    typed: Typed = {"rows": 1}
    anything: Any = None
    names: Names = Names([])

    @computed_field  # type: ignore[prop-decorator]
    @property
    def total(self) -> int:
        return 1


class Renamed(BaseModel, serialize_by_alias=True):
    rows: int = Field(serialization_alias="rowCount")


def test_fields() -> None:
    assert field_of(Deep, "stats") == (("stats",), Stats)
    assert field_of(Deep, "total") == (("total",), int)
    assert field_of(Stats | None, "rows") == (("rows",), int | None)
    assert field_of(Names, "root") == ((), list[str])
    assert field_of(Any, "whatever") == (("whatever",), Any)
    assert field_of(Renamed, "rows") == (("rowCount",), int)
    for kind, name in ((Deep, "stat"), (int, "real"), (Typed, "rows"), (dict[str, int], "a")):
        with pytest.raises(NoSuchPart, match=name):
            field_of(kind, name)


def test_items() -> None:
    assert item_of(list[int], 3) is int
    assert item_of(tuple[int, str], 1) is str
    assert item_of(tuple[int, ...], 9) is int
    assert item_of(dict[str, int], "a") is int
    assert item_of(Typed, "rows") is int
    assert item_of(list[int] | None, 0) == int | None
    assert item_of(dict, "a") is Any
    for kind, key in (
        (list[int], "a"),
        (list[int], -1),
        (tuple[int, str], 2),
        (dict[str, int], 0),
        (Typed, "x"),
        (int, 0),
    ):
        with pytest.raises(NoSuchPart):
            item_of(kind, key)


def test_what_can_be_compared() -> None:
    assert comparable(int, float, ordered=True)
    assert comparable(str, str, ordered=True)
    assert comparable(datetime.date, datetime.date, ordered=True)
    assert comparable(int | None, type(None), ordered=False)
    assert comparable(Colour, str, ordered=False)
    assert comparable(Any, int, ordered=True)
    assert not comparable(int, str, ordered=False)
    assert not comparable(int, str, ordered=True)
    assert not comparable(int | None, int, ordered=True)
    assert not comparable(decimal.Decimal, decimal.Decimal, ordered=True)
    assert not comparable(datetime.datetime, datetime.datetime, ordered=True)
    assert not comparable(bool, int, ordered=True)


def test_secrets_are_found_at_any_depth() -> None:
    class Inner(BaseModel):
        token: SecretStr

    class Outer(BaseModel):
        inner: list[Inner] | None

    assert holds_secret(Outer)
    assert holds_secret(dict[str, SecretStr])
    assert not holds_secret(Tree)


def test_annotations_are_spelled_as_people_write_them() -> None:
    assert [spelled(kind) for kind in (int, int | None, list[int], Stats, Any)] == [
        "int",
        "int | None",
        "list[int]",
        "Stats",
        "Any",
    ]

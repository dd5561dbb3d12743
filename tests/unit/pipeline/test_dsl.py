"""A pipeline's function is traced once; what it declares is checked then, and points at the line that is wrong."""

from __future__ import annotations

import re
from collections.abc import Callable
from datetime import date
from pathlib import Path
from typing import Any

import pytest
from pydantic import BaseModel, Field, SecretStr, field_validator, model_validator

from fenceline.pipeline.definition.dsl import Block, Run, Step, pipeline
from fenceline.pipeline.definition.model import EachElement, PipelineDefinition, PipelineError, StepElement, WhenElement
from fenceline.task.contract import InvalidParams, task
from fenceline.task.spec import WorkspaceSpec

OWNER = "data@example.com"


class Strict(BaseModel, extra="forbid"):
    pass


class Nothing(Strict):
    pass


class Stats(BaseModel):
    rows: int
    days: list[date]


class Raw(BaseModel):
    rows: int
    good: bool
    name: str
    day: date
    maybe: int | None
    stats: Stats
    counts: dict[str, int]


class Window(Strict):
    first: date
    last: date | None = None


class BuildParams(Strict):
    day: date
    min_rows: int = 0
    tags: list[str] = []
    limits: dict[str, float] = {}
    window: Window | None = None
    windows: list[Window] = []
    share: float = 0.5

    @field_validator("min_rows")
    @classmethod
    def _not_seven(cls, value: int) -> int:
        if value == 7:
            raise ValueError("seven is no minimum")
        return value

    @model_validator(mode="after")
    def _agree(self) -> BuildParams:
        if self.min_rows == 8 and not self.tags:
            raise ValueError("eight needs tags")
        return self


class Login(Strict):
    token: SecretStr
    user: str = "me"


class Named(Strict):
    name: str
    after: int = Field(default=0, alias="afterAll")


class DailyParams(Strict):
    day: date
    names: list[str] = ["a"]
    token: SecretStr = SecretStr("hidden")


@task(name="songs.ingest", owner=OWNER, workspace=WorkspaceSpec(reads=[]))
def ingest(workspace: Path, params: Window) -> Raw:
    raise AssertionError


@task(name="songs.build", owner=OWNER, workspace=WorkspaceSpec(reads=[]))
def build(workspace: Path, params: BuildParams) -> Stats:
    raise AssertionError


@task(name="login", owner=OWNER)
def login(params: Login) -> Raw:
    raise AssertionError


@task(name="named", owner=OWNER)
def named(params: Named) -> Raw:
    raise AssertionError


@task(name="songs.1", owner=OWNER)
def numbered(params: Nothing) -> Raw:
    raise AssertionError


@task(name="idle", owner=OWNER)
def idle(params: Nothing) -> Raw:
    raise AssertionError


def other_build() -> Any:
    @task(name="songs.build", owner=OWNER)
    def build(params: Nothing) -> Raw:
        raise AssertionError

    return build


Body = Callable[[Run[DailyParams]], None]


def traced(body: Body) -> PipelineDefinition[DailyParams]:
    @pipeline(name="daily")
    def daily(run: Run[DailyParams]) -> None:
        body(run)

    return daily


def params_of(step: str, definition: PipelineDefinition[Any]) -> dict[str, Any]:
    (found,) = (each for each in definition.steps if each.name == step)
    return dict(found.params)


# --- what works ---------------------------------------------------------------------------------------------------


def test_steps_refer_to_params_and_results() -> None:
    @pipeline(name="daily", owner="boss@example.com", description="Every day.", version=4)
    def daily(run: Run[DailyParams]) -> None:
        raw = run.step(ingest, first=run.params.day)
        assert isinstance(raw, Step)
        assert raw.name == "ingest"
        run.step(build, day=run.params.day, min_rows=raw.result.stats.rows, share=raw.result.rows)

    assert (daily.name, daily.owner, daily.description, daily.version) == ("daily", "boss@example.com", "Every day.", 4)
    assert daily.params_model is DailyParams
    assert [each.name for each in daily.elements] == ["ingest", "build"]
    assert [each.name for each in daily.tasks] == ["songs.ingest", "songs.build"]
    assert params_of("ingest", daily) == {"first": "${workflow.input.params.day}"}
    assert params_of("build", daily) == {
        "day": "${workflow.input.params.day}",
        "min_rows": "${ingest.output.result.stats.rows}",
        "share": "${ingest.output.result.rows}",
    }
    assert daily.elements[1].after == {"ingest"}


def test_constants_whole_models_and_mixtures() -> None:
    def body(run: Run[DailyParams]) -> None:
        raw = run.step(ingest, first=date(2026, 1, 1))
        run.step(
            build,
            day=raw.result.stats.days[0],
            tags=["${x}", raw.result.name, run.params.names[1]],
            limits={"a": 1.5, "b": raw.result.rows},
            window={"first": run.params.day, "last": "2026-02-01"},
            windows=[Window(first=date(2026, 1, 2)), {"first": raw.result.day}],
        )
        run.step(build, name="plain", day="2026-01-03", window=Window(first=date(2026, 1, 4)), tags=run.params.names)

    daily = traced(body)
    assert params_of("ingest", daily) == {"first": "2026-01-01"}
    assert params_of("build", daily) == {
        "day": "${ingest.output.result.stats.days[0]}",
        "tags": ["$${x}", "${ingest.output.result.name}", "${workflow.input.params.names[1]}"],
        "limits": {"a": 1.5, "b": "${ingest.output.result.rows}"},
        "window": {"first": "${workflow.input.params.day}", "last": "2026-02-01"},
        "windows": [{"first": "2026-01-02", "last": None}, {"first": "${ingest.output.result.day}"}],
    }
    assert params_of("plain", daily)["window"] == {"first": "2026-01-04", "last": None}


def test_blocks_and_their_order() -> None:
    def body(run: Run[DailyParams]) -> None:
        raw = run.step(ingest, first=run.params.day)
        free = run.step(idle)
        with run.when(raw.result.rows > 3, name="many") as many:
            assert isinstance(many, Block)
            inner = run.step(build, day=raw.result.day, min_rows=free.result.rows)
            run.step(build, name="more", day=run.params.day, min_rows=inner.result.rows)
        with run.otherwise(many):
            run.step(build, name="less", day=run.params.day)
        each = run.foreach(raw.result.stats.days, build, lambda day: {"day": day}, most=2, name="each", after=many)
        run.step(idle, name="last", after=[many, each])

    elements = {each.name: each for each in traced(body).elements}
    many, each = elements["many"], elements["each"]
    assert isinstance(many, WhenElement)
    assert (many.left, many.operator, many.right) == ("${ingest.output.result.rows}", ">", 3)
    assert many.after == {"ingest", "idle"}, "what its steps need is needed by the block"
    assert [(step.name, set(step.after)) for step in many.then] == [("build", set()), ("more", {"build"})]
    assert [step.name for step in many.otherwise] == ["less"]
    assert isinstance(each, EachElement)
    assert each.after == {"ingest", "many"}
    assert [step.name for step in each.steps] == ["each_0", "each_1"]
    assert each.steps[1].params == {"day": "${ingest.output.result.stats.days[1]}"}
    assert elements["last"].after == {"many", "each"}


@pytest.mark.parametrize(
    ("condition", "compiled"),
    [
        (lambda raw: raw.result.good, ("${ingest.output.result.good}", "==", True)),
        (lambda raw: raw.result.rows >= 3, ("${ingest.output.result.rows}", ">=", 3)),
        (lambda raw: raw.result.rows < 3, ("${ingest.output.result.rows}", "<", 3)),
        (lambda raw: raw.result.name != "x", ("${ingest.output.result.name}", "!=", "x")),
        (lambda raw: raw.result.maybe == None, ("${ingest.output.result.maybe}", "==", None)),  # noqa: E711
        (lambda raw: raw.result.day < date(2026, 1, 1), ("${ingest.output.result.day}", "<", "2026-01-01")),
        (
            lambda raw: raw.result.rows == raw.result.stats.rows,
            ("${ingest.output.result.rows}", "==", "${ingest.output.result.stats.rows}"),
        ),
        (lambda raw: raw.result.counts["a b"] > 0, ("${ingest.output.result.counts['a b']}", ">", 0)),
    ],
)
def test_conditions(condition: Callable[[Step[Raw]], bool], compiled: tuple[Any, str, Any]) -> None:
    def body(run: Run[DailyParams]) -> None:
        raw = run.step(ingest, first=run.params.day)
        with run.when(condition(raw)):
            run.step(idle)

    block = traced(body).elements[1]
    assert isinstance(block, WhenElement)
    assert (block.left, block.operator, block.right) == compiled


def test_foreach_over_a_list_that_is_known() -> None:
    def body(run: Run[DailyParams]) -> None:
        run.foreach(["a", run.params.names[0]], build, lambda tag: {"day": run.params.day, "tags": [tag]})

    (each,) = traced(body).elements
    assert isinstance(each, EachElement)
    assert each.items is None
    assert [step.params["tags"] for step in each.steps] == [["a"], ["${workflow.input.params.names[0]}"]]


def test_fields_that_are_called_as_our_options_are_given_in_a_dict() -> None:
    definition = traced(lambda run: void(run.step(named, {"name": "x", "after": 2}, name="step")))
    assert params_of("step", definition) == {"name": "x", "afterAll": 2}


def test_a_secret_is_a_param_of_the_run() -> None:
    definition = traced(lambda run: void(run.step(login, token=run.params.token)))
    assert params_of("login", definition) == {"token": "${workflow.input.params.token}"}
    given = definition.workflow_input("songs", "main", {"day": "2026-01-01"})
    assert given == {
        "repository": "songs",
        "branch": "main",
        "params": {"day": "2026-01-01", "names": ["a"], "token": "hidden"},
    }
    again = definition.workflow_input("songs", "main", DailyParams(day=date(2026, 1, 1), token=SecretStr("other")))
    assert again["params"]["token"] == "other"


def test_params_of_a_run_are_validated() -> None:
    definition = traced(lambda run: void(run.step(idle)))
    with pytest.raises(InvalidParams, match="dya: there is no such field, did you mean day"):
        definition.params_from({"dya": "2026-01-01"})

    @pipeline(name="free")
    def free(run: Run[None]) -> None:
        run.step(idle)

    assert free.workflow_input("songs", "main")["params"] == {}
    with pytest.raises(InvalidParams, match="takes no params"):
        free.params_from({"day": 1})


def test_the_owner_is_by_default_that_of_the_first_task() -> None:
    assert traced(lambda run: void(run.step(idle))).owner == OWNER


def void(_: object) -> None:
    return None


# --- what is refused ----------------------------------------------------------------------------------------------


def refused(body: Body) -> PipelineError:
    with pytest.raises(PipelineError) as found:
        traced(body)
    assert found.value.code == "contract.pipeline"
    assert found.value.hint
    return found.value


def raw_of(run: Run[DailyParams]) -> Step[Raw]:
    return run.step(ingest, first=run.params.day)


@pytest.mark.parametrize(
    ("body", "said"),
    [
        (
            lambda run: run.step(build, dya=run.params.day),
            "step build: dya: BuildParams has no such field; did you mean day",
        ),
        (lambda run: run.step(build), "day: is missing"),
        (lambda run: run.step(build, day="soon"), "step build: day: Input should be a valid date"),
        (lambda run: run.step(build, day=run.params.day, min_rows="many"), "min_rows: Input should be a valid integer"),
        (lambda run: run.step(build, day=run.params.day, min_rows=7), "seven is no minimum"),
        (lambda run: run.step(build, day="2026-01-01", min_rows=8), "eight needs tags"),
        (lambda run: run.step(build, day=raw_of(run).result.name), "day: takes date, but ingest.result.name is str"),
        (lambda run: run.step(build, day=run.params.day, min_rows=raw_of(run).result.maybe), "is int | None"),
        (
            lambda run: run.step(build, day=run.params.day, tags=[1, raw_of(run).result.name]),
            "tags[0]: Input should be",
        ),
        (lambda run: run.step(build, day=run.params.day, tags=[raw_of(run).result.rows]), "tags[0]: takes str"),
        (
            lambda run: run.step(build, day=run.params.day, limits={"a": raw_of(run).result.name}),
            "limits.a: takes float",
        ),
        (lambda run: run.step(build, day=run.params.day, window={"last": run.params.day}), "window.first: is missing"),
        (lambda run: run.step(build, day=run.params.day, window={"x": run.params.day}), "window.x: Window has no such"),
        (
            lambda run: run.step(build, day=run.params.day, window=raw_of(run).result.stats),
            "window: takes Window | None",
        ),
        (lambda run: run.step(build, day=run.params.day, min_rows=[run.params.day]), "min_rows: takes int, not a list"),
        (lambda run: run.step(build, day=run.params.day, share=object()), "share: a object cannot be written as JSON"),
        (lambda run: run.step(build, day=run.params.day, share=float("nan")), "cannot be written as JSON"),
        (lambda run: run.step(build, day=run.params.day, min_rows=raw_of(run).result.rows > 3), "is a condition"),
        (lambda run: run.step(login, token="x"), "token: is a secret, and would stand in the definition"),
        (
            lambda run: run.step(login, token=raw_of(run).result.rows),
            "token: takes SecretStr, but ingest.result.rows is int",
        ),
        (lambda run: run.step(login, token=run.params.token, user=run.params.token), "user: takes str"),
        (lambda run: run.step(named, name="x"), "name: is missing"),
        (lambda run: raw_of(run).result.row, "Raw has no field 'row'"),  # type: ignore[attr-defined]
        (lambda run: raw_of(run).result.stats.days["x"], "no part ['x']"),  # type: ignore[call-overload]
        (lambda run: raw_of(run).result.counts["it's"], "cannot be referred to"),
        (lambda run: run.params.dya, "DailyParams has no field 'dya'"),
    ],
)
def test_params_that_do_not_fit(body: Body, said: str) -> None:
    assert said in str(refused(body))


@pytest.mark.parametrize(
    ("body", "said"),
    [
        (lambda run: (run.step(idle), run.step(idle)), "there is a step idle already, at"),
        (lambda run: run.step(numbered), "'1' cannot be the name of a step"),
        (lambda run: run.step(idle, name="a b"), "'a b' cannot be the name"),
        (lambda run: run.step(idle, name="a__b"), "one of ours"),
        (lambda run: run.step(idle, name="begin"), "one of ours"),
        (lambda run: run.step(idle, name="workflow"), "one of ours"),
        (lambda run: run.step(len), "is not a task"),
        (
            lambda run: (run.step(build, day="2026-01-01"), run.step(other_build(), name="b")),
            "two tasks named songs.build",
        ),
        (lambda run: run.step(idle, after="ingest"), "after= has 'ingest'"),
        (lambda run: run.step(idle, after=[raw_of(run).result]), "after= has"),
        (lambda run: None, "it has no steps"),
        (lambda run: run.when(raw_of(run).result.good), "has no steps"),
        (lambda run: run.when(True), "which is known already"),
        (lambda run: run.when(raw_of(run).result.rows), "is not a boolean"),
        (lambda run: run.when(raw_of(run).result.rows > "3"), "compares what cannot be"),  # type: ignore[operator]
        (lambda run: run.when(raw_of(run).result.maybe > 3), "compares what cannot be"),  # type: ignore[operator]
        (lambda run: run.when(raw_of(run).result.counts == {}), "a dict cannot be compared with"),
        (lambda run: run.otherwise(run.step(idle)), "is not given a block of run.when"),
        (lambda run: run.foreach(raw_of(run).result.stats.days, build, lambda day: {"day": day}), "most is None"),
        (lambda run: run.foreach(raw_of(run).result.rows, build, lambda day: {"day": day}, most=3), "is not a list"),
        (lambda run: run.foreach([], build, lambda day: {"day": day}), "the items are []"),
        (lambda run: run.foreach(["x"], build, lambda day: {"day": day}), "step build_0: day: Input should be"),
        (lambda run: run.foreach(run.params.names, build, lambda day: {"day": day}, most=2), "takes date"),
        (lambda run: run.foreach(["2026-01-01"], build, lambda day: day), "are no dict"),
        (lambda run: run.foreach(["2026-01-01"] * 3, build, lambda day: {"day": day}, most=2), "there are 3 items"),
        (
            lambda run: (run.step(idle, name="build_0"), run.foreach(["2026-01-01"], build, lambda day: {"day": day})),
            "there is a step build_0 already",
        ),
    ],
)
def test_steps_that_cannot_be(body: Body, said: str) -> None:
    assert said in str(refused(body))


@pytest.mark.parametrize(
    ("misuse", "said"),
    [
        (lambda raw: bool(raw.result.good), "run.when"),
        (lambda raw: bool(raw.result.rows > 3), "run.when"),
        (lambda raw: raw.result.rows > 1 and raw.result.rows < 3, "run.when"),
        (lambda raw: 1 < raw.result.rows < 3, "run.when"),
        (lambda raw: (raw.result.rows > 1) & (raw.result.rows < 3), "one run.when inside another"),
        (lambda raw: f"{raw.result.rows}", "compute it in a task"),
        (lambda raw: "a" + raw.result.name, "compute it in a task"),
        (lambda raw: str(raw.result.name), "compute it in a task"),
        (lambda raw: raw.result.rows + 1, "compute it in a task"),
        (lambda raw: -raw.result.rows, "compute it in a task"),
        (lambda raw: list(raw.result.stats.days), "run.foreach"),
        (lambda raw: len(raw.result.stats.days), "compute it in a task"),
        (lambda raw: 3 in raw.result.stats.days, "compute it in a task"),
        (lambda raw: range(raw.result.rows), "compute it in a task"),
        (lambda raw: {raw.result.name: 1}, "compute it in a task"),
        (lambda raw: raw.result.name.upper(), "str has no field 'upper'"),
        (lambda raw: raw.result.model_dump(), "Raw has no field 'model_dump'"),
    ],
)
def test_a_reference_is_no_value(misuse: Callable[[Step[Raw]], object], said: str) -> None:
    error = refused(lambda run: void(misuse(raw_of(run))))
    assert said in str(error)
    assert re.search(r"test_dsl\.py:\d+", str(error))


def test_a_step_in_a_block_is_not_referred_to_from_outside() -> None:
    def by_result(run: Run[DailyParams]) -> None:
        with run.when(raw_of(run).result.good, name="fine"):
            inner = run.step(idle)
        run.step(build, day=run.params.day, min_rows=inner.result.rows)

    def by_after(run: Run[DailyParams]) -> None:
        with run.when(raw_of(run).result.good, name="fine") as block:
            inner = run.step(idle)
        with run.otherwise(block):
            run.step(idle, name="other", after=inner)

    for body in (by_result, by_after):
        error = refused(body)
        assert "idle stands in the block fine" in str(error)
        assert "after=fine" in str(error)


def test_a_step_does_not_wait_for_its_own_block() -> None:
    def body(run: Run[DailyParams]) -> None:
        with run.when(raw_of(run).result.good) as block:
            run.step(idle, after=block)

    assert "the block that it stands in" in str(refused(body))


def test_a_secret_result_is_only_a_mask() -> None:
    class Session(BaseModel):
        token: SecretStr

    @task(name="session", owner=OWNER)
    def session(params: Nothing) -> Session:
        raise AssertionError

    error = refused(lambda run: void(run.step(login, token=run.step(session).result.token)))
    assert "session.result.token (SecretStr) is a secret" in str(error)


def test_a_circle_is_found() -> None:
    def body(run: Run[DailyParams]) -> None:
        with run.when(raw_of(run).result.good, name="block") as block:
            run.step(idle)
        later = run.step(idle, name="later", after=block)
        with run.otherwise(block):
            run.step(idle, name="never", after=later)

    error = refused(body)
    assert "these wait for each other" in str(error)
    assert "later (" in str(error)


def test_steps_of_another_pipeline_are_refused() -> None:
    leaked: list[Step[Raw]] = []
    traced(lambda run: leaked.append(raw_of(run)))
    assert "belongs to another pipeline" in str(refused(lambda run: void(run.step(idle, after=leaked[0]))))
    body: Body = lambda run: void(run.step(build, day=leaked[0].result.day))  # noqa: E731
    assert "belongs to another pipeline" in str(refused(body))


def test_an_error_points_at_the_call() -> None:
    with pytest.raises(PipelineError) as found:

        @pipeline(name="daily")
        def daily(run: Run[DailyParams]) -> None:
            run.step(idle)
            run.step(build)  # here

    line = next(n for n, text in enumerate(Path(__file__).read_text().splitlines(), 1) if text.endswith("# here"))
    assert f"test_dsl.py:{line}: step build: day: is missing" in str(found.value)


class Loose(BaseModel):
    day: str = ""


@pytest.mark.parametrize(
    ("declare", "said"),
    [
        (lambda: pipeline(name="a.b")(lambda run: None), "that name cannot be used"),
        (lambda: pipeline(name="daily", publish="never")(idle_pipeline), "publish is 'never'"),  # type: ignore[arg-type]
        (lambda: pipeline(name="daily", version=0)(idle_pipeline), "version is 0"),
        (lambda: pipeline(name="daily", timeout_seconds=-1)(idle_pipeline), "timeout_seconds is -1"),
        (lambda: pipeline(name="daily")(not_annotated), "does not take exactly one run"),
        (lambda: pipeline(name="daily")(loose), "accepts unknown fields"),
        (lambda: pipeline(name="daily")(returning), "it returned a Step"),
        (lambda: pipeline(name="daily")(idle), "not a plain function"),  # type: ignore[arg-type]
    ],
)
def test_declarations_that_cannot_be(declare: Callable[[], object], said: str) -> None:
    with pytest.raises(PipelineError) as found:
        declare()
    assert said in str(found.value)


def idle_pipeline(run: Run[None]) -> None:
    run.step(idle)


def not_annotated(run):  # type: ignore[no-untyped-def]
    run.step(idle)


def loose(run: Run[Loose]) -> None:
    run.step(idle)


def returning(run: Run[None]) -> None:
    return run.step(idle)  # type: ignore[return-value]


def test_other_errors_stay_what_they_are_and_say_where() -> None:
    with pytest.raises(ZeroDivisionError) as found:
        traced(lambda run: void(1 // 0))
    assert "was being traced" in found.value.__notes__[0]


def test_a_pipeline_is_not_called() -> None:
    with pytest.raises(PipelineError, match="cannot be called"):
        traced(lambda run: void(run.step(idle)))()


def test_a_serial_writer_stands_alone() -> None:
    @task(name="serial", owner=OWNER, workspace=WorkspaceSpec(fence="serial", reads=[]))
    def serial(workspace: Path, params: Nothing) -> Raw:
        raise AssertionError

    def beside(run: Run[DailyParams]) -> None:
        raw_of(run)
        run.step(serial)

    assert "fence='serial'" in str(refused(beside))
    assert [type(each) for each in traced(lambda run: void(run.step(serial, after=raw_of(run)))).elements] == [
        StepElement,
        StepElement,
    ]


def test_steps_that_would_be_in_each_others_way_are_refused() -> None:
    """A task on a directory reads all that it is given: whoever writes there beside it would make it fail for good."""

    def of(name: str, **spec: Any) -> Any:
        @task(name=name, owner=OWNER, workspace=WorkspaceSpec(**spec))
        def build(workspace: Path, params: Strict) -> Strict:
            return params

        return build

    def beside(one: Any, other: Any) -> None:
        @pipeline(name="pair")
        def pair(run: Run[None]) -> None:
            run.step(one)
            run.step(other)

    for one, other in (
        (of("a"), of("b")),
        (of("a", prefix="x"), of("b", prefix="x/y")),
        (of("a", prefix="x", reads=[]), of("b", prefix="x")),
        (of("a", prefix="x", reads=["in"]), of("b", prefix="x", reads=[])),
    ):
        with pytest.raises(PipelineError, match="run side by side") as refused:
            beside(one, other)
        assert "reads=" in str(refused.value)
    beside(of("a", prefix="x"), of("b", prefix="y"))
    beside(of("a", prefix="x", reads=[]), of("b", prefix="x", read_only=True))
    beside(of("a", prefix="x", reads=[]), of("b", prefix="x", reads=[]))

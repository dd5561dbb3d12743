"""Guards: every violation of a phase at once, patterns as documented, and nothing passes that could not be checked."""

from __future__ import annotations

import functools
import json
import os
import sys
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from fenceline.errors import ConfigError, ContractError, GuardError, NotFound
from fenceline.repo.model import Dataset
from fenceline.spark.session import get_session
from fenceline.task.guard import (
    Guard,
    GuardFunction,
    GuardsDidNotRun,
    GuardUnavailable,
    GuardView,
    GuardViolations,
    Violation,
    expect,
    forbid_glob,
    require_dir,
    require_file,
    require_glob,
    require_max_bytes,
    require_rows,
    require_schema,
    require_unique,
    run_guards,
)
from fenceline.task.local_view import LocalView
from fenceline.task.patterns import glob_regex, literal
from fenceline.task.result import TaskTerminalError
from fenceline.task.spec import guard_name


@pytest.fixture
def files(tmp_path: Path) -> Callable[..., LocalView]:
    """A directory with these files (their sizes), seen as guards see it."""

    def make(**sizes: int) -> LocalView:
        for name, size in sizes.items():
            path = tmp_path / name.replace("__", "/").replace("_dot_", ".")
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_bytes(b"x" * size)
        return LocalView(tmp_path)

    return make


class NoView:
    """A workspace that has nothing."""

    def files(self, pattern: str | None = None) -> Iterator[tuple[str, int]]:
        return iter(())

    def is_dir(self, path: str) -> bool:
        return False

    def schema(self, path: str) -> Mapping[str, str]:
        raise GuardUnavailable("no Spark here", hint="install it")

    def frame(self, path: str) -> Any:
        raise GuardUnavailable("no Spark here", hint="install it")

    def opened(self, path: str) -> Path:
        raise NotFound(path)


def broken(guard: Guard | GuardFunction, view: GuardView) -> list[str]:
    """What a guard complains of."""
    try:
        run_guards("post", [guard], view)
    except GuardViolations as error:
        return [str(violation) for violation in error.violations]
    return []


# --- running ----------------------------------------------------------------------------------------------------


def test_all_violations_of_a_phase_are_reported_together(files: Callable[..., LocalView]) -> None:
    guards: list[Guard | GuardFunction] = [
        require_file("a"),
        require_file("b"),
        lambda view: "always wrong",
        require_dir("c"),
    ]
    with pytest.raises(GuardViolations) as raised:
        run_guards("pre", guards, files(a=1))
    error = raised.value
    assert isinstance(error, GuardError)
    assert [str(violation) for violation in error.violations] == [
        "require_file b: found nothing, expected a file",
        "<lambda>: found always wrong, expected no complaint",
        "require_dir c: found nothing, expected a directory",
    ]
    assert [verdict.status for verdict in error.verdicts] == ["passed", "violated", "violated", "violated"]
    assert all(str(violation) in error.message for violation in error.violations)
    assert "3 violations before the body" in error.message
    assert error.as_dict()["code"] == "guard.violations"


def test_verdicts_of_guards_that_pass_can_be_kept_as_json(files: Callable[..., LocalView]) -> None:
    verdicts = run_guards("post", [require_file("a"), lambda view: True], files(a=1))
    assert json.loads(json.dumps([verdict.as_dict() for verdict in verdicts])) == [
        {"phase": "post", "guard": "require_file", "status": "passed", "violations": []},
        {"phase": "post", "guard": "<lambda>", "status": "passed", "violations": []},
    ]


def test_verdicts_of_violations_can_be_kept_as_json() -> None:
    with pytest.raises(GuardViolations) as raised:
        run_guards("pre", [require_file("a")], NoView())
    assert json.loads(json.dumps([verdict.as_dict() for verdict in raised.value.verdicts])) == [
        {
            "phase": "pre",
            "guard": "require_file",
            "status": "violated",
            "violations": [{"guard": "require_file", "path": "a", "found": "nothing", "expected": "a file"}],
        }
    ]


V = Violation("mine", "x", "1", "2")


@pytest.mark.parametrize("answer", [None, True, (), []])
def test_a_function_that_has_no_complaint_passes(answer: Any) -> None:
    assert broken(lambda view: answer, NoView()) == []


@pytest.mark.parametrize(
    ("answer", "complaints"),
    [
        (False, ["<lambda>: found False, expected True"]),
        ("bad day", ["<lambda>: found bad day, expected no complaint"]),
        ("", ["<lambda>: found an empty complaint, expected no complaint"]),
        (V, ["mine x: found 1, expected 2"]),
        ([V, V], ["mine x: found 1, expected 2"] * 2),
        ((each for each in [V]), ["mine x: found 1, expected 2"]),
    ],
)
def test_a_function_complains_in_many_ways(answer: Any, complaints: list[str]) -> None:
    assert broken(lambda view: answer, NoView()) == complaints


def raising(view: GuardView) -> bool:
    raise RuntimeError("no\nluck " + "x" * 5000)


def raising_midway(view: GuardView) -> Iterator[Violation]:
    yield V
    raise RuntimeError("no luck")


class WithoutView:
    name = "without_view"

    def check(self) -> list[Violation]:
        return []


@pytest.mark.parametrize(
    ("guard", "name"),
    [
        (raising, "raising"),
        (raising_midway, "raising_midway"),
        (lambda view: 3, "<lambda>"),
        (lambda view: object(), "<lambda>"),
        (lambda view: ["text"], "<lambda>"),
        (lambda: True, "<lambda>"),
        (WithoutView(), "without_view"),
        ("not a guard", "str"),
        (None, "NoneType"),
    ],
)
def test_a_guard_that_cannot_run_fails_closed_and_says_so(guard: Any, name: str) -> None:
    with pytest.raises(GuardsDidNotRun, match="1 guard could not run before the body") as raised:
        run_guards("pre", [lambda view: True, guard], NoView())
    (verdict,) = raised.value.verdicts[1:]
    (violation,) = verdict.violations
    assert (verdict.status, verdict.guard) == ("could_not_run", name)
    assert violation.found.startswith("could not run: ")
    assert len(str(violation)) < 500
    assert "\n" not in str(violation)


def test_a_violation_counts_for_more_than_a_guard_that_could_not_run() -> None:
    """The input is known to be wrong, whatever the other guard would have said: a retry cannot help."""
    with pytest.raises(GuardViolations) as raised:
        run_guards("pre", [raising, require_file("a")], NoView())
    assert (raised.value.code, raised.value.retryable) == ("guard.violations", False)
    assert [verdict.status for verdict in raised.value.verdicts] == ["could_not_run", "violated"]


def test_a_guard_may_end_the_step_for_good() -> None:
    def never(view: GuardView) -> bool:
        raise TaskTerminalError("no licence for this data")

    with pytest.raises(TaskTerminalError, match="no licence"):
        run_guards("post", [never], NoView())


def test_a_guard_that_lacks_spark_passes_the_hint_on() -> None:
    (complaint,) = broken(require_rows("plays", min=1), NoView())
    assert complaint == (
        "require_rows plays: found could not run: GuardUnavailable: no Spark here (install it), "
        "expected a guard that runs"
    )


def test_a_user_who_interrupts_is_not_a_violation() -> None:
    def interrupted(view: GuardView) -> bool:
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        run_guards("pre", [interrupted], NoView())


def test_a_guard_has_the_name_it_was_given() -> None:
    class Named:
        name = "my rule"

        def check(self, view: GuardView) -> list[Violation]:
            return [V]

    class Refuses:
        def __call__(self, view: GuardView) -> bool:
            return False

    def with_argument(view: GuardView, limit: int) -> bool:
        return limit > 3

    assert guard_name(Named()) == "my rule"
    assert guard_name(functools.partial(with_argument, limit=1)) == "with_argument"
    assert broken(Refuses(), NoView()) == ["Refuses: found False, expected True"]
    assert broken(functools.partial(with_argument, limit=1), NoView()) != []
    assert broken(functools.partial(with_argument, limit=4), NoView()) == []


@pytest.mark.parametrize(
    ("guard", "text"),
    [
        (require_file("a"), "require_file('a')"),
        (require_glob("*", 1, 2), "require_glob('*', min_count=1, max_count=2)"),
        (require_schema("a", "x LONG"), "require_schema('a', {'x': 'bigint'}, allow_extra=False)"),
        (require_rows("a", max=3), "require_rows('a', min=None, max=3)"),
        (expect("a", "x > 0"), "expect('a', 'x > 0')"),
    ],
)
def test_a_guard_reads_the_same_in_every_process(guard: Guard, text: str) -> None:
    assert repr(guard) == text


# --- patterns ---------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("pattern", "matching", "other"),
    [
        ("*", ["a", ".hidden", "a.b"], ["a/b"]),
        ("*.csv", ["a.csv", ".csv"], ["a.csv.gz", "d/a.csv", "A.CSV"]),
        ("a?c", ["abc"], ["ac", "a/c", "abbc"]),
        ("**", ["a", "a/b/c"], []),
        ("**/*.csv", ["a.csv", "d/a.csv", "d/e/a.csv"], ["a.txt"]),
        ("d/**", ["d/a", "d/e/f"], ["d", "da/b"]),
        ("d/**/x", ["d/x", "d/a/x", "d/a/b/x"], ["x", "d/ax", "dd/x"]),
        ("**/**/x", ["x", "a/x", "a/b/x"], ["ax"]),
        ("d/*/x", ["d/a/x"], ["d/x", "d/a/b/x"]),
        ("[ab]", ["a", "b"], ["c", "ab"]),
        ("[!ab]", ["c"], ["a", "/"]),
        ("[]x]", ["]", "x"], ["a"]),
        ("[a-c]1", ["b1"], ["d1"]),
        ("[!a]/x", ["b/x"], ["a/x", "//x"]),
        ("a.b", ["a.b"], ["axb"]),
        ("a+(b)", ["a+(b)"], ["aab"]),
        ("[^a]", ["^", "a"], ["b"]),
        ("[\\]", ["\\"], ["a"]),
    ],
)
def test_patterns_mean_what_the_module_says(pattern: str, matching: list[str], other: list[str]) -> None:
    regex = glob_regex(pattern)
    assert [path for path in matching + other if regex.fullmatch(path)] == matching


@pytest.mark.parametrize("path", ["a*b", "a[1].csv", "x?", "[!]", "plain/é"])
def test_a_literal_pattern_matches_its_path_only(path: str) -> None:
    assert glob_regex(literal(path)).fullmatch(path)
    assert not glob_regex(literal(path)).fullmatch(path.replace("*", "x").replace("?", "x").replace("[", "x") + "x")


@pytest.mark.parametrize(
    "pattern", ["", "/a", "a/", "../a", "a/../b", "./a", "a**", "**a/b", "[a", "[]", "[z-a]", "a//b"]
)
@pytest.mark.parametrize("make", [require_glob, forbid_glob, glob_regex])
def test_a_bad_pattern_is_refused_where_the_guard_is_made(make: Callable[[str], object], pattern: str) -> None:
    with pytest.raises(ContractError):
        make(pattern)


# --- files ------------------------------------------------------------------------------------------------------


def test_require_file_wants_a_file(files: Callable[..., LocalView]) -> None:
    view = files(a=0, d__b=1)
    assert broken(require_file("a"), view) == []
    assert broken(require_file("d/b"), view) == []
    assert broken(require_file("d"), view) == ["require_file d: found a directory, expected a file"]
    assert broken(require_file("d/c"), view) == ["require_file d/c: found nothing, expected a file"]


def test_require_dir_wants_a_directory(files: Callable[..., LocalView]) -> None:
    view = files(a=0, d__e__b=1)
    assert broken(require_dir("d/e/"), view) == []
    assert broken(require_dir("a"), view) == ["require_dir a: found a file, expected a directory"]
    assert broken(require_dir("x/y"), view) == ["require_dir x/y: found nothing, expected a directory"]


def test_require_glob_counts_files(files: Callable[..., LocalView]) -> None:
    view = files(d__a=1, d__b=1, d__c__d=1)
    assert broken(require_glob("d/*"), view) == []
    assert broken(require_glob("d/**", 3, 3), view) == []
    assert broken(require_glob("x/*"), view) == ["require_glob x/*: found 0 files, expected at least 1 files"]
    assert broken(require_glob("d/*", max_count=1), view) == ["require_glob d/*: found 2 files, expected 1 to 1 files"]
    assert broken(require_glob("x", min_count=0), view) == []


def test_forbid_glob_names_what_it_found(files: Callable[..., LocalView]) -> None:
    view = files(**{f"d__{number}_dot_tmp": 1 for number in range(7)})
    assert broken(forbid_glob("*.tmp"), view) == []
    assert broken(forbid_glob("**/*.tmp"), view) == [
        "forbid_glob **/*.tmp: found 7 files: d/0.tmp, d/1.tmp, d/2.tmp, d/3.tmp, d/4.tmp …, expected no file"
    ]


def test_require_max_bytes_adds_up(files: Callable[..., LocalView]) -> None:
    view = files(a=10, d__a=10, d__e__b=20)
    assert broken(require_max_bytes("a", 10), view) == []
    assert broken(require_max_bytes("d", 30), view) == []
    assert broken(require_max_bytes("d/", 29), view) == [
        "require_max_bytes d/: found 30 bytes in 2 files, expected at most 29 bytes"
    ]
    assert broken(require_max_bytes("**", 39), view) != []
    assert broken(require_max_bytes("d/*", 10), view) == []
    assert broken(require_max_bytes("*.tmp", 0), view) == []
    assert broken(require_max_bytes("gone", 10), view) == [
        "require_max_bytes gone: found nothing, expected at most 10 bytes"
    ]


def test_an_empty_directory_has_no_bytes(files: Callable[..., LocalView], tmp_path: Path) -> None:
    view = files()
    (tmp_path / "d").mkdir()
    assert broken(require_max_bytes("d", 0), view) == []


@pytest.mark.parametrize(
    "make",
    [
        lambda: require_file("../a"),
        lambda: require_file(""),
        lambda: require_file("/a"),
        lambda: require_dir("a//b"),
        lambda: require_file(3),  # type: ignore[arg-type]
        lambda: require_glob("a", -1),
        lambda: require_glob("a", 2, 1),
        lambda: require_glob("a", 1.5),  # type: ignore[arg-type]
        lambda: require_glob("a", True),
        lambda: require_glob(None),  # type: ignore[arg-type]
        lambda: require_max_bytes("a", -1),
        lambda: require_max_bytes("../a", 1),
        lambda: require_max_bytes("a/", "1"),  # type: ignore[arg-type]
        lambda: require_rows("a"),
        lambda: require_rows("a", min=-1),
        lambda: require_rows("a", min=2, max=1),
        lambda: require_unique("a", []),
        lambda: require_unique("a", ["x", "x"]),
        lambda: require_unique("a", [""]),
        lambda: expect("a", " "),
        lambda: expect("a", None),  # type: ignore[arg-type]
        lambda: require_schema("a", ""),
        lambda: require_schema("a", {}),
        lambda: require_schema("a", 3),  # type: ignore[arg-type]
        lambda: require_schema("a", {"x": 3}),  # type: ignore[dict-item]
        lambda: require_schema("a", "x bigintt"),
        lambda: require_schema("a", "x int y int"),
        lambda: require_schema("a", "x int, x int"),
        lambda: require_schema("a", "x int,"),
        lambda: require_schema("a", "x array<int"),
        lambda: require_schema("a", "x map<int>"),
        lambda: require_schema("a", "x decimal(a)"),
        lambda: require_schema("a", "x int not"),
        lambda: require_schema("a", "x ; int"),
        lambda: require_schema("a", ", int"),
        lambda: require_schema("a", {"x": "int int"}),
    ],
)
def test_a_bad_argument_is_refused_where_the_guard_is_made(make: Callable[[], object]) -> None:
    with pytest.raises(ContractError):
        make()


# --- the directory view -----------------------------------------------------------------------------------------


def test_a_view_lists_regular_files_with_their_sizes(files: Callable[..., LocalView], tmp_path: Path) -> None:
    view = files(a=1, d__b=2, d__e__c=3)
    (tmp_path / "link").symlink_to("a")
    os.mkfifo(tmp_path / "pipe")
    assert sorted(view.files(None)) == [("a", 1), ("d/b", 2), ("d/e/c", 3)]
    assert list(view.files("d/e/*")) == [("d/e/c", 3)]
    assert list(view.files("nowhere/*")) == []
    assert list(view.files("a/*")) == []


def test_names_with_pattern_characters_are_found(tmp_path: Path) -> None:
    (tmp_path / "d[1]").mkdir()
    (tmp_path / "d[1]/a*.csv").write_bytes(b"x")
    view = LocalView(tmp_path)
    assert broken(require_file("d[1]/a*.csv"), view) == []
    assert broken(require_file("d[1]/ab.csv"), view) != []


def test_a_view_does_not_lead_out_of_its_directory(tmp_path: Path) -> None:
    inside, outside = tmp_path / "inside", tmp_path / "outside"
    inside.mkdir()
    outside.mkdir()
    (outside / "secret").write_bytes(b"x")
    (inside / "link").symlink_to(outside)
    view = LocalView(inside)
    assert not view.is_dir("link")
    assert list(view.files("link/*")) == []
    with pytest.raises(NotFound):
        view.opened("link/secret")
    with pytest.raises(ContractError):
        view.opened("../outside/secret")
    assert broken(require_file("link/secret"), view) != []


def test_opened_gives_a_local_path(files: Callable[..., LocalView]) -> None:
    view = files(d__a=3)
    assert view.opened("d/a").read_bytes() == b"xxx"
    assert view.opened("/").is_dir()
    with pytest.raises(NotFound, match="there is nothing at d/b"):
        view.opened("d/b")


# --- data, on a frame that only remembers what it was asked -----------------------------------------------------


class Reader:
    """Stands in for Spark's reader."""

    def __init__(self) -> None:
        self.asked: dict[str, Any] = {}

    def format(self, name: str) -> Reader:
        self.asked["format"] = name
        return self

    def options(self, **options: str) -> Reader:
        self.asked["options"] = options
        return self

    def option(self, name: str, value: str) -> Reader:
        self.asked[name] = value
        return self

    def schema(self, schema: Any) -> Reader:
        self.asked["schema"] = schema
        return self

    def load(self, path: str) -> dict[str, Any]:
        return {**self.asked, "path": path}


def reading(root: Path, datasets: Mapping[str, Dataset] | None = None) -> LocalView:
    return LocalView(root, datasets, session=lambda: SimpleNamespace(read=Reader()))


@pytest.mark.parametrize(
    ("name", "kind"),
    [
        ("a.parquet", "parquet"),
        ("a.snappy.parquet", "parquet"),
        ("a.orc", "orc"),
        ("a.json", "json"),
        ("a.jsonl.gz", "json"),
        ("a.csv", "csv"),
        ("A.CSV.GZ", "csv"),
        ("a.txt", "text"),
    ],
)
def test_a_file_is_read_by_its_extension(tmp_path: Path, name: str, kind: str) -> None:
    (tmp_path / name).write_bytes(b"")
    asked = reading(tmp_path).frame(name)
    assert asked["format"] == kind
    assert asked["path"] == f"file://{tmp_path}/{name}"
    assert asked["__globPaths__"] == "false"


def test_a_directory_is_read_by_the_extension_of_its_data_files(tmp_path: Path) -> None:
    for name in ("k=1/p.parquet", "k=2/p.parquet", "_SUCCESS", "_temporary/x.csv", ".p.crc", "_k=1/p.parquet"):
        (tmp_path / "d" / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / "d" / name).write_bytes(b"")
    view = reading(tmp_path)
    assert view.frame("d")["format"] == "parquet"
    assert view.frame("/")["path"] == f"file://{tmp_path}"


def test_a_csv_has_a_header(tmp_path: Path) -> None:
    (tmp_path / "a.tsv").write_bytes(b"")
    assert reading(tmp_path).frame("a.tsv")["options"] == {"header": "true", "inferSchema": "true", "sep": "\t"}


@pytest.mark.parametrize("names", [[], ["a.csv", "b.json"], ["a"], ["a.bin"], ["_SUCCESS"]])
def test_a_directory_that_is_no_table_says_so(tmp_path: Path, names: list[str]) -> None:
    (tmp_path / "d").mkdir()
    for name in names:
        (tmp_path / "d" / name).write_bytes(b"")
    with pytest.raises(GuardUnavailable, match="d cannot be read as one table"):
        reading(tmp_path).frame("d")


def test_a_dataset_is_read_as_it_was_written(tmp_path: Path) -> None:
    (tmp_path / "d").mkdir()
    dataset = Dataset("i", "csv", "g", "j", "create", options={"sep": ";"}, schema="a INT")
    asked = reading(tmp_path, {"d": dataset}).frame("d/")
    assert (asked["format"], asked["options"], asked["schema"]) == ("csv", {"sep": ";"}, "a INT")


def test_without_spark_the_hint_says_how_to_install_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "a.csv").write_bytes(b"")
    monkeypatch.setitem(sys.modules, "fenceline.spark.session", None)
    with pytest.raises(GuardUnavailable, match=r"fenceline\[spark\]"):
        LocalView(tmp_path).frame("a.csv")


def test_a_session_that_cannot_start_is_unavailable(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def no_java() -> object:
        raise ConfigError("there is no Java", hint="install it")

    (tmp_path / "a.csv").write_bytes(b"")
    monkeypatch.setitem(sys.modules, "fenceline.spark.session", SimpleNamespace(get_session=no_java))
    with pytest.raises(GuardUnavailable, match="there is no Java"):
        LocalView(tmp_path).frame("a.csv")


class Frame:
    """A frame with so many rows, of which those that break a rule are given."""

    columns = ("id", "a.b")

    def __init__(self, rows: int, bad: list[Any] | None = None) -> None:
        self.rows, self.bad = rows, bad or []
        self.asked: list[str] = []

    def count(self) -> Any:
        return self if self.asked[-1:] == ["group"] else self.rows

    def where(self, predicate: str) -> Frame:
        self.asked.append(predicate)
        self.rows = len(self.bad)
        return self

    def limit(self, count: int) -> Frame:
        return Frame(0, self.bad[:count])

    def collect(self) -> list[Any]:
        return self.bad

    def groupBy(self, *columns: str) -> Frame:  # noqa: N802 - Spark's name
        self.asked += [*columns, "group"]
        return self

    def toDF(self, *names: str) -> Frame:  # noqa: N802 - Spark's name
        self.asked += names
        return self


class FrameView(NoView):
    def __init__(self, frame: Frame | None = None, **columns: str) -> None:
        self._frame, self._columns = frame, columns

    def frame(self, path: str) -> Any:
        return self._frame

    def schema(self, path: str) -> Mapping[str, str]:
        return self._columns


class Row(tuple[Any, ...]):
    def asDict(self) -> dict[str, Any]:  # noqa: N802 - Spark's name
        return {"id": self[0]}


def test_require_rows_counts() -> None:
    assert broken(require_rows("d", min=3, max=3), FrameView(Frame(3))) == []
    assert broken(require_rows("d", min=3), FrameView(Frame(1))) == [
        "require_rows d: found 1 row, expected at least 3 rows"
    ]
    assert broken(require_rows("d", max=2), FrameView(Frame(3))) == [
        "require_rows d: found 3 rows, expected 0 to 2 rows"
    ]


def test_require_unique_names_repeated_keys_and_quotes_columns() -> None:
    frame = Frame(9, [Row((number, None, 2)) for number in range(7)])
    assert broken(require_unique("d", ["id", "a.b"]), FrameView(frame)) == [
        "require_unique d: found 7 repeated keys: (0, None) 2 times, (1, None) 2 times, (2, None) 2 times, "
        "(3, None) 2 times, (4, None) 2 times …, expected unique (id, a.b)"
    ]
    assert frame.asked == ["`id`", "`a.b`", "group", "key_0", "key_1", "times", "times > 1"]
    assert broken(require_unique("d", "id"), FrameView(Frame(9))) == []
    assert broken(require_unique("d", ["id", "no"]), FrameView(Frame(9))) == [
        "require_unique d: found no column no, expected unique (id, no)"
    ]


def test_expect_counts_and_shows_rows() -> None:
    frame = Frame(9, [Row((number,)) for number in range(6)])
    assert broken(expect("d", "id > 7 -- seven"), FrameView(frame)) == [
        "expect d: found 6 rows for which it is not true: {'id': 0}, {'id': 1}, {'id': 2}, {'id': 3}, {'id': 4} …, "
        "expected id > 7 -- seven"
    ]
    assert frame.asked == ["(id > 7 -- seven\n) IS NOT TRUE"]
    assert broken(expect("d", "id > 7"), FrameView(Frame(9))) == []


def test_require_schema_reports_every_column_that_differs() -> None:
    view = FrameView(id="string", name="string", extra="int")
    guard = require_schema("d", "id BIGINT NOT NULL, name STRING COMMENT 'who', day DATE")
    assert broken(guard, view) == [
        "require_schema d: found id string, expected id bigint",
        "require_schema d: found no column day, expected day date",
        "require_schema d: found extra int, expected no column extra",
    ]
    assert broken(require_schema("d", {"name": "string"}, allow_extra=True), view) == []
    assert broken(require_schema("d", {"Name": "string"}, allow_extra=True), view) != []


@pytest.mark.parametrize(
    ("written", "found"),
    [
        ("LONG", "bigint"),
        ("integer", "int"),
        ("real", "float"),
        ("dec(5)", "decimal(5,0)"),
        ("numeric", "decimal(10,0)"),
        ("DECIMAL(12, 2)", "decimal(12,2)"),
        ("array < struct < a : long, `b c` string not null > >", "array<struct<a:bigint,b c:string>>"),
        ("map<string, array<double>>", "map<string,array<double>>"),
        ("varchar(10)", "varchar(10)"),
        ("interval day to second", "interval day to second"),
        ("timestamp_ltz", "timestamp"),
        ("struct<array: int, map: string>", "struct<array:int,map:string>"),
    ],
)
def test_types_are_compared_by_meaning(written: str, found: str) -> None:
    assert broken(require_schema("d", {"x": written}), FrameView(x=found)) == []
    assert broken(require_schema("d", f"`x` {written}"), FrameView(x=found)) == []
    assert broken(require_schema("d", {"x": written}), FrameView(x="binary")) != []


def test_a_type_that_is_not_known_here_is_shown_as_spark_says_it() -> None:
    assert broken(require_schema("d", "x int"), FrameView(x="geography(4326)")) == [
        "require_schema d: found x geography(4326), expected x int"
    ]


# --- data, on Spark ---------------------------------------------------------------------------------------------


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore")
def test_guards_over_data_run_on_spark(tmp_path: Path) -> None:
    """One session for all of them, this process's own: starting it is what takes time."""
    spark = get_session()
    rows = "VALUES (1, 'x', 1), (2, 'y', NULL), (2, 'y', -3) AS t(id, name, `a.count`)"
    spark.sql(f"SELECT * FROM {rows}").write.parquet(str(tmp_path / "d[1]"))
    (tmp_path / "t.csv").write_text("id,name\n1,x\n2,\n")
    (tmp_path / "broken.parquet").write_text("not parquet")
    view = LocalView(tmp_path)

    assert view.schema("d[1]") == {"id": "int", "name": "string", "a.count": "int"}
    assert broken(require_schema("d[1]", "id INT, name STRING, `a.count` INT"), view) == []
    assert broken(require_schema("t.csv", "id INT, name STRING"), view) == []
    assert broken(require_rows("d[1]", min=3, max=3), view) == []
    assert broken(require_rows("t.csv", min=3), view) == ["require_rows t.csv: found 2 rows, expected at least 3 rows"]
    assert broken(require_unique("d[1]", ["id", "a.count"]), view) == []
    assert broken(require_unique("d[1]", ["id", "name"]), view) == [
        "require_unique d[1]: found 1 repeated key: (2, 'y') 2 times, expected unique (id, name)"
    ]
    assert broken(expect("d[1]", "id > 0"), view) == []
    (nulls,) = broken(expect("d[1]", "`a.count` > 0"), view)
    assert "2 rows for which it is not true" in nulls
    assert "'a.count': None" in nulls
    assert "'a.count': -3" in nulls
    for guard in (
        expect("d[1]", "no_such_column > 0"),
        expect("d[1]", "id +"),
        expect("d[1]", "name"),
        require_rows("broken.parquet", min=0),
        require_rows("gone.parquet", min=0),
    ):
        (complaint,) = broken(guard, view)
        assert "could not run" in complaint
        assert len(complaint) < 500

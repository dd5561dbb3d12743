"""Guardrails: rules over the content of a workspace, checked before the body runs and before anything is published.

A guard looks at a `GuardView` and returns what is wrong. Any callable will do::

    def no_empty_files(view: GuardView) -> Iterator[Violation]:
        for path, size in view.files():
            if size == 0:
                yield Violation("no_empty_files", path, "0 bytes", "content")

Every guard of a phase runs, and all violations are reported together. One that cannot run fails closed.

How patterns are written: `patterns.py`. Paths are relative to the workspace.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any, Literal, Protocol, TypeAlias

from fenceline.errors import ContractError, GuardError
from fenceline.repo.names import check_path
from fenceline.task.columns import columns_of, same_form
from fenceline.task.patterns import glob_regex, is_pattern, literal
from fenceline.task.result import TaskTerminalError, redact
from fenceline.task.spec import guard_name

Phase = Literal["pre", "post"]

EXAMPLES = 5
_LONGEST = 300  # characters of a message or an example row


# --- values -----------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Violation:
    """A rule that does not hold: whose, where, what was found, what was expected."""

    guard: str
    path: str
    found: str
    expected: str

    def __str__(self) -> str:
        where = f" {self.path}" if self.path else ""
        return f"{self.guard}{where}: found {self.found}, expected {self.expected}"


@dataclass(frozen=True, slots=True)
class GuardVerdict:
    """What one guard said; kept with the staged content."""

    phase: Phase
    guard: str
    status: Literal["passed", "violated", "could_not_run"]
    violations: tuple[Violation, ...] = ()

    def as_dict(self, secrets: Collection[str] = ()) -> dict[str, Any]:
        """As JSON; what a guard found may quote secrets, which are blotted out."""
        told = [{name: redact(text, secrets) for name, text in asdict(each).items()} for each in self.violations]
        return {**asdict(self), "violations": told}


class GuardUnavailable(GuardError):
    """What a guard needs cannot be had here."""

    code = "guard.unavailable"


class GuardViolations(GuardError):
    """Content that breaks its rules; carries every violation of the phase, and every guard's verdict."""

    code = "guard.violations"

    def __init__(self, phase: Phase, verdicts: Sequence[GuardVerdict]) -> None:
        self.phase = phase
        self.verdicts = tuple(verdicts)
        self.violations = tuple(violation for verdict in verdicts for violation in verdict.violations)
        when = "before" if phase == "pre" else "after"
        super().__init__(
            f"{self._counted()} {when} the body: " + "; ".join(map(str, self.violations)),
            phase=phase,
            violations=[str(violation) for violation in self.violations],
        )

    def _counted(self) -> str:
        return _count(len(self.violations), "violation")


class GuardsDidNotRun(GuardViolations):
    """No rule is known to be broken, but not every guard could run: it fails closed, and the next attempt may tell."""

    code = "guard.did_not_run"
    retryable = True

    def _counted(self) -> str:
        return f"{_count(len(self.violations), 'guard')} could not run"


class GuardView(Protocol):
    """What a guard may look at."""

    def files(self, pattern: str | None = None) -> Iterator[tuple[str, int]]:
        """Files that match, or all: the path below the workspace's prefix, and the size."""
        ...

    def is_dir(self, path: str) -> bool:
        """Whether there is a directory or dataset."""
        ...

    def schema(self, path: str) -> Mapping[str, str]:
        """The columns of a data file, directory or dataset and their types, as Spark writes them (`bigint`)."""
        ...

    def frame(self, path: str) -> Any:
        """A Spark DataFrame of a data file, directory or dataset. Raises `GuardUnavailable` without Spark."""
        ...

    def opened(self, path: str) -> Path:
        """A local path of a file or directory. Raises `GuardUnavailable` where there are none (Spark workspaces)."""
        ...


class Guard(Protocol):
    """A rule with a name."""

    @property
    def name(self) -> str: ...

    def check(self, view: GuardView) -> Iterable[Violation]: ...


GuardFunction: TypeAlias = Callable[[GuardView], bool | str | Violation | Iterable[Violation] | None]


# --- running ----------------------------------------------------------------------------------------------------


def run_guards(phase: Phase, guards: Iterable[Guard | GuardFunction], view: GuardView) -> list[GuardVerdict]:
    """Run every guard, then report all violations together by raising `GuardViolations`.

    If none was found but a guard could not run, it is `GuardsDidNotRun`: the content may be fine. A guard that raises
    `TaskTerminalError` has its way at once.
    """
    verdicts = [_judge(phase, guard, view) for guard in guards]
    statuses = {verdict.status for verdict in verdicts}
    if "violated" in statuses:
        raise GuardViolations(phase, verdicts)
    if "could_not_run" in statuses:
        raise GuardsDidNotRun(phase, verdicts)
    return verdicts


def _judge(phase: Phase, guard: Guard | GuardFunction, view: GuardView) -> GuardVerdict:
    name = guard_name(guard)
    try:
        check: Any = getattr(guard, "check", guard)
        violations = tuple(_violations(name, check(view)))
    except TaskTerminalError:
        raise
    except Exception as error:  # noqa: BLE001 - a guard may raise anything, and whatever it is, it fails closed
        reason = f"could not run: {type(error).__name__}: {_brief(str(error))}"
        violation = Violation(name, str(getattr(guard, "path", "")), reason, "a guard that runs")
        return GuardVerdict(phase, name, "could_not_run", (violation,))
    return GuardVerdict(phase, name, "violated" if violations else "passed", violations)


def _violations(name: str, answer: Any) -> Iterator[Violation]:
    """Read a guard's answer; one that cannot be read is an error, so that it fails closed."""
    if answer is None or answer is True:
        return
    if answer is False:
        yield Violation(name, "", "False", "True")
    elif isinstance(answer, str):
        yield Violation(name, "", answer or "an empty complaint", "no complaint")
    elif isinstance(answer, Violation):
        yield answer
    elif isinstance(answer, Iterable):
        for each in answer:
            if not isinstance(each, Violation):
                raise TypeError(f"it returned {type(each).__name__} among its violations")
            yield each
    else:
        raise TypeError(f"it returned {type(answer).__name__}; use True, False, None, a text or Violations")


def _brief(text: str) -> str:
    """One line of bounded length; Spark's own messages go on for pages."""
    line = " ".join(text.split())
    return line if len(line) <= _LONGEST else line[:_LONGEST] + " …"


# --- rules ------------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True, repr=False)
class _Rule:
    """A guard made by one of the constructors below."""

    name: str
    path: str
    find: Callable[[GuardView], Iterable[tuple[str, str]]] = field(compare=False)
    """What was found and what was expected, for everything that is wrong."""
    arguments: str = ""
    """As they are written in code: the same in every process, so that a spec can be described and compared."""

    def __repr__(self) -> str:
        return f"{self.name}({self.path!r}{self.arguments})"

    def check(self, view: GuardView) -> Iterator[Violation]:
        for found, expected in self.find(view):
            yield Violation(self.name, self.path, found, expected)


def require_file(path: str) -> Guard:
    """There is a file at this path."""
    path = _path(path)

    def find(view: GuardView) -> Iterator[tuple[str, str]]:
        if next(iter(view.files(literal(path))), None) is None:
            yield "a directory" if view.is_dir(path) else "nothing", "a file"

    return _Rule("require_file", path, find)


def require_dir(path: str) -> Guard:
    """There is a directory or dataset at this path."""
    path = _path(path)

    def find(view: GuardView) -> Iterator[tuple[str, str]]:
        if not view.is_dir(path):
            yield "nothing" if next(iter(view.files(literal(path))), None) is None else "a file", "a directory"

    return _Rule("require_dir", path, find)


def require_glob(pattern: str, min_count: int = 1, max_count: int | None = None) -> Guard:
    """At least `min_count` and at most `max_count` files match."""
    glob_regex(pattern)
    expected = _bounds("min_count", min_count, "max_count", max_count, "files")

    def find(view: GuardView) -> Iterator[tuple[str, str]]:
        count = sum(1 for _ in view.files(pattern))
        if count < min_count or (max_count is not None and count > max_count):
            yield _count(count, "file"), expected

    return _Rule("require_glob", pattern, find, f", min_count={min_count}, max_count={max_count}")


def forbid_glob(pattern: str) -> Guard:
    """No file matches."""
    glob_regex(pattern)

    def find(view: GuardView) -> Iterator[tuple[str, str]]:
        matches = [path for path, _ in view.files(pattern)]
        if matches:
            yield f"{_count(len(matches), 'file')}: {_examples(sorted(matches), len(matches))}", "no file"

    return _Rule("forbid_glob", pattern, find)


def require_max_bytes(path_or_glob: str, max_bytes: int) -> Guard:
    """The files that match, a file, or all files of a directory have at most so many bytes together.

    A path must be there; a pattern may match nothing.
    """
    _whole("max_bytes", max_bytes)
    many = is_pattern(path_or_glob)
    patterns = [path_or_glob]
    if not many:
        patterns = [literal(_path(path_or_glob)), f"{literal(_path(path_or_glob))}/**"]
    for pattern in patterns:
        glob_regex(pattern)

    def find(view: GuardView) -> Iterator[tuple[str, str]]:
        sizes = [size for pattern in patterns for _, size in view.files(pattern)]
        if not sizes and not many and not view.is_dir(path_or_glob):
            yield "nothing", f"at most {max_bytes} bytes"
        elif sum(sizes) > max_bytes:
            yield f"{sum(sizes)} bytes in {_count(len(sizes), 'file')}", f"at most {max_bytes} bytes"

    return _Rule("require_max_bytes", path_or_glob, find, f", {max_bytes}")


def require_schema(path: str, schema: str | Mapping[str, str], *, allow_extra: bool = False) -> Guard:
    """Data has these columns: a DDL text (`"id BIGINT, name STRING"`) or a mapping of columns to types.

    Names must be equal, upper and lower case too; the order and NOT NULL do not matter. Other columns are violations
    unless `allow_extra`. Runs on Spark.
    """
    path = _path(path)
    columns = columns_of(schema)

    def find(view: GuardView) -> Iterator[tuple[str, str]]:
        found = {column: same_form(kind) for column, kind in view.schema(path).items()}
        for column, kind in columns.items():
            if column not in found:
                yield f"no column {column}", f"{column} {kind}"
            elif found[column] != kind:
                yield f"{column} {found[column]}", f"{column} {kind}"
        for column in () if allow_extra else sorted(found.keys() - columns.keys()):
            yield f"{column} {found[column]}", f"no column {column}"

    return _Rule("require_schema", path, find, f", {columns!r}, allow_extra={allow_extra}")


def require_rows(path: str, min: int | None = None, max: int | None = None) -> Guard:  # noqa: A002
    """Data has at least `min` and at most `max` rows. Runs on Spark."""
    path = _path(path)
    if min is None and max is None:
        raise ContractError("require_rows has neither min nor max", hint="give one of them")
    expected = _bounds("min", min or 0, "max", max, "rows")

    def find(view: GuardView) -> Iterator[tuple[str, str]]:
        count = view.frame(path).count()
        if count < (min or 0) or (max is not None and count > max):
            yield _count(count, "row"), expected

    return _Rule("require_rows", path, find, f", min={min}, max={max}")


def require_unique(path: str, columns: str | Sequence[str]) -> Guard:
    """No two rows have the same values in these columns; nulls count as equal. Runs on Spark."""
    path = _path(path)
    keys = [columns] if isinstance(columns, str) else list(columns)
    if not keys or len(set(keys)) != len(keys) or not all(isinstance(key, str) and key for key in keys):
        raise ContractError(f"require_unique of {columns!r}", hint="name at least one column, each once")
    expected = f"unique ({', '.join(keys)})"

    def find(view: GuardView) -> Iterator[tuple[str, str]]:
        frame = view.frame(path)
        absent = [key for key in keys if key not in frame.columns]
        if absent:
            yield f"no column {', '.join(absent)}", expected
            return
        grouped = frame.groupBy(*(f"`{key.replace('`', '``')}`" for key in keys)).count()
        repeated = grouped.toDF(*(f"key_{at}" for at in range(len(keys))), "times").where("times > 1")
        rows = repeated.limit(EXAMPLES).collect()
        if rows:
            shown = [f"({', '.join(map(repr, row[:-1]))}) {row[-1]} times" for row in rows]
            count = repeated.count()
            yield f"{_count(count, 'repeated key')}: {_examples(shown, count)}", expected

    return _Rule("require_unique", path, find, f", {keys!r}")


def expect(path: str, sql_predicate: str) -> Guard:
    """The SQL predicate is true for every row. A row for which it is null counts as a violation. Runs on Spark."""
    path = _path(path)
    if not isinstance(sql_predicate, str) or not sql_predicate.strip():
        raise ContractError("the predicate is empty", hint="write a condition over one row, such as 'price >= 0'")

    def find(view: GuardView) -> Iterator[tuple[str, str]]:
        # the line break ends a comment that the predicate may end with
        broken = view.frame(path).where(f"({sql_predicate}\n) IS NOT TRUE")
        rows = broken.limit(EXAMPLES).collect()
        if rows:
            shown, count = [_brief(str(row.asDict())) for row in rows], broken.count()
            yield f"{_count(count, 'row')} for which it is not true: {_examples(shown, count)}", sql_predicate

    return _Rule("expect", path, find, f", {sql_predicate!r}")


def _path(path: str) -> str:
    if not isinstance(path, str):
        raise ContractError(f"the path is {path!r}", hint="write it as text, relative to the workspace")
    return check_path(path.removesuffix("/"))


def _whole(name: str, value: object) -> None:
    if type(value) is not int or value < 0:
        raise ContractError(f"{name} is {value!r}", hint="give a whole number, 0 or more")


def _bounds(low_name: str, low: int, high_name: str, high: int | None, what: str) -> str:
    _whole(low_name, low)
    if high is None:
        return f"at least {low} {what}"
    _whole(high_name, high)
    if high < low:
        raise ContractError(f"{low_name} is {low} and {high_name} is {high}", hint="nothing could satisfy that")
    return f"{low} to {high} {what}"


def _count(number: int, what: str) -> str:
    return f"{number} {what}{'' if number == 1 else 's'}"


def _examples(shown: Sequence[str], count: int) -> str:
    return ", ".join(shown[:EXAMPLES]) + (" …" if count > EXAMPLES else "")

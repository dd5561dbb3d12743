"""The reference pages say what the code says."""

from __future__ import annotations

import importlib
import inspect
import pkgutil
import re
from pathlib import Path

import fenceline as fl
from fenceline import testing
from fenceline.cli.failure import EXIT_CODES, exit_code
from fenceline.errors import FencelineError
from fenceline.task.result import Phase

DOCS = Path(__file__).parents[2] / "docs"


def error_classes() -> dict[str, type[FencelineError]]:
    """Every error of every module: none is left out because nothing imported it."""
    import_everything()
    found = {"FencelineError": FencelineError}
    waiting: list[type[FencelineError]] = [FencelineError]
    while waiting:
        for child in waiting.pop().__subclasses__():
            if child.__module__.startswith("fenceline."):
                assert child.__name__ not in found, f"two errors are called {child.__name__}"
                found[child.__name__] = child
                waiting.append(child)
    return found


def import_everything() -> None:
    for module in pkgutil.walk_packages(fl.__path__, "fenceline."):
        if not module.name.endswith("__main__"):
            importlib.import_module(module.name)


def facts(name: str, kind: type[FencelineError]) -> tuple[str, ...]:
    parent = kind.__bases__[0].__name__ if kind is not FencelineError else "Exception"
    blank = kind.__new__(kind)  # its constructor's arguments do not matter here
    return name, parent, kind.code, "yes" if kind.retryable else "no", str(kind.outcome), str(exit_code(blank))


def test_errors_page_lists_exactly_the_errors_there_are() -> None:
    rows = []
    for line in (DOCS / "reference" / "errors.md").read_text().splitlines():
        cells = [cell.strip().strip("`") for cell in line.strip().strip("|").split("|")]
        if len(cells) == 7 and re.fullmatch(r"\| `\w+` \|.*", line):
            rows.append(tuple(cells[:6]))
            assert cells[6], f"{cells[0]}: say what to do"
    there = {facts(name, kind) for name, kind in error_classes().items()}
    assert len(rows) == len(set(rows))
    assert (there - set(rows), set(rows) - there) == (set(), set()), "missing on the page, and wrong there"


def test_every_error_has_an_exit_code_that_says_more_than_a_defect() -> None:
    assert [name for name, kind in error_classes().items() if exit_code(kind.__new__(kind)) not in EXIT_CODES] == []
    unexpected = [name for name, kind in error_classes().items() if exit_code(kind.__new__(kind)) == 1]
    assert unexpected == ["FencelineError"]


def test_errors_page_has_the_failure_table() -> None:
    """What each phase's failures make of an attempt, as `status_of` says it."""
    page = (DOCS / "reference" / "errors.md").read_text().partition("## What becomes of an attempt")[2]
    assert [phase for phase in Phase if f"`{phase}`" not in page] == []


def test_codes_are_unique() -> None:
    codes = [kind.code for kind in error_classes().values()]
    assert len(codes) == len(set(codes))


def test_python_page_has_every_public_name() -> None:
    page = (DOCS / "reference" / "python.md").read_text()
    headings = re.findall(r"^### `(\w+)`$", page, re.MULTILINE)
    rows = re.findall(r"^\| `(\w+)` \|", page.partition("## Errors")[2], re.MULTILINE)
    assert sorted([*headings, *rows]) == sorted(fl.__all__)


def public(kind: type) -> set[str]:
    return {name for name, _ in inspect.getmembers(kind) if not name.startswith("_")}


def test_python_page_has_every_method() -> None:
    page = (DOCS / "reference" / "python.md").read_text()
    for kind in (fl.Repository, fl.Transaction, fl.CommitView, fl.Workspace, fl.SparkWorkspace):
        missing = [name for name in sorted(public(kind)) if not re.search(rf"`{name}\b", page)]
        assert missing == [], kind


def test_faults_page_names_what_testing_offers() -> None:
    page = (DOCS / "howto" / "test-with-faults.md").read_text()
    assert [name for name in testing.__all__ if name not in page] == []


def test_glossary_has_no_word_twice() -> None:
    words = re.findall(r"^\| \*\*(.+?)\*\* \|", (DOCS / "glossary.md").read_text(), re.MULTILINE)
    assert words
    assert len(words) == len({word.lower() for word in words})

"""Misuse of `@task` is a type error: mypy runs over `samples/`, and must complain exactly where `# error:` stands."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

import pytest

SAMPLES = Path(__file__).parent / "samples"
SOURCE = Path(__file__).parents[2] / "src"
SWITCHED_OFF = "# mypy: ignore-errors"  # so that `make lint` passes over the samples

Complaint = tuple[int, str]


def expected(sample: Path) -> set[Complaint]:
    lines = enumerate(sample.read_text().splitlines(), 1)
    found = ((number, re.search(r"# error: (.+)$", line)) for number, line in lines)
    return {(number, code) for number, match in found if match for code in match[1].split(", ")}


@pytest.fixture(scope="module")
def complaints(tmp_path_factory: pytest.TempPathFactory) -> dict[str, set[Complaint]]:
    """What mypy says about all samples, in one run."""
    room = tmp_path_factory.mktemp("samples")
    for sample in SAMPLES.glob("*.py"):
        text = sample.read_text()
        assert SWITCHED_OFF in text, f"{sample.name}: begin it with {SWITCHED_OFF}"
        (room / sample.name).write_text(text.replace(SWITCHED_OFF, "#"))
    options = ("--strict", "--no-error-summary", "--hide-error-context", "--no-pretty", "--config-file=")
    found = subprocess.run(
        [sys.executable, "-m", "mypy", *options, "--cache-dir", str(room / "cache"), "."],
        cwd=room,
        env={"MYPYPATH": str(SOURCE)},
        capture_output=True,
        text=True,
        check=False,
    )
    assert found.stderr == ""
    lines = re.findall(r"^(\w+\.py):(\d+): error: .*\[([\w-]+)\]$", found.stdout, re.MULTILINE)
    assert lines, found.stdout
    told: dict[str, set[Complaint]] = {}
    for name, number, code in lines:
        told.setdefault(name, set()).add((int(number), code))
    return told


@pytest.mark.slow
@pytest.mark.parametrize("sample", sorted(SAMPLES.glob("*.py")), ids=lambda sample: str(sample.stem))
def test_mypy_complains_where_the_sample_says_and_nowhere_else(
    sample: Path, complaints: dict[str, set[Complaint]]
) -> None:
    assert complaints.get(sample.name, set()) == expected(sample)


def test_samples_show_both_misuse_and_use() -> None:
    counts = {sample.stem: len(expected(sample)) for sample in SAMPLES.glob("*.py")}
    assert counts["correct"] == 0
    assert counts["declared_wrongly"] >= 20
    assert counts["called_wrongly"] >= 10

"""The tour that `make demo` gives."""

from __future__ import annotations

import importlib.util
import subprocess
import sys
from pathlib import Path
from types import ModuleType

import pytest

TOUR = Path(__file__).parents[2] / "examples" / "tour.py"


def load_tour() -> ModuleType:
    spec = importlib.util.spec_from_file_location("tour", TOUR)
    assert spec is not None
    assert spec.loader is not None
    tour = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(tour)
    return tour


@pytest.mark.slow
def test_tour_runs_to_its_end() -> None:
    done = subprocess.run([sys.executable, str(TOUR)], capture_output=True, text=True, check=False, timeout=120)
    assert done.returncode == 0, done.stdout + done.stderr
    assert done.stderr == ""
    assert done.stdout.count("✓") == 24
    assert "✗" not in done.stdout
    assert "├─╮" in done.stdout


def test_tour_stops_at_the_first_claim_that_is_false(capsys: pytest.CaptureFixture[str]) -> None:
    tour = load_tour()
    tour.claim(True, "this holds")
    with pytest.raises(SystemExit) as stopped:
        tour.claim(False, "this does not")
    assert stopped.value.code == 1
    assert "not true: this does not" in capsys.readouterr().out

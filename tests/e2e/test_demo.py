"""The demos that `make demo`, `make demo-chaos` and `make tour` give, in a small form."""

from __future__ import annotations

import importlib.util
import os
import subprocess
import sys
from pathlib import Path
from types import ModuleType

import pytest

EXAMPLES = Path(__file__).parents[2] / "examples"
TOUR = EXAMPLES / "tour.py"


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


QUICK = "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC -Dspark.sql.codegen.wholeStage=false"
"""For a thousand events: nothing is compiled that is used twice."""


def run_demo(name: str, output: Path) -> str:
    command = [sys.executable, str(EXAMPLES / "listening" / name), "--events", "1000", "--output", str(output)]
    env = {**os.environ, "PYTHONPATH": str(EXAMPLES), "COLUMNS": "200", "SPARK_SUBMIT_OPTS": QUICK}
    done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=600, env=env)
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


@pytest.mark.slow
def test_the_demo_ends_with_a_report(tmp_path: Path) -> None:
    told = run_demo("demo.py", tmp_path / "out")
    assert told.count("✓") == 5
    assert "edge:Listened" in told
    assert "failed at clean" in told
    assert "ms_played > 0" in told
    page = (tmp_path / "out/report/report.html").read_text()
    assert "Listening on 2026-01-02" in page
    for plot in ("top-songs.png", "by-hour.png"):
        assert (tmp_path / "out/report" / plot).read_bytes().startswith(b"\x89PNG")


@pytest.mark.slow
def test_the_chaos_demo_proves_that_each_step_was_published_once(tmp_path: Path) -> None:
    told = run_demo("chaos.py", tmp_path / "out")
    assert "was killed by SIGKILL, sealed and about to publish" in told
    assert "was stopped in the body of clean" in told
    assert "was woken" in told
    assert "each of the six steps has exactly one commit" in told
    assert "rolled_forward" in told

"""The benchmark of graphs runs, loses nothing, and writes its figures. What they are, says a quiet machine."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

BENCH = Path(__file__).parents[2] / "bench" / "graph.py"
FULL = os.environ.get("FENCELINE_KILLS") == "full"
GROUPS = ["latency", "together", "loads", "rules"] if FULL else ["latency", "together"]


@pytest.mark.slow
@pytest.mark.timeout(600)
def test_the_quick_form_of_the_benchmark(tmp_path: Path) -> None:
    target = tmp_path / "graph.json"
    only = [word for group in GROUPS for word in ("--only", group)]
    done = subprocess.run(
        [sys.executable, str(BENCH), "--quick", *only, "--json", str(target)], capture_output=True, text=True
    )
    assert done.returncode == 0, done.stderr
    found = {each["name"]: each["value"] for each in json.loads(target.read_text())}
    assert any(name.startswith("small transaction, p50") for name in found)
    assert any("2 processes" in name for name in found)
    assert all(value > 0 for value in found.values())
    assert len(found) == (10 if FULL else 6)

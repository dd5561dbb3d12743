"""The protocol tests share modules that child processes import too, so their directory is on the path."""

import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).parent))


@pytest.fixture(autouse=True)
def no_process_left() -> Iterator[None]:
    """A test that fails must not leave a stopped child behind."""
    import harness

    yield
    while harness.running:
        harness.running.pop().kill()

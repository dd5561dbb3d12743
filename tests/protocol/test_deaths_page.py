"""The page "What if it dies here" says what the code says."""

from __future__ import annotations

from pathlib import Path

from fenceline.cli.deaths import page

PAGE = Path(__file__).parents[2] / "docs" / "what-if-it-dies-here.md"


def test_the_page_is_up_to_date() -> None:
    assert PAGE.read_text() == page(), "run: python -m fenceline.cli.deaths > docs/what-if-it-dies-here.md"

"""What every page keeps: links lead somewhere, make targets exist, nothing names one machine."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
PAGES = [
    *(ROOT / name for name in ("README.md", "CONTRIBUTING.md", "CHANGELOG.md")),
    *sorted((ROOT / "docs").rglob("*.md")),
]
GENERATED = {"cli.md", "what-if-it-dies-here.md"}

LINK = re.compile(r"!?\[[^\]]*\]\(([^)\s]+)\)|<img[^>]*\ssrc=\"([^\"]+)\"")
MACHINE = re.compile(r"(?<![\w.$}])/(?:work|root|farm)\b")
REGISTRIES = (
    "pypi.org",
    "pythonhosted.org",
    "npmjs",
    "registry.",
    "repo1.maven",
    "anaconda.org",
    "artifactory",
    "nexus",
)

pages = pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))


def anchors(page: Path) -> set[str]:
    """The anchors that a page's headings have on GitHub."""
    headings = re.findall(r"^#+\s+(.*)$", page.read_text(), re.MULTILINE)
    return {re.sub(r"[^\w\- ]", "", heading.lower()).strip().replace(" ", "-") for heading in headings}


@pages
def test_links_lead_somewhere(page: Path) -> None:
    text = re.sub(r"```.*?```", "", page.read_text(), flags=re.DOTALL)
    for link in (found[0] or found[1] for found in LINK.findall(text)):
        if re.match(r"[a-z]+:", link):
            continue
        path, _, anchor = link.partition("#")
        target = (page.parent / path).resolve() if path else page
        assert target.exists(), f"{link} leads nowhere"
        assert target.is_relative_to(ROOT), f"{link} leads out of the project"
        if anchor:
            assert anchor in anchors(target), f"{link}: no such heading"


@pages
def test_make_targets_exist(page: Path) -> None:
    targets = set(re.findall(r"^([a-z][a-z-]*):", (ROOT / "Makefile").read_text(), re.MULTILINE))
    named = re.findall(r"(?:^(?:\$ )?|`)make ([a-z-]+)", page.read_text(), re.MULTILINE)
    assert set(named) <= targets


@pages
def test_no_machine_and_no_registry_is_named(page: Path) -> None:
    text = page.read_text()
    assert MACHINE.findall(text) == []
    assert [host for host in REGISTRIES if host in text] == []


@pytest.mark.parametrize(
    "page", [p for p in PAGES if p.name not in GENERATED], ids=lambda page: str(page.relative_to(ROOT))
)
def test_lines_are_short(page: Path) -> None:
    """Tables are one line a row; everything else fits an editor."""
    long = [line for line in page.read_text().splitlines() if len(line) > 120 and not line.lstrip().startswith("|")]
    assert long == []


def test_every_page_is_reached_from_the_index() -> None:
    seen: set[Path] = set()
    waiting = [ROOT / "docs" / "index.md"]
    while waiting:
        page = waiting.pop()
        if page in seen or page.suffix != ".md":
            continue
        seen.add(page)
        links = (link.partition("#")[0] for link, _ in LINK.findall(page.read_text()))
        waiting += [(page.parent / link).resolve() for link in links if link and not re.match(r"[a-z]+:", link)]
    assert set((ROOT / "docs").rglob("*.md")) - seen == set()


@pytest.mark.parametrize("page", sorted((ROOT / "docs" / "decisions").glob("*.md")), ids=lambda page: page.name)
def test_decisions_have_their_three_parts(page: Path) -> None:
    assert re.fullmatch(r"\d{4}-[a-z0-9-]+\.md", page.name)
    assert page.read_text().startswith(f"# {page.name[:4]}: ")
    assert re.findall(r"^## (.*)$", page.read_text(), re.MULTILINE) == ["Context", "Decision", "Consequences"]


def test_decisions_are_numbered_without_holes() -> None:
    numbers = sorted(int(page.name[:4]) for page in (ROOT / "docs" / "decisions").glob("*.md"))
    assert numbers == list(range(1, len(numbers) + 1))


def test_readme_is_one_screen() -> None:
    assert len((ROOT / "README.md").read_text().splitlines()) <= 60

"""Draws a commit graph in the terminal: one lane per line of history, joined where commits fork and merge."""

from __future__ import annotations

import heapq
from collections.abc import Iterable, Iterator, Sequence

from fenceline.repo.model import Commit

_ASCII = str.maketrans({"●": "*", "│": "|", "─": "-", **dict.fromkeys("├┤┼╮╯╰╭┬┴", "+")})


def draw(commits: Iterable[Commit]) -> Iterator[tuple[str, Commit | None]]:
    """Lines of the graph, each with the commit that stands on it; None for lines that only join lanes."""
    lanes: list[str | None] = []  # for each lane, the commit it leads down to
    for commit in in_order(commits):
        mine = [n for n, waiting in enumerate(lanes) if waiting == commit.id] or [_free(lanes, commit.id)]
        at = mine[0]
        if len(mine) > 1:
            yield _join(lanes, at, mine[1:], closing=True), None
            for lane in mine[1:]:
                lanes[lane] = None
        yield _row(lanes, at), commit
        lanes[at] = commit.parents[0] if commit.parents else None
        known = {n for n, waiting in enumerate(lanes) if waiting is not None}
        others = [lanes.index(p) if p in lanes else _free(lanes, p) for p in commit.parents[1:]]
        if others:
            yield _join(lanes, at, others, closing=False, known=known), None
        while lanes and lanes[-1] is None:
            lanes.pop()


def in_order(commits: Iterable[Commit]) -> Iterator[Commit]:
    """Newest first, and no commit before all its children here: clocks of different machines may disagree."""
    here = {commit.id: commit for commit in commits}
    children = dict.fromkeys(here, 0)
    for commit in here.values():
        for parent in commit.parents:
            if parent in children:
                children[parent] += 1
    ready = [(-here[c].time, -here[c].depth, c) for c, count in children.items() if not count]
    heapq.heapify(ready)
    while ready:
        commit = here[heapq.heappop(ready)[2]]
        yield commit
        for parent in commit.parents:
            if parent in children:
                children[parent] -= 1
                if not children[parent]:
                    heapq.heappush(ready, (-here[parent].time, -here[parent].depth, parent))


def to_ascii(line: str) -> str:
    """The same line for terminals that cannot show the drawing characters."""
    return line.translate(_ASCII)


def _free(lanes: list[str | None], commit: str) -> int:
    if None in lanes:
        at = lanes.index(None)
        lanes[at] = commit
        return at
    lanes.append(commit)
    return len(lanes) - 1


def _row(lanes: Sequence[str | None], at: int) -> str:
    return " ".join("●" if n == at else "│" if waiting else " " for n, waiting in enumerate(lanes)).rstrip()


def _join(
    lanes: Sequence[str | None], at: int, others: Sequence[int], *, closing: bool, known: set[int] | None = None
) -> str:
    """A line across: from lane `at` to the others, which end here (`closing`) or go on from here."""
    left, right = min(at, *others), max(at, *others)
    drawn = []
    for n, waiting in enumerate(lanes):
        inside = left <= n <= right
        if n == at:
            mark = "┼" if left < at < right else "├" if right > at else "┤"
        elif n in others and closing:
            mark = "╯" if n == right else "╰" if n == left else "┴"
        elif n in others and known is not None and n in known:
            mark = "┤" if n == right else "├" if n == left else "┼"
        elif n in others:
            mark = "╮" if n == right else "╭" if n == left else "┬"
        elif waiting:
            mark = "┼" if inside else "│"
        else:
            mark = "─" if inside else " "
        drawn.append(mark + ("─" if left <= n < right else " "))
    return "".join(drawn).rstrip()

"""How commit graphs are drawn."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from fenceline.cli.graph import draw, in_order, to_ascii
from fenceline.repo.model import Commit


def commit(name: str, *parents: str, time: float) -> Commit:
    return Commit(name, parents, None, depth=0, execution="", actor="", time=time, message="")


def drawn(*commits: Commit) -> list[str]:
    return [f"{line} {found.id}" if found else line for line, found in draw(commits)]


def test_one_line() -> None:
    assert drawn(commit("b", "a", time=2), commit("a", time=1)) == ["● b", "● a"]


def test_fork_and_merge() -> None:
    picture = drawn(
        commit("m", "b", "c", time=4), commit("c", "a", time=3), commit("b", "a", time=2), commit("a", time=1)
    )
    assert picture == ["● m", "├─╮", "│ ● c", "● │ b", "├─╯", "● a"]


def test_merge_of_a_line_that_is_drawn_already() -> None:
    picture = drawn(
        commit("n", "m", "c", time=6),
        commit("m", "b", "c", time=5),
        commit("c", "a", time=3),
        commit("b", "a", time=2),
        commit("a", time=1),
    )
    assert picture == ["● n", "├─╮", "● │ m", "├─┤", "│ ● c", "● │ b", "├─╯", "● a"]


def test_three_parents_and_lanes_that_cross() -> None:
    picture = drawn(
        commit("m", "b", "c", "d", time=9),
        commit("b", "a", "d", time=8),
        commit("d", "a", time=3),
        commit("c", "a", time=2),
        commit("a", time=1),
    )
    assert picture == ["● m", "├─┬─╮", "● │ │ b", "├─┼─┤", "│ │ ● d", "│ ● │ c", "├─┴─╯", "● a"]


def test_free_lanes_are_used_again() -> None:
    picture = drawn(
        commit("n", "m", "e", time=9),
        commit("e", "m", time=8),
        commit("m", "b", "c", time=7),
        commit("c", "b", time=6),
        commit("b", time=5),
    )
    assert picture == ["● n", "├─╮", "│ ● e", "├─╯", "● m", "├─╮", "│ ● c", "├─╯", "● b"]


def test_history_that_is_cut_off_leaves_its_lanes_open() -> None:
    assert drawn(commit("m", "b", "c", time=4), commit("c", "a", time=3)) == ["● m", "├─╮", "│ ● c"]


def test_ascii_has_no_drawing_characters() -> None:
    assert [to_ascii(line) for line in ("● │", "├─╮", "├─╯", "┼┬┴╭╰┤")] == ["* |", "+-+", "+-+", "++++++"]


@st.composite
def histories(draw_from: st.DrawFn) -> list[Commit]:
    """Any graph of commits, with clocks that tell nothing about their order."""
    made: list[Commit] = []
    for number in range(draw_from(st.integers(1, 12))):
        known = [c.id for c in made]
        parents = draw_from(st.lists(st.sampled_from(known), unique=True, max_size=3)) if known else []
        made.append(commit(f"c{number}", *parents, time=draw_from(st.integers(0, 5))))
    return draw_from(st.permutations(made))


@given(histories())
def test_every_commit_stands_once_and_after_its_children(history: list[Commit]) -> None:
    order = [found.id for found in in_order(history)]
    assert sorted(order) == sorted(c.id for c in history)
    for found in history:
        assert all(order.index(found.id) < order.index(parent) for parent in found.parents)


@given(histories())
def test_every_line_has_one_commit_or_joins_lanes(history: list[Commit]) -> None:
    for line, found in draw(history):
        assert line.count("●") == (1 if found else 0)
        assert found or line.count("─") > 0

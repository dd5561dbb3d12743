"""fsck: every kind of damage is named by its address, with what it breaks, and nothing else is blamed."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from fenceline import Repository, Retention, open_repository
from fenceline.repo.native.fsck import Problem, Report
from fenceline.seams import Seams
from fenceline.testing import MemoryObjects

Put = Callable[..., str]


@pytest.fixture
def repo(memory_repo: Repository, put: Put) -> Repository:
    put(memory_repo, {"a": b"first", "dir/b": b"second"})
    memory_repo.create_tag("v1")
    memory_repo.create_branch("dev")
    put(memory_repo, {"c": b"third"}, branch="dev")
    put(memory_repo, {"a": b"changed"})
    return memory_repo


def checked(memory: MemoryObjects, seams: Seams, content: bool = True) -> Report:
    """By a process that has nothing in its caches."""
    return Repository.on(memory, "r", seams=seams).fsck(content=content)


def only_problem(report: Report) -> Problem:
    (problem,) = report.problems
    assert not report.clean
    assert problem.address in str(problem)
    return problem


def test_a_sound_repository_is_clean_and_counted(repo: Repository, memory: MemoryObjects, seams: Seams) -> None:
    report = checked(memory, seams)
    assert report.clean
    assert (report.commits, report.files, report.bytes) == (4, 4, len("firstsecondthirdchanged"))
    assert report.ranges > 0
    assert report.notes == ()


def test_a_file_with_other_bytes(repo: Repository, memory: MemoryObjects, seams: Seams) -> None:
    address = repo.stat("v1", "a").address
    memory.damage(address, b"FIRST")
    problem = only_problem(checked(memory, seams))
    assert (problem.address, problem.what) == (address, "does not match its checksum")
    assert any("v1" in b or "dev" in b or "main" in b for b in problem.breaks)
    assert all(b.endswith(": a") for b in problem.breaks)
    assert checked(memory, seams, content=False).clean, "without content only names and sizes are compared"


def test_a_truncated_file(repo: Repository, memory: MemoryObjects, seams: Seams) -> None:
    address = repo.stat("main", "dir/b").address
    memory.damage(address, b"sec")
    for content in (True, False):
        problem = only_problem(checked(memory, seams, content))
        assert (problem.address, problem.what) == (address, "has 3 bytes instead of 6")


def test_a_missing_file(repo: Repository, memory: MemoryObjects, seams: Seams) -> None:
    address = repo.stat("dev", "c").address
    memory.delete([address])
    problem = only_problem(checked(memory, seams))
    assert (problem.address, problem.what) == (address, "is missing")
    head = repo.head("dev").commit.id[:12]
    assert problem.breaks == (f"branch dev at {head}: c",)


@pytest.mark.parametrize("missing", [True, False])
def test_a_broken_range_of_a_tree(repo: Repository, memory: MemoryObjects, seams: Seams, missing: bool) -> None:
    tree = repo.head("dev").commit.tree
    assert tree is not None
    address = tree.address.partition("#")[0]
    if missing:
        memory.delete([address])
    else:
        memory.damage(address, memory.get(address).replace(b'"c"', b'"C"'))
    problem = only_problem(checked(memory, seams))
    assert problem.address == address
    assert problem.breaks[0].startswith("branch dev at ")
    assert "paths up to dir/b" in problem.breaks[0]


@pytest.mark.parametrize("missing", [True, False])
def test_a_broken_commit(repo: Repository, memory: MemoryObjects, seams: Seams, missing: bool) -> None:
    commit = repo.head("dev").commit.id
    if missing:
        memory.delete([f"commits/{commit}"])
    else:
        memory.damage(f"commits/{commit}", b"{}")
    problem = only_problem(checked(memory, seams))
    assert (problem.address, problem.breaks) == (f"commits/{commit}", ("branch dev",))


def test_a_commit_in_the_middle_breaks_all_who_need_it(repo: Repository, memory: MemoryObjects, seams: Seams) -> None:
    commit = repo.commit("main~1").id
    memory.damage(f"commits/{commit}", b"{}")
    problem = only_problem(checked(memory, seams))
    assert problem.address == f"commits/{commit}"
    assert len(problem.breaks) >= 1


def test_damage_that_several_refs_reach_is_one_problem(repo: Repository, memory: MemoryObjects, seams: Seams) -> None:
    address = repo.stat("main", "dir/b").address
    memory.delete([address])
    assert len(checked(memory, seams).problems) == 1


@pytest.mark.parametrize("hint", [True, False], ids=["with-hint", "hint-lost"])
@pytest.mark.parametrize("hole", [1, 3, 4])
def test_a_hole_in_a_branch_log(
    repo: Repository, memory: MemoryObjects, seams: Seams, put: Put, hint: bool, hole: int
) -> None:
    """R1: entry keys are never removed, so a missing one is damage, also where the search would stop before it."""
    for n in range(4):
        put(repo, {"n": str(n).encode()})
    assert repo.head().seq == 7
    memory.delete([f"refs/main/{hole:010}"])
    if not hint:
        memory.delete(["hints/refs/main"])
    problems = checked(memory, seams).problems
    assert f"refs/main/{hole:010}" in [p.address for p in problems]
    assert any("branch main" in b for p in problems for b in p.breaks)


def test_a_damaged_entry_of_a_branch_log(repo: Repository, memory: MemoryObjects, seams: Seams) -> None:
    memory.damage("refs/main/0000000002", b"{}")
    problem = only_problem(checked(memory, seams))
    assert (problem.address, problem.breaks) == ("refs/main/0000000002", ("branch main entry 2",))


def test_a_damaged_last_entry_is_reported_not_raised(repo: Repository, memory: MemoryObjects, seams: Seams) -> None:
    memory.damage("refs/dev/0000000002", b"{}")
    problem = only_problem(checked(memory, seams))
    assert problem.address == "refs/dev/0000000002"
    assert any("branch dev" in b for b in problem.breaks)


def test_an_entry_under_another_number(repo: Repository, memory: MemoryObjects, seams: Seams) -> None:
    memory.damage("refs/main/0000000002", memory.get("refs/main/0000000001"))
    problem = only_problem(checked(memory, seams))
    assert "says it is number 1" in problem.what


def test_a_branch_whose_creation_was_cut_off_is_no_damage(tmp_path_factory: pytest.TempPathFactory) -> None:
    """INV-7: a crash before the first entry leaves a directory, not a branch."""
    root = tmp_path_factory.mktemp("r")
    repo = open_repository(root, create=True)
    (root / "refs/half%2fmade").mkdir()
    assert [h.name for h in repo.branches()] == ["main"]
    assert repo.fsck().clean


def test_content_that_retention_gave_up_is_a_note(
    repo: Repository, memory: MemoryObjects, seams: Seams, put: Put
) -> None:
    for n in range(6):
        put(repo, {"n": str(n).encode()})
    plan = repo.gc(Retention(keep=3, expire=True), grace=0)
    assert plan.expired
    report = checked(memory, seams)
    assert report.clean
    assert len(report.notes) == len(plan.expired)


def test_progress_is_reported(repo: Repository, put: Put) -> None:
    put(repo, {f"many/{n}": str(n).encode() for n in range(250)})
    steps: list[tuple[str, int]] = []
    repo.fsck(step=lambda what, count: steps.append((what, count)))
    assert len(steps) >= 2
    assert [count for _, count in steps] == sorted(count for _, count in steps)

"""A short tour of Fenceline on a repository that is thrown away afterwards: `python examples/tour.py`.

Every line with a check mark was verified when it was printed; the first claim that does not hold ends the tour.
"""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import tempfile
from pathlib import Path

from rich.console import Console

import fenceline as fl

console = Console(highlight=False)


def main() -> None:
    with tempfile.TemporaryDirectory(prefix="fenceline-tour-") as scratch:
        path = Path(scratch) / "songs"
        repo = create(path)
        branches(repo)
        conflict(repo)
        rebase(repo)
        killed_after_the_seal(repo, path)
        killed_while_staging(repo, path)
        audit(repo, path)
        merge(repo)
        history(path)
        verify(repo)
    console.print("\n[bold green]That was the whole tour; everything it claimed was true.[/]")


def step(title: str, text: str) -> None:
    console.print(f"\n[bold cyan]{title}[/]\n{text}")


def claim(holds: bool, text: str) -> None:
    """Print what was just verified, or stop the tour."""
    if not holds:
        console.print(f"  [bold red]✗ not true: {text}[/]")
        sys.exit(1)
    console.print(f"  [green]✓[/] {text}")


def command(path: Path, *arguments: str) -> None:
    """Run the fenceline command, its output on this terminal."""
    console.print(f"  [dim]$ fenceline {' '.join(arguments)}[/]")
    subprocess.run([sys.executable, "-m", "fenceline.cli", *arguments, "--repo", str(path)], check=True)


def create(path: Path) -> fl.Repository:
    step("1. A repository", "It is a directory. What a transaction writes becomes visible together, or not at all.")
    repo = fl.open_repository(path, create=True)
    with repo.transaction("main", actor="ana", message="Plays of Monday") as tx:
        tx.write("plays/monday.csv", "song,plays\nAurora,3\n")
        tx.write("README.txt", "Plays by day.\n")
        visible_early = any(repo.list("main"))
    claim(not visible_early, "inside the transaction, readers of main saw nothing of it")
    claim(len(list(repo.list("main"))) == 2, f"after it, both files are there: {tx.result.commit[:12]}")
    return repo


def branches(repo: fl.Repository) -> None:
    step("2. Two branches", "A branch costs one small entry. Work on it stays there until it is merged.")
    repo.create_branch("dev", "main")
    with repo.transaction("dev", actor="ben", message="A report") as tx:
        tx.write("reports/top.txt", "Aurora\n")
    names = {branch.name for branch in repo.branches()}
    claim(names == {"main", "dev"}, "there are two branches, main and dev")
    claim(not any(repo.list("main", "reports")), "main knows nothing of the report on dev")


def conflict(repo: fl.Repository) -> None:
    step("3. Two writers, one file", "Ben begins first; Ana publishes first. Nobody's work is silently overwritten.")
    before = repo.head("main").commit.id
    try:
        with repo.transaction("main", actor="ben", message="Ben's correction") as late:
            late.write("plays/monday.csv", "song,plays\nAurora,4\n")
            with repo.transaction("main", actor="ana", message="Ana's correction") as early:
                early.write("plays/monday.csv", "song,plays\nAurora,5\n")
    except fl.PublishConflict as error:
        claim(error.expected == before, f"Ben's error names the head he built on: {error.expected[:12]}")
        claim(error.actual == early.result.commit, f"and the one he met, Ana's: {early.result.commit[:12]}")
        claim(error.outcome is fl.Outcome.NOT_APPLIED, "and says for certain that nothing of his was applied")
    else:
        claim(False, "the second writer is refused")
    claim(repo.read("main", "plays/monday.csv").endswith(b"5\n"), "main holds Ana's correction, whole")


def rebase(repo: fl.Repository) -> None:
    step("4. Two writers, two files", "With on_conflict='rebase' a change goes on where nothing that it touched moved.")
    with repo.transaction("main", actor="ben", message="Plays of Tuesday", on_conflict="rebase") as late:
        late.write("plays/tuesday.csv", "song,plays\nAurora,7\n")
        with repo.transaction("main", actor="ana", message="Plays of Wednesday") as early:
            early.write("plays/wednesday.csv", "song,plays\nBoreas,2\n")
    published = repo.commit("main")
    claim(published.id == late.result.commit, "Ben's change went through on the moved branch")
    claim(published.parents == (early.result.commit,), "on top of Ana's, as if he had begun after her")


def killed_after_the_seal(repo: fl.Repository, path: Path) -> None:
    step(
        "5. A writer dies at the worst moment",
        "A real process is killed (SIGKILL) when all is staged and sealed, just before it would have become visible.",
    )
    kill_a_writer(path, "verdict.seal.after", "plays/thursday.csv")
    claim(not any(repo.list("main", "plays/thursday.csv")), "readers see nothing of it")
    (intent,) = repo.intents()
    claim(intent.state == "sealed", f"its intent is on record: {intent.execution}, {intent.state}")
    (swept,) = repo.recover()
    claim(swept.ending == "rolled_forward", f"recovery finishes what was complete: {swept.found}, {swept.ending}")
    claim(repo.read("main", "plays/thursday.csv") == b"song,plays\nAurora,9\n", "and the file is there, whole")


def killed_while_staging(repo: fl.Repository, path: Path) -> None:
    step("6. Another dies half-way", "This one is killed after its first file was staged; it never sealed.")
    head = repo.head("main").commit.id
    kill_a_writer(path, "stage.file.after", "plays/friday.csv")
    (swept,) = repo.recover()
    claim(swept.ending == "aborted", f"recovery takes it back: {swept.found}, {swept.ending}")
    claim(repo.head("main").commit.id == head, "main did not move")
    left = list(repo.native.objects.list(f"files/{swept.execution}/"))
    claim(not left and not list(repo.intents()), "and nothing of what it staged is left")


def kill_a_writer(path: Path, failpoint: str, target: str) -> None:
    arguments = ["put", "main", "-", target, "--actor", "night-job", "-m", f"Write {target}", "--repo", str(path)]
    died = subprocess.run(
        [sys.executable, "-m", "fenceline.cli", *arguments],
        input=b"song,plays\nAurora,9\n",
        env={**os.environ, "FENCELINE_FAILPOINTS": f"{failpoint}=crash"},
        check=False,
    )
    claim(died.returncode == -signal.SIGKILL, f"the process that was writing {target} is dead")


def audit(repo: fl.Repository, path: Path) -> None:
    step("7. The audit", "Every transaction ends in exactly one record, and recovery signs what it made visible.")
    endings = [record.kind for record in repo.recoveries() if record.recovered_for == "night-job"]
    claim(sorted(endings) == ["aborted", "rolled_forward"], "both of the dead writer's transactions are accounted for")
    recovered = [item.commit.message for item in repo.log("main", actor="fenceline:recovery")]
    claim(recovered == ["Write plays/thursday.csv"], "the log knows which commit recovery published")
    command(path, "recoveries", "-n", "2")


def merge(repo: fl.Repository) -> None:
    step("8. A merge", "Ben's report comes to main: one commit with two parents.")
    result = repo.merge("dev", into="main", actor="ben")
    claim(len(repo.commit(result.commit).parents) == 2, f"merged as {result.commit[:12]}")
    claim(repo.read("main", "reports/top.txt") == b"Aurora\n", "the report is on main")


def history(path: Path) -> None:
    step("9. The history", "What happened, as the command line draws it:")
    command(path, "log", "--graph")


def verify(repo: fl.Repository) -> None:
    step("10. Verification", "Every reachable object is read again and compared with its checksum.")
    report = repo.fsck()
    claim(report.clean, f"clean: {report.commits} commits, {report.files} files, {report.bytes} bytes")


if __name__ == "__main__":
    main()

"""Every command, for people and as JSON, on a repository on disk."""

from __future__ import annotations

import json
import os
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner, Result

import fenceline as fl
from fenceline.cli import care, doctor, history
from fenceline.cli.failure import EXIT_CODES
from fenceline.cli.finding import Finding
from fenceline.cli.main import app
from fenceline.errors import (
    FencelineError,
    InvalidName,
    NotARepository,
    NotFound,
    PublishFenceError,
    StoreFull,
    UnpublishedCommit,
)
from fenceline.repo.native.condemned import Condemned, announce
from fenceline.repo.native.local import LocalObjects
from fenceline.seams import this_process

COLOUR_SETTINGS = ("FORCE_COLOR", "TTY_COMPATIBLE")  # they make a pipe look like a terminal


class Cli:
    """Runs commands in this process against one repository."""

    def __init__(self, root: Path) -> None:
        self.root = root
        self.url = str(root / "repo")
        self._runner = CliRunner()
        self._environment = {"FENCELINE_REPO": self.url, **dict.fromkeys(COLOUR_SETTINGS)}

    def run(self, *arguments: str, code: int = 0, stdin: bytes | None = None) -> Result:
        result = self._runner.invoke(app, list(arguments), input=stdin, env=self._environment, catch_exceptions=False)
        assert result.exit_code == code, f"{arguments}: {result.exit_code}\n{result.stdout}\n{result.stderr}"
        return result

    def text(self, *arguments: str) -> str:
        """What a command prints for people."""
        printed = self.run(*arguments).stdout
        assert "\x1b" not in printed, "colour codes in a pipe"
        return printed

    def json(self, *arguments: str, code: int = 0, stdin: bytes | None = None) -> Any:
        """The one document a command prints; of a failed one, the error document on standard error."""
        result = self.run(*arguments, "--json", code=code, stdin=stdin)
        return json.loads(result.stdout if code in (0, 10) else result.stderr)

    def put(self, path: str, data: str, branch: str = "main", **options: str) -> Any:
        """Publish a file from standard input; returns the document."""
        named = [word for name, value in options.items() for word in (f"--{name}", value)]
        return self.json("put", branch, "-", path, *named, stdin=data.encode())

    def repo(self) -> fl.Repository:
        return fl.open_repository(self.url)

    def local(self, name: str, files: dict[str, str]) -> str:
        for path, data in files.items():
            target = self.root / name / path
            target.parent.mkdir(parents=True, exist_ok=True)
            target.write_text(data)
        return str(self.root / name)

    def objects(self) -> set[str]:
        """Every file of the repository, hints aside: reading may refresh them."""
        found = {str(p.relative_to(self.url)) for p in Path(self.url).rglob("*") if p.is_file()}
        return {key for key in found if not key.startswith("hints/")}


@pytest.fixture
def cli(tmp_path: Path) -> Cli:
    made = Cli(tmp_path)
    made.run("init")
    return made


# --- content ----------------------------------------------------------------------------------------------------


def test_init_creates_a_repository_and_leaves_an_existing_one_alone(tmp_path: Path) -> None:
    cli = Cli(tmp_path)
    assert cli.json("init")["created"] is True
    before = cli.objects()
    assert cli.json("init")["created"] is False
    assert "is a repository already" in cli.text("init")
    assert cli.objects() == before


def test_repo_option_goes_before_the_environment(cli: Cli, tmp_path: Path) -> None:
    other = str(tmp_path / "other")
    assert "created" in cli.text("init", "--repo", other)
    cli.put("a", "in the default")
    assert [e["path"] for e in cli.json("ls")["entries"]] == ["a"]
    assert cli.json("ls", "--repo", other)["entries"] == []


def test_put_file_publishes_it_with_its_message_and_actor(cli: Cli) -> None:
    local = cli.local("in", {"a.txt": "hello"})
    printed = cli.text("put", "main", f"{local}/a.txt", "data/a.txt", "-m", "first", "--actor", "ana")
    head = cli.repo().head("main")
    assert printed == f"1 file at data/a.txt: main is now {head.commit.id[:12]}, entry 2\n"
    assert (head.commit.message, head.commit.actor) == ("first", "ana")
    assert cli.run("cat", "main", "data/a.txt").stdout_bytes == b"hello"


def test_put_directory_as_json_reports_the_whole_commit_id(cli: Cli) -> None:
    local = cli.local("in", {"a.txt": "1", "deep/b.txt": "2"})
    document = cli.json("put", "main", local, "data")
    assert document["commit"] == cli.repo().head("main").commit.id
    assert (document["op"], document["seq"], document["files"], document["outcome"]) == ("publish", 2, 2, "applied")
    assert cli.repo().read("main", "data/deep/b.txt") == b"2"


def test_put_from_standard_input_keeps_every_byte(cli: Cli) -> None:
    data = bytes(range(256)) * 10_000  # several pieces
    cli.run("put", "main", "-", "blob", stdin=data)
    assert cli.run("cat", "main", "blob").stdout_bytes == data


def test_same_key_never_applies_twice(cli: Cli) -> None:
    first = cli.put("a", "1", key="load-1")
    again = cli.put("a", "2", key="load-1")
    assert (again["op"], again["commit"]) == ("adopt", first["commit"])
    assert "applied before" in cli.run("put", "main", "-", "a", "--key", "load-1", stdin=b"3").stdout
    assert cli.repo().read("main", "a") == b"1"


def test_putting_the_same_again_changes_nothing(cli: Cli) -> None:
    commit = cli.put("a", "1")["commit"]
    assert cli.put("a", "1")["op"] == "noop"
    assert f"stays at {commit[:12]}" in cli.run("put", "main", "-", "a", stdin=b"1").stdout


def test_dataset_write_modes(cli: Cli) -> None:
    local = cli.local("one", {"day=1/part-0.parquet": "x", "_SUCCESS": ""})
    more = cli.local("two", {"day=2/part-0.parquet": "yy"})
    options = ("--dataset", "--partition-by", "day")
    assert cli.json("put", "main", local, "plays", *options)["files"] == 1
    exists = cli.json("put", "main", more, "plays", *options, code=3)
    assert exists["code"] == "already_exists"
    cli.run("put", "main", more, "plays", *options, "--mode", "append")
    (listed,) = cli.json("ls")["entries"]
    assert (listed["kind"], listed["path"], listed["dataset"]["files"]) == ("dataset", "plays", 2)
    assert "dataset" in cli.text("ls")
    assert "2 files, parquet, by day" in cli.text("ls")
    cli.run("put", "main", local, "plays", *options, "--mode", "overwrite_partitions")
    assert cli.json("ls")["entries"][0]["dataset"]["files"] == 2
    cli.run(
        "put", "main", more, "plays", "--dataset", "--mode", "overwrite", "--format", "csv", "--partition-by", "day"
    )
    (listed,) = cli.json("ls")["entries"]
    assert (listed["dataset"]["format"], listed["dataset"]["files"]) == ("csv", 1)


@pytest.mark.parametrize(
    "arguments",
    [
        ("put", "main", "x", "y", "--mode", "append"),
        ("put", "main", "x", "y", "--partition-by", "day"),
        ("put", "main", "-", "y", "--dataset"),
        ("put", "main", "x", "y", "--on-conflict", "maybe"),
        ("put", "main", "x"),
        ("log", "--graph", "--actor", "me"),
        ("log", "--entries", "--full"),
        ("log", "-n", "0"),
        ("branch", "--delete"),
        ("branch", "x", "--delete", "--to", "main"),
        ("branch", "x", "--expected", "main"),
        ("tag", "--note", "why"),
        ("tag", "x", "--delete", "--note", "why"),
        ("recover", "--retry"),
        ("recoveries", "--kind", "lost"),
        ("gc", "--older-than", "30 days"),
        ("merge", "main", "--strategy", "mine"),
        ("nonsense",),
    ],
    ids=" ".join,
)
def test_command_lines_that_cannot_be_read(cli: Cli, arguments: tuple[str, ...]) -> None:
    before = cli.objects()
    assert "Error" in cli.run(*arguments, code=2).stderr
    assert cli.objects() == before


def test_get_copies_files_directories_and_datasets(cli: Cli, tmp_path: Path) -> None:
    cli.put("data/a.txt", "1")
    cli.put("data/deep/b.txt", "2")
    cli.run("put", "main", cli.local("parts", {"part-0.csv": "x"}), "plays", "--dataset", "--format", "csv")
    out = tmp_path / "out"
    assert cli.json("get", "main", "data", str(out))["files"] == 2
    assert (out / "deep" / "b.txt").read_text() == "2"
    assert "1 file of" in cli.text("get", "main~2", "data/a.txt", str(tmp_path / "copy.txt"))
    assert (tmp_path / "copy.txt").read_text() == "1"
    cli.run("get", "main", "plays", str(tmp_path / "plays"))
    assert [p.read_text() for p in (tmp_path / "plays").rglob("*.csv")] == ["x"]


def test_get_puts_a_file_into_an_existing_directory(cli: Cli, tmp_path: Path) -> None:
    cli.put("data/a.txt", "1")
    (tmp_path / "there").mkdir()
    document = cli.json("get", "main", "data/a.txt", str(tmp_path / "there"))
    assert document["local"] == str(tmp_path / "there" / "a.txt")
    assert (tmp_path / "there" / "a.txt").read_text() == "1"


def test_get_of_nothing_fails(cli: Cli, tmp_path: Path) -> None:
    assert cli.json("get", "main", "nope", str(tmp_path / "out"), code=3)["code"] == "not_found"
    assert not (tmp_path / "out").exists()


def test_cat_as_json_holds_text_or_base64(cli: Cli) -> None:
    cli.put("a", "grün")
    cli.run("put", "main", "-", "b", stdin=b"\xff\x00")
    text, binary = cli.json("cat", "main", "a"), cli.json("cat", "main", "b")
    assert (text["encoding"], text["content"], text["size"]) == ("utf-8", "grün", 5)
    assert (binary["encoding"], binary["content"]) == ("base64", "/wA=")
    assert cli.json("cat", "main", "nope", code=3)["code"] == "not_found"


def test_ls_shows_one_level_or_everything(cli: Cli) -> None:
    cli.run("put", "main", cli.local("in", {"a.txt": "1", "d/b.txt": "22", "d/e/c.txt": "333", "d-x": "4"}), "")
    level = cli.json("ls")["entries"]
    assert [(e["path"], e["kind"], e["size"]) for e in level] == [
        ("a.txt", "file", 1),
        ("d-x", "file", 1),
        ("d", "directory", 5),
    ]
    assert [e["path"] for e in cli.json("ls", "main", "d")["entries"]] == ["d/b.txt", "d/e"]
    everything = [e["path"] for e in cli.json("ls", "-r")["entries"]]
    assert everything == ["a.txt", "d-x", "d/b.txt", "d/e/c.txt"]
    assert cli.text("ls").splitlines() == [
        "kind  size  path   about",
        "file   1 B  a.txt  -",
        "file   1 B  d-x    -",
        "dir    5 B  d/     2 inside",
    ]
    assert "d/e/c.txt" in cli.text("ls", "main", "d", "--recursive")
    assert [e["path"] for e in cli.json("ls", "main", "d/b.txt")["entries"]] == ["d/b.txt"]


def test_ls_of_a_dataset_lists_its_part_files(cli: Cli) -> None:
    cli.run("put", "main", cli.local("in", {"part-0": "1", "part-1": "2"}), "raw/plays", "--dataset")
    for how in ((), ("-r",)):
        listed = cli.json("ls", "main", "raw/plays", *how)["entries"]
        assert [e["kind"] for e in listed] == ["dataset", "file", "file"]
    assert [e["path"] for e in cli.json("ls", "-r")["entries"]] == ["raw/plays"]


def test_ls_of_nothing(cli: Cli) -> None:
    assert cli.json("ls")["entries"] == []
    result = cli.run("ls")
    assert (result.stdout, result.stderr) == ("", "main is empty\n")
    assert cli.json("ls", "main", "nope", code=3)["code"] == "not_found"


def test_rm_removes_from_the_head_only(cli: Cli) -> None:
    cli.put("d/a", "1")
    cli.put("d/b", "2")
    cli.put("c", "3")
    document = cli.json("rm", "main", "d", "-m", "gone")
    assert (document["op"], document["entries"]) == ("publish", 2)
    assert [e["path"] for e in cli.json("ls", "main", "-r")["entries"]] == ["c"]
    assert cli.run("cat", "main~1", "d/a").stdout == "1"
    assert cli.text("rm", "main", "c").startswith("c removed: main is now ")
    assert cli.json("rm", "main", "c", code=3)["code"] == "not_found"


# --- history ----------------------------------------------------------------------------------------------------


def merged(cli: Cli) -> None:
    """main: 1, 2, merge of dev; dev: 3."""
    cli.put("one", "1", message="one", actor="ana")
    cli.run("branch", "dev")
    cli.put("two", "2", message="two", actor="ben")
    cli.put("three", "3", "dev", message="three", actor="ana")
    cli.run("merge", "dev", "-m", "together", "--actor", "ana")


def test_log_shows_commits_newest_first(cli: Cli) -> None:
    merged(cli)
    items = cli.json("log")
    assert [i["commit"]["message"] for i in items] == ["together", "two", "one", "Repository created"]
    assert [(i["entry"]["seq"], i["entry"]["op"]) for i in items] == [
        (4, "merge"),
        (3, "publish"),
        (2, "publish"),
        (1, "create"),
    ]
    assert all(len(i["commit"]["id"]) == 64 for i in items)
    assert items[0]["refs"] == ["main"]
    lines = cli.text("log").splitlines()
    head = items[0]["commit"]["id"]
    assert lines[0].split() == ["commit", "entry", "op", "time", "actor", "message"]
    assert lines[1].startswith(f"{head[:12]}      4  merge")
    assert lines[1].endswith("ana      (main) together")
    assert head not in "".join(lines)


def test_log_can_be_cut_filtered_and_taken_through_all_parents(cli: Cli) -> None:
    merged(cli)
    assert [i["commit"]["message"] for i in cli.json("log", "-n", "2")] == ["together", "two"]
    assert [i["commit"]["message"] for i in cli.json("log", "--actor", "ben")] == ["two"]
    assert {i["commit"]["message"] for i in cli.json("log", "--full")} >= {"two", "three"}
    assert "three" not in cli.text("log")
    assert [i["commit"]["message"] for i in cli.json("log", "dev")] == ["three", "one", "Repository created"]


def test_log_of_a_whole_commit_id(cli: Cli) -> None:
    commit = cli.put("one", "1", message="one")["commit"]
    assert [i["commit"]["id"] for i in cli.json("log", commit, "-n", "1")] == [commit]
    assert [i["commit"]["id"] for i in cli.json("log", commit[:10], "-n", "1")] == [commit]


def test_log_graph_draws_a_merge(cli: Cli) -> None:
    merged(cli)
    cli.run("tag", "v1", "--from", "dev")
    lines = cli.text("log", "--graph").splitlines()
    drawing = [line[:3].rstrip() for line in lines]
    messages = [line for line in lines if "·" in line]
    assert drawing == ["●", "├─╮", "│ ●", "● │", "├─╯", "●", "●"]
    assert "(main) together · ana" in messages[0]
    assert "(dev, tag: v1) three · ana" in messages[1]
    assert len(cli.json("log", "--graph")) == 5


def test_log_entries_lists_every_move(cli: Cli) -> None:
    commit = cli.put("one", "1", actor="ana")["commit"]
    cli.run("branch", "main", "--to", "main~1", "--actor", "ben")
    entries = cli.json("log", "--entries")
    assert [(e["seq"], e["op"], e["actor"]) for e in entries[:2]] == [(3, "relocate", "ben"), (2, "publish", "ana")]
    assert entries[0]["note"] == f"relocated from {commit}"
    assert entries[1]["execution"] == entries[1]["by"]
    lines = cli.text("log", "main", "--entries", "-n", "1").splitlines()
    assert lines[0].split() == ["entry", "op", "commit", "time", "execution", "by", "actor", "note"]
    assert lines[1].split()[:2] == ["3", "relocate"]
    assert [e["seq"] for e in cli.json("log", "--entries", "--actor", "ana")] == [2]


def test_control_characters_in_messages_cannot_drive_the_terminal(cli: Cli) -> None:
    cli.put("one", "1", message="red \x1b[31m\nsecond line", actor="[bold]eve")
    for arguments in (("log",), ("log", "--graph"), ("show",), ("branch",)):
        printed = cli.text(*arguments)  # which fails where an escape character comes through
        assert "red \\x1b[31m" in printed
    assert "[bold]eve" in cli.text("log")


def test_show_names_parents_and_changes(cli: Cli) -> None:
    merged(cli)
    document = cli.json("show", "main")
    assert len(document["commit"]["parents"]) == 2
    assert [(c["path"], c["status"]) for c in document["changes"]] == [("three", "added")]
    printed = cli.text("show", "main")
    for parent in document["commit"]["parents"]:
        assert f"parent     {parent}" in printed
    assert f"execution  {document['commit']['execution']}" in printed
    assert "added   file       -    1 B  three" in printed
    assert cli.json("show", "main~3")["changes"] == []


def test_show_of_a_keyed_commit_names_its_transaction(cli: Cli) -> None:
    cli.put("one", "1", key="k")
    txn = cli.json("show")["commit"]["txn"]
    assert len(txn) == 64
    assert f"txn        {txn}" in cli.text("show")


def test_diff_shows_both_directions(cli: Cli) -> None:
    cli.put("kept", "same")
    cli.put("a", "1")
    cli.run("branch", "dev")
    cli.put("a", "22", "dev")
    cli.put("b", "3", "dev")
    changes = cli.json("diff", "main", "dev")["changes"]
    assert [(c["path"], c["status"]) for c in changes] == [("a", "changed"), ("b", "added")]
    assert (changes[0]["left"]["size"], changes[0]["right"]["size"]) == (1, 2)
    assert [c["status"] for c in cli.json("diff", "dev", "main")["changes"]] == ["changed", "removed"]
    assert cli.text("diff", "main", "dev").splitlines()[1].split() == ["changed", "file", "1", "B", "2", "B", "a"]
    assert cli.run("diff", "main", "main").stderr == "no differences\n"


# --- branches and tags ------------------------------------------------------------------------------------------


def test_branch_create_list_relocate_delete(cli: Cli) -> None:
    commit = cli.put("a", "1")["commit"]
    assert cli.text("branch", "dev", "--from", "main~1").startswith("branch dev created at ")
    assert cli.json("branch", "other")["commit"] == commit
    assert [b["name"] for b in cli.json("branch")] == ["dev", "main", "other"]
    assert cli.text("branch").splitlines()[1].startswith("dev")
    moved = cli.json("branch", "dev", "--to", "main", "--expected", "main~1")
    assert (moved["commit"], moved["seq"], moved["entry"]["op"]) == (commit, 3, "relocate")
    assert cli.text("branch", "other", "--delete") == "branch other deleted\n"
    assert cli.json("branch", "dev", "--delete") == {"name": "dev", "deleted": True}
    assert [b["name"] for b in cli.json("branch")] == ["main"]


def test_relocate_from_another_head_than_expected_is_a_conflict(cli: Cli) -> None:
    cli.put("a", "1")
    cli.run("branch", "dev")
    error = cli.json("branch", "dev", "--to", "main~1", "--expected", "main~1", code=4)
    assert error["code"] == "conflict.publish"
    assert cli.repo().head("dev").seq == 2


def test_the_default_branch_is_not_deleted(cli: Cli) -> None:
    assert "hint: relocate it instead" in cli.run("branch", "main", "--delete", code=4).stderr
    assert cli.repo().head("main").seq == 1


def test_tag_create_list_delete(cli: Cli) -> None:
    commit = cli.put("a", "1")["commit"]
    assert cli.run("tag").stderr == "no tag yet\n"
    assert cli.json("tag", "v1", "--note", "the first")["commit"] == commit
    cli.run("tag", "v0", "--from", "main~1")
    assert [(t["name"], t["entry"]["note"]) for t in cli.json("tag")] == [("v0", ""), ("v1", "the first")]
    assert "the first" in cli.text("tag")
    assert cli.run("cat", "v1", "a").stdout == "1"
    assert cli.text("tag", "v1", "--delete") == "tag v1 deleted\n"
    assert cli.json("tag", "v1", "--delete", code=3)["code"] == "not_found"


@pytest.mark.parametrize("name", ["a b", "..", "a/../b", "a~1", ".hidden", "a@1", "0" * 64, "caf\u0065\u0301"])
def test_bad_names_are_refused(cli: Cli, name: str) -> None:
    before = cli.objects()
    for command in ("branch", "tag"):
        assert cli.json(command, name, code=3)["code"] == "name.invalid"
    assert cli.objects() == before


@pytest.mark.parametrize("path", ["/abs", "a//b", "../up", "a/./b", "a\x07b"])
def test_bad_paths_are_refused(cli: Cli, path: str) -> None:
    assert cli.json("put", "main", "-", path, code=3, stdin=b"x")["code"] == "name.invalid"
    assert cli.repo().head("main").seq == 1


def test_merge_of_disjoint_changes(cli: Cli) -> None:
    cli.run("branch", "dev")
    cli.put("a", "1")
    cli.put("b", "2", "dev")
    assert cli.text("merge", "dev").startswith("dev merged: main is now ")
    assert cli.run("cat", "main", "b").stdout == "2"
    assert cli.json("merge", "main", "--into", "dev")["branch"] == "dev"
    assert cli.json("merge", "dev~1")["op"] == "noop"
    assert cli.text("merge", "dev~1").startswith("nothing to do; main stays at ")


def test_merge_lists_all_conflicts_together(cli: Cli) -> None:
    paths = [f"f{n:02}" for n in range(12)]
    cli.run("branch", "dev")
    for branch in ("main", "dev"):
        cli.run("put", branch, cli.local(branch, dict.fromkeys(paths, branch)), "")
    error = cli.json("merge", "dev", code=4)
    assert [c["path"] for c in error["conflicts"]] == paths
    assert {c["reason"] for c in error["conflicts"]} == {"added differently on both sides"}
    result = cli.run("merge", "dev", code=4)
    assert result.stdout == ""
    lines = result.stderr.splitlines()
    assert lines[0] == "error: dev and main both changed 12 path(s)"
    assert [line.split()[0] for line in lines[2:14]] == paths
    assert lines[14].startswith("hint: ")
    assert cli.repo().head("main").seq == 2
    cli.run("merge", "dev", "--strategy", "theirs")
    assert cli.run("cat", "main", "f00").stdout == "dev"


def test_revert_undoes_one_commit(cli: Cli) -> None:
    first = cli.put("a", "1")["commit"]
    cli.put("b", "2")
    assert cli.text("revert", first, "-m", "undo").startswith(f"{first} reverted: main is now ")
    assert [e["path"] for e in cli.json("ls")["entries"]] == ["b"]
    cli.run("branch", "dev")
    assert cli.json("revert", "dev", "--branch", "dev")["branch"] == "dev"
    assert [e["path"] for e in cli.json("ls", "dev")["entries"]] == ["a", "b"]


def test_revert_of_what_was_changed_since_names_the_conflict(cli: Cli) -> None:
    first = cli.put("a", "1")["commit"]
    cli.put("a", "2")
    error = cli.json("revert", first, code=4)
    assert [c["path"] for c in error["conflicts"]] == ["a"]
    stderr = cli.run("revert", first, code=4).stderr
    assert stderr.startswith(f"error: {first[:12]} cannot be undone: later commits changed the same paths\n")


# --- care -------------------------------------------------------------------------------------------------------


def test_recover_recoveries_and_intents_of_a_quiet_repository(cli: Cli) -> None:
    assert cli.text("recoveries") == "no transaction has ended\n"
    commit = cli.put("a", "1", actor="ana")["commit"]
    assert (cli.text("recover"), cli.json("recover")) == ("nothing to recover\n", [])
    assert (cli.text("intents"), cli.json("intents")) == ("no unfinished transaction\n", [])
    (record,) = cli.json("recoveries")
    assert (record["kind"], record["commit"], record["recovered_for"]) == ("published", commit, "ana")
    assert commit[:12] in cli.text("recoveries")
    cli.put("a", "2")
    assert cli.json("recoveries", "-n", "1")[0]["commit"] == cli.repo().head("main").commit.id
    assert cli.json("recoveries", "--kind", "aborted") == []
    assert cli.text("recoveries", "--kind", "aborted") == "no transaction has ended as aborted\n"


def test_intents_shows_a_running_transaction_and_recover_leaves_it(cli: Cli) -> None:
    with cli.repo().transaction("main", actor="ana") as tx:
        tx.write("a", b"1")
        (status,) = cli.json("intents")
        assert (status["execution"], status["state"], status["expired"]) == (tx.execution, "open", False)
        assert cli.text("intents").splitlines()[1].split()[:5] == [tx.execution, "open", "main", "write", "ana"]
        assert [s["ending"] for s in cli.json("recover")] == ["live"]
    assert cli.repo().read("main", "a") == b"1"


def garbage(cli: Cli) -> None:
    """Two commits that only entries beyond the last three remember."""
    repo = cli.repo()
    for data in (b"lost one", b"lost two"):
        with repo.transaction() as tx:
            tx.write("lost", data)
    repo.relocate_branch("main", "main@1")
    for number in range(3):
        with repo.transaction() as tx:
            tx.write("kept", str(number).encode())


def test_gc_without_yes_explains_and_deletes_nothing(cli: Cli) -> None:
    garbage(cli)
    before = cli.objects()
    plan = cli.json("gc", "--keep", "3")
    assert (plan["deleted"], len(plan["dropped"]), plan["expired"]) == (False, 2, [])
    assert set(plan["areas"]) == {"commits", "files", "trees"}
    assert plan["reasons"] == {"reached by no branch, tag or kept entry": plan["objects"]}
    assert set(plan["keys"]) <= before
    printed = cli.text("gc", "--keep", "3")
    assert printed.startswith(f"{plan['objects']} objects (")
    assert "reached by no branch, tag or kept entry" in printed
    assert printed.endswith("this was a dry run: add --yes to delete\n")
    assert cli.objects() == before


def test_gc_with_yes_deletes_exactly_what_the_dry_run_named(cli: Cli) -> None:
    garbage(cli)
    before = cli.objects()
    planned = cli.json("gc", "--keep", "3")
    done = cli.json("gc", "--keep", "3", "--yes", "--grace", "0")
    assert (done["deleted"], done["keys"]) == (True, planned["keys"])
    number = cli.repo().native.branch_log.key("main", cli.repo().head("main").seq)  # the one that gc takes (D3)
    assert cli.objects() == before - set(planned["keys"]) | {number}
    assert cli.run("cat", "main", "kept").stdout == "2"
    assert cli.json("fsck")["clean"]
    assert cli.text("gc", "--keep", "3", "--yes", "--grace", "0").startswith("nothing to delete; ")


def test_gc_by_age_expires_content_and_keeps_the_log(cli: Cli) -> None:
    for number in range(6):
        cli.put("a", str(number))
    old = cli.repo().commit("main~5").id
    assert cli.json("gc", "--keep", "3")["expired"] == []
    assert cli.json("gc", "--keep", "3", "--older-than", "1w")["expired"] == []
    assert old in cli.json("gc", "--keep", "3", "--expire")["expired"]
    printed = cli.text("gc", "--keep", "3", "--older-than", "0s", "--yes", "--grace", "0")
    assert "deleted; " in printed
    assert "commits of the log whose content goes" in printed
    assert len(cli.json("log")) == 7
    assert cli.json("show", old)["changes"] is None
    assert "given up by garbage collection" in cli.run("show", old).stderr
    assert cli.json("branch", "past", "--from", old, code=9)["code"] == "recovery.condemned"
    assert cli.json("fsck")["clean"]
    assert "note: the content of commit" in cli.run("fsck").stderr


def test_gc_refuses_to_keep_too_little(cli: Cli) -> None:
    assert cli.json("gc", "--keep", "2", code=3)["code"] == "contract"


def test_lengths_of_time() -> None:
    assert [care.seconds(text) for text in ("45s", "10m", "12h", "30d", "4w", "1.5h")] == [
        45,
        600,
        43_200,
        2_592_000,
        2_419_200,
        5_400,
    ]


def damage_file(cli: Cli) -> str:
    """Change one byte of the published file; returns its address."""
    cli.put("data/a.txt", "hello")
    address = cli.repo().stat("main", "data/a.txt").address
    Path(cli.url, address).write_bytes(b"hellO")
    return address


def test_fsck_of_a_sound_repository(cli: Cli) -> None:
    cli.put("a", "12345")
    report = cli.json("fsck")
    assert (report["clean"], report["problems"], report["commits"], report["files"]) == (True, [], 2, 1)
    assert cli.text("fsck") == "clean: 2 commits, 1 tree range, 1 file, 5 B\n"


def test_fsck_names_what_is_broken_and_what_that_breaks(cli: Cli) -> None:
    address = damage_file(cli)
    (problem,) = cli.json("fsck", code=10)["problems"]
    assert (problem["address"], problem["what"]) == (address, "does not match its checksum")
    assert problem["breaks"][0].startswith("branch main at ")
    printed = cli.run("fsck", code=10).stdout
    assert printed.startswith("1 problem in ")
    assert address in printed
    assert "data/a.txt" in printed
    assert cli.json("fsck", "--no-content")["clean"]
    Path(cli.url, address).unlink()
    assert cli.json("fsck", "--no-content", code=10)["problems"][0]["what"] == "is missing"


def test_reading_damaged_bytes_is_a_store_error(cli: Cli, tmp_path: Path) -> None:
    damage_file(cli)
    assert "are not those that were written" in cli.run("cat", "main", "data/a.txt", code=6).stderr
    assert cli.json("get", "main", "data/a.txt", str(tmp_path / "out"), code=6)["code"] == "store.damaged"
    assert not (tmp_path / "out").exists()


# --- doctor -----------------------------------------------------------------------------------------------------


def findings(cli: Cli, code: int = 0) -> dict[str, dict[str, str]]:
    return {found["check"]: found for found in cli.json("doctor", code=code)["findings"]}


def test_doctor_finds_a_healthy_repository(cli: Cli) -> None:
    cli.put("a", "1")
    before = cli.objects()
    found = findings(cli)
    assert {name for name, each in found.items() if each["state"] != "ok"} <= {"java", "disk space"}
    assert set(found) == {
        "python", "java", "spark", "disk space", "file system", "clock",
        "repository", "heads", "intents", "collections",
    }  # fmt: skip
    assert cli.objects() == before
    assert "creates only if absent" in cli.text("doctor")


def test_doctor_without_a_repository(tmp_path: Path) -> None:
    cli = Cli(tmp_path)
    found = findings(cli, code=10)
    assert found["repository"]["state"] == "fail"
    assert "fenceline init" in found["repository"]["next_step"]
    assert "fenceline init" in cli.run("doctor", code=10).stdout
    assert findings_of("nowhere://x")["repository"].state == "fail"


def findings_of(url: str) -> dict[str, Finding]:
    return {found.check: found for found in doctor.examine(url)}


def test_doctor_says_how_to_get_java(cli: Cli, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("JAVA_HOME", raising=False)
    monkeypatch.setenv("PATH", str(tmp_path))
    found = findings(cli)["java"]
    assert (found["state"], found["what"]) == ("warn", "no Java found; 17 or newer is needed")
    for way in ("apt install openjdk-17", "brew install --cask temurin@17", "adoptium.net"):
        assert way in found["next_step"]


@pytest.mark.parametrize(
    ("answer", "state"),
    [
        ('openjdk version "17.0.15" 2025-04-15', "ok"),
        ('openjdk version "21" 2023-09-19', "ok"),
        ('java version "1.8.0_301"', "warn"),
        ("nothing of the kind", "warn"),
    ],
)
def test_doctor_reads_the_version_of_java(
    cli: Cli, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, answer: str, state: str
) -> None:
    java = tmp_path / "jdk" / "bin" / "java"
    java.parent.mkdir(parents=True)
    java.write_text(f"#!/bin/sh\necho '{answer}' >&2\n")
    java.chmod(0o755)
    monkeypatch.setenv("JAVA_HOME", str(tmp_path / "jdk"))
    assert findings(cli)["java"]["state"] == state


def test_doctor_finds_a_head_that_cannot_be_read(cli: Cli) -> None:
    commit = cli.put("a", "1")["commit"]
    Path(cli.url, "commits", commit).write_bytes(b"{}")
    found = findings(cli, code=10)
    assert (found["branch main"]["state"], found["branch main"]["next_step"][:14]) == ("fail", "fenceline fsck")


def test_doctor_finds_a_collection_whose_process_is_gone(cli: Cli) -> None:
    objects = LocalObjects(cli.url)
    dead = replace(this_process(), started="0")
    announce(objects, Condemned("01run", dead, 0.0, ("a" * 64,)))
    found = findings(cli)["collections"]
    assert (found["state"], found["what"]) == ("warn", "1 collection died and left 1 commit condemned")
    cli.run("gc", "--yes", "--grace", "0")
    assert findings(cli)["collections"]["state"] == "ok"


def test_doctor_finds_a_disk_that_is_almost_full(cli: Cli, monkeypatch: pytest.MonkeyPatch) -> None:
    free = iter((10**9, 10**8))

    class Usage:
        def __init__(self, path: str) -> None:
            self.free = next(free)

    monkeypatch.setattr("shutil.disk_usage", Usage)
    assert findings(cli)["disk space"]["state"] == "warn"
    assert findings(cli, code=10)["disk space"]["state"] == "fail"


def test_doctor_finds_a_store_whose_clock_is_off() -> None:
    states = [doctor.clock(100.0, 100.0 + off, 100.0).state for off in (0.0, 1.0, 5.0, -5.0, 60.0)]
    assert states == ["ok", "ok", "warn", "warn", "fail"]


def test_doctor_finds_a_file_system_that_overwrites(cli: Cli, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(LocalObjects, "create", lambda self, key, data: self.put(key, data))
    assert findings(cli, code=10)["file system"]["state"] == "fail"


def test_doctor_says_when_it_may_not_write(tmp_path: Path) -> None:
    (found,) = doctor.file_system(str(tmp_path / "absent"))
    assert (found.state, found.what[:15]) == ("warn", "cannot be tried")


# --- errors -----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("error", "code"),
    [
        (NotFound("gone"), 3),
        (InvalidName("bad"), 3),
        (fl.PublishConflict("moved", branch="main", expected="a", actual="b", paths=["x", "y"]), 4),
        (PublishFenceError("fenced"), 5),
        (StoreFull("full"), 6),
        (NotARepository("none"), 7),
        (fl.OutcomeUnknown("who knows"), 8),
        (UnpublishedCommit("staged"), 9),
        (fl.GuardError("broken rule"), 9),
    ],
    ids=lambda value: value.code if isinstance(value, FencelineError) else None,
)
def test_exit_code_and_form_of_each_class_of_error(
    cli: Cli, monkeypatch: pytest.MonkeyPatch, error: FencelineError, code: int
) -> None:
    error.hint = "do this next"

    def fail(url: str) -> fl.Repository:
        raise error

    monkeypatch.setattr(history, "reading", fail)
    shown = cli.run("log", code=code)
    assert (shown.stdout, shown.stderr) == ("", f"error: {error.message}\nhint: do this next\n")
    document = cli.json("log", code=code)
    assert document.items() >= error.as_dict().items()
    assert document["exit_code"] == code
    assert code in EXIT_CODES
    if isinstance(error, fl.PublishConflict):
        assert document["paths"] == ["x", "y"]


def test_notes_of_an_error_are_shown(cli: Cli, monkeypatch: pytest.MonkeyPatch) -> None:
    error = StoreFull("full")
    error.add_note("an intent is left")

    def fail(url: str) -> fl.Repository:
        raise error

    monkeypatch.setattr(history, "reading", fail)
    assert cli.run("log", code=6).stderr == "error: full\nnote: an intent is left\n"
    assert cli.json("log", code=6)["notes"] == ["an intent is left"]


def test_no_repository_there(tmp_path: Path) -> None:
    cli = Cli(tmp_path)
    for arguments in (("log",), ("ls",), ("branch", "x"), ("recover",), ("gc",), ("fsck",), ("intents",)):
        assert cli.json(*arguments, code=7)["code"] == "config.not_a_repository"
    assert os.listdir(tmp_path) == []


def test_missing_local_file_and_missing_branch(cli: Cli) -> None:
    assert cli.json("put", "main", str(cli.root / "nope"), "a", code=3)["code"] == "not_found"
    assert cli.json("put", "nope", "-", "a", code=3, stdin=b"x")["code"] == "not_found"
    assert cli.json("intents") == []


READ_ONLY: dict[str, Callable[[Cli], object]] = {
    "get": lambda cli: cli.run("get", "main", "a", str(cli.root / "out")),
    "cat": lambda cli: cli.run("cat", "main", "a"),
    "ls": lambda cli: cli.run("ls"),
    "log": lambda cli: cli.run("log", "--graph"),
    "show": lambda cli: cli.run("show"),
    "diff": lambda cli: cli.run("diff", "main~1", "main"),
    "branch": lambda cli: cli.run("branch"),
    "tag": lambda cli: cli.run("tag"),
    "recoveries": lambda cli: cli.run("recoveries"),
    "intents": lambda cli: cli.run("intents"),
    "gc": lambda cli: cli.run("gc"),
    "fsck": lambda cli: cli.run("fsck"),
}


@pytest.mark.parametrize("name", READ_ONLY)
def test_commands_that_only_look_never_sweep(cli: Cli, monkeypatch: pytest.MonkeyPatch, name: str) -> None:
    cli.put("a", "1")

    def sweep(self: fl.Repository) -> None:
        raise AssertionError("swept")

    monkeypatch.setattr(fl.Repository, "recover", sweep)
    READ_ONLY[name](cli)

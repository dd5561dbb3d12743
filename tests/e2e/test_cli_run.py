"""`fenceline run` and `fenceline runs`: a pipeline from the terminal, in real processes."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from run_by_command import Place
from typer.testing import CliRunner

from fenceline.cli.main import app


@pytest.fixture
def place(tmp_path: Path) -> Place:
    return Place(tmp_path)


def test_run_shows_its_steps_and_where_to_look(place: Place) -> None:
    start = place.repo.head("main").commit.id
    done = place.run()
    assert place.files() == {"raw/2026-01-01.csv", "songs/2026-01-01.txt", "total/2026-01-01.txt"}
    rows = {line.split()[0]: line.split() for line in done.stdout.splitlines()[1:5]}
    assert [rows[name][1:3] for name in ("fetch", "songs", "total", "publish")] == [["done", "1"]] * 4
    assert "2 passed" in done.stdout
    assert "completed in" in done.stdout
    head = place.repo.head("main").commit.id
    assert f"fenceline diff {start[:12]} {head[:12]}" in done.stdout
    assert "  songs started\n" in done.stderr
    assert "fetching 2026-01-01" in done.stderr  # what tasks print is no part of the answer
    assert "fetching" not in done.stdout


def test_runs_are_listed_and_shown_by_a_prefix(place: Place) -> None:
    assert place.call("runs").stderr == "no runs yet\n"
    assert not (place.root / "repo" / "runner").exists()  # looking makes no file
    place.run("2026-01-01", "--key", "first")
    (listed,) = place.json("runs")
    assert (listed["name"], listed["key"], listed["status"], listed["steps"]) == ("plays", "first", "COMPLETED", "3/3")
    run = listed["id"]
    shown = place.call("runs").stdout.splitlines()
    assert shown[0].split() == ["run", "pipeline", "key", "status", "steps", "started", "took"]
    assert shown[1].split()[:5] == [run, "plays", "first", "COMPLETED", "3/3"]
    document = place.json("runs", "show", run[:20], "--events")
    assert [step["reference"] for step in document["steps"]] == ["begin", "fetch", "songs", "total", "publish"]
    assert document["events"][0]["kind"] == "run.started"
    again = place.run("2026-01-01", "--key", "first")
    assert "key first was completed before; nothing was run" in again.stdout
    assert len(place.ran()) == 3


def test_json_is_events_and_at_last_the_run(place: Place) -> None:
    done = place.run("2026-01-01", "--json", "-j", "1")
    *events, run = map(json.loads, done.stdout.splitlines())
    assert [event["seq"] for event in events] == list(range(1, len(events) + 1))
    assert {event["type"] for event in events} == {"event"}
    assert {"run.started", "task.started", "phase", "guards", "outcome", "task.completed", "run.completed"} <= {
        event["kind"] for event in events
    }
    assert (run["type"], run["status"]) == ("run", "COMPLETED")
    assert "fetching 2026-01-01" in done.stderr


def test_a_broken_guard_is_listed_and_the_run_goes_on_from_its_step(place: Place) -> None:
    (place.root / "bad").write_text("2026-01-01")
    done = place.run(code=9)
    (run,) = (each.id for each in place.runs())
    assert f"run {run} failed at songs, attempt 1: post_guards" in done.stdout
    table = [line.split() for line in done.stdout.splitlines()]
    assert any(row[:2] == ["require_glob", "*.txt"] for row in table)
    assert any(row[:2] == ["forbid_glob", "*.tmp"] for row in table)
    assert f"fenceline runs restart-from {run} songs --yes" in done.stdout
    assert f"fenceline runs publish {run}" in done.stdout
    assert place.files() == set()

    (place.root / "bad").unlink()
    told = place.call("runs", "restart-from", run, "songs").stdout
    assert "nothing was done" in told
    assert "songs" in told
    assert place.ran().count("2026-01-01 songs") == 1
    done = place.call("runs", "restart-from", run, "songs", "--yes")
    assert f"run {run} completed" in done.stdout
    assert place.ran().count("2026-01-01 songs") == 2
    assert place.ran().count("2026-01-01 fetch") == 1
    assert "songs/2026-01-01.txt" in place.files()


def test_what_a_failed_run_made_can_be_published_and_a_run_that_is_over_not_resumed(place: Place) -> None:
    (place.root / "bad").write_text("2026-01-01")
    place.run(code=9)
    (run,) = (each.id for each in place.runs())
    assert "there is nothing to go on with" in place.call("runs", "resume", run, code=3).stderr
    place.call("runs", "cancel", run, code=4)
    published = place.json("runs", "publish", run, "--strategy", "theirs")
    assert published["commit"] == place.repo.head("main").commit.id
    assert "raw/2026-01-01.csv" in place.files()


def test_what_cannot_be_run_is_told_before_anything_starts(place: Place) -> None:
    assert "day" in place.call("run", "plays.py", "--params", '{"beside": "x"}', code=3).stderr
    assert json.loads(place.call("run", "plays.py:nothing", "--json", code=3).stderr)["code"]
    file, url = str(place.root / "plays.py"), ("--repo", place.url)
    for refused in (
        ("run", file, "--params", "{", *url),
        ("run", file, "--params", place.params(), "--branch", "nowhere", *url),
        ("runs", "show", "zzz", *url),
        ("runs", "cancel", "zzz", *url),
    ):
        assert CliRunner().invoke(app, refused).exit_code == 3, refused
    assert CliRunner().invoke(app, ["runs", "--status", "failed", *url]).stderr == "no runs that are FAILED\n"
    assert place.ran() == []

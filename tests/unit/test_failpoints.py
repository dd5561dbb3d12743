"""Named crash points: free when off, strict about what they are told, real when they act."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from fenceline import failpoints
from fenceline.errors import ConfigError, Outcome, OutcomeUnknown, StoreError, StoreFull

EFFECT = failpoints.Effect("test.effect", "an effect of this test, registered nowhere", "nothing", "it happened")


@pytest.fixture
def switch_on(monkeypatch: pytest.MonkeyPatch) -> pytest.MonkeyPatch:
    monkeypatch.setattr(failpoints, "_switched_on", True)
    return monkeypatch


def act(patch: pytest.MonkeyPatch, text: str) -> None:
    patch.setattr(failpoints, "_actions", failpoints._parse(text))


def test_they_are_off_by_default_and_cost_one_test() -> None:
    code = (
        "import fenceline; from fenceline import failpoints as f\n"
        "def never(point): raise SystemExit('hit ' + point)\n"
        "f._hit = never\n"
        "assert not f._switched_on and not f._actions\n"
        "with f.Effect('x', '', '', ''): pass\n"
    )
    env = {k: v for k, v in os.environ.items() if not k.startswith("FENCELINE_")}
    subprocess.run([sys.executable, "-c", code], check=True, env=env)


@pytest.mark.parametrize(
    "text",
    [
        "verdict.seal.after",
        "verdict.seal.after=",
        "verdict.seal.after=explode",
        "verdict.seal.after@=crash",
        "verdict.seal.after@x=crash",
        "verdict.seal.after@-1=crash",
        "a.before=crash;b.after=",
        "a.before=error:NOSUCH",
        "a.before=error:errorcode",
        "=",
    ],
)
def test_what_cannot_be_read_is_refused(text: str) -> None:
    with pytest.raises(ConfigError, match=failpoints.ENV):
        failpoints._parse(text)


def test_a_process_with_unreadable_failpoints_does_not_start() -> None:
    """A typing error must not pass for a test that found nothing."""
    ended = subprocess.run(
        [sys.executable, "-c", "import fenceline"],
        env={**os.environ, failpoints.ENV: "nonsense"},
        capture_output=True,
        text=True,
        check=False,
    )
    assert ended.returncode != 0
    assert "nonsense" in ended.stderr


def test_several_points_and_spaces_are_read() -> None:
    assert set(failpoints._parse(" a.before=crash ; b.after@3=error:ENOSPC;; c.before=pause")) == {
        "a.before",
        "b.after",
        "c.before",
    }
    assert failpoints._parse("") == {}


def test_an_error_before_the_effect_means_it_did_not_happen(switch_on: pytest.MonkeyPatch) -> None:
    act(switch_on, "test.effect.before=error:ENOSPC")
    happened = False
    with pytest.raises(StoreFull) as raised, EFFECT:
        happened = True
    assert not happened
    assert raised.value.outcome is Outcome.NOT_APPLIED


def test_an_error_after_the_effect_means_nobody_knows(switch_on: pytest.MonkeyPatch) -> None:
    """INV-3."""
    act(switch_on, "test.effect.after=error")
    with pytest.raises(OutcomeUnknown), EFFECT:
        pass


def test_the_point_after_is_not_hit_when_the_effect_failed(switch_on: pytest.MonkeyPatch) -> None:
    act(switch_on, "test.effect.after=error")
    with pytest.raises(ZeroDivisionError), EFFECT:
        raise ZeroDivisionError


def test_only_the_nth_hit_acts(switch_on: pytest.MonkeyPatch) -> None:
    act(switch_on, "test.effect.before@3=error")
    for _ in range(2):
        with EFFECT:
            pass
    with pytest.raises(StoreError), EFFECT:
        pass
    with EFFECT:
        pass


def run_child(point: str, tmp_path: Path) -> subprocess.Popen[bytes]:
    code = "import sys, fenceline\nwith fenceline.open_repository(sys.argv[1], create=True): print('done')"
    return subprocess.Popen(
        [sys.executable, "-c", code, str(tmp_path / "repo")],
        env={**os.environ, failpoints.ENV: point, failpoints.LOG_ENV: str(tmp_path / "log")},
        stdout=subprocess.PIPE,
    )


def test_crash_is_a_real_kill_and_every_hit_is_logged(tmp_path: Path) -> None:
    child = run_child("format.create.before=crash", tmp_path)
    child.communicate(timeout=30)
    assert child.returncode == -signal.SIGKILL
    hits = (tmp_path / "log").read_text().split()
    assert hits[-1] == "format.create.before"
    assert "entry.create.after" in hits


def test_pause_is_a_real_stop_that_goes_on_when_woken(tmp_path: Path) -> None:
    child = run_child("format.create.after=pause", tmp_path)
    _, status = os.waitpid(child.pid, os.WUNTRACED)
    assert os.WIFSTOPPED(status)
    os.kill(child.pid, signal.SIGCONT)
    out, _ = child.communicate(timeout=30)
    assert (child.returncode, out) == (0, b"done\n")


def test_every_effect_is_declared_once_with_a_description() -> None:
    found = failpoints.effects()
    assert len(found) > 20
    assert list(found) == sorted(found)
    for name, effect in found.items():
        assert (effect.before, effect.after) == (f"{name}.before", f"{name}.after")
        assert effect.description
        assert effect.if_dead_before
        assert effect.if_dead_after
    with pytest.raises(ConfigError, match="twice"):
        failpoints.effect(next(iter(found)), "again", before="", after="")

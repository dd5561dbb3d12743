"""A fence is written right behind the entries it was decided on, or not at all."""

from __future__ import annotations

from pathlib import Path

import pytest
from harness import Paused, content, prepared

import fenceline as fl
from fenceline.repo.model import RefEntry
from fenceline.repo.native.refs import RefLog
from fenceline.txn.intent import IntentStore
from fenceline.txn.publish import fence


def test_a_fence_never_lands_behind_the_publish_it_did_not_see(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """D1: deciding on one reading of the log and numbering by a later one would delete what was just published."""
    root = prepared(tmp_path / "repo")
    writer = Paused.at("entry.publish.before", ["write", root, "a.txt", "a"])
    repo = fl.open_repository(root, mode="r")
    intents = IntentStore(repo.native.objects, repo.native.seams)
    intent = intents.get(next(iter(intents.executions())))
    original = RefLog.last
    looked = []

    def last(self: RefLog, name: str) -> RefEntry | None:
        found = original(self, name)
        looked.append(found)
        if len(looked) == 1:
            assert writer.wake()["outcome"] == "applied"
        return found

    monkeypatch.setattr(RefLog, "last", last)
    decided = fence(repo.native, intent, "sweeper", "test", "race")
    assert decided.op == "publish"
    assert content(fl.open_repository(root))["a.txt"] == b"a"

"""Modules with tasks, written for one test and forgotten after it."""

from __future__ import annotations

import sys
import textwrap
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

HEAD = """\
from __future__ import annotations
import functools
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar
from pydantic import BaseModel, ConfigDict, RootModel, SecretStr
from fenceline.task.contract import task
from fenceline.task.spec import PublishBudget, TaskControls, WorkspaceSpec

class Params(BaseModel, extra="forbid"):
    day: str = "2026-01-01"

class Out(BaseModel):
    rows: int = 0

class Spark:
    __fenceline_workspace__: ClassVar[str] = "spark"

WS = WorkspaceSpec()
"""

Writer = Callable[..., str]


@pytest.fixture
def module(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Writer]:
    """Write a module below a directory that is then the working one; returns its path."""
    before = set(sys.modules)
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "path", list(sys.path))
    monkeypatch.setattr(sys, "dont_write_bytecode", True)  # a module rewritten within a second must be read again

    def write(source: str, path: str = "tasks_of_a_test.py", head: str = HEAD) -> str:
        file = tmp_path / path
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(head + textwrap.dedent(source))
        return path

    yield write
    for name in set(sys.modules) - before:
        if (getattr(sys.modules[name], "__file__", None) or "").startswith(str(tmp_path)):
            del sys.modules[name]

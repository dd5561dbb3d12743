"""What the tests of tables share: a store on disk, in a directory whose name has a blank."""

from __future__ import annotations

from pathlib import Path

import pytest

from fenceline.graph.storage import TableStore
from fenceline.repo.native.local import LocalObjects


@pytest.fixture
def objects(tmp_path: Path) -> LocalObjects:
    return LocalObjects(tmp_path / "a repo")


@pytest.fixture
def store(objects: LocalObjects) -> TableStore:
    return TableStore(objects)

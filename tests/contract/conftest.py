"""The contract suites also run on a real S3-speaking server, where there is one."""

from __future__ import annotations

from pathlib import Path

import pytest

from fenceline.repo.native.local import LocalObjects
from fenceline.repo.native.objects import ObjectStore
from fenceline.testing import MemoryObjects


@pytest.fixture(params=["memory", "disk", "s3"])
def store(request: pytest.FixtureRequest, tmp_path: Path) -> ObjectStore:
    if request.param == "s3":
        found: ObjectStore = request.getfixturevalue("s3_objects")
        return found
    return MemoryObjects() if request.param == "memory" else LocalObjects(tmp_path / "store")

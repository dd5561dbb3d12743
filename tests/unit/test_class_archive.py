"""The archive of Spark's classes: found by Java and Spark, forgotten with them."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from fenceline.errors import ConfigError
from fenceline.spark.class_archive import ClassArchive


@pytest.fixture
def archive(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> ClassArchive:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    (tmp_path / "java").write_text("#!/bin/sh\n")
    (tmp_path / "pyspark/jars").mkdir(parents=True)
    return ClassArchive(str(tmp_path / "java"), str(tmp_path / "pyspark"))


def keep(archive: ClassArchive) -> None:
    archive.path.parent.mkdir(parents=True, exist_ok=True)
    archive.path.write_bytes(b"classes")
    Path(f"{archive.path}.json").write_text(f'{{"java": "{archive.java}", "spark": "{archive.spark}"}}')


def test_without_an_archive_the_jvm_is_given_nothing(archive: ClassArchive) -> None:
    assert archive.options == ""


def test_an_archive_is_given_to_the_jvm(archive: ClassArchive) -> None:
    keep(archive)
    assert f"-XX:SharedArchiveFile={archive.path}" in archive.options


@pytest.mark.parametrize("changed", ["java", "pyspark/jars/spark-core.jar"])
def test_another_java_or_other_jars_have_another_archive(archive: ClassArchive, tmp_path: Path, changed: str) -> None:
    keep(archive)
    (tmp_path / changed).write_text("another")
    assert archive.options == ""


def test_archives_are_forgotten_with_their_spark(archive: ClassArchive, tmp_path: Path) -> None:
    keep(archive)
    other = ClassArchive(archive.java, str(tmp_path / "other"))
    keep(other)
    assert archive.forget_others() == [other.path]
    assert archive.path.exists()
    assert sorted(os.listdir(archive.path.parent)) == [archive.path.name, f"{archive.path.name}.json"]


def test_a_spark_that_does_not_start_leaves_no_archive(archive: ClassArchive, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("JAVA_HOME", os.path.dirname(archive.java))
    with pytest.raises(ConfigError, match="not archived"):
        archive.make()
    assert os.listdir(archive.path.parent) == []

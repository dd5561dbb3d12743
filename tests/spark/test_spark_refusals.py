"""What a workspace refuses, before a byte is written."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest

from fenceline import Repository
from fenceline.errors import AlreadyExists, ConfigError, ContractError, InvalidName
from fenceline.spark import SparkWorkspace, replace_where
from fenceline.testing import MemoryObjects

if TYPE_CHECKING:
    from tests.spark.conftest import Lab

DAYS = "day string, n int"


@pytest.mark.parametrize(
    ("path", "options", "error", "said"),
    [
        ("t", {"format": "delta"}, ContractError, "cannot be delta: its log names files by absolute paths"),
        ("t", {"format": "Iceberg"}, ContractError, "cannot be iceberg"),
        ("t", {"format": "hudi"}, ContractError, "cannot be hudi"),
        ("t", {"format": "jdbc"}, ContractError, "cannot write the format 'jdbc'.*output_dir"),
        ("t", {"mode": "ignore"}, ContractError, "mode is 'ignore'"),
        ("t", {"mode": "overwrite_partitions"}, ContractError, "needs partition_by"),
        ("t", {"partition_by": ["nope"]}, ContractError, "partition_by names nope"),
        ("t", {"partition_by": ["day", "day"]}, ContractError, "names a column twice"),
        ("a:b", {}, ContractError, "without ':'"),
        ("file:///elsewhere", {}, ContractError, "below its own prefix"),
        ("/absolute", {}, InvalidName, "is absolute"),
        ("../out", {}, InvalidName, "lead out of the repository"),
        ("", {}, InvalidName, "empty"),
        ("x/_fl=1", {}, InvalidName, "marks datasets"),
        ("file.txt", {}, AlreadyExists, "is a file"),
        ("file.txt/t", {}, AlreadyExists, "is a file"),
        ("dir", {}, AlreadyExists, "is a directory"),
        ("there/below", {}, AlreadyExists, "is a dataset"),
        ("there", {}, AlreadyExists, "the dataset there exists"),
    ],
)
def test_refused(lab: Lab, path: str, options: dict[str, Any], error: type[Exception], said: str) -> None:
    with lab.repo.transaction() as tx:
        tx.write("file.txt", b"x")
        tx.write("dir/file.txt", b"x")
    if path.startswith("there"):
        lab.put(lab.frame([("a", 1)], DAYS), "there")
    attempt = lab.attempt()
    with pytest.raises(error, match=said):
        attempt.workspace.write(lab.frame([("a", 1)], DAYS), path, **options)
    assert not attempt.trying.started  # not a byte, not even an intent


def test_streaming_frames_and_the_job_column(lab: Lab) -> None:
    workspace = lab.attempt().workspace
    with pytest.raises(ContractError, match="streaming frame"):
        workspace.write(lab.session.readStream.format("rate").load(), "t")
    with pytest.raises(ContractError, match="cannot be called '_fl'"):
        workspace.write(lab.frame([(1,)], "_FL int"), "t")


def test_a_read_only_workspace(lab: Lab) -> None:
    lab.put(lab.frame([("a", 1)], DAYS), "t")
    workspace = lab.attempt(read_only=True).workspace
    assert lab.collect(workspace.read.dataset("t")) == [("a", 1)]
    with pytest.raises(ContractError, match="read-only"):
        workspace.write(lab.frame([("a", 1)], DAYS), "u")
    with pytest.raises(ContractError, match="read-only"), workspace.output_dir("u"):
        pass


def test_output_dir_refuses_what_spark_could_not_read(lab: Lab) -> None:
    workspace = lab.attempt().workspace
    for name, said in (("a:b", "has ':'"), ("k=1/x", "does not lie in directories")):
        with pytest.raises(ContractError, match=said), workspace.output_dir("t") as directory:  # noqa: PT012
            import os

            os.makedirs(f"{directory}/k=1")
            with open(f"{directory}/{name}", "w", encoding="ascii") as file:
                file.write("x")
    with pytest.raises(ContractError, match="output_dir takes"), workspace.output_dir("t", mode="ignore"):  # type: ignore[arg-type]
        pass


def test_a_predicate_is_needed() -> None:
    with pytest.raises(ContractError, match="needs a SQL predicate"):
        replace_where(" ")


def test_stores_that_spark_cannot_open_are_refused(lab: Lab) -> None:
    memory = Repository.on(MemoryObjects(), create=True)
    with pytest.raises(ConfigError, match="cannot reach the files"):
        SparkWorkspace(lab.session, memory.native, lab.attempt().trying, "", None, memory.native.seams)  # type: ignore[arg-type]

"""Spark tasks on a repository in a bucket, in a process of their own: `python spark_on_s3.py URL`.

Prints one JSON line. A JVM takes its jars when it starts, so the session that other tests share cannot do this.
"""

from __future__ import annotations

import json
import sys
import tempfile
from pathlib import Path
from typing import Any

from pydantic import BaseModel, ConfigDict

import fenceline as fl
from fenceline.errors import ConfigError
from fenceline.seams import Seams
from fenceline.spark.session import get_session, stop_session
from fenceline.spark.settings import SparkSettings
from fenceline.task.attempt import AttemptRunner
from fenceline.task.by_hand import ByHand, handed_out
from fenceline.task.contract import TaskDefinition


class Params(BaseModel):
    model_config = ConfigDict(extra="forbid")
    rows: int = 0


class Seen(BaseModel):
    rows: int
    more: dict[str, Any] = {}


SPEC = fl.WorkspaceSpec(prefix="")


@fl.task(name="s3.fill", owner="tests@example.com", version="1", workspace=SPEC)
def fill(workspace: fl.SparkWorkspace, params: Params) -> Seen:
    frame = workspace.spark.range(params.rows).selectExpr("id", "id % 2 as half", "'ü b' as word")
    told = workspace.write(frame, "plays", partition_by="half", mode="append")
    return Seen(rows=workspace.read.dataset("plays").count(), more={"told": [told.rows, told.files]})


@fl.task(name="s3.mend", owner="tests@example.com", version="1", workspace=SPEC)
def mend(workspace: fl.SparkWorkspace, params: Params) -> Seen:
    """Rows of one half are replaced; a write that fails in the middle is caught, and leaves nothing."""
    few = workspace.spark.range(params.rows).selectExpr("id", "1L as half", "'new' as word")
    workspace.write(few, "plays", partition_by="half", mode=fl.SparkWorkspace.replace_where("half = 1"))
    broken = workspace.spark.range(10).selectExpr("id", "raise_error('on purpose') as bad")
    try:
        workspace.write(broken, "broken")
    except Exception as error:  # noqa: BLE001 — whatever Spark wraps it in
        failed = type(error).__name__
    else:
        failed = ""
    odd = workspace.read.text("old").count()
    there = workspace.exists("broken")
    return Seen(rows=workspace.read.dataset("plays").count(), more={"failed": failed, "there": there, "odd": odd})


def without_jars(repo: fl.Repository) -> str:
    """What a session that was started without the jars is told."""
    session = get_session(SparkSettings(master="local[1]"))
    try:
        repo.at("main").spark(session)
    except ConfigError as error:
        return f"{error.message} {error.hint}"
    finally:
        stop_session()
    return ""


def main(url: str) -> None:
    repo = fl.open_repository(url, create=True)
    with repo.transaction("main") as tx:
        tx.write("old/a.txt", "one\ntwo\n")
        tx.write("old/b[1].txt", "three\n")
    refused = without_jars(repo)
    with tempfile.TemporaryDirectory() as work:
        runner = AttemptRunner(
            lambda _: repo.native, ByHand(), Path(work), actor="tests", spark=SparkSettings(master="local[2]")
        )

        def run(definition: TaskDefinition[Any, Any], rows: int) -> Any:
            ref = repo.head("main").commit.id
            place = {"repository": repo.url, "branch": "main", "ref_type": "commit", "ref": ref}
            result = runner.run(
                definition, handed_out(definition.name, {"workspace": place, "params": {"rows": rows}}, Seams())
            )
            assert result.status == "COMPLETED", result.reason
            return result.output["result"]

        told = {"first": run(fill, 100), "second": run(fill, 50), "mended": run(mend, 7)}
    counted = {
        row["half"]: row["count"] for row in repo.at("main").spark().dataset("plays").groupBy("half").count().collect()
    }
    uris = repo.at("main").uris("plays")
    stop_session()
    print(json.dumps({**told, "refused": refused, "counted": counted, "uris": uris[:1], "sound": repo.fsck().clean}))


if __name__ == "__main__":
    main(sys.argv[1])

"""Every write mode: what the dataset holds afterwards, at this commit and at those before it."""

from __future__ import annotations

import threading
from decimal import Decimal
from typing import TYPE_CHECKING, Any

import pytest
from pyspark.sql import functions as F  # noqa: N812

from fenceline import MergeConflict
from fenceline.errors import AlreadyExists, ContractError
from fenceline.spark import SparkWorkspace, Written, replace_where

if TYPE_CHECKING:
    from tests.spark.conftest import Lab

DAYS = "day string, n int"


def test_create_append_overwrite_and_what_each_commit_shows(lab: Lab) -> None:
    first = lab.put(lab.frame([("a", 1), ("b", 2)], DAYS), "t")
    second = lab.put(lab.frame([("c", 3)], DAYS), "t", mode="append")
    third = lab.put(lab.frame([("d", 4)], DAYS), "t", mode="overwrite")
    assert lab.rows("t", first) == [("a", 1), ("b", 2)]
    assert lab.rows("t", second) == [("a", 1), ("b", 2), ("c", 3)]
    assert lab.rows("t", third) == [("d", 4)]
    assert [lab.dataset("t", c).rows for c in (first, second, third)] == [2, 3, 1]
    assert [lab.dataset("t", c).operation for c in (first, second, third)] == ["create", "append", "overwrite"]
    assert lab.repo.fsck().problems == ()


def test_written_says_what_was_written(lab: Lab) -> None:
    attempt = lab.attempt()
    written = attempt.workspace.write(lab.frame([("a", 1), ("b", 2)], DAYS).coalesce(1), "t")
    attempt.publish()
    (part,) = [e for e in lab.repo.list("main", "t") if e.kind == "file"]
    assert written == Written(rows=2, files=1, bytes=part.size)
    assert lab.repo.stat("main", "t").size == part.size
    assert part.checksum == "none"
    assert part.address == f"datasets/{lab.dataset('t').id}/{part.path.removeprefix('t/')}"


def test_overwrite_partitions_replaces_exactly_those_in_the_frame(lab: Lab) -> None:
    lab.put(lab.frame([("a", 1), ("a", 2), ("b", 3), ("c", 4)], DAYS), "t", partition_by=["day"])
    lab.put(lab.frame([("b", 30), ("d", 5)], DAYS), "t", partition_by=["day"], mode="overwrite_partitions")
    assert lab.rows("t") == [("a", 1), ("a", 2), ("b", 30), ("c", 4), ("d", 5)]
    assert lab.dataset("t").rows == 5
    assert lab.dataset("t").files == sum(1 for e in lab.repo.list("main", "t") if e.kind == "file")


@pytest.mark.slow
def test_two_overwrites_of_different_partitions_merge_and_of_the_same_conflict(lab: Lab) -> None:
    lab.put(lab.frame([("a", 1), ("b", 2)], DAYS), "t", partition_by=["day"])
    for branch in ("one", "two", "three"):
        lab.repo.create_branch(branch)
    mode: Any = {"partition_by": ["day"], "mode": "overwrite_partitions"}
    lab.put(lab.frame([("a", 10)], DAYS), "t", "one", **mode)
    lab.put(lab.frame([("b", 20)], DAYS), "t", "two", **mode)
    lab.put(lab.frame([("b", 21)], DAYS), "t", "three", **mode)
    lab.repo.merge("one")
    lab.repo.merge("two")
    assert lab.rows("t") == [("a", 10), ("b", 20)]
    assert lab.dataset("t").rows == 2
    with pytest.raises(MergeConflict, match="partition day=b"):
        lab.repo.merge("three")


def test_two_appends_merge(lab: Lab) -> None:
    lab.put(lab.frame([("a", 1)], DAYS), "t")
    lab.repo.create_branch("dev")
    lab.put(lab.frame([("m", 2)], DAYS), "t", mode="append")
    lab.put(lab.frame([("d", 3)], DAYS), "t", "dev", mode="append")
    lab.repo.merge("dev")
    assert lab.rows("t") == [("a", 1), ("d", 3), ("m", 2)]
    assert lab.dataset("t").rows == 3


@pytest.mark.slow
def test_overwrite_and_replace_where_conflict_with_any_other_change(lab: Lab) -> None:
    lab.put(lab.frame([("a", 1)], DAYS), "t")
    lab.repo.create_branch("over")
    lab.repo.create_branch("where")
    lab.put(lab.frame([("m", 2)], DAYS), "t", mode="append")
    lab.put(lab.frame([("o", 3)], DAYS), "t", "over", mode="overwrite")
    lab.put(lab.frame([("a", 4)], DAYS), "t", "where", mode=replace_where("day = 'a'"))
    for branch in ("over", "where"):
        with pytest.raises(MergeConflict, match="overwritten on one side"):
            lab.repo.merge(branch)


def test_replace_where_rewrites_only_files_with_matching_rows(lab: Lab) -> None:
    lab.put(lab.frame([("a", 1), ("a", 2), ("a", 3)], DAYS).coalesce(1), "t")
    lab.put(lab.frame([("b", 4)], DAYS).coalesce(1), "t", mode="append")
    before = {e.path for e in lab.repo.list("main", "t") if e.kind == "file"}
    lab.put(lab.frame([("new", 2)], DAYS).coalesce(1), "t", mode=replace_where("n = 2 or n = 99"))
    after = {e.path for e in lab.repo.list("main", "t") if e.kind == "file"}
    assert lab.rows("t") == [("a", 1), ("a", 3), ("b", 4), ("new", 2)]
    assert lab.dataset("t").rows == 4
    assert len(before - after) == 1  # the file of the append stayed
    assert lab.dataset("t").files == len(after)
    assert lab.dataset("t").operation == "replace_where"


def test_replace_where_by_partition_and_with_nulls(lab: Lab) -> None:
    lab.put(lab.frame([("a:1 %+", 1), ("b", None), (None, 3)], DAYS), "t", partition_by=["day"])
    frame = lab.frame([("a:1 %+", 10), ("a:1 %+", 11)], DAYS)
    written: list[Written] = []
    lab.publish(
        lambda ws: written.append(ws.write(frame, "t", partition_by="day", mode=ws.replace_where("day = 'a:1 %+'")))
    )
    assert lab.rows("t") == [("a:1 %+", 10), ("a:1 %+", 11), ("b", None), (None, 3)]
    assert written[0].rows == 2
    lab.put(lab.frame([], DAYS), "t", partition_by=["day"], mode=replace_where("n > 10"))  # nulls do not match
    assert lab.rows("t") == [("a:1 %+", 10), ("b", None), (None, 3)]
    assert lab.dataset("t").rows == 3


def test_replace_where_refuses_rows_that_do_not_match(lab: Lab) -> None:
    lab.put(lab.frame([("a", 1)], DAYS), "t")
    attempt = lab.attempt()
    with pytest.raises(ContractError, match="1 rows of the frame do not match"):
        attempt.workspace.write(lab.frame([("a", 5), ("b", 6)], DAYS), "t", mode=replace_where("day = 'a'"))
    assert lab.collect(attempt.workspace.read.dataset("t")) == [("a", 1)]
    attempt.trying.cancel(RuntimeError("given up"))


def test_replace_where_creates_a_dataset_that_is_not_there(lab: Lab) -> None:
    lab.put(lab.frame([("a", 1)], DAYS), "t", mode=replace_where("day = 'a'"))
    assert lab.rows("t") == [("a", 1)]


def test_overwriting_what_the_frame_is_computed_from_is_safe(lab: Lab) -> None:
    lab.put(lab.frame([("a", 1), ("b", 2)], DAYS), "t")

    def body(workspace: SparkWorkspace) -> None:
        doubled = workspace.read.parquet("t").select("day", (F.col("n") * 2).alias("n"))
        workspace.write(doubled, "t", mode="overwrite")
        again = workspace.read.parquet("t").select("day", (F.col("n") + 1).alias("n"))
        workspace.write(again, "t", mode="overwrite")

    lab.publish(body)
    assert lab.rows("t") == [("a", 3), ("b", 5)]


def test_partition_values_keep_their_type(lab: Lab) -> None:
    lab.put(lab.frame([(1, "01"), (2, "1")], "v int, k string"), "t", partition_by=["k"])
    lab.put(lab.frame([(3, "x"), (4, None)], "v int, k string"), "t", partition_by=["k"], mode="append")
    assert lab.rows("t") == [(1, "01"), (2, "1"), (3, "x"), (4, None)]
    assert dict(lab.read().dataset("t").dtypes) == {"v": "int", "k": "string"}


def test_columns_keep_order_and_type(lab: Lab) -> None:
    schema = "p int, `a.b` decimal(12,2), day date, s struct<x:int,y:array<string>>, m map<string,int>, big bigint"
    import datetime

    day = datetime.date(2026, 1, 1)
    frame = lab.frame([(1, Decimal("1.50"), day, (1, ["q"]), {"k": 1}, 2**40)], schema)
    lab.put(frame, "t", partition_by=["p", "day"])
    found = lab.read().dataset("t")
    assert found.dtypes == frame.dtypes
    assert lab.collect(found) == lab.collect(frame)


def test_an_empty_frame_keeps_its_schema(lab: Lab) -> None:
    empty = lab.frame([], DAYS)
    written: list[Written] = []

    def body(workspace: SparkWorkspace) -> None:
        written.append(workspace.write(empty, "parted", partition_by=["day"]))
        written.append(workspace.write(empty, "flat"))

    lab.publish(body)
    assert [w.rows for w in written] == [0, 0]
    for path in ("parted", "flat"):
        assert lab.read().dataset(path).dtypes == [("day", "string"), ("n", "int")]
        assert lab.rows(path) == []
    lab.put(lab.frame([("a", 1)], DAYS), "parted", partition_by=["day"], mode="append")
    lab.put(lab.frame([], DAYS), "parted", partition_by=["day"], mode="overwrite_partitions")
    assert lab.rows("parted") == [("a", 1)]
    lab.put(empty, "parted", partition_by=["day"], mode="overwrite")
    assert lab.rows("parted") == []


@pytest.mark.parametrize("format_", ["parquet", "orc", "json", "csv"])
def test_every_format_gives_back_what_was_written(lab: Lab, format_: str) -> None:
    lab.put(lab.frame([("a,\"'", 1), (None, 2)], DAYS), "t", format=format_)
    lab.put(lab.frame([("c", 3)], DAYS), "t", format=format_, mode="append")
    assert lab.rows("t") == [("a,\"'", 1), ("c", 3), (None, 2)]
    named = getattr(lab.read(), format_)("t")
    assert named.dtypes == [("day", "string"), ("n", "int")]


def test_text(lab: Lab) -> None:
    lab.put(lab.frame([("one", 1), ("two", 2)], "value string, n int"), "t", format="text", partition_by=["n"])
    assert lab.rows("t") == [("one", 1), ("two", 2)]
    assert lab.collect(lab.read().text("t").where("n = 2")) == [("two", 2)]


def test_csv_options_are_kept_with_the_dataset_and_taken_over_by_appends(lab: Lab) -> None:
    lab.put(lab.frame([("a", 1)], DAYS), "t", format="csv", options={"sep": ";", "compression": "gzip"})
    lab.put(lab.frame([("b;c", 2)], DAYS), "t", format="csv", mode="append")
    assert dict(lab.dataset("t").options) == {"sep": ";", "header": "true"}
    assert lab.rows("t") == [("a", 1), ("b;c", 2)]
    with pytest.raises(ContractError, match="was written with the options"):
        lab.attempt().workspace.write(
            lab.frame([("d", 4)], DAYS), "t", format="csv", mode="append", options={"sep": ","}
        )


def test_an_append_may_order_columns_otherwise_and_bring_narrower_numbers(lab: Lab) -> None:
    lab.put(lab.frame([(1, "a", 1.0)], "n bigint, day string, x double"), "t")
    lab.put(lab.frame([(0.5, "b", 2)], "x float, day string, n smallint"), "t", mode="append")
    assert lab.rows("t") == [(1, "a", 1.0), (2, "b", 0.5)]


@pytest.mark.parametrize(
    ("schema", "values", "said"),
    [
        ("day string", ("a",), "lacks n"),
        ("day string, n int, more int", ("a", 1, 2), "adds more"),
        ("day string, n string", ("a", "1"), "n is int in the dataset and string in the frame"),
        ("day string, n bigint", ("a", 1), "n is int in the dataset and bigint"),
    ],
)
def test_an_append_with_another_schema_is_refused(lab: Lab, schema: str, values: Any, said: str) -> None:
    lab.put(lab.frame([("a", 1)], DAYS), "t")
    with pytest.raises(ContractError, match=said):
        lab.attempt().workspace.write(lab.frame([values], schema), "t", mode="append")


def test_a_csv_append_in_another_order_is_refused(lab: Lab) -> None:
    lab.put(lab.frame([("a", 1)], DAYS), "t", format="csv")
    with pytest.raises(ContractError, match="apart by their order"):
        lab.attempt().workspace.write(lab.frame([(1, "a")], "n int, day string"), "t", format="csv", mode="append")


def test_an_append_with_another_format_or_partitioning_is_refused(lab: Lab) -> None:
    lab.put(lab.frame([("a", 1)], DAYS), "t", partition_by=["day"])
    workspace = lab.attempt().workspace
    for options in ({"format": "orc", "partition_by": ["day"]}, {}, {"partition_by": ["n"]}):
        with pytest.raises(ContractError, match="is parquet partitioned by"):
            workspace.write(lab.frame([("a", 1)], DAYS), "t", mode="append", **options)


def test_overwrite_may_change_format_partitions_and_schema(lab: Lab) -> None:
    first = lab.put(lab.frame([("a", 1)], DAYS), "t", partition_by=["day"])
    lab.put(lab.frame([(1.5,)], "x double"), "t", format="json", mode="overwrite")
    assert lab.rows("t") == [(1.5,)]
    assert lab.rows("t", first) == [("a", 1)]


def test_an_append_to_a_dataset_that_was_uploaded_without_a_schema(lab: Lab, tmp_path: Any) -> None:
    lab.frame([("a", 1)], DAYS).write.parquet(f"file://{tmp_path}/up")
    with lab.repo.transaction() as tx:
        tx.put_dataset(str(tmp_path / "up"), "t")
    lab.put(lab.frame([("b", 2)], DAYS), "t", mode="append")
    assert lab.rows("t") == [("a", 1), ("b", 2)]
    with pytest.raises(ContractError, match="lacks day"):
        lab.attempt().workspace.write(lab.frame([(1,)], "n int"), "t", mode="append")


def test_read_your_writes(lab: Lab) -> None:
    lab.put(lab.frame([("a", 1)], DAYS), "t", partition_by=["day"])
    attempt = lab.attempt()
    workspace = attempt.workspace
    workspace.write(lab.frame([("b", 2)], DAYS), "t", partition_by=["day"], mode="append")
    assert lab.collect(workspace.read.parquet("t")) == [("a", 1), ("b", 2)]
    workspace.write(lab.frame([("a", 9)], DAYS), "t", partition_by=["day"], mode="overwrite_partitions")
    assert lab.collect(workspace.read.parquet("t")) == [("a", 9), ("b", 2)]
    workspace.write(workspace.read.parquet("t"), "u")
    assert workspace.exists("u")
    assert not workspace.exists("v")
    assert all(name.startswith("u/_fl=") for name in workspace.files("u"))
    assert lab.rows("t") == [("a", 1)]  # nobody else sees any of it
    attempt.publish()
    assert lab.rows("t") == lab.rows("u") == [("a", 9), ("b", 2)]


@pytest.mark.slow
def test_concurrent_writes_of_one_attempt(lab: Lab) -> None:
    attempt = lab.attempt()
    errors: list[BaseException] = []
    created: list[str] = []

    def append(number: int) -> None:
        try:
            frame = lab.frame([(f"d{number}", i) for i in range(50)], DAYS)
            attempt.workspace.write(frame, "shared", mode="append", partition_by=["day"])
            attempt.workspace.write(frame, f"own/{number}")
            attempt.workspace.write(frame, "once")
            created.append(f"d{number}")
        except AlreadyExists:
            pass
        except BaseException as error:  # noqa: BLE001 — shown by the assertion below
            errors.append(error)

    threads = [threading.Thread(target=append, args=(n,)) for n in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert errors == []
    attempt.publish()
    assert len(lab.rows("shared")) == lab.dataset("shared").rows == 200
    assert [lab.dataset(f"own/{n}").rows for n in range(4)] == [50] * 4
    assert len(created) == 1
    assert {row[0] for row in lab.rows("once")} == set(created)


def test_a_prefix_is_where_the_workspace_lives(lab: Lab) -> None:
    attempt = lab.attempt(prefix="team/")
    attempt.workspace.write(lab.frame([("a", 1)], DAYS), "t")
    assert attempt.workspace.files() == attempt.workspace.files("t") != []
    assert attempt.workspace.prefix == "team"
    attempt.publish()
    assert lab.rows("team/t") == [("a", 1)]


def test_output_dir_registers_what_other_writers_left(lab: Lab) -> None:
    import pyarrow as pa  # type: ignore[import-untyped]
    import pyarrow.parquet as pq  # type: ignore[import-untyped]

    attempt = lab.attempt()
    with attempt.workspace.output_dir("t", partition_by=["k"], rows=2) as directory:
        pq.write_to_dataset(pa.table({"k": ["01", "x"], "v": [1, 2]}), directory, partition_cols=["k"])
    with pytest.raises(RuntimeError), attempt.workspace.output_dir("broken"):
        raise RuntimeError
    attempt.publish()
    assert lab.rows("t") == [(1, "01"), (2, "x")]
    assert lab.dataset("t").rows == 2
    assert [e.path for e in lab.repo.list("main") if e.dataset] == ["t/"]

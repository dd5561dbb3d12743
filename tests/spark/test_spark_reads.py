"""Reading: datasets as one scan, plain files as they are listed, and what counts as read."""

from __future__ import annotations

import datetime
import json
import os
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from fenceline.errors import ContractError, NotFound, ObjectDamaged, ObjectMissing
from fenceline.spark import SparkWorkspace

if TYPE_CHECKING:
    from tests.spark.conftest import Lab

DAYS = "day string, n int"


def scans(df: Any) -> int:
    plan: str = df._jdf.queryExecution().optimizedPlan().toString()
    return plan.count("Relation [")


@pytest.mark.slow
def test_a_dataset_of_a_thousand_files_from_twenty_jobs_is_one_scan(lab: Lab) -> None:
    import pyarrow as pa  # type: ignore[import-untyped]
    import pyarrow.parquet as pq  # type: ignore[import-untyped]

    attempt = lab.attempt()
    for job in range(20):
        with attempt.workspace.output_dir("t", mode="append", partition_by=["k"], rows=50) as directory:
            for number in range(50):
                os.makedirs(f"{directory}/k={number % 5:02}", exist_ok=True)
                table = pa.table({"v": pa.array([job * 50 + number], pa.int64())})
                pq.write_table(table, f"{directory}/k={number % 5:02}/part-{number}.parquet")
    attempt.publish()
    found = lab.read().parquet("t", schema="v bigint, k string")
    assert lab.dataset("t").files == lab.dataset("t").rows == 1000
    assert scans(found) == 1
    rows = lab.collect(found)
    assert [row[0] for row in sorted(rows)] == list(range(1000))
    assert {row[1] for row in rows} == {"00", "01", "02", "03", "04"}


def test_a_job_of_which_only_a_part_is_live_is_read_by_its_files(lab: Lab) -> None:
    lab.put(lab.frame([("a", 1), ("b", 2), ("c", 3)], DAYS), "t", partition_by=["day"])
    lab.put(lab.frame([("b", 20)], DAYS), "t", partition_by=["day"], mode="overwrite_partitions")
    found = lab.read().dataset("t")
    assert scans(found) == 1
    assert lab.collect(found) == [("a", 1), ("b", 20), ("c", 3)]
    assert lab.collect(found.where("day = 'c'")) == [("c", 3)]


def test_names_that_look_like_patterns(lab: Lab) -> None:
    names = ["a[1].txt", "b{x}.txt", "c*.txt", "d e.txt", "f#g?.txt", "h%41.txt", "ü.txt"]
    with lab.repo.transaction() as tx:
        for name in names:
            tx.write(f"raw/{name}", name.encode())
    for name in names:
        assert lab.collect(lab.read().text(f"raw/{name}")) == [(name,)]
    assert sorted(row[0] for row in lab.collect(lab.read().text("raw"))) == sorted(names)


def test_uploads_of_several_transactions_are_one_directory(lab: Lab) -> None:
    for number in range(3):
        with lab.repo.transaction() as tx:
            tx.write(f"raw/f{number}.json", json.dumps({"n": number}))
            tx.write("raw/_SUCCESS", b"")
            tx.write("raw/.hidden.json", b"{")
    found = lab.read().json("raw")
    assert scans(found) == 1
    assert lab.collect(found) == [(0,), (1,), (2,)]


@pytest.mark.parametrize("uploads", [1, 2])
def test_hive_style_uploads_keep_their_columns(lab: Lab, uploads: int) -> None:
    files = [("k=01/day=2026-01-01/n=1", "a"), ("k=x%3Ay +/day=2026-01-02/n=2", "b")]
    files += [("k=__HIVE_DEFAULT_PARTITION__/day=2026-01-02/n=30000000000", "c")]
    for turn in range(uploads):
        with lab.repo.transaction() as tx:
            for at, (directory, text) in enumerate(files):
                if at % uploads == turn:
                    tx.write(f"raw/{directory}/f.txt", text)
    found = lab.read().text("raw")
    assert found.dtypes == [("value", "string"), ("k", "string"), ("day", "date"), ("n", "bigint")]
    first, second = datetime.date(2026, 1, 1), datetime.date(2026, 1, 2)
    assert lab.collect(found) == [("a", "01", first, 1), ("b", "x:y +", second, 2), ("c", None, second, 30000000000)]
    assert scans(found) == 1
    typed = lab.read().text("raw", schema="value string, n string")
    assert lab.collect(typed.select("n").where("n = '2'")) == [("2",)]


def test_mixed_layouts_are_refused(lab: Lab) -> None:
    with lab.repo.transaction() as tx:
        tx.write("raw/k=1/a.txt", b"a")
        tx.write("raw/b.txt", b"b")
    with pytest.raises(ContractError, match="some files lie in column=value directories and some do not"):
        lab.read().text("raw")


def test_data_registered_in_place(lab: Lab, tmp_path: Path) -> None:
    lab.frame([("a", 1), ("b", 2)], DAYS).write.partitionBy("day").parquet(f"file://{tmp_path}/lake/plays")
    with lab.repo.transaction() as tx:
        tx.import_in_place(f"file://{tmp_path}/lake/plays", "raw/plays")
    found = lab.read().parquet("raw/plays")
    assert sorted(lab.collect(found)) == [(1, "a"), (2, "b")]
    changed = next((tmp_path / "lake/plays/day=a").glob("*.parquet"))
    changed.write_bytes(changed.read_bytes() + b"x")
    with pytest.raises(ObjectDamaged, match="changed since it was registered"):
        lab.read().parquet("raw/plays")
    changed.unlink()
    with pytest.raises(ObjectMissing, match="is gone"):
        lab.read().parquet("raw/plays")


def test_a_lost_part_file_is_an_error_not_fewer_rows(lab: Lab) -> None:
    lab.put(lab.frame([("a", 1), ("b", 2)], DAYS), "t", partition_by=["day"])
    part = next(e for e in lab.repo.list("main", "t") if "day=a" in e.path)
    os.unlink(lab.repo.native.objects.path(part.address))  # type: ignore[attr-defined]
    with pytest.raises(ObjectMissing):
        lab.read().dataset("t")


def test_a_file_nobody_registered_is_not_read(lab: Lab) -> None:
    lab.put(lab.frame([("a", 1)], DAYS), "t")
    part = next(e for e in lab.repo.list("main", "t") if e.kind == "file")
    path = lab.repo.native.objects.path(part.address)  # type: ignore[attr-defined]
    Path(path).with_name("part-stray.parquet").write_bytes(Path(path).read_bytes())
    assert lab.rows("t") == [("a", 1)]


def test_generic_formats_and_options(lab: Lab) -> None:
    with lab.repo.transaction() as tx:
        tx.write("raw/a.csv", b"x;y\n1;2\n")
        tx.write("raw/b.bin", b"\x00\x01")
    read = lab.read()
    assert lab.collect(read.csv("raw/a.csv", sep=";", header=True, inferSchema=True)) == [(1, 2)]
    generic = read.format("csv").option("sep", ";").options(header=True).schema("x string, y string")
    assert lab.collect(generic.load("raw/a.csv")) == [("1", "2")]
    assert lab.collect(read.format("binaryFile").load("raw/b.bin").select("length")) == [(2,)]


def test_what_is_not_there_or_is_something_else(lab: Lab) -> None:
    lab.put(lab.frame([("a", 1)], DAYS), "a/t")
    with lab.repo.transaction() as tx:
        tx.write("f.txt", b"x")
        tx.write("odd/b:c.txt", b"x")
        tx.write("odd2/_hidden.txt", b"x")
    read = lab.read()
    with pytest.raises(NotFound, match="there is nothing at nope"):
        read.parquet("nope")
    with pytest.raises(NotFound, match="is inside the dataset a/t"):
        read.parquet("a/t/day=1")
    with pytest.raises(ContractError, match="dataset of parquet, not csv"):
        read.csv("a/t")
    with pytest.raises(ContractError, match="holds datasets: a/t/"):
        read.parquet("a")
    with pytest.raises(ContractError, match="is no dataset"):
        read.dataset("f.txt")
    with pytest.raises(ContractError, match="has ':' in its name"):
        read.text("odd")
    with pytest.raises(NotFound, match="Spark passes over"):
        read.text("odd2")
    with pytest.raises(ContractError, match="cannot be delta"):
        read.format("delta")


def test_reads_are_remembered_and_appends_read_nothing(lab: Lab) -> None:
    lab.put(lab.frame([("a", 1)], DAYS), "t")
    lab.put(lab.frame([("a", 1)], DAYS), "u")
    attempt = lab.attempt()

    def reads() -> list[str]:
        return list(attempt.trying.tree.reads)

    workspace: SparkWorkspace = attempt.workspace
    workspace.write(lab.frame([("b", 2)], DAYS), "t", mode="append")
    assert reads() == []
    workspace.read.parquet("u")
    assert reads() == ["u"]
    workspace.exists("v")
    workspace.files("w")
    assert reads() == ["u", "v", "w"]
    attempt.trying.cancel(RuntimeError("done"))

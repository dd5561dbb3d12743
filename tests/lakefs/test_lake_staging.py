"""What a Spark write adds to and takes from a staging branch, told from listings alone."""

from __future__ import annotations

from fenceline.spark.lake_staging import Listing, fresh, litter, replaced, take_back


def listing(*paths: str) -> Listing:
    return Listing("out", {f"out/{path}": 1 for path in paths})


OLD = listing("part-0.parquet", "k=1/part-1.parquet", "k=2/part-2.parquet", "_notes/a")
NEW = listing(
    *(path.removeprefix("out/") for path in OLD.sizes),
    "k=1/part-9.parquet",
    "_SUCCESS",
    "_temporary/0/part-8.parquet",
    "k=1/",
    "",
)


def test_only_part_files_are_new() -> None:
    assert fresh(OLD, NEW) == {"out/k=1/part-9.parquet"}


def test_what_the_job_left_beside_them_goes_and_what_was_there_stays() -> None:
    assert litter(OLD, NEW) == {"out/_SUCCESS", "out/_temporary/0/part-8.parquet", "out/k=1/", "out/"}


def test_what_each_mode_replaces() -> None:
    new = fresh(OLD, NEW)
    assert replaced("append", OLD, new) == replaced("error", OLD, new) == set()
    assert replaced("overwrite", OLD, new) == OLD.parts()
    assert replaced("overwrite_partitions", OLD, new) == {"out/k=1/part-1.parquet"}


def test_a_failed_write_is_taken_back_whole() -> None:
    gone: list[str] = []
    take_back(OLD, NEW, gone.extend)
    assert set(gone) == set(NEW.sizes) - set(OLD.sizes)

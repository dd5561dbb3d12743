"""Spark reads and writes a repository in a bucket in place, through `s3a://`.

Its jars are 670 MB: it runs where they are already (Spark was once started with them), or with FENCELINE_TEST_S3A=1.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest
from s3_server import S3Server

from fenceline.spark.s3a import hadoop_aws, s3a_settings, with_jars

HERE = Path(__file__).parent


def _jars_are_there() -> bool:
    version = hadoop_aws().rpartition(":")[2]
    return bool(list(Path.home().glob(f".ivy2*/jars/org.apache.hadoop_hadoop-aws-{version}.jar")))


@pytest.mark.slow
@pytest.mark.timeout(600)
def test_spark_tasks_run_in_place_on_s3(s3: S3Server, s3_url: str) -> None:
    if not _jars_are_there() and not os.environ.get("FENCELINE_TEST_S3A"):
        pytest.skip(f"NO JARS FOR s3a: {hadoop_aws()} is not in Ivy's cache; FENCELINE_TEST_S3A=1 downloads it")
    child = subprocess.run(
        [sys.executable, str(HERE / "spark_on_s3.py"), s3_url],
        env={**os.environ, **s3.environment},
        capture_output=True,
        text=True,
        timeout=580,
        check=False,
    )
    assert child.returncode == 0, child.stderr[-3000:]
    told = json.loads(child.stdout.splitlines()[-1])
    assert told["first"]["rows"] == 100
    assert told["first"]["more"]["told"][0] == 100
    assert told["second"]["rows"] == 150
    assert told["mended"]["rows"] == 75 + 7
    assert told["mended"]["more"]["failed"] != ""
    assert (told["mended"]["more"]["there"], told["mended"]["more"]["odd"]) == (False, 3)
    assert told["counted"] == {"0": 75, "1": 7}
    assert hadoop_aws() in told["refused"]
    assert told["uris"][0].startswith(f"{s3_url}/datasets/")
    assert told["sound"] is True
    assert s3.secret not in child.stderr + child.stdout


def test_settings_name_one_bucket_and_the_jars_that_fit() -> None:
    settings = s3a_settings("http://127.0.0.1:9", "k", "s", True, bucket="b")
    assert settings["spark.hadoop.fs.s3a.bucket.b.endpoint"] == "http://127.0.0.1:9"
    assert settings["spark.hadoop.fs.s3a.bucket.b.path.style.access"] == "true"
    assert "spark.hadoop.fs.s3a.access.key" not in s3a_settings()
    assert with_jars({})["spark.jars.packages"] == hadoop_aws()
    assert with_jars({"spark.jars.packages": "a:b:1"})["spark.jars.packages"] == f"a:b:1,{hadoop_aws()}"
    given = {"spark.jars.packages": "org.apache.hadoop:hadoop-aws:3.4.0"}
    assert with_jars(given) == given

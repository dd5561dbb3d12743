"""A Spark task on lakeFS without the jars of s3a: the error says what to add."""

from __future__ import annotations

import pytest
from pyspark.sql import SparkSession

from fenceline.errors import ConfigError
from fenceline.repo.lakefs.client import Client
from fenceline.spark.lake_gateway import Gateway
from fenceline.spark.session import is_connect
from fenceline.testing.lakefs_standin import lakefs_standin


def test_without_the_jars_the_error_names_them(spark: SparkSession) -> None:
    wanted = "classic session" if is_connect(spark) else r"spark\.jars\.packages=org\.apache\.hadoop:hadoop-aws:\d"
    with lakefs_standin() as server:
        client = Client("songs", server.access)
        with pytest.raises(ConfigError, match=wanted):
            Gateway(spark, client)
        client.close()

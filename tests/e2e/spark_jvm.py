"""A JVM with a Spark session that the children of a test share: `python spark_jvm.py`, until its input ends.

A child that attaches to it is a real driver process with a real Spark body, without the seconds a JVM takes to start
and to warm up. Killing the child leaves the JVM alone.
"""

from __future__ import annotations

import json
import os
import sys
from typing import Any, cast

from pyspark import SparkContext

from fenceline.spark import SparkSettings, get_session

PORT, SECRET = "PYSPARK_GATEWAY_PORT", "PYSPARK_GATEWAY_SECRET"  # pyspark's own names


def host() -> None:
    conf = {"spark.driver.memory": "1g", "spark.sql.shuffle.partitions": "1"}
    get_session(SparkSettings(master="local[1]", conf=conf))
    gateway: Any = SparkContext._gateway
    told = {PORT: str(gateway.gateway_parameters.port), SECRET: gateway.gateway_parameters.auth_token}
    print(json.dumps(told), flush=True)
    sys.stdin.read()


def attach() -> None:
    """Make the shared JVM's session this process's own, where the environment names one."""
    if PORT not in os.environ:
        return
    from pyspark import SparkConf
    from pyspark.java_gateway import launch_gateway

    gateway = cast(Any, launch_gateway)()
    java = gateway.jvm.org.apache.spark.api.java.JavaSparkContext
    context = java.fromSparkContext(gateway.jvm.org.apache.spark.SparkContext.getOrCreate())
    SparkContext(gateway=gateway, jsc=context, conf=SparkConf(_jconf=context.getConf()))


if __name__ == "__main__":
    host()

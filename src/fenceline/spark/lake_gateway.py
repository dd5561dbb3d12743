"""Spark on lakeFS's S3 gateway: `s3a://<repository>/<commit or branch>/<path>`, with settings of this session only."""

from __future__ import annotations

import os
import re
from typing import TYPE_CHECKING, Any, cast

from fenceline.errors import ConfigError
from fenceline.repo.lakefs.client import Client
from fenceline.spark.s3a import hadoop_aws, s3a_settings
from fenceline.spark.session import is_connect

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

ENDPOINT = "FENCELINE_LAKEFS_S3_ENDPOINT"
"""Where the gateway is, if not where the API is."""

_FILE_SYSTEM = "org.apache.hadoop.fs.s3a.S3AFileSystem"
_CLOUD = "org.apache.spark.internal.io.cloud."
_MAGIC = {
    "spark.sql.sources.commitProtocolClass": f"{_CLOUD}PathOutputCommitProtocol",
    "spark.sql.parquet.output.committer.class": f"{_CLOUD}BindingParquetOutputCommitter",
    "mapreduce.outputcommitter.factory.scheme.s3a": "org.apache.hadoop.fs.s3a.commit.S3ACommitterFactory",
    "fs.s3a.committer.name": "magic",
    "fs.s3a.committer.magic.enabled": "true",
}
# Without Spark's cloud classes a Parquet write goes through the file committer whatever is asked for. Its first
# algorithm moves files only when the job succeeded; each move is a copy inside the store.
_MOVING = {
    "mapreduce.outputcommitter.factory.scheme.s3a": "org.apache.hadoop.mapreduce.lib.output.FileOutputCommitterFactory",
    "mapreduce.fileoutputcommitter.algorithm.version": "1",
    "fs.s3a.committer.name": "file",
}


class Gateway:
    """One repository as Spark reaches it."""

    def __init__(self, session: SparkSession, client: Client) -> None:
        if is_connect(session):
            raise ConfigError(
                "Spark Connect cannot be given the keys of a lakeFS gateway by a session",
                hint="use a classic session (local[*], spark://…), or set the keys on the Connect server",
            )
        if not _has_class(session, _FILE_SYSTEM):
            raise ConfigError(
                "Spark has no s3a file system to reach lakeFS with",
                hint=f"start it with spark.jars.packages={hadoop_aws()}; tasks that take a Path work without it",
            )
        self._repository = client.repository
        access = client.keys()
        endpoint = os.environ.get(ENDPOINT) or access.endpoint
        settings = s3a_settings(endpoint, access.key, access.secret, True, bucket=client.repository)
        moves_nothing = _has_class(session, f"{_CLOUD}PathOutputCommitProtocol")
        own = {name.removeprefix("spark.hadoop."): value for name, value in settings.items()}
        for name, value in {**own, **(_MAGIC if moves_nothing else _MOVING)}.items():
            session.conf.set(name, value)

    def url(self, ref: str, path: str) -> str:
        return f"s3a://{self._repository}/{ref}/{path}".rstrip("/")

    def pattern(self, ref: str, path: str) -> str:
        """The same as Spark's reader takes it: a pattern that matches this name only, `a[1].txt` too."""
        return re.sub(r"([{}\[\]*?\\])", r"\\\1", self.url(ref, path))


def _has_class(session: SparkSession, name: str) -> bool:
    """Asked of the class loader that has the jars given by settings."""
    from py4j.protocol import Py4JJavaError  # type: ignore[import-untyped]

    jvm = cast(Any, session)._jvm
    try:
        jvm.java.lang.Thread.currentThread().getContextClassLoader().loadClass(name)
    except Py4JJavaError:
        return False
    return True

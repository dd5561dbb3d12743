"""What Spark needs to read and write S3-like stores itself: one set of jars, and the settings of `s3a://`.

The file system is Hadoop's, so its version must be the one of the Hadoop that the installed Spark was built with.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any, cast

from fenceline.errors import ConfigError
from fenceline.spark.session import is_connect

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

PACKAGES = "spark.jars.packages"
_S3A = "spark.hadoop.fs.s3a."
_FILE_SYSTEM = "org.apache.hadoop.fs.s3a.S3AFileSystem"
_CLOUD = "org.apache.spark.internal.io.cloud."
_MAGIC = {
    "spark.sql.sources.commitProtocolClass": f"{_CLOUD}PathOutputCommitProtocol",
    "spark.sql.parquet.output.committer.class": f"{_CLOUD}BindingParquetOutputCommitter",
}
# Without Spark's cloud classes a write goes through the file committer whatever is asked for. Its first algorithm moves
# files only when the job succeeded; each move is a copy inside the store.
_MOVING = {
    "spark.hadoop.mapreduce.outputcommitter.factory.scheme.s3a": (
        "org.apache.hadoop.mapreduce.lib.output.FileOutputCommitterFactory"
    ),
    "spark.hadoop.mapreduce.fileoutputcommitter.algorithm.version": "1",
    "spark.hadoop.fs.s3a.committer.name": "file",
}


def hadoop_aws() -> str:
    """The Maven coordinates of the jars that match the installed Spark."""
    import pyspark

    jars = Path(pyspark.__file__).parent / "jars"
    for jar in jars.glob("hadoop-client-api-*.jar"):
        found = re.fullmatch(r"hadoop-client-api-(\d+(?:\.\d+)*)\.jar", jar.name)
        if found:
            return f"org.apache.hadoop:hadoop-aws:{found.group(1)}"
    raise ConfigError(
        f"there is no hadoop-client-api jar in {jars}, so it cannot be told which hadoop-aws fits this Spark",
        hint="set spark.jars.packages to the org.apache.hadoop:hadoop-aws of your Spark's Hadoop",
    )


def s3a_settings(
    endpoint: str | None = None,
    key: str | None = None,
    secret: str | None = None,
    path_style: bool = False,
    *,
    region: str | None = None,
    token: str | None = None,
    bucket: str | None = None,
) -> dict[str, str]:
    """Spark settings for `s3a://`, of one bucket or of all; without keys the usual AWS chain finds them.

    Writes go through the magic committer: a task uploads straight to where its file belongs and the job's commit
    completes the uploads, so nothing is renamed and nothing of a failed task is ever seen.
    """
    own = f"bucket.{bucket}." if bucket else ""
    given: dict[str, str | None] = {
        "endpoint": endpoint,
        "endpoint.region": region or ("us-east-1" if endpoint else None),
        "access.key": key,
        "secret.key": secret,
        "session.token": token,
        "aws.credentials.provider": _provider(key, token),
        "path.style.access": "true" if path_style else None,
        "connection.ssl.enabled": "false" if endpoint and endpoint.startswith("http://") else None,
        "committer.name": "magic",
        "committer.magic.enabled": "true",
    }
    settings = {f"{_S3A}{own}{name}": value for name, value in given.items() if value is not None}
    return {
        **settings,
        "spark.hadoop.mapreduce.outputcommitter.factory.scheme.s3a": (
            "org.apache.hadoop.fs.s3a.commit.S3ACommitterFactory"
        ),
    }


def with_jars(settings: Mapping[str, str]) -> dict[str, str]:
    """The same settings, and the jars by their coordinates: Spark downloads them once, when its JVM starts."""
    named = [name for name in settings.get(PACKAGES, "").split(",") if name]
    if not any(name.split(":")[1:2] == ["hadoop-aws"] for name in named):
        named.append(hadoop_aws())
    return {**settings, PACKAGES: ",".join(named)}


def tell(session: SparkSession, settings: Mapping[str, str], url: str) -> None:
    """Give these settings to a running session, with the committer that it has classes for.

    They are the session's own: another attempt in the same JVM may work on another store.
    """
    if is_connect(session):
        raise ConfigError(
            f"Spark Connect cannot be given the keys of {url} by a session",
            hint="use a classic session (local[*], spark://…); tasks that take a Path work everywhere",
        )
    if not has_class(session, _FILE_SYSTEM):
        raise ConfigError(
            f"Spark has no s3a file system to reach {url} with",
            hint=f"start it with spark.jars.packages={hadoop_aws()}; tasks that take a Path work without it",
        )
    committer = _MAGIC if has_class(session, f"{_CLOUD}PathOutputCommitProtocol") else _MOVING
    for name, value in {**settings, **committer}.items():
        session.conf.set(name.removeprefix("spark.hadoop."), value)


def has_class(session: SparkSession, name: str) -> bool:
    """Asked of the class loader that has the jars given by settings."""
    from py4j.protocol import Py4JJavaError  # type: ignore[import-untyped]

    jvm = cast(Any, session)._jvm
    try:
        jvm.java.lang.Thread.currentThread().getContextClassLoader().loadClass(name)
    except Py4JJavaError:
        return False
    return True


def _provider(key: str | None, token: str | None) -> str | None:
    if key is None:
        return None
    kind = "Temporary" if token else "Simple"
    return f"org.apache.hadoop.fs.s3a.{kind}AWSCredentialsProvider"

"""Spark on lakeFS's S3 gateway: `s3a://<repository>/<commit or branch>/<path>`, with settings of this session only."""

from __future__ import annotations

import os
import re
from typing import TYPE_CHECKING

from fenceline.repo.lakefs.client import Client
from fenceline.spark.s3a import s3a_settings, tell

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

ENDPOINT = "FENCELINE_LAKEFS_S3_ENDPOINT"
"""Where the gateway is, if not where the API is."""


class Gateway:
    """One repository as Spark reaches it."""

    def __init__(self, session: SparkSession, client: Client) -> None:
        self._repository = client.repository
        access = client.keys()
        endpoint = os.environ.get(ENDPOINT) or access.endpoint
        settings = s3a_settings(endpoint, access.key, access.secret, True, bucket=client.repository)
        tell(session, settings, f"lakefs://{client.repository}")

    def url(self, ref: str, path: str) -> str:
        return f"s3a://{self._repository}/{ref}/{path}".rstrip("/")

    def pattern(self, ref: str, path: str) -> str:
        """The same as Spark's reader takes it: a pattern that matches this name only, `a[1].txt` too."""
        return re.sub(r"([{}\[\]*?\\])", r"\\\1", self.url(ref, path))

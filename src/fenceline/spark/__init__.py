"""Everything that imports pyspark: sessions, and workspaces that Spark reads and writes in place."""

from fenceline.spark.modes import replace_where
from fenceline.spark.session import cancel, get_session, isolated, stop_session
from fenceline.spark.settings import SparkSettings
from fenceline.spark.workspace import SparkWorkspace
from fenceline.spark.writer import Written

__all__ = [
    "SparkSettings",
    "SparkWorkspace",
    "Written",
    "cancel",
    "get_session",
    "isolated",
    "replace_where",
    "stop_session",
]

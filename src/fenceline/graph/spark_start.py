"""Whether Spark can be started here, and starting it."""

from __future__ import annotations

import importlib.util
import warnings
from typing import TYPE_CHECKING, Literal

from fenceline.errors import ConfigError, ContractError

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

EngineName = Literal["auto", "local", "spark"]


def available() -> bool:
    """Whether Spark can be started here."""
    if importlib.util.find_spec("pyspark") is None:
        return False
    from fenceline.spark.java import check_java

    try:
        check_java()
    except ConfigError:
        return False
    return True


def chosen(engine: EngineName, size: int, most: int, session: object = None) -> Literal["local", "spark"]:
    """The engine to use: as said, or Spark where a session is up, or where there is more than `most` to do."""
    if engine not in ("auto", "local", "spark"):
        raise ContractError(f"engine is {engine!r}", hint="use auto, local or spark")
    if engine != "auto":
        return engine
    if session is not None:
        return "spark"
    return "spark" if size > most and available() else "local"


def session_of(session: SparkSession | None) -> SparkSession:
    """The session given, or one that is started for it; executors have this package."""
    from fenceline.spark.session import get_session
    from fenceline.spark.shipping import ship_module

    if session is None:
        with warnings.catch_warnings():
            # starting the JVM forks and executes it at once: nothing of Lance runs in between
            warnings.filterwarnings("ignore", message="lance is not fork-safe")
            session = get_session()
    ship_module(session, "fenceline")
    return session

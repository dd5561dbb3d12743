"""Graph tables are an extra: what to install where it is missing."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from fenceline.errors import ConfigError


@contextmanager
def graph_extra() -> Iterator[None]:
    """Around the imports that need it. A module of our own that is missing is no missing extra."""
    try:
        yield
    except ModuleNotFoundError as error:
        if error.name and error.name.partition(".")[0] == "fenceline":
            raise
        raise ConfigError(
            f"graph tables need {error.name}, which is not installed", hint="pip install 'fenceline[graph]'"
        ) from error

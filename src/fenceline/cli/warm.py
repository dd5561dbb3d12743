"""`fenceline warm`: make Spark start faster on this machine."""

from __future__ import annotations

import os
from typing import Annotated

import typer

from fenceline.cli.output import notes, say, size
from fenceline.errors import ConfigError


def warm(
    again: Annotated[bool, typer.Option("--again", help="Make it anew even where it is there.")] = False,
    quiet: Annotated[bool, typer.Option("--quiet", help="Say nothing where it is there already.")] = False,
) -> None:
    """Make Spark start in a third of the time: archive the classes it loads, once for each Java and Spark."""
    try:
        from fenceline.spark import class_archive

        archive = class_archive.find()
    except ImportError as error:
        raise ConfigError("pyspark is not installed", hint="pip install 'fenceline[spark]'") from error
    for gone in archive.forget_others():
        say(f"deleted {gone}: its Java or its Spark is no longer there")
    if archive.path.exists() and not again:
        if not quiet:
            say(f"Spark's classes are archived: {archive.path}, {size(os.path.getsize(archive.path))}")
        return
    notes().print("archiving the classes that Spark loads (half a minute, once)…")
    archive.make()
    say(f"archived: {archive.path}, {size(os.path.getsize(archive.path))}; delete it at any time")

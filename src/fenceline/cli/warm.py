"""`fenceline warm`: make Spark start faster on this machine."""

from __future__ import annotations

import os
from typing import Annotated

import typer

from fenceline.cli.options import Json
from fenceline.cli.output import emit, notes, say, size
from fenceline.errors import ConfigError


def warm(
    again: Annotated[bool, typer.Option("--again", help="Make it anew even where it is there.")] = False,
    quiet: Annotated[bool, typer.Option("--quiet", help="Say nothing where it is there already.")] = False,
    as_json: Json = False,
) -> None:
    """Make Spark start faster: archive the classes it loads, once for each Java and Spark."""
    try:
        from fenceline.spark import class_archive

        archive = class_archive.find()
    except ImportError as error:
        raise ConfigError("pyspark is not installed", hint="pip install 'fenceline[spark]'") from error
    gone = archive.forget_others()
    make = again or not archive.path.exists()
    if make:
        notes().print("archiving the classes that Spark loads (half a minute, once)…")
        archive.make()
    length = os.path.getsize(archive.path)
    if as_json:
        emit({"archive": str(archive.path), "bytes": length, "made": make, "deleted": list(map(str, gone))})
        return
    for each in gone:
        say(f"deleted {each}: its Java or its Spark is no longer there")
    if make or not quiet:
        say(f"Spark's classes are archived: {archive.path}, {size(length)}; it can be deleted at any time")

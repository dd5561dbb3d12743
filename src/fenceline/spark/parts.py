"""Part files on the local disk: what a job directory holds, and how many rows that is."""

from __future__ import annotations

import os
import stat
from collections.abc import Iterator, Sequence
from typing import NamedTuple

from fenceline.errors import ContractError, StoreError, store_error
from fenceline.seams import Seams

_WORKERS = 8


class Part(NamedTuple):
    """A part file, by its path relative to its job directory."""

    relative: str
    size: int


def hidden(relative: str) -> bool:
    """Whether Spark passes a file over: `_SUCCESS`, `_temporary`, checksums, anything hidden."""
    *directories, name = relative.split("/")
    return name.startswith((".", "_")) or any(
        d.startswith(".") or (d.startswith("_") and "=" not in d) for d in directories
    )


def settle(directory: str) -> list[Part]:
    """The part files a finished job left, in order. Checksum files go: a stale one makes its file unreadable."""
    found = []
    for relative, entry in _walk(directory, ""):
        if relative.endswith(".crc") and entry.name.startswith("."):
            try:
                os.unlink(entry.path)
            except OSError as error:
                raise store_error(error, f"deleting {entry.path}") from error
        elif not hidden(relative):
            details = entry.stat(follow_symlinks=False)
            if not stat.S_ISREG(details.st_mode):
                raise ContractError(f"{entry.path} is not a regular file", hint="a dataset holds files only")
            found.append(Part(relative, details.st_size))
    return sorted(found)


def names(directory: str) -> set[str]:
    """The part files in a job directory, by relative path."""
    return {relative for relative, _ in _walk(directory, "") if not hidden(relative)}


def _walk(directory: str, prefix: str) -> Iterator[tuple[str, os.DirEntry[str]]]:
    try:
        with os.scandir(directory) as scanned:
            entries = list(scanned)
    except FileNotFoundError:
        return
    except OSError as error:
        raise store_error(error, f"listing {directory}") from error
    for entry in entries:
        if entry.is_dir(follow_symlinks=False):
            yield from _walk(entry.path, f"{prefix}{entry.name}/")
        else:
            yield prefix + entry.name, entry


def rows_in(seams: Seams, format: str, paths: Sequence[str]) -> int | None:  # noqa: A002
    """The rows that these files say they hold; None for formats whose files do not say."""
    import pyarrow  # type: ignore[import-untyped]

    if format == "parquet":
        import pyarrow.parquet as parquet  # type: ignore[import-untyped]

        def rows(path: str) -> int:
            return int(parquet.read_metadata(path).num_rows)
    elif format == "orc":
        import pyarrow.orc as orc  # type: ignore[import-untyped]

        def rows(path: str) -> int:
            return int(orc.ORCFile(path).nrows)
    else:
        return None
    try:
        return sum(seams.threads.map(rows, paths, min(_WORKERS, len(paths))))
    except (OSError, pyarrow.ArrowException) as error:
        raise StoreError(
            f"a part file that Spark wrote cannot be read: {error}", hint="run it again; see the disk's own log"
        ) from error

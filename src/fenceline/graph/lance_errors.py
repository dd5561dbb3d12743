"""Lance's errors as ours. It raises plain OSError, ValueError and Arrow errors, and says the cause in words."""

from __future__ import annotations

import contextlib
import errno
import re
from collections.abc import Iterator

import pyarrow as pa  # type: ignore[import-untyped]

from fenceline.errors import ContractError, FencelineError, ObjectMissing, StoreError, store_error
from fenceline.repo.native.pinned import AREA

_MISSING = re.compile(rf"[Nn]ot found: .*?(?P<address>{AREA}[^/\s]+\.lance/[^\s,]+)")
_SYSTEM = {
    "No space left on device": errno.ENOSPC,
    "Disk quota exceeded": errno.EDQUOT,
    "Read-only file system": errno.EROFS,
    "Permission denied": errno.EACCES,
}
_OF_THE_CALLER = (
    "Invalid user input",
    "Schema error",
    "different schema",
    "not found in schema",
    "Cast error",
    "Ambiguous merge insert",
)
_PLACE_IN_SOURCE = re.compile(r",? (location: )?/\S+\.rs:\d+:\d+")


@contextlib.contextmanager
def translated(doing: str) -> Iterator[None]:
    """Every error of Lance met while `doing` something. Nothing staged is visible, so none of it was applied."""
    try:
        yield
    except FencelineError:
        raise
    except (OSError, ValueError, KeyError, TypeError, RuntimeError, NotImplementedError, pa.ArrowException) as error:
        raise typed(error, doing) from error


def typed(error: Exception, doing: str) -> FencelineError:
    text = _PLACE_IN_SOURCE.sub("", str(error))
    if isinstance(error, OSError) and error.errno is not None:
        return store_error(error, doing)
    for words, code in _SYSTEM.items():
        if words in text:
            return store_error(OSError(code, words), doing)
    if isinstance(error, KeyError | TypeError) or any(words in text for words in _OF_THE_CALLER):
        return ContractError(f"{doing}: {text}", hint="compare it with the table's columns")
    missing = _MISSING.search(text)
    if missing:
        address = missing["address"]
        return ObjectMissing(
            f"{address} is missing while {doing}", hint="fenceline fsck shows what that breaks", address=address
        )
    return StoreError(
        f"the table's files failed while {doing}: {text}", hint="run it again; fenceline fsck looks closer"
    )

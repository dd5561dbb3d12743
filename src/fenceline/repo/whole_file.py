"""A file of someone else's disk that appears whole, or not at all."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager

from fenceline.errors import store_error


@contextmanager
def written_whole(target: str) -> Iterator[str]:
    """Yields where to write; when the block ends well, that is the target. Directories on the way are made."""
    part = f"{target}.fenceline-part"
    try:
        os.makedirs(os.path.dirname(target) or ".", exist_ok=True)
        yield part
        os.replace(part, target)
    except OSError as error:
        raise store_error(error, f"writing {target}") from error
    finally:
        if os.path.exists(part):
            os.unlink(part)

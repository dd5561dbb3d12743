"""What the client's errors mean here: which say that a write did not happen, and which leave it open (INV-3)."""

from __future__ import annotations

import re

from fenceline.errors import AccessDenied, ObjectMissing, StoreError
from fenceline.repo.native.remote.location import first_line

_STATUS = re.compile(r"status code: (\d{3})")
_NEVER_SENT = "kind: Connect"
_BUSY = ("429", "503")


def status(error: BaseException) -> str | None:
    """The HTTP status that the server answered with, if it answered."""
    found = _STATUS.search(first_line(error))
    return found.group(1) if found else None


def refused(error: BaseException) -> bool:
    """Whether the server, or the lack of one, made sure that nothing was written."""
    answered = status(error)
    if answered is not None:
        return answered.startswith("4")
    return _NEVER_SENT in str(error)


def passing(error: BaseException) -> bool:
    """Whether the same request may succeed a moment later."""
    answered = status(error)
    return answered is None or answered.startswith("5") or answered in (*_BUSY, "409")


def missing(key: str) -> ObjectMissing:
    return ObjectMissing(f"{key} is missing", hint="fenceline fsck shows what that breaks", address=key)


def typed(error: BaseException, doing: str, url: str) -> StoreError:
    """The typed form of an error met while `doing` something whose effect did not happen, or was settled."""
    answered = status(error)
    if answered in ("401", "403") or type(error).__name__ in ("PermissionDeniedError", "UnauthenticatedError"):
        return AccessDenied(
            f"{url} refuses access while {doing}: {_code(error)}",
            hint="check the keys and what they are allowed to do; docs/howto/s3.md lists what is needed",
        )
    if "NoSuchBucket" in str(error):
        return StoreError(f"{url}: there is no such bucket", hint="create it first; Fenceline never does")
    said = _code(error) if answered else first_line(error)
    return StoreError(
        f"the store failed while {doing}: {said}", hint="check its endpoint and the network, then try again"
    )


def _code(error: BaseException) -> str:
    """The store's own word for it: its messages may quote requests at length."""
    found = re.search(r"<Code>(\w+)</Code>", str(error))
    return found.group(1) if found else f"status {status(error)}" if status(error) else type(error).__name__

"""Named crash points around every durable effect; free when off.

Every effect is declared once, next to the code that has it, and wrapped where it happens::

    SEAL = failpoints.effect("verdict.seal", "the verdict `sealed`", before="it is aborted", after="it is published")
    ...
    with SEAL:
        objects.create(key, data)

which gives the two points ``verdict.seal.before`` and ``verdict.seal.after``. A child process switches them on by
its environment, several separated by ``;``::

    FENCELINE_FAILPOINTS="verdict.seal.after=crash;entry.publish.before@3=pause"

`crash` is a real SIGKILL, `pause` a real SIGSTOP (wake it with SIGCONT), `error` fails as the disk would with the
given errno (``error:ENOSPC``; EIO without one): before the effect as not applied, after it as an unknown outcome;
``@n`` acts at the n-th hit only. ``FENCELINE_FAILPOINTS_LOG`` names a file to which every hit point is appended, for
the census. ``FENCELINE_FAILPOINTS_ONCE`` names a directory: of all processes that share it, each point acts in one.
"""

from __future__ import annotations

import errno
import os
import signal
from types import TracebackType

from fenceline.errors import ConfigError, OutcomeUnknown, store_error

ENV = "FENCELINE_FAILPOINTS"
LOG_ENV = "FENCELINE_FAILPOINTS_LOG"
ONCE_ENV = "FENCELINE_FAILPOINTS_ONCE"


class Effect:
    """One durable effect and the two points around it. The `after` point is hit only when the effect succeeded."""

    __slots__ = ("after", "before", "description", "if_dead_after", "if_dead_before", "name")

    def __init__(self, name: str, description: str, if_dead_before: str, if_dead_after: str) -> None:
        self.name = name
        self.description = description
        self.before = f"{name}.before"
        self.after = f"{name}.after"
        self.if_dead_before = if_dead_before
        self.if_dead_after = if_dead_after

    def __enter__(self) -> None:
        if _switched_on:
            _hit(self.before)

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if _switched_on and kind is None:
            _hit(self.after)


_registry: dict[str, Effect] = {}


def effect(name: str, description: str, *, before: str, after: str) -> Effect:
    """Declare a durable effect: what it is, and what is found if the process dies right before and right after it."""
    if name in _registry:
        raise ConfigError(f"failpoint effect {name!r} is declared twice")
    _registry[name] = found = Effect(name, description, before, after)
    return found


def effects() -> dict[str, Effect]:
    """Every effect declared by the modules imported so far, by name."""
    return dict(sorted(_registry.items()))


class _Action:
    def __init__(self, verb: str, argument: str, nth: int | None) -> None:
        self.verb, self.argument, self.nth, self.hits = verb, argument, nth, 0


def _parse(text: str) -> dict[str, _Action]:
    actions = {}
    for item in filter(None, (part.strip() for part in text.split(";"))):
        point, equals, action = item.partition("=")
        name, at, nth = point.partition("@")
        verb, _, argument = action.partition(":")
        known = verb in ("crash", "pause") or (
            verb == "error" and isinstance(getattr(errno, argument or "EIO", None), int)
        )
        if not equals or not known or (at and not nth.isdigit()):
            raise ConfigError(
                f"{ENV}: cannot read {item!r}",
                hint="write point[@n]=crash, point[@n]=pause or point[@n]=error[:ENOSPC]",
            )
        actions[name] = _Action(verb, argument, int(nth) if at else None)
    return actions


_actions = _parse(os.environ.get(ENV, ""))
_log = os.environ.get(LOG_ENV)
_once = os.environ.get(ONCE_ENV)
_switched_on = bool(_actions or _log)


def _hit(point: str) -> None:
    if _log:
        with open(_log, "a", encoding="utf-8") as log:
            log.write(point + "\n")
    action = _actions.get(point)
    if action is None:
        return
    action.hits += 1
    if action.nth is not None and action.hits != action.nth:
        return
    if _once and not _first_to_claim(point, _once):
        return
    if action.verb == "crash":
        os.kill(os.getpid(), signal.SIGKILL)
    elif action.verb == "pause":
        os.kill(os.getpid(), signal.SIGSTOP)
    else:
        code = getattr(errno, action.argument or "EIO")
        if point.endswith(".after"):
            raise OutcomeUnknown(f"injected at failpoint {point}: {os.strerror(code)}")
        raise store_error(OSError(code, os.strerror(code)), f"at failpoint {point}")


def _first_to_claim(point: str, directory: str) -> bool:
    """Whether no other process has acted at this point yet; the file says which one did."""
    try:
        with open(os.path.join(directory, point), "x", encoding="utf-8") as claim:
            claim.write(str(os.getpid()))
    except FileExistsError:
        return False
    return True

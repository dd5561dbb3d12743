"""Which old name each new one continues, by name and by @rename_from."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field


@dataclass(slots=True)
class Matched:
    """`kept` leads from new names to old ones; `renamed` is in an order in which each target is free."""

    kept: dict[str, str] = field(default_factory=dict)
    renamed: list[tuple[str, str]] = field(default_factory=list)
    added: list[str] = field(default_factory=list)
    dropped: list[str] = field(default_factory=list)
    problems: list[str] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)


def match(old: Sequence[str], new: Mapping[str, str | None], where: str) -> Matched:
    """`new` maps names to what they say they were renamed from."""
    found = Matched()
    wanted = {
        name: before
        for name, before in new.items()
        if before is not None and before in old and not _applied(name, before, old, new)
    }
    for name, before in new.items():
        if name in wanted and before is not None:
            _rename(found, name, before, old, new, wanted, where)
        elif name in old:
            found.kept[name] = name
        else:
            found.added.append(name)
            if before is not None and old:
                found.notes.append(f"{where}{name} is new: there is no {before} that it could be renamed from")
    found.dropped = [name for name in old if name not in found.kept.values()]
    found.problems += _order(found, set(old), where)
    return found


def _applied(name: str, before: str, old: Sequence[str], new: Mapping[str, str | None]) -> bool:
    """Whether a @rename_from was left over: both names were there and stay, and nothing else moves."""
    return name in old and before in new and new[before] not in old


def _rename(
    found: Matched,
    name: str,
    before: str,
    old: Sequence[str],
    new: Mapping[str, str | None],
    wanted: Mapping[str, str],
    where: str,
) -> None:
    said = f"{where}{name} is renamed from {before}"
    if before in new and before not in wanted:
        found.problems.append(f"{said}, which is still declared: take one of them out, or the @rename_from")
    elif name in old and name not in wanted.values():
        found.problems.append(f"{said}, but {name} exists already: drop it in a change of its own, then rename")
    else:
        found.kept[name] = before
        found.renamed.append((before, name))


def _order(found: Matched, taken: set[str], where: str) -> list[str]:
    waiting, done = list(found.renamed), []
    while waiting:
        ready = next((pair for pair in waiting if pair[1] not in taken), None)
        if ready is None:
            circle = ", ".join(f"{before} -> {after}" for before, after in waiting)
            return [f"{where}these renames wait for one another: {circle}; do them in two changes"]
        waiting.remove(ready)
        done.append(ready)
        taken = taken - {ready[0]} | {ready[1]}
    found.renamed = done
    return []

"""What an attempt would have done: its result, its changes and what its guards said."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from fenceline.repo.merge import Unit
from fenceline.repo.model import Entry


@dataclass(frozen=True, slots=True)
class Rehearsal:
    """What an attempt would have done; `print` shows it. Nothing was published."""

    result: dict[str, Any]
    """What the task returned, as JSON."""
    changes: tuple[Unit, ...]
    """What it would have changed, each dataset as one: `path`, `status`, `left`, `right`."""
    guards: tuple[dict[str, Any], ...]
    """What each guard said."""
    metrics: Mapping[str, float | dict[str, float]] = field(default_factory=dict)
    """What the body measured with `workspace.metrics`."""

    def __str__(self) -> str:
        width = max((len(unit.path) for unit in self.changes), default=0)
        lines = [f"{unit.status:<8} {unit.path:<{width}}  {_what(unit)}".rstrip() for unit in self.changes]
        lines.append(f"result   {json.dumps(self.result, ensure_ascii=False)}")
        lines.append(
            f"{len(self.changes) or 'no'} change{'' if len(self.changes) == 1 else 's'}; nothing was published"
        )
        return "\n".join(lines)


def _what(unit: Unit) -> str:
    """How much there is now, and was before where that differs."""
    sides = [_amount(side) for side in (unit.left, unit.right) if side is not None]
    return " → ".join(dict.fromkeys(sides))


def _amount(entry: Entry) -> str:
    dataset = entry.dataset
    if dataset is None:
        return f"{entry.size} bytes"
    rows = "" if dataset.rows is None else f", {dataset.rows} rows"
    return f"{dataset.files} files{rows}"

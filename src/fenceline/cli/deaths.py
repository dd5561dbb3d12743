"""The page "What if it dies here", made of the failpoints.

python -m fenceline.cli.deaths > docs/what-if-it-dies-here.md
"""

from __future__ import annotations

import fenceline.api
import fenceline.on_lakefs
import fenceline.task.lakefs_step  # noqa: F401 - importing them declares every durable effect
from fenceline import failpoints

HEADER = """# What if it dies here

Every durable effect, in the order of the alphabet, and what the next process finds if the one before it was killed
right before or right after it. "The sweep" runs whenever a repository is opened for writing, on `fenceline recover`,
and in the background where a process started it. In every row: readers see all of a transaction or nothing of it.

`make campaigns` kills a real process at every one of these points, each time it is passed; `make test` right after
each effect (`tests/protocol/test_crashes.py`; for those that begin with `lakefs`
`tests/lakefs/test_recover_on_lakefs.py`). To try one yourself, set `FENCELINE_FAILPOINTS="<effect>.before=crash"` or
`"<effect>.after=crash"` for a process of your own.

This page is generated from the failpoints in the code: `python -m fenceline.cli.deaths`.

| effect | what it is | killed right before | killed right after |
|---|---|---|---|
"""


def page() -> str:
    rows = [
        f"| `{e.name}` | {e.description} | {e.if_dead_before} | {e.if_dead_after} |"
        for e in failpoints.effects().values()
    ]
    return HEADER + "\n".join(rows) + "\n"


if __name__ == "__main__":
    print(page(), end="")

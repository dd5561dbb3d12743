"""The durable effects of table storage. Apart from it, so that they are known where its engine is not installed."""

from __future__ import annotations

from fenceline import failpoints

CREATE = failpoints.effect(
    "table.create",
    "the empty first version of a new table",
    before="an open intent that names the table: the sweep aborts it",
    after="the same; nothing pins the table, gc removes it",
)
WRITE = failpoints.effect(
    "table.write",
    "rows, deletions or an index of a table, in files that no version names yet",
    before="an open intent that names the table: the sweep aborts it",
    after="the same; no version names the files, gc removes them",
)
STAGE = failpoints.effect(
    "table.stage",
    "a detached version of a table, which only a pin can name",
    before="an open intent that names the table: the sweep aborts it, gc removes the files",
    after="the same; nothing pins the version, gc removes it",
)

"""Pending rows become one more version of their table."""

from __future__ import annotations

from fenceline.graph.pending import Pending, arrow
from fenceline.graph.pins import Pin
from fenceline.graph.storage import TableStore

FOLD_AT = 64
"""Fragments of a table from which on small ones are put together: every scan opens each of them."""
FOLD_TO = 4096
"""Rows of a fragment that is small no more. So what a transaction rewrites for others is bounded."""


def staged(store: TableStore, base: Pin, pending: Pending) -> Pin:
    """The pin to publish: a merge replaces what changed and adds what is new, an append only adds.

    After many small transactions one of them also folds their fragments, where no index would have to follow.
    """
    pin = base
    if pending.deleted:
        pin = store.stage_delete(pin, ids=pending.deleted)
    if pending.replaced:
        pin = store.stage_merge(pin, arrow(pending.table, pending.rows.values()))
    elif pending.rows:
        pin = store.stage_append(pin, arrow(pending.table, pending.rows.values()))
    if pin.fragments > FOLD_AT and not pin.indices:
        pin = store.stage_compaction(pin, FOLD_TO, deletions=False)
    return pin.published_after(base)

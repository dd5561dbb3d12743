"""Pending rows become one more version of their table."""

from __future__ import annotations

from fenceline.graph.pending import Pending, arrow
from fenceline.graph.pins import Pin
from fenceline.graph.storage import TableStore


def staged(store: TableStore, base: Pin, pending: Pending) -> Pin:
    """The pin to publish. Appends rewrite nothing; a merge replaces what changed and adds what is new."""
    pin = base
    if pending.deleted:
        pin = store.stage_delete(pin, ids=pending.deleted)
    if pending.replaced:
        pin = store.stage_merge(pin, arrow(pending.table, pending.rows.values()))
    elif pending.rows:
        pin = store.stage_append(pin, arrow(pending.table, pending.rows.values()))
    return pin.published_after(base)

"""Pending rows become one more version of their table."""

from __future__ import annotations

from collections.abc import Sequence

from fenceline.graph.pending import Pending, arrow
from fenceline.graph.pins import Pin
from fenceline.graph.storage import TableStore

FOLD_AT = 64
"""Fragments of a table from which on small ones are put together: every scan opens each of them."""
FOLD_TO = 4096
"""Rows of a fragment that is small no more. So what a transaction rewrites for others is bounded."""


def staged(store: TableStore, base: Pin, pending: Pending, written: Sequence[str] = ()) -> Pin:
    """The pin to publish: a merge replaces what changed and adds what is new, an append only adds.

    `written` are fragments that have the rows already. After many small transactions one of them also folds theirs.
    """
    pin = base
    if pending.deleted:
        pin = store.stage_delete(pin, ids=pending.deleted)
    if written:
        pin = store.rebase_append(pin, written)
    elif pending.replaced:
        pin = store.stage_merge(pin, arrow(pending.table, pending.rows.values()))
    elif pending.rows:
        pin = store.stage_append(pin, arrow(pending.table, pending.rows.values()))
    return folded(store, pin).published_after(base)


def folded(store: TableStore, pin: Pin) -> Pin:
    """With small fragments put together: as soon as there are many, and now and then beside many large ones."""
    covered = min((index.fragments for index in pin.indices), default=0)
    many = pin.fragments - covered > FOLD_AT and (covered > 0 or 2 * pin.rows < pin.fragments * FOLD_TO)
    now_and_then = pin.fragments > FOLD_AT and pin.published % FOLD_AT == 0
    return store.stage_fold(pin, FOLD_TO) if many or now_and_then else pin

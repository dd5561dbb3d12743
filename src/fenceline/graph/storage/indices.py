"""Staging indices, and fewer, larger fragments."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import lance
import pyarrow as pa  # type: ignore[import-untyped]
from lance.dataset import Index, LanceOperation
from lance.optimize import Compaction

from fenceline.graph import index_plan
from fenceline.graph.effects import WRITE
from fenceline.graph.lance_errors import translated
from fenceline.graph.pins import IndexKind, Pin
from fenceline.graph.storage.versions import Versions


class IndexStaging(Versions):
    def stage_index(
        self,
        pin: Pin,
        column: str,
        kind: IndexKind,
        *,
        name: str | None = None,
        rebuild: bool = False,
        smallest: int = 0,
    ) -> Pin:
        """Index the fragments that the index does not cover yet, or all of them; the same pin if nothing is to do.

        Segments that are not much larger than what is new become one with it, so there are few, and building them
        costs in the end little more than the rows that were added. Fragments of fewer rows than `smallest` wait.
        """
        dataset = self.open(pin)
        name = name or f"{column}_{kind}"
        found = next((each for each in dataset.describe_indices() if each.name == name), None)
        rows = {fragment.fragment_id: fragment.metadata.num_rows for fragment in dataset.get_fragments()}
        live = {s.uuid: set(s.fragment_ids) & rows.keys() for s in found.segments} if found and not rebuild else {}
        covered = set().union(*live.values())
        missing = {each for each, count in rows.items() if each not in covered and count >= smallest}
        sizes = {uuid: sum(rows[each] for each in ids) for uuid, ids in live.items()}
        absorbed = index_plan.absorbed(sizes, sum(rows[each] for each in missing)) if missing else set()
        kept = {uuid for uuid, ids in live.items() if ids and uuid not in absorbed}
        wanted = {each: rows[each] for each in missing.union(*(live[uuid] for uuid in absorbed))}
        like = found.index_type if found and kept else None
        built = self._segment(pin, dataset, column, kind, name, wanted, like)
        if built is None:
            kept |= {uuid for uuid in absorbed if live[uuid]}
        stale = [record for record in _records(dataset, name) if record.uuid not in kept]
        if built is None and not stale:
            return pin
        return self._commit(pin, dataset, LanceOperation.CreateIndex([built] if built else [], stale))

    def stage_drop_index(self, pin: Pin, name: str) -> Pin:
        dataset = self.open(pin)
        stale = _records(dataset, name)
        return self._commit(pin, dataset, LanceOperation.CreateIndex([], stale)) if stale else pin

    def stage_compaction(self, pin: Pin, target_rows: int = 1024 * 1024) -> Pin:
        """Fewer, larger fragments without deleted rows; the indices are built again over all of them."""
        compacted = self._rewritten(pin, target_rows, deletions=True, indexed=True)
        if compacted is pin:
            return pin
        for index in pin.indices:  # rewritten rows have new addresses, which the old segments do not know
            compacted = self.stage_index(compacted, index.column, index.kind, name=index.name, rebuild=True)
        return compacted

    def stage_fold(self, pin: Pin, target_rows: int) -> Pin:
        """Small fragments that no index covers become one; an index takes it in once it has `target_rows`."""
        folded = self._rewritten(pin, target_rows, deletions=False, indexed=False)
        for index in folded.indices:
            folded = self.stage_index(folded, index.column, index.kind, name=index.name, smallest=target_rows)
        return folded

    # --- within -------------------------------------------------------------------------------------------------

    def _rewritten(self, pin: Pin, target_rows: int, *, deletions: bool, indexed: bool) -> Pin:
        dataset = self.open(pin)
        with translated(f"compacting table {pin.table}"):
            options: Any = {"target_rows_per_fragment": target_rows, "materialize_deletions": deletions}
            tasks = Compaction.plan(dataset, options).tasks
            if not indexed:
                covered = {i for each in dataset.describe_indices() for s in each.segments for i in s.fragment_ids}
                tasks = [task for task in tasks if covered.isdisjoint(each.id for each in task.fragments)]
            if not tasks:
                return pin
            with WRITE:
                done: list[Any] = [task.execute(dataset) for task in tasks]
        groups = [LanceOperation.RewriteGroup(each.original_fragments, each.new_fragments) for each in done]
        return self._commit(pin, dataset, LanceOperation.Rewrite(groups, []))

    def _segment(
        self,
        pin: Pin,
        dataset: lance.LanceDataset,
        column: str,
        kind: IndexKind,
        name: str,
        fragments: Mapping[int, int],
        like: str | None,
    ) -> Index | None:
        with translated(f"indexing {column!r} of table {pin.table}"):
            type_ = dataset.schema.field(column).type
            dimension = type_.list_size if pa.types.is_fixed_size_list(type_) else None
            plan = index_plan.segment(kind, fragments, dimension, like)
            if plan is None:
                return None
            with WRITE:
                built = dataset.create_index_uncommitted(
                    column, plan.type, name=name, replace=True, fragment_ids=list(plan.fragments), **plan.options
                )
                # a text index comes in parts, which only merging makes readable
                return dataset.merge_existing_index_segments([built]) if kind == "inverted" else built


def _records(dataset: lance.LanceDataset, name: str) -> list[Index]:
    """The segments of an index, in the form in which Lance takes them back to remove them."""
    return [
        Index(segment.uuid, each.name, each.fields, segment.dataset_version_at_last_update, segment.fragment_ids, 0)
        for each in dataset.describe_indices()
        if each.name == name
        for segment in each.segments
    ]

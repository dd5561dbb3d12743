"""One table of a merge: what they changed, on our rows."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import pyarrow as pa  # type: ignore[import-untyped]

from fenceline.graph import merge_sql
from fenceline.graph.constraints import MOST, Change, Near
from fenceline.graph.engine import Relation
from fenceline.graph.merge_relations import MergeRelations, Version
from fenceline.graph.merge_sides import same
from fenceline.graph.row_merge import Delta, GraphConflict, Row, merge_rows
from fenceline.graph.schema import EdgeType, TableType, columns
from fenceline.repo.merge import Strategy


@dataclass(slots=True)
class TableMerge:
    """The rows of ours that will be new or different, and the ids of those that will not be there."""

    relations: MergeRelations
    type: TableType
    token: str
    base: Version | None
    ours: Version | None
    theirs: Version | None
    puts: Relation = None
    removes: Relation = None
    gone: Relation = None
    """Rows of ours that are replaced or deleted, as the evaluator takes them."""
    as_theirs: bool = False
    """Nothing of ours is in the way, so that their version is taken as it is."""
    whole: bool = False
    """Some rule is new for our rows, so that all of them are looked at."""

    @property
    def key(self) -> str:
        return self.type.table_key

    @property
    def columns(self) -> Sequence[str]:
        return columns(self.type)

    @property
    def changed(self) -> bool:
        return not (self.relations.empty(self.puts) and self.relations.empty(self.removes))

    def compare(self, strategy: Strategy | None) -> list[GraphConflict]:
        """Work out puts and removes; conflicts are listed, or decided by the strategy."""
        query, ids = self.relations.query, self.relations.given(self.type, (), ["id"])
        nothing = self.relations.given(self.type, ())
        found = {"own": nothing, "own_gone": ids, "brought": nothing, "their_gone": ids, "before": nothing}
        if not same(_pin(self.theirs), _pin(self.base)):
            found["brought"], found["their_gone"] = self._delta(self.theirs)
        self.as_theirs = same(_pin(self.ours), _pin(self.base))
        if not self.as_theirs:
            found["own"], found["own_gone"] = self._delta(self.ours)
            near = Near("id", self.relations.engine.values([(found["brought"], "id")]))
            base = {"own": found["own"], "brought": found["brought"], "base": self._rows(self.base, None, near)}
            found["before"] = query(merge_sql.changed_by_both(self.columns), base)
        self.puts = query(merge_sql.puts(self.columns, strategy), found)
        gone = {name: found[name] for name in ("own", "own_gone", "their_gone")}
        self.removes = query(merge_sql.removes(strategy), _used(merge_sql.removes(strategy), gone))
        self._replaced()
        return [] if strategy else self._conflicts(found)

    def _delta(self, side: Version | None) -> tuple[Relation, Relation]:
        sides = {"new": self._rows(side), "base": self._rows(self.base)}
        found = {"delta": self.relations.delta(merge_sql.delta(self.columns), sides, self.type)}
        changed, gone = merge_sql.of_delta(self.columns, gone=False), merge_sql.of_delta(["id"], gone=True)
        return self.relations.query(changed, found), self.relations.query(gone, found)

    def _rows(self, version: Version | None, named: Sequence[str] | None = None, near: Near | None = None) -> Relation:
        return self.relations.rows(version, self.type, named, near)

    def _replaced(self) -> None:
        ends = ["id", "src"] if isinstance(self.type, EdgeType) else ["id"]
        near = Near("id", self.relations.engine.values([(self.puts, "id"), (self.removes, "id")]))
        given = {"ours": self._rows(self.ours, ends, near), "puts": self.puts, "removes": self.removes}
        self.gone = self.relations.query(merge_sql.replaced(ends), given)

    def _conflicts(self, found: Mapping[str, Relation]) -> list[GraphConflict]:
        sql = merge_sql.conflicting(self.columns, MOST)
        ids = [row["id"] for row in self.relations.engine.records(sql, found)]
        if not ids:
            return []
        own, brought, before = (self._few(found[name], ids) for name in ("own", "brought", "before"))
        deleted = [frozenset(self._few(found[name], ids, ["id"])) for name in ("own_gone", "their_gone")]
        return merge_rows(self.key, before, Delta(own, deleted[0]), Delta(brought, deleted[1])).conflicts

    def _few(self, relation: Relation, ids: Iterable[str], named: Sequence[str] | None = None) -> dict[str, Row]:
        """Rows with these ids, here."""
        listed = list(named or self.columns)
        wanted = self.relations.given(self.type, [{"id": each} for each in ids], ["id"])
        sql = merge_sql.of_ids("rows", listed)
        return {row["id"]: row for row in self.relations.few(sql, {"rows": relation, "wanted": wanted}, self.type)}

    # --- rules --------------------------------------------------------------------------------------------------

    def change(self) -> Change:
        if not self.whole:
            return Change(self.puts, self.gone)
        given = {"ours": self._rows(self.ours), "puts": self.puts, "removes": self.removes}
        ends = ["id", "src"] if isinstance(self.type, EdgeType) else ["id"]
        ours = self._rows(self.ours, ends)
        return Change(self.relations.query(merge_sql.result(self.columns), given), self.relations.kept(ours))

    # --- decisions of a strategy on edges without a node --------------------------------------------------------

    def having(self, ids: Iterable[str]) -> set[str]:
        """Which of these are put."""
        return set(self._few(self.puts, ids, ["id"]))

    def removing(self, ids: Iterable[str]) -> set[str]:
        return set(self._few(self.removes, ids, ["id"]))

    def their_rows(self, ids: Iterable[str]) -> list[Row]:
        listed = sorted(ids)
        near = Near("id", pa.array(listed, pa.string()))
        return list(self._few(self._rows(self.theirs, None, near), listed).values())

    def leave(self, ids: Iterable[str]) -> None:
        """Our rows with these ids stay as they are."""
        listed = list(ids)
        self.puts, self.removes = self._without(self.puts, listed, self.columns), self._without(self.removes, listed)
        self._touched()

    def put(self, rows: Sequence[Row]) -> None:
        kept = self._without(self.puts, [row["id"] for row in rows], self.columns)
        more = {"one": kept, "other": self.relations.given(self.type, rows)}
        self.puts = self.relations.query(merge_sql.both(self.columns), more)
        self.removes = self._without(self.removes, [row["id"] for row in rows])
        self._touched()

    def remove(self, ids: Iterable[str]) -> None:
        listed = list(ids)
        self.puts, left = self._without(self.puts, listed, self.columns), self._without(self.removes, listed)
        more = {"one": left, "other": self.relations.given(self.type, [{"id": each} for each in listed], ["id"])}
        self.removes = self.relations.query(merge_sql.both(["id"]), more)
        self._touched()

    def _touched(self) -> None:
        self.as_theirs = False
        self._replaced()

    def _without(self, relation: Relation, ids: Sequence[str], named: Sequence[str] = ("id",)) -> Relation:
        unwanted: list[dict[str, Any]] = [{"id": each} for each in ids]
        given = {"rows": relation, "wanted": self.relations.given(self.type, unwanted, ["id"])}
        return self.relations.query(merge_sql.of_ids("rows", named, without=True), given)


def _pin(version: Version | None) -> Any:
    return version.pin if version else None


def _used(sql: str, relations: Mapping[str, Relation]) -> dict[str, Relation]:
    return {name: relation for name, relation in relations.items() if f'"{name}"' in sql}

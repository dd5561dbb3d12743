"""The three sides of a merge: which types and properties of one continue those of another, and their rows."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from functools import cached_property
from typing import Literal, TypeAlias

from fenceline.graph import checks, table_fields
from fenceline.graph.engine import in_process
from fenceline.graph.merge_relations import Version
from fenceline.graph.pins import Pin
from fenceline.graph.schema import SchemaSide, TableType, arrow_type
from fenceline.graph.snapshot import Snapshot
from fenceline.graph.storage import TableStore

Who: TypeAlias = Literal["base", "ours", "theirs"]
_NEW = "+"


class Sides:
    """Types are told apart by their tables, which renames keep; properties by name, then by Lance's field ids."""

    def __init__(self, store: TableStore, base: Snapshot, ours: Snapshot, theirs: Snapshot) -> None:
        self._store = store
        self.snapshots: Mapping[Who, Snapshot] = {"base": base, "ours": ours, "theirs": theirs}
        self._continued: dict[tuple[Who, str], dict[str, str]] = {}

    @cached_property
    def tokens(self) -> Mapping[Who, Mapping[str, str]]:
        """From table key to table id; types that both sides added under one name are one."""
        base, ours, theirs = (dict(self.snapshots[who].manifest.tables) for who in ("base", "ours", "theirs"))
        known = set(base.values())
        both = {key: ours[key] for key, table in theirs.items() if key in ours and not known & {table, ours[key]}}
        return {"base": base, "ours": ours, "theirs": {**theirs, **both}}

    @cached_property
    def _keys(self) -> Mapping[Who, Mapping[str, str]]:
        return {who: {token: key for key, token in known.items()} for who, known in self.tokens.items()}

    def key(self, who: Who, token: str) -> str | None:
        return self._keys[who].get(token)

    def pin(self, who: Who, token: str) -> Pin | None:
        key = self.key(who, token)
        return None if key is None else self.snapshots[who].pin(key)

    def type(self, who: Who, token: str) -> TableType | None:
        key = self.key(who, token)
        return None if key is None else self.snapshots[who].catalogue.table(key)

    def schema(self, who: Who) -> SchemaSide:
        found = self.tokens[who]
        names = {token: self.continued(who, token) for token in found.values()}
        return SchemaSide(self.snapshots[who].catalogue, found, names)

    def continued(self, who: Who, token: str) -> dict[str, str]:
        """From property names to the base's."""
        if (who, token) not in self._continued:
            self._continued[who, token] = self._match(who, token)
        return self._continued[who, token]

    def _match(self, who: Who, token: str) -> dict[str, str]:
        mine, base = self.type(who, token), self.type("base", token)
        if mine is None or base is None:
            return {}
        found = {each.name: each.name for each in mine.properties if base.has(each.name)}
        lost = [each for each in base.properties if each.name not in found]
        new = [each for each in mine.properties if each.name not in found]
        if lost and new:
            before, now = self._field_ids("base", token), self._field_ids(who, token)
            for each in new:
                for old in lost:
                    same = arrow_type(each.kind) == arrow_type(old.kind)
                    if same and before[old.name] == now[each.name]:
                        found[each.name] = old.name
        return found

    def _field_ids(self, who: Who, token: str) -> dict[str, int]:
        pin = self.pin(who, token)
        assert pin is not None
        return {each.name: each.id for each in table_fields.trees(self._store.field_messages(pin))}

    # --- rows ---------------------------------------------------------------------------------------------------

    def version(self, who: Who, token: str, names: Mapping[str, str]) -> Version | None:
        """A side's rows; `names` leads from the merged type's properties to their tokens."""
        pin, table = self.pin(who, token), self.type(who, token)
        if pin is None or table is None:
            return None
        known = self.continued(who, token)
        mine = {known.get(each.name, _NEW + each.name): each.name for each in table.properties}
        listed = {name: mine[each] for name, each in names.items() if each in mine}
        return Version(pin, table, {**{each: each for each in table.own_columns}, **listed})

    def same(self, one: Who, other: Who, token: str) -> bool:
        """Whether both have the very same version of the table."""
        return same(self.pin(one, token), self.pin(other, token))

    def used(self, token: str, name: str | None, who: Literal["ours", "theirs"]) -> bool:
        """Whether a side changed a table since the base, or the values of one property of it (by its token)."""
        if self.same(who, "base", token):
            return False
        if name is None:
            return True
        mine = next(now for now, before in self.continued(who, token).items() if before == name)
        pins = [pin for pin in (self.pin(who, token), self.pin("base", token)) if pin is not None]
        scans = {
            relation: self._store.scan(pin, ["id", column])
            for relation, pin, column in zip(("new", "base"), pins, (mine, name), strict=True)
        }
        return bool(in_process().records(checks.other_values(mine, name), scans))


def same(one: Pin | None, other: Pin | None) -> bool:
    return one is other or (
        one is not None and other is not None and (one.table, one.version) == (other.table, other.version)
    )


def tables_of(snapshots: Iterable[Snapshot]) -> set[str]:
    return {key for each in snapshots for key in each.manifest.tables}

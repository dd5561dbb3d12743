"""Three-way merge of schemas, down to single attributes: what one side changed is taken, what both changed conflicts.

Types and properties are told apart by what they continue and not by their names, so a rename is one changed attribute.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any, Literal, TypeAlias

from fenceline.graph.schema.forms import OWN, Form, catalogue_of, forms_of
from fenceline.graph.schema.model import Catalogue
from fenceline.graph.schema.problems import SchemaError
from fenceline.graph.schema.text import parse, render

Winner: TypeAlias = Literal["ours", "theirs"] | None
_ABSENT: Any = object()
_SETS = ("unique", "index")


@dataclass(frozen=True, slots=True)
class SchemaSide:
    """One of the three schemas, with what its types and properties continue."""

    catalogue: Catalogue = field(default_factory=Catalogue)
    types: Mapping[str, str] = field(default_factory=dict)
    """From table key to a token that the same type has on every side."""
    properties: Mapping[str, Mapping[str, str]] = field(default_factory=dict)
    """By that token, from names to those of the base; what is not listed is new."""


@dataclass(frozen=True, slots=True)
class Clash:
    """Something that both sides changed, each in its way."""

    table_key: str
    properties: tuple[str, ...]
    detail: str


Used = Callable[[str, str | None, Literal["ours", "theirs"]], bool]
"""Whether a side changed rows of a type (by its token), or values of one property of it: it may not be dropped then."""


@dataclass(frozen=True, slots=True)
class MergedSchema:
    catalogue: Catalogue | None
    """None: there is no schema that says what both sides say."""
    types: Mapping[str, str]
    """From table key to token."""
    properties: Mapping[str, Mapping[str, str]]
    """By token, from names to the tokens of properties."""
    clashes: tuple[Clash, ...] = ()


def merge_schemas(
    base: SchemaSide, ours: SchemaSide, theirs: SchemaSide, used: Used, winner: Winner = None
) -> MergedSchema:
    """What both sides made of the base. Conflicts are listed, or decided by `winner`."""
    return _Merging(used, winner).run(base, ours, theirs)


class _Merging:
    def __init__(self, used: Used, winner: Winner) -> None:
        self._used, self._winner = used, winner
        self._clashes: list[Clash] = []

    def run(self, base: SchemaSide, ours: SchemaSide, theirs: SchemaSide) -> MergedSchema:
        b, o, t = (forms_of(each.catalogue, each.types, each.properties) for each in (base, ours, theirs))
        merged: dict[str, Form] = {}
        for token in _in_order(o, t, b):
            made = self._declared(token, b.get(token), o.get(token), t.get(token))
            if made is not None:
                merged[token] = made
        try:
            draft = catalogue_of(merged)
            catalogue = parse(render(draft), "the merged schema")
        except (SchemaError, KeyError) as error:
            said = str(error) if isinstance(error, SchemaError) else f"{error} is used and was dropped"
            self._clashes.append(Clash("schema", (), f"both sides together make no schema: {said}"))
            return MergedSchema(None, {}, {}, tuple(self._clashes))
        tables = {each.table_key for each in catalogue.tables()}
        types = {form.key: token for token, form in merged.items() if form.key in tables}
        names = {
            token: {said["name"]: each for each, said in form.properties.items()} for token, form in merged.items()
        }
        return MergedSchema(catalogue, types, names, tuple(self._clashes))

    # --- types and interfaces -----------------------------------------------------------------------------------

    def _declared(self, token: str, base: Form | None, ours: Form | None, theirs: Form | None) -> Form | None:
        if ours is None or theirs is None:
            kept = ours or theirs
            if kept is None or base is None:
                return kept
            return self._dropped(token, base, kept, "theirs" if ours is None else "ours")
        where = ours.key
        plain = {
            name: self._value(
                where, (), name, base.said.get(name, _ABSENT) if base else _ABSENT, value, theirs.said[name]
            )
            for name, value in ours.said.items()
            if name not in (*_SETS, "implements")
        }
        properties = self._properties(token, where, base, ours, theirs)
        for name in (*_SETS, "implements"):
            if name in ours.said:
                before = base.said[name] if base else ()
                members = _together(before, ours.said[name], theirs.said[name])
                gone = [each for each in before if name in _SETS and not _there(each, properties)]
                plain[name] = tuple(each for each in members if each not in gone)
        return Form(ours.kind, plain, properties)

    def _dropped(self, token: str, base: Form, kept: Form, keeper: Literal["ours", "theirs"]) -> Form | None:
        if kept == base and not self._used(token, None, keeper):
            return None
        if self._winner is None:
            who, other = ("them", "us") if keeper == "ours" else ("us", "them")
            self._clashes.append(Clash(kept.key, (), f"dropped by {who}, changed by {other}"))
        return kept if self._winner in (None, keeper) else None

    # --- properties ---------------------------------------------------------------------------------------------

    def _properties(
        self, token: str, where: str, base: Form | None, ours: Form, theirs: Form
    ) -> dict[str, dict[str, Any]]:
        before = base.properties if base else {}
        found: dict[str, dict[str, Any]] = {}
        for each in _property_order(before, ours.properties, theirs.properties):
            b, o, t = before.get(each), ours.properties.get(each), theirs.properties.get(each)
            if o is not None and t is not None:
                said = f"{o['name']}"
                found[each] = {
                    name: self._value(where, (said,), name, b[name] if b else _ABSENT, o[name], t[name]) for name in o
                }
            elif b is None:
                found[each] = o or t or {}
            else:
                kept = o or t
                if kept is None:
                    continue
                left = self._dropped_property(token, where, each, b, kept, "theirs" if o is None else "ours")
                if left is not None:
                    found[each] = left
        return found

    def _dropped_property(
        self,
        token: str,
        where: str,
        each: str,
        base: dict[str, Any],
        kept: dict[str, Any],
        keeper: Literal["ours", "theirs"],
    ) -> dict[str, Any] | None:
        if kept == base and not self._used(token, each, keeper):
            return None
        if self._winner is None:
            who, other = ("them", "us") if keeper == "ours" else ("us", "them")
            what = "its values were changed" if kept == base else "it was changed"
            self._clashes.append(Clash(where, (kept["name"],), f"dropped by {who}, and {what} by {other}"))
        return kept if self._winner in (None, keeper) else None

    def _value(self, where: str, at: tuple[str, ...], name: str, base: Any, ours: Any, theirs: Any) -> Any:
        if theirs in (base, ours):
            return ours
        if ours == base:
            return theirs
        if self._winner is None:
            before = "was not there" if base is _ABSENT else f"was {_shown(base)}"
            detail = f"{name} {before}, is {_shown(ours)} here and {_shown(theirs)} there"
            self._clashes.append(Clash(where, at, detail))
        return theirs if self._winner == "theirs" else ours


def _there(member: str | tuple[str, ...], properties: Mapping[str, Any]) -> bool:
    """Whether an old rule still has its columns: it goes with a property that one side dropped."""
    names = (member,) if isinstance(member, str) else member
    return all(each in properties or each in OWN for each in names)


def _shown(value: Any) -> str:
    return "not said" if value is None else str(value)


def _in_order(*sides: Iterable[str]) -> list[str]:
    return list(dict.fromkeys(each for side in sides for each in side))


def _together(base: Iterable[Any], ours: Iterable[Any], theirs: Iterable[Any]) -> tuple[Any, ...]:
    """Members that both have, and those that one side added."""
    b, o, t = set(base), set(ours), set(theirs)
    kept = (o & t) | (o - b) | (t - b)
    return tuple(each for each in _in_order(ours, theirs) if each in kept)


def _property_order(base: Iterable[str], ours: Iterable[str], theirs: Iterable[str]) -> list[str]:
    """That of the side which moved something; where both did, ours. What the other side added comes last."""
    before, own, other = list(base), list(ours), list(theirs)
    kept = [each for each in before if each in own]
    if [each for each in own if each in before] == kept:
        own, other = other, own
    return _in_order(own, other)

"""Schemas with tokens for names: what they say can then be compared where types and properties were renamed."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal

from fenceline.graph.schema.model import Catalogue, EdgeType, Embed, Interface, NodeType, Property, TableType

_NEW = "+"
"""Begins the token of a property that the base does not have: no name begins so."""
OWN = ("id", "src", "dst")


@dataclass(frozen=True, slots=True)
class Form:
    """What is said of one type or interface, attribute by attribute."""

    kind: Literal["interface", "node", "edge"]
    said: dict[str, Any] = field(default_factory=dict)
    properties: dict[str, dict[str, Any]] = field(default_factory=dict)

    @property
    def key(self) -> str:
        return f"{self.kind}:{self.said['name']}"


def forms_of(
    catalogue: Catalogue, types: Mapping[str, str], properties: Mapping[str, Mapping[str, str]]
) -> dict[str, Form]:
    """By token. Interfaces have no tables that they could be told apart by: a renamed one is another one."""
    made: dict[str, Form] = {}
    for interface in catalogue.interfaces:
        known = {each.name: each.name for each in interface.properties}
        made[f"interface:{interface.name}"] = _form("interface", interface, types, known)
    for table in catalogue.tables():
        token = types[table.table_key]
        known = {each.name: _NEW + each.name for each in table.properties} | dict(properties.get(token, {}))
        made[token] = _form("node" if isinstance(table, NodeType) else "edge", table, types, known)
    return made


def catalogue_of(forms: Mapping[str, Form]) -> Catalogue:
    """Names again. Raises `KeyError` where a form uses what is not there."""
    nodes = {token: form.said["name"] for token, form in forms.items() if form.kind == "node"}
    interfaces, node_types, edges = list[Interface](), list[NodeType](), list[EdgeType]()
    for form in forms.values():
        common = _common(form)
        if form.kind == "interface":
            interfaces.append(Interface(**common, key=_names(form, form.said["key"])))
        elif form.kind == "node":
            key, implements = _names(form, form.said["key"]), tuple(form.said["implements"])
            node_types.append(NodeType(**common, implements=implements, key=key))
        else:
            source, target = nodes[form.said["source"]], nodes[form.said["target"]]
            edges.append(EdgeType(**common, source=source, target=target, card=form.said["card"]))
    return Catalogue(tuple(interfaces), tuple(node_types), tuple(edges))


def _form(
    kind: Literal["interface", "node", "edge"],
    declared: Interface | TableType,
    types: Mapping[str, str],
    tokens: Mapping[str, str],
) -> Form:
    def of(names: Sequence[str]) -> tuple[str, ...]:
        return tuple(tokens.get(name, name) for name in names)

    said: dict[str, Any] = {
        "name": declared.name,
        "description": declared.description,
        "unique": tuple(sorted(tuple(sorted(of(each))) for each in declared.unique)),
        "index": tuple(sorted(of(declared.index))),
    }
    if isinstance(declared, EdgeType):
        ends = types[f"node:{declared.source}"], types[f"node:{declared.target}"]
        said |= {"source": ends[0], "target": ends[1], "card": declared.card}
    else:
        said["key"] = of(declared.key)
    if isinstance(declared, NodeType):
        said["implements"] = declared.implements
    return Form(kind, said, {tokens[each.name]: _property(each, tokens) for each in declared.properties})


def _property(each: Property, tokens: Mapping[str, str]) -> dict[str, Any]:
    return {
        "name": each.name,
        "kind": each.kind,
        "nullable": each.nullable,
        "range": each.range,
        "check": each.check,
        "embed": (tokens[each.embed.source], each.embed.model) if each.embed else None,
        "description": each.description,
    }


def _common(form: Form) -> dict[str, Any]:
    properties = []
    for said in form.properties.values():
        embed = Embed(_names(form, [said["embed"][0]])[0], said["embed"][1]) if said["embed"] else None
        properties.append(Property(**{**said, "embed": embed}))
    order = [each.name for each in properties]
    unique = [_in_columns(_names(form, each), order) for each in form.said["unique"]]
    indexed = _names(form, form.said["index"])
    index = [name for name in (*OWN, *order) if name in indexed]
    return {
        "name": form.said["name"],
        "description": form.said["description"],
        "properties": tuple(properties),
        "unique": tuple(unique),
        "index": tuple(index),
    }


def _names(form: Form, tokens: Sequence[str]) -> tuple[str, ...]:
    return tuple(form.properties[each]["name"] if each in form.properties else _own(each) for each in tokens)


def _own(token: str) -> str:
    if token in OWN:
        return token
    raise KeyError(token.removeprefix(_NEW))


def _in_columns(names: Sequence[str], order: Sequence[str]) -> tuple[str, ...]:
    columns = [*OWN, *order]
    return tuple(sorted(names, key=columns.index))

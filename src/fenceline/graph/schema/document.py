"""The JSON form of a catalogue, both ways: for programs in other languages.

Reading it back goes through the canonical text, so that there is one judge of what a schema may be.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, TypeAlias

from fenceline.errors import ContractError
from fenceline.graph.schema.kinds import Choice, Kind, ListOf, Scalar, Vector
from fenceline.graph.schema.model import (
    Card,
    Catalogue,
    EdgeType,
    Embed,
    Interface,
    NodeType,
    Property,
    Span,
    TableType,
)
from fenceline.graph.schema.text import parse, render, schema_id

Json: TypeAlias = dict[str, Any]
FORMAT = 1


def to_json(catalogue: Catalogue) -> Json:
    """Absent fields are those that were not said."""
    return {
        "format": FORMAT,
        "schema_id": schema_id(catalogue),
        "interfaces": [_declared(each) for each in catalogue.interfaces],
        "nodes": [_declared(each) for each in catalogue.nodes],
        "edges": [_declared(each) for each in catalogue.edges],
    }


def from_json(document: Mapping[str, Any]) -> Catalogue:
    if document.get("format") != FORMAT:
        raise ContractError(
            f"a schema document of format {document.get('format')!r}, this version reads {FORMAT}",
            hint="write it again with this version, or upgrade",
        )
    try:
        catalogue = Catalogue(
            tuple(Interface(**_common(each), key=tuple(each.get("key", ()))) for each in document["interfaces"]),
            tuple(_node(each) for each in document["nodes"]),
            tuple(_edge(each) for each in document["edges"]),
        )
        text = render(catalogue)
    except (KeyError, TypeError, ValueError, AttributeError) as error:
        raise ContractError(
            f"not a schema document: {type(error).__name__}: {error}", hint="write it with to_json"
        ) from error
    parsed = parse(text, "the document's schema")
    if parsed != catalogue:
        raise ContractError(
            "a schema document whose types do not follow from their declarations",
            hint="properties of interfaces stand first in the types that implement them; write it with to_json",
        )
    return parsed


def kind_to_json(kind: Kind) -> Any:
    if isinstance(kind, Vector):
        return {"vector": kind.size}
    if isinstance(kind, Choice):
        return {"enum": list(kind.values)}
    return {"list": kind_to_json(kind.item)} if isinstance(kind, ListOf) else kind.value


def _kind(document: Any) -> Kind:
    if isinstance(document, str):
        return Scalar(document)
    ((name, value),) = document.items()
    if name == "vector":
        return Vector(int(value))
    if name == "enum":
        return Choice(tuple(str(each) for each in value))
    if name != "list":
        raise ValueError(f"a type {name!r}")
    item = _kind(value)
    if isinstance(item, Vector | ListOf):
        raise TypeError(f"a list of {item}")
    return ListOf(item)


def _declared(declared: Interface | TableType) -> Json:
    said: Json = {"name": declared.name}
    if isinstance(declared, NodeType):
        said |= {"implements": list(declared.implements)}
    if isinstance(declared, EdgeType):
        said |= {"from": declared.source, "to": declared.target}
        said |= {"card": {"min": declared.card.low, "max": declared.card.high}} if declared.card else {}
    else:
        said |= {"key": list(declared.key)}
    said |= {
        "properties": [_property(each) for each in declared.properties],
        "unique": [list(each) for each in declared.unique],
        "index": list(declared.index),
    }
    return said | _said(declared)


def _property(each: Property) -> Json:
    said: Json = {"name": each.name, "type": kind_to_json(each.kind), "nullable": each.nullable}
    if each.range is not None:
        said["range"] = {"min": each.range.low, "max": each.range.high}
    if each.check is not None:
        said["check"] = each.check
    if each.embed is not None:
        said["embed"] = {"source": each.embed.source, "model": each.embed.model}
    return said | _said(each)


def _said(declared: Interface | TableType | Property) -> Json:
    told = {"description": declared.description, "rename_from": declared.rename_from}
    return {name: value for name, value in told.items() if value is not None}


def _common(document: Json) -> Json:
    return {
        "name": document["name"],
        "properties": tuple(_read_property(each) for each in document.get("properties", ())),
        "unique": tuple(tuple(each) for each in document.get("unique", ())),
        "index": tuple(document.get("index", ())),
        "description": document.get("description"),
        "rename_from": document.get("rename_from"),
    }


def _node(document: Json) -> NodeType:
    key, implements = tuple(document.get("key", ())), tuple(document.get("implements", ()))
    return NodeType(**_common(document), implements=implements, key=key)


def _edge(document: Json) -> EdgeType:
    card = document.get("card")
    return EdgeType(
        **_common(document),
        source=document["from"],
        target=document["to"],
        card=Card(card["min"], card["max"]) if card else None,
    )


def _read_property(document: Json) -> Property:
    span, embed, kind = document.get("range"), document.get("embed"), _kind(document["type"])
    return Property(
        document["name"],
        kind,
        bool(document.get("nullable", False)),
        range=Span(span["min"], span["max"]) if span else None,
        check=document.get("check"),
        embed=Embed(embed["source"], embed.get("model")) if embed else None,
        description=document.get("description"),
        rename_from=document.get("rename_from"),
    )

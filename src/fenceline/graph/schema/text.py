"""The language both ways: `parse` reads it, `render` writes its canonical form, `schema_id` names that."""

from __future__ import annotations

import hashlib
from collections.abc import Iterator, Sequence
from dataclasses import replace
from typing import TypeVar

from fenceline.graph.schema.building import build
from fenceline.graph.schema.kinds import quoted
from fenceline.graph.schema.model import Catalogue, EdgeType, Interface, NodeType, Property, TableType
from fenceline.graph.schema.problems import Problems
from fenceline.graph.schema.syntax import declarations

T = TypeVar("T", Interface, NodeType, EdgeType)


def parse(text: str, source: str = "schema.pg") -> Catalogue:
    """The catalogue that a text declares; `source` is what errors call it."""
    text = text.removeprefix("\ufeff")
    problems = Problems()
    catalogue = build(declarations(text, source), problems)
    problems.raise_any(text, source)
    return catalogue


def render(catalogue: Catalogue) -> str:
    """The canonical text: `parse(render(c)) == c`, and equal catalogues have equal texts."""
    interfaces = {each.name: each for each in catalogue.interfaces}
    shown = [_block(_header(each), each, ()) for each in catalogue.interfaces]
    for node in catalogue.nodes:
        shown.append(_block(_header(node), node, [interfaces[name] for name in node.implements]))
    shown += [_block(_header(edge), edge, ()) for edge in catalogue.edges]
    return "\n".join(shown)


def settled(catalogue: Catalogue) -> Catalogue:
    """Without @rename_from: those say how to get here, which is no part of what is accepted."""
    return Catalogue(
        tuple(_settled(each) for each in catalogue.interfaces),
        tuple(_settled(each) for each in catalogue.nodes),
        tuple(_settled(each) for each in catalogue.edges),
    )


def schema_id(catalogue: Catalogue) -> str:
    """The sha256 of the settled canonical text: what `schema.pg` of a graph holds."""
    return hashlib.sha256(render(settled(catalogue)).encode()).hexdigest()


def _settled(declared: T) -> T:
    properties = tuple(replace(each, rename_from=None) for each in declared.properties)
    return replace(declared, properties=properties, rename_from=None)


def _header(declared: Interface | TableType) -> str:
    words = [f"interface {declared.name}"]
    if isinstance(declared, NodeType):
        words = [f"node {declared.name}"]
        words += [f"implements {', '.join(declared.implements)}"] if declared.implements else []
    if isinstance(declared, EdgeType):
        words = [f"edge {declared.name}: {declared.source} -> {declared.target}"]
        words += [f"@card({declared.card})"] if declared.card else []
    return " ".join([*words, *_said(declared)])


def _said(declared: Interface | TableType | Property) -> Iterator[str]:
    if declared.rename_from is not None:
        yield f"@rename_from({declared.rename_from})"
    if declared.description is not None:
        yield f"@description({quoted(declared.description)})"


def _block(header: str, declared: Interface | TableType, bases: Sequence[Interface]) -> str:
    """What the interfaces give already is not written again."""
    inherited = {each.name: each for base in bases for each in base.properties}
    given = {frozenset(each) for base in bases for each in base.unique}
    unique = {each for each in declared.unique if frozenset(each) not in given}
    index = set(declared.index).difference(*(base.index for base in bases))
    key = () if isinstance(declared, EdgeType) or any(base.key for base in bases) else declared.key
    own = [each for each in declared.properties if inherited.get(each.name) != each]
    lines = []
    for each in own:
        at = (each.name,)
        short = [
            "@key" if key == at else "",
            "@unique" if at in unique else "",
            "@index" if each.name in index else "",
        ]
        lines.append(" ".join([_property(each), *filter(None, short), *_annotations(each)]))
        key = () if key == at else key
        unique.discard(at)
        index.discard(each.name)
    lines += [f"@key({', '.join(key)})"] if key else []
    lines += [f"@unique({', '.join(each)})" for each in declared.unique if each in unique]
    lines += [f"@index({each})" for each in declared.index if each in index]
    return f"{header} {{\n" + "".join(f"  {line}\n" for line in lines) + "}\n" if lines else f"{header}\n"


def _property(each: Property) -> str:
    return f"{each.name}: {each.kind}{'?' if each.nullable else ''}"


def _annotations(each: Property) -> Iterator[str]:
    if each.range is not None:
        yield f"@range({each.range})"
    if each.check is not None:
        yield f"@check({quoted(each.check)})"
    if each.embed is not None:
        model = "" if each.embed.model is None else f", {quoted(each.embed.model)}"
        yield f"@embed({each.embed.source}{model})"
    yield from _said(each)

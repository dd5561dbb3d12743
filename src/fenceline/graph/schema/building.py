"""From declarations to a catalogue; every contradiction of the text is told, not only the first."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass, replace

from fenceline.graph.schema.arguments import named, where
from fenceline.graph.schema.kinds import Kind, Scalar, can_be_indexed, can_be_key, can_be_unique
from fenceline.graph.schema.members import Columns, Header, Members, duplicate_renames, header, members
from fenceline.graph.schema.model import Catalogue, EdgeType, Interface, NodeType, Property, in_column_order
from fenceline.graph.schema.problems import Problems, did_you_mean
from fenceline.graph.schema.syntax import Declaration, Word

_CAN: dict[str, tuple[Callable[[Kind], bool], str]] = {
    "key": (can_be_key, "a key"),
    "unique": (can_be_unique, "unique"),
    "index": (can_be_indexed, "indexed"),
}
_OWN: dict[str, tuple[str, ...]] = {
    "interface": Interface.own_columns,
    "node": NodeType.own_columns,
    "edge": EdgeType.own_columns,
}


@dataclass(slots=True)
class _Parts:
    """A declaration as far as it is understood: all properties it has, and its constraints."""

    declared: Declaration
    header: Header
    members: Members
    properties: dict[str, Property]
    broken: set[str]
    """Names that were declared wrongly: told once, and not again where they are used."""
    key: tuple[str, ...] = ()
    unique: tuple[tuple[str, ...], ...] = ()
    index: tuple[str, ...] = ()


def build(declared: Iterable[Declaration], problems: Problems) -> Catalogue:
    known = _unique_names(declared, problems)
    keywords = {each.name.text: each.keyword for each in known}
    parts = [_read(each, frozenset(keywords), problems) for each in known]
    interfaces = [each for each in parts if each.declared.keyword == "interface"]
    nodes = [each for each in parts if each.declared.keyword == "node"]
    edges = [each for each in parts if each.declared.keyword == "edge"]
    for each in interfaces:
        _constrain(each, problems)
    by_name = {each.declared.name.text: each for each in interfaces}
    for each in nodes:
        _inherit(each, by_name, keywords, problems)
        _constrain(each, problems)
    for each in edges:
        _endpoints(each.declared, keywords, problems)
        _constrain(each, problems)
    for same in (interfaces, nodes, edges):
        duplicate_renames([(each.header.rename_from, each.declared.name.spot) for each in same], problems)
    return Catalogue(tuple(map(_interface, interfaces)), tuple(map(_node, nodes)), tuple(map(_edge, edges)))


def _unique_names(declared: Iterable[Declaration], problems: Problems) -> list[Declaration]:
    """Names of all kinds are one set, and case does not tell them apart: disks and engines may not either."""
    first: dict[str, Declaration] = {}
    for each in declared:
        what = each.keyword if each.keyword == "interface" else f"{each.keyword} type"
        named(each.name, what, problems)
        before = first.setdefault(each.name.text.lower(), each)
        if before is not each:
            hint = f"{before.keyword} {before.name.text} is declared in {where(before.name.spot)}"
            problems.add(each.name.spot, f"there are two types called {each.name.text}", hint)
    return list(first.values())


def _read(declared: Declaration, names: frozenset[str], problems: Problems) -> _Parts:
    found = members(declared, names, problems)
    duplicate_renames([(each.rename_from, spot) for each, spot in found.properties.values()], problems)
    properties = {name: each for name, (each, _) in found.properties.items()}
    head = header(declared, problems)
    return _Parts(declared, head, found, properties, set(found.named) - set(properties))


def _inherit(node: _Parts, interfaces: dict[str, _Parts], keywords: dict[str, str], problems: Problems) -> None:
    """Puts the properties of the interfaces before the node's own, where they are not repeated differently."""
    inherited: dict[str, tuple[Property, str]] = {}
    keys: dict[tuple[str, ...], str] = {}
    seen = set[str]()
    for word in node.declared.implements:
        interface = interfaces.get(word.text)
        if interface is None:
            _unknown(word, "interface", keywords, problems)
            continue
        if word.text in seen:
            problems.add(word.spot, f"{node.declared.name.text} implements {word.text} twice", "take one out")
            continue
        seen.add(word.text)
        node.broken |= interface.broken
        node.unique += interface.unique
        node.index += interface.index
        if interface.key:
            keys.setdefault(interface.key, word.text)
        for each in interface.properties.values():
            same = next((name for name in inherited if name.lower() == each.name.lower()), each.name)
            before, origin = inherited.setdefault(same, (each, word.text))
            if before != each:
                hint = "declare it alike in both, or in one of them"
                problems.add(word.spot, f"{origin} and {word.text} both have {each.name}, but differently", hint)
    if len(keys) > 1:
        hint = "a node has one key: take @key out of all interfaces but one"
        problems.add(node.declared.name.spot, f"{' and '.join(keys.values())} both have a key", hint)
    node.key = next(iter(keys), ())
    own = node.properties
    node.properties = {name: each for name, (each, _) in inherited.items()}
    for name, each in own.items():
        spot = node.members.properties[name][1]
        base_name = next((other for other in inherited if other.lower() == name.lower()), None)
        if base_name is None:
            node.properties[name] = each
            continue
        base, origin = inherited[base_name]
        if (base_name, base.kind, base.nullable) == (name, each.kind, each.nullable):
            node.properties[name] = _repeated(each, base)
        else:
            said = f"{base.name}: {base.kind}{'?' if base.nullable else ''}"
            problems.add(
                spot, f"{origin} has {said}, this is another", "write it alike, or leave it out: it is inherited"
            )


def _repeated(own: Property, base: Property) -> Property:
    """What a repeated property says itself counts; the rest is the interface's."""
    return replace(
        base,
        range=own.range or base.range,
        check=own.check if own.check is not None else base.check,
        embed=own.embed or base.embed,
        description=own.description if own.description is not None else base.description,
        rename_from=own.rename_from or base.rename_from,
    )


def _constrain(parts: _Parts, problems: Problems) -> None:
    """Adds the constraints over columns; what `id` or the key already implies is left out."""
    for each in parts.members.constraints:
        if _columns_fit(parts, each, problems):
            _add(parts, each, problems)
    order = (*_OWN[parts.declared.keyword], *parts.properties)
    unique = {in_column_order(each, order) for each in parts.unique}
    implied = in_column_order(parts.key, order)
    parts.unique = tuple(sorted((each for each in unique if each != implied and "id" not in each), key=_by(order)))
    parts.index = in_column_order((each for each in parts.index if each not in _OWN[parts.declared.keyword]), order)
    for name, source in parts.members.embeds:
        _embed(parts, name, source, problems)


def _by(order: tuple[str, ...]) -> Callable[[tuple[str, ...]], list[int]]:
    return lambda names: [order.index(name) for name in names]


def _columns_fit(parts: _Parts, constraint: Columns, problems: Problems) -> bool:
    own, right = _OWN[parts.declared.keyword], True
    can, what = _CAN[constraint.name]
    for word in constraint.columns:
        found = parts.properties.get(word.text)
        if found is None:
            right = right and word.text in own
            if word.text not in own and word.text not in parts.broken:
                hint = did_you_mean(word.text, (*own, *parts.properties))
                hint = hint or f"it has {', '.join((*own, *parts.properties)) or 'none'}"
                problems.add(word.spot, f"{parts.declared.name.text} has no property {word.text}", hint)
        elif not can(found.kind):
            problems.add(word.spot, f"{word.text} cannot be {what}: it is {found.kind}", f"take @{constraint.name} out")
            right = False
        elif constraint.name == "key" and found.nullable:
            problems.add(word.spot, f"{word.text} cannot be a key: it may be null", "take its ? out")
            right = False
    return right


def _add(parts: _Parts, constraint: Columns, problems: Problems) -> None:
    names = tuple(word.text for word in constraint.columns)
    if constraint.name == "unique":
        parts.unique += (names,)
    elif constraint.name == "index":
        parts.index += names
    elif parts.declared.keyword == "edge":
        hint = "use @unique(src, dst) for at most one edge between two nodes"
        problems.add(constraint.spot, "an edge has no key", hint)
    elif "id" in names:
        problems.add(constraint.spot, "id cannot be in a key: it is made of the key", "name properties")
    elif parts.key and parts.key != names:
        hint = f"a key of several properties is @key({', '.join(dict.fromkeys((*parts.key, *names)))})"
        problems.add(constraint.spot, f"{parts.declared.name.text} has two keys", hint)
    else:
        parts.key = names


def _embed(parts: _Parts, name: str, source: Word, problems: Problems) -> None:
    found = parts.properties.get(source.text)
    if found is None and source.text not in parts.broken:
        hint = did_you_mean(source.text, (each for each in parts.properties if each != name))
        problems.add(source.spot, f"{parts.declared.name.text} has no property {source.text} to embed", hint)
    elif found is not None and found.kind is not Scalar.STRING:
        problems.add(source.spot, f"{source.text} cannot be embedded: it is {found.kind}", "name a String")


def _endpoints(edge: Declaration, keywords: dict[str, str], problems: Problems) -> None:
    for word in filter(None, (edge.source, edge.target)):
        if keywords.get(word.text) != "node":
            _unknown(word, "node", keywords, problems)


def _unknown(word: Word, wanted: str, keywords: dict[str, str], problems: Problems) -> None:
    """A name that is none of the wanted kind."""
    what = {"node": "node type", "interface": "interface", "edge": "edge type"}
    if word.text in keywords:
        hint = "an edge leads from a node type to a node type" if wanted == "node" else "name an interface"
        problems.add(word.spot, f"{word.text} is not {_a(what[wanted])} but {_a(what[keywords[word.text]])}", hint)
        return
    there = [name for name, keyword in keywords.items() if keyword == wanted]
    hint = did_you_mean(word.text, there) or f"declare it: {wanted} {word.text} {{ … }}"
    problems.add(word.spot, f"there is no {what[wanted]} {word.text}", hint)


def _a(what: str) -> str:
    return f"an {what}" if what[0] in "aei" else f"a {what}"


def _interface(parts: _Parts) -> Interface:
    head = parts.header
    return Interface(
        parts.declared.name.text,
        tuple(parts.properties.values()),
        parts.unique,
        parts.index,
        head.description,
        head.rename_from,
        key=parts.key,
    )


def _node(parts: _Parts) -> NodeType:
    head = parts.header
    return NodeType(
        parts.declared.name.text,
        tuple(parts.properties.values()),
        parts.unique,
        parts.index,
        head.description,
        head.rename_from,
        implements=tuple(word.text for word in parts.declared.implements),
        key=parts.key,
    )


def _edge(parts: _Parts) -> EdgeType:
    head, declared = parts.header, parts.declared
    return EdgeType(
        declared.name.text,
        tuple(parts.properties.values()),
        parts.unique,
        parts.index,
        head.description,
        head.rename_from,
        source=declared.source.text if declared.source else "",
        target=declared.target.text if declared.target else "",
        card=head.card,
    )

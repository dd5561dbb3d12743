"""`plan` compares two schemas and says what has to be done to the data, or why it cannot be done."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace

from fenceline.graph.schema.changing import change_table
from fenceline.graph.schema.constraints import card_constraint
from fenceline.graph.schema.model import Catalogue, EdgeType, Interface, NodeType, TableType
from fenceline.graph.schema.problems import SchemaChangeError
from fenceline.graph.schema.renames import Matched, match
from fenceline.graph.schema.steps import Effect, Op, SchemaPlan, Step
from fenceline.graph.schema.text import schema_id, settled


@dataclass(slots=True)
class _Sorted:
    """Steps by when they can be done: what goes away first, then what is renamed, then what is new."""

    interfaces: list[Step] = field(default_factory=list)
    drops: list[Step] = field(default_factory=list)
    renames: list[Step] = field(default_factory=list)
    adds: list[Step] = field(default_factory=list)
    changes: list[Step] = field(default_factory=list)


def plan(old: Catalogue, new: Catalogue) -> SchemaPlan:
    """The steps from one schema to another; changes that cannot be made are an error that lists all of them."""
    before, steps, problems, notes = settled(old), _Sorted(), list[str](), list[str]()
    interfaces = _match(before.interfaces, new.interfaces, "interface")
    nodes = _match(before.nodes, new.nodes, "node type")
    edges = _match(before.edges, new.edges, "edge type")
    for each in (interfaces, nodes, edges):
        problems += each.problems
        notes += each.notes
    steps.interfaces += _interfaces(before, new, interfaces)
    _tables("edge", edges, steps)
    _tables("node", nodes, steps)
    for node in new.nodes:
        if node.name in nodes.kept:
            earlier = before.node(nodes.kept[node.name])
            _change(_implementing(earlier, interfaces), node, steps, problems, notes)
    for edge in new.edges:
        if edge.name in edges.kept:
            _ends(before.edge(edges.kept[edge.name]), edge, nodes.kept, problems)
            _change(before.edge(edges.kept[edge.name]), edge, steps, problems, notes)
        elif edge.card and edge.card.low and edge.source in nodes.kept:
            steps.changes.append(_at_least(edge))
    if problems:
        raise SchemaChangeError(problems)
    ordered = (*steps.interfaces, *steps.drops, *steps.renames, *steps.adds, *steps.changes)
    return SchemaPlan(schema_id(old), schema_id(new), ordered, tuple(notes))


def _match(old: Sequence[Interface | TableType], new: Sequence[Interface | TableType], what: str) -> Matched:
    return match([each.name for each in old], {each.name: each.rename_from for each in new}, f"{what} ")


def _tables(kind: str, matched: Matched, steps: _Sorted) -> None:
    steps.drops += [Step(Op.DROP_TYPE, f"{kind}:{name}", Effect.LOSES) for name in matched.dropped]
    steps.renames += [
        Step(Op.RENAME_TYPE, f"{kind}:{after}", before=before, after=after) for before, after in matched.renamed
    ]
    added = [Step(Op.ADD_TYPE, f"{kind}:{name}") for name in matched.added]
    steps.adds[:] = [*added, *steps.adds] if kind == "node" else [*steps.adds, *added]


def _at_least(edge: EdgeType) -> Step:
    """Nodes that are there already have no edge of a type that is new."""
    card = edge.card
    constraint = card_constraint(card) if card else None
    return Step(
        Op.ADD_CONSTRAINT,
        edge.table_key,
        Effect.CHECKS,
        after=f"@card({card})",
        constraint=constraint,
        note=f"there must be no {edge.source} yet",
    )


def _ends(old: EdgeType, new: EdgeType, was: Mapping[str, str], problems: list[str]) -> None:
    before, after = (old.source, old.target), (was.get(new.source), was.get(new.target))
    if before != after:
        problems.append(
            f"edge type {new.name} leads from {old.source} to {old.target}, it cannot lead from {new.source} to "
            f"{new.target}: declare a new edge type, load it, and drop this one"
        )


def _change(old: TableType, new: TableType, steps: _Sorted, problems: list[str], notes: list[str]) -> None:
    made = change_table(old, new)
    steps.changes += made.steps
    problems += made.problems
    notes += made.notes


def _implementing(node: NodeType, interfaces: Matched) -> NodeType:
    """With the names that its interfaces have now."""
    now = dict(interfaces.renamed)
    return replace(node, implements=tuple(now.get(name, name) for name in node.implements))


def _interfaces(old: Catalogue, new: Catalogue, matched: Matched) -> Iterable[Step]:
    """Interfaces have no rows: what they change, the types that implement them show."""
    for name in matched.dropped:
        yield Step(Op.DROP_INTERFACE, f"interface:{name}")
    for before, after in matched.renamed:
        yield Step(Op.RENAME_INTERFACE, f"interface:{after}", before=before, after=after)
    for name in matched.added:
        yield Step(Op.ADD_INTERFACE, f"interface:{name}")
    now = {each.name: each for each in settled(new).interfaces}
    for name, earlier in matched.kept.items():
        if replace(old.interface(earlier), name=name) != now[name]:
            yield Step(Op.CHANGE_INTERFACE, f"interface:{name}")

"""What becomes of one table: its properties, then its constraints and indices."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace

from fenceline.graph.schema.constraints import Constraint, Rule, card_constraint, constraints
from fenceline.graph.schema.kinds import Choice, Kind, ListOf, Scalar
from fenceline.graph.schema.model import Card, EdgeType, Embed, NodeType, Property, Span, TableType, in_column_order
from fenceline.graph.schema.problems import SchemaChangeError
from fenceline.graph.schema.renames import Matched, match
from fenceline.graph.schema.steps import Effect, Op, Step

_WIDER = {
    Scalar.I32: (Scalar.I64,),
    Scalar.U32: (Scalar.U64, Scalar.I64),
    Scalar.F32: (Scalar.F64,),
}


@dataclass(slots=True)
class Change:
    steps: list[Step] = field(default_factory=list)
    problems: list[str] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)


def change_table(old: TableType, new: TableType) -> Change:
    """From one form of a table to another. Old names are brought up to date first, so that the rest compares alike."""
    on = new.table_key
    matched = match(
        [each.name for each in old.properties], {each.name: each.rename_from for each in new.properties}, f"{on}."
    )
    change = Change(problems=list(matched.problems), notes=list(matched.notes))
    was = _renamed(old, matched)
    pairs = [(was.property(name), new.property(name)) for name in matched.kept if was.has(name)]
    change.steps += _dropped_rules(was, new, matched)
    change.steps += [Step(Op.DROP_PROPERTY, on, Effect.LOSES, name) for name in matched.dropped]
    change.steps += [
        Step(Op.RENAME_PROPERTY, on, property=after, before=before, after=after) for before, after in matched.renamed
    ]
    change.steps += [_added(new, new.property(name)) for name in matched.added]
    for before, after in pairs:
        _retyped(new, before, after, change)
    change.steps += _added_rules(was, new, matched)
    change.steps += _said(was, new, pairs)
    if isinstance(was, NodeType) and isinstance(new, NodeType):
        change.problems += _same_key(was, new)
    return change


def steps_between(old: TableType, new: TableType) -> list[Step]:
    """What it takes to make one form of a table of another; raises where that cannot be done."""
    change = change_table(old, new)
    if change.problems:
        raise SchemaChangeError(change.problems)
    return change.steps


def _renamed(old: TableType, matched: Matched) -> TableType:
    """The old table with the names of the new one."""
    now = {name: name for name in matched.dropped} | {before: after for after, before in matched.kept.items()}

    def names(given: Sequence[str]) -> tuple[str, ...]:
        return tuple(now.get(name, name) for name in given)

    properties = tuple(
        replace(
            each,
            name=now[each.name],
            embed=Embed(now[each.embed.source], each.embed.model) if each.embed else None,
        )
        for each in old.properties
    )
    made = replace(old, properties=properties, unique=tuple(map(names, old.unique)), index=names(old.index))
    return replace(made, key=names(made.key)) if isinstance(made, NodeType) else made


def _added(new: TableType, added: Property) -> Step:
    said = f"{added.kind}{'?' if added.nullable else ''}"
    if added.nullable:
        return Step(Op.ADD_PROPERTY, new.table_key, property=added.name, after=said)
    note = "it is required, so the table must have no rows: add it nullable, fill it, then require it"
    return Step(Op.ADD_PROPERTY, new.table_key, Effect.CHECKS, added.name, after=said, note=note)


def _retyped(new: TableType, before: Property, after: Property, change: Change) -> None:
    on, name = new.table_key, after.name
    if before.kind != after.kind:
        effect = _widened(before.kind, after.kind)
        if effect is None:
            change.problems.append(
                f"{on}.{name} is {before.kind} and cannot become {after.kind}: add a property of that type, fill it, "
                f"and drop {name}"
            )
        else:
            change.steps.append(Step(Op.CHANGE_TYPE, on, effect, name, str(before.kind), str(after.kind)))
    if after.nullable and not before.nullable:
        change.steps.append(Step(Op.MAKE_NULLABLE, on, property=name))
    elif before.nullable and not after.nullable:
        required = next(c for c in constraints(new) if c.rule is Rule.REQUIRED and c.columns == (name,))
        change.steps.append(Step(Op.MAKE_REQUIRED, on, Effect.CHECKS, name, constraint=required))


def _widened(before: Kind, after: Kind) -> Effect | None:
    """What it takes to let a column hold more; None where values would be lost or read differently."""
    if isinstance(before, ListOf) and isinstance(after, ListOf):
        return Effect.METADATA if before == after else _widened(before.item, after.item)
    if isinstance(before, Choice):
        more = isinstance(after, Choice) and set(before.values) <= set(after.values)
        return Effect.METADATA if more or after is Scalar.STRING else None
    if isinstance(before, Scalar) and after in _WIDER.get(before, ()):
        return Effect.REWRITES
    return None


def _same_key(was: NodeType, new: NodeType) -> Iterator[str]:
    if was.key != new.key:
        before, after = (f"@key({', '.join(key)})" if key else "no key" for key in (was.key, new.key))
        yield (
            f"node type {new.name} has {before} and cannot get {after}, because ids are made of the key: declare a new "
            "type with that key, load it, and drop this one"
        )


def _dropped_rules(was: TableType, new: TableType, matched: Matched) -> Iterator[Step]:
    on, gone = new.table_key, {each.name for each in was.properties} - set(matched.kept)
    for each in _unique(was, new):
        if each not in new.unique and not set(each) <= gone:
            yield Step(Op.DROP_CONSTRAINT, on, before=f"@unique({', '.join(each)})")
    for name in was.index:
        if name not in new.index and name not in gone:
            yield Step(Op.DROP_INDEX, on, property=name)


def _unique(table: TableType, like: TableType) -> tuple[tuple[str, ...], ...]:
    """Its unique columns in the order of another table's, so that equal sets are equal."""
    order = [*like.own_columns, *(p.name for p in like.properties), *(p.name for p in table.properties)]
    return tuple(in_column_order(each, order) for each in table.unique)


def _added_rules(was: TableType, new: TableType, matched: Matched) -> Iterator[Step]:
    on, rules = new.table_key, {(each.rule, each.columns): each for each in constraints(new)}
    for name in matched.kept:
        if was.has(name):
            yield from _value_rules(new, was.property(name), new.property(name), rules)
    for each in new.unique:
        if each not in _unique(was, new):
            rule = rules[Rule.UNIQUE, each]
            fresh = not set(each).isdisjoint(matched.added)  # null in every row there is, and nulls are exempt
            effect = Effect.METADATA if fresh else Effect.CHECKS
            yield Step(Op.ADD_CONSTRAINT, on, effect, after=rule.text, constraint=rule)
    if isinstance(was, EdgeType) and isinstance(new, EdgeType) and was.card != new.card:
        yield _card_rule(on, was.card, new.card)
    for name in new.index:
        if name not in was.index:
            yield Step(Op.ADD_INDEX, on, property=name, note="built when indices are next ensured")


def _value_rules(
    new: TableType, before: Property, after: Property, rules: dict[tuple[Rule, tuple[str, ...]], Constraint]
) -> Iterator[Step]:
    on, at = new.table_key, (after.name,)
    earlier, bounds = before.bounds(), after.bounds()
    if earlier != bounds:
        text = f"@range({before.range})" if before.range else None
        if bounds is None:
            yield Step(Op.DROP_CONSTRAINT, on, property=after.name, before=text)
        else:
            looser = bounds.covers(earlier or Span())
            yield _added_rule(on, after.name, text, rules[Rule.RANGE, at], checked=not looser)
    if before.check != after.check:
        text = f'@check("{before.check}")' if before.check is not None else None
        if after.check is None:
            yield Step(Op.DROP_CONSTRAINT, on, property=after.name, before=text)
        else:
            yield _added_rule(on, after.name, text, rules[Rule.CHECK, at], checked=True)


def _added_rule(on: str, name: str, before: str | None, rule: Constraint, *, checked: bool) -> Step:
    effect = Effect.CHECKS if checked else Effect.METADATA
    return Step(Op.ADD_CONSTRAINT, on, effect, name, before, rule.text.removeprefix(f"{name} "), rule)


def _card_rule(on: str, before: Card | None, after: Card | None) -> Step:
    text = f"@card({before})" if before else None
    if after is None:
        return Step(Op.DROP_CONSTRAINT, on, before=text)
    earlier = before or Card()
    looser = Span(after.low, after.high).covers(Span(earlier.low, earlier.high))
    effect = Effect.METADATA if looser else Effect.CHECKS
    return Step(Op.ADD_CONSTRAINT, on, effect, None, text, f"@card({after})", card_constraint(after))


def _said(was: TableType, new: TableType, pairs: Sequence[tuple[Property, Property]]) -> Iterator[Step]:
    on = new.table_key
    if isinstance(was, NodeType) and isinstance(new, NodeType) and was.implements != new.implements:
        before, after = (", ".join(each.implements) or "none" for each in (was, new))
        yield Step(Op.IMPLEMENT, on, before=before, after=after)
    for before_property, after_property in pairs:
        if before_property.embed != after_property.embed:
            note = "vectors that are there stay as they are"
            yield Step(Op.CHANGE_EMBED, on, property=after_property.name, note=note)
        if before_property.description != after_property.description:
            yield Step(Op.DESCRIBE, on, property=after_property.name)
    if was.description != new.description:
        yield Step(Op.DESCRIBE, on)
    stay = {after.name for _, after in pairs}
    appended = [each.name for each in was.properties if each.name in stay]
    appended += [each.name for each in new.properties if each.name not in stay]
    if appended != [each.name for each in new.properties]:
        yield Step(Op.REORDER, on, after=", ".join(each.name for each in new.properties))

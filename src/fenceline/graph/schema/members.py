"""Which annotation may stand where, and what it adds."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace

from fenceline.graph.schema import arguments
from fenceline.graph.schema.kinds import FLOATS, INTEGERS, Scalar, Vector
from fenceline.graph.schema.model import Card, Embed, Property
from fenceline.graph.schema.problems import Problems, Spot, did_you_mean, either
from fenceline.graph.schema.syntax import Annotation, Declaration, PropertyUse, Sort, Word

KNOWN = ("key", "unique", "index", "range", "check", "card", "embed", "rename_from", "description")
COLUMNS = ("key", "unique", "index")
_ON_PROPERTY = ("range", "check", "embed", "rename_from", "description")
_RESERVED = {
    "interface": ("id",),
    "node": ("id",),
    "edge": ("id", "src", "dst", "from", "to"),
}


@dataclass(frozen=True, slots=True)
class Columns:
    """A constraint over columns, as it was written."""

    name: str
    columns: tuple[Word, ...]
    spot: Spot


@dataclass(slots=True)
class Header:
    """What the annotations before `{` say."""

    description: str | None = None
    rename_from: str | None = None
    card: Card | None = None


@dataclass(slots=True)
class Members:
    """What stands between `{` and `}`. `named` has also the properties that were declared wrongly."""

    properties: dict[str, tuple[Property, Spot]] = field(default_factory=dict)
    constraints: list[Columns] = field(default_factory=list)
    named: dict[str, Spot] = field(default_factory=dict)
    embeds: list[tuple[str, Word]] = field(default_factory=list)


def header(declared: Declaration, problems: Problems) -> Header:
    found, seen = Header(), set[str]()
    for annotation in declared.annotations:
        name, spot = annotation.name.text, annotation.name.spot
        if not _known(annotation, seen, problems):
            continue
        if name == "description":
            found.description = arguments.one_text(annotation, problems, '@description("…")')
        elif name == "rename_from":
            found.rename_from = _renamed(annotation, declared.keyword, declared.name.text, problems)
        elif name == "card" and declared.keyword == "edge":
            card = arguments.card_of(annotation, problems)
            found.card = Card(*card) if card else None
        elif name == "card":
            problems.add(spot, f"@card is for edge types, not for {_some(declared.keyword)}", "put it on the edge type")
        else:
            problems.add(spot, f"@{name} cannot stand before {{", "write it inside { }, behind a property")
    return found


def members(declared: Declaration, others: frozenset[str], problems: Problems) -> Members:
    """Reads a body from top to bottom: an annotation belongs to the property before it, unless it names columns."""
    found = Members()
    current: Property | None = None
    last: str | None = None
    seen = set[str]()
    for member in declared.members:
        if isinstance(member, PropertyUse):
            current, seen, last = _property(declared, member, found, others, problems), set(), member.name.text
        elif member.name.text in COLUMNS and member.arguments is not None:
            _table_constraint(member, found, problems)
            current, last = None, None
        elif last is None:
            _misplaced(member, problems)
        elif _known(member, seen, problems) and current is not None:
            current = _annotated(current, member, found, problems)
            found.properties[current.name] = (current, found.named[current.name])
    return found


def _property(
    declared: Declaration, use: PropertyUse, found: Members, others: frozenset[str], problems: Problems
) -> Property | None:
    name, spot = use.name.text, use.name.spot
    kind = arguments.kind_of(use.type, others, problems)
    right = arguments.named(use.name, "property", problems)
    twice = next((each for each in found.named if each.lower() == name.lower()), None)
    if twice is not None:
        also = "" if twice == name else f" ({twice}: engines do not tell them apart by case)"
        hint = f"it is declared in {arguments.where(found.named[twice])}"
        problems.add(spot, f"{declared.name.text} has the property {name} twice{also}", hint)
        return None
    found.named[name] = spot
    if name.lower() in _RESERVED[declared.keyword]:
        what = "an edge's own columns" if declared.keyword == "edge" else "a column that tables have already"
        hint = "a node's id is its key; give the property another name, as personId"
        problems.add(spot, f"{name} cannot be a property: it is {what}", hint if name.lower() == "id" else "rename it")
        return None
    if kind is None or not right:
        return None
    made = Property(name, kind, use.type.nullable)
    found.properties[name] = (made, spot)
    return made


def _annotated(current: Property, annotation: Annotation, found: Members, problems: Problems) -> Property:
    name, spot, kind = annotation.name.text, annotation.name.spot, current.kind
    if name in COLUMNS:
        found.constraints.append(Columns(name, (Word(current.name, spot),), spot))
    elif name == "range":
        if kind not in INTEGERS and kind not in FLOATS:
            problems.add(spot, f"@range is for numbers, and {current.name} is {kind}", "take it out, or use @check")
        else:
            return replace(current, range=arguments.span_of(annotation, kind, problems))
    elif name == "check":
        if kind is not Scalar.STRING:
            problems.add(spot, f"@check is for String, and {current.name} is {kind}", "take it out, or use @range")
        else:
            return replace(current, check=_pattern(annotation, problems))
    elif name == "embed":
        return _embedded(current, annotation, found, problems)
    elif name == "rename_from":
        return replace(current, rename_from=_renamed(annotation, "property", current.name, problems))
    elif name == "description":
        return replace(current, description=arguments.one_text(annotation, problems, '@description("…")'))
    else:
        problems.add(spot, f"@{name} is for edge types, not for a property", "write it before the {")
    return current


def _embedded(current: Property, annotation: Annotation, found: Members, problems: Problems) -> Property:
    given = annotation.arguments or ()
    spot = annotation.name.spot
    if not isinstance(current.kind, Vector):
        problems.add(spot, f"@embed is for Vector(n), and {current.name} is {current.kind}", "take it out")
        return current
    words = [each for each in given if isinstance(each, Word)]
    if not 1 <= len(words) == len(given) <= 2 or words[0].sort is not Sort.NAME:
        problems.add(spot, "@embed takes a property", 'write @embed(text), or @embed(text, "model")')
        return current
    model = None
    if len(words) == 2:
        if words[1].sort is not Sort.TEXT:
            problems.add(words[1].spot, "the model is a text", f'write @embed({words[0].text}, "{words[1].text}")')
            return current
        model = arguments.text_of(words[1], problems)
    found.embeds.append((current.name, words[0]))
    return replace(current, embed=Embed(words[0].text, model))


def _pattern(annotation: Annotation, problems: Problems) -> str | None:
    """A regular expression of RE2: what Arrow and DuckDB run, without backtracking."""
    import pyarrow  # type: ignore[import-untyped]
    import pyarrow.compute as compute  # type: ignore[import-untyped]

    pattern = arguments.one_text(annotation, problems, '@check("^[a-z]+$")')
    if pattern is None:
        return None
    try:
        compute.match_substring_regex(pyarrow.array([""]), pattern)
    except pyarrow.ArrowInvalid as error:
        said = str(error).removeprefix("Invalid regular expression: ")
        problems.add(annotation.name.spot, f"not a regular expression: {said}", "write it in RE2's syntax")
        return None
    return pattern


def _table_constraint(annotation: Annotation, found: Members, problems: Problems) -> None:
    name = annotation.name.text
    given = annotation.arguments or ()
    words = [each for each in given if isinstance(each, Word) and each.sort is Sort.NAME]
    if len(words) < len(given) or not words:
        problems.add(annotation.name.spot, f"@{name}(…) takes names of columns", f"write @{name}(a, b)")
        return
    twice = [word for n, word in enumerate(words) if word.text in {each.text for each in words[:n]}]
    for word in twice:
        problems.add(word.spot, f"@{name} has {word.text} twice", "take one of them out")
    if not twice:
        found.constraints.append(Columns(name, tuple(words), annotation.name.spot))


def _renamed(annotation: Annotation, what: str, name: str, problems: Problems) -> str | None:
    example = "@rename_from(oldName)" if what == "property" else "@rename_from(OldName)"
    word = arguments.one_name(annotation, problems, example)
    kind = "property" if what == "property" else "type"
    if word is None or not arguments.named(word, kind, problems):
        return None
    if word.text == name:
        problems.add(word.spot, f"{name} is renamed from itself", "take @rename_from out")
        return None
    return word.text


def _known(annotation: Annotation, seen: set[str], problems: Problems) -> bool:
    name, spot = annotation.name.text, annotation.name.spot
    if name not in KNOWN:
        hint = did_you_mean(name, KNOWN)
        hint = hint.replace("mean ", "mean @") if hint else f"there are {either([f'@{each}' for each in KNOWN])}"
        problems.add(spot, f"unknown annotation @{name}", hint)
    elif name in seen:
        problems.add(spot, f"@{name} stands here twice", "take one of them out")
    else:
        seen.add(name)
        return True
    return False


def _misplaced(annotation: Annotation, problems: Problems) -> None:
    name = annotation.name.text
    if not _known(annotation, set(), problems):
        return
    if name in COLUMNS:
        hint = f"write it behind a property, or name its columns: @{name}(a, b)"
    elif name in _ON_PROPERTY:
        hint = "write it right behind the property it is for"
    else:
        hint = "write it before the {"
    problems.add(annotation.name.spot, f"there is no property that @{name} is for", hint)


def _some(keyword: str) -> str:
    return {"interface": "an interface", "node": "a node type"}.get(keyword, "a property")


def duplicate_renames(named: Sequence[tuple[str | None, Spot]], problems: Problems) -> None:
    """No two things can have been the same one before."""
    seen = set[str]()
    for name, spot in named:
        if name is not None and name in seen:
            problems.add(spot, f"two are renamed from {name}", "one of them is new: take its @rename_from out")
        seen |= {name} if name else set()

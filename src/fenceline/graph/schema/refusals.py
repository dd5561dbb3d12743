"""Why the parser stopped, in words: where, what it found, and what it expected there."""

from __future__ import annotations

from typing import TYPE_CHECKING

from fenceline.graph.schema.problems import Problem, Spot, did_you_mean, either

if TYPE_CHECKING:
    from collections.abc import Collection

    from lark import Token, UnexpectedCharacters, UnexpectedInput, UnexpectedToken

_WORDS = {
    "INTERFACE": "'interface'",
    "NODE": "'node'",
    "EDGE": "'edge'",
    "IMPLEMENTS": "'implements'",
    "NAME": "a name",
    "ANNOTATION": "an annotation",
    "STRING": 'a text in "…"',
    "NUMBER": "a number",
    "DOTS": "'..'",
    "NULLABLE": "'?'",
    "COLON": "':'",
    "COMMA": "','",
    "LBRACE": "'{'",
    "RBRACE": "'}'",
    "LPAR": "'('",
    "RPAR": "')'",
    "LSQB": "'['",
    "RSQB": "']'",
    "_ARROW": "'->'",
}
_AFTER = {
    "INTERFACE": "the name of the interface",
    "NODE": "the name of the node type",
    "EDGE": "the name of the edge type",
    "IMPLEMENTS": "the name of an interface",
    "_ARROW": "the node type it leads to",
    "LSQB": "a type",
}
_DECLARATIONS = ("interface", "node", "edge")
_KEYWORDS = ("INTERFACE", "NODE", "EDGE")


def refusal(error: UnexpectedInput, text: str) -> Problem:
    from lark import UnexpectedCharacters, UnexpectedToken

    if isinstance(error, UnexpectedToken):
        expected = _expected(error.accepts or error.expected, _last(error))
        if error.token.type == "$END":
            return Problem(_end(text), f"the text ends, but {expected} was expected")
        found = str(error.token)
        spot = Spot(error.token.line or 1, error.token.column or 1, len(found.split("\n")[0]))
    elif isinstance(error, UnexpectedCharacters):
        at = error.pos_in_stream or 0
        expected, found = _expected(error.allowed or (), _last(error)), text[at]
        spot = Spot(error.line, error.column)
        unclosed = _unclosed(text[at:])
        if unclosed:
            return Problem(spot, unclosed[0], unclosed[1])
    else:
        return Problem(_end(text), "the text ends too early")
    shown = "the end of the line" if found == "\n" else f"'{found}'"
    hint = _hint(found, expected)
    if expected == "':'" and _last(error) in _KEYWORDS:
        hint = "is the '}' of the type before it missing?"
    return Problem(spot, f"expected {expected}, found {shown}", hint)


def _last(error: UnexpectedToken | UnexpectedCharacters) -> str | None:
    """What stood right before; at the end of the text only the lexer knows."""
    last: Token | None = error.token_history[-1] if error.token_history else None
    if last is None and error.interactive_parser is not None and error.interactive_parser.lexer_thread.state:
        last = error.interactive_parser.lexer_thread.state.last_token
    return last.type if last is not None else None


def _expected(terminals: Collection[str], last: str | None) -> str:
    names = set(terminals)
    if names == {"NAME"} and last in _AFTER:
        return _AFTER[last]
    if names == {"NAME"} and last == "COLON":
        return "the node type it starts from"
    if names == {"NAME", "LSQB"}:
        return "a type"
    if {"NAME", "ANNOTATION", "RBRACE"} <= names:
        return "a property, an annotation or '}'"
    words = [_WORDS[name] for name in _WORDS if name in names]
    if "$END" in names and len(words) < 4:
        words.append("the end")
    return either(words)


def _hint(found: str, expected: str) -> str | None:
    if found in (",", ";") and expected.startswith("a property"):
        return "properties are separated by blanks or new lines"
    if found == "'" and "text" in expected:
        return 'texts stand in double quotes: "…"'
    if found == "#":
        return "comments are // to the end of the line, or /* … */"
    if "'node'" in expected:
        meant = did_you_mean(found, (*_DECLARATIONS, *(["implements"] if "implements" in expected else [])))
        return meant if found.isidentifier() else None
    return None


def _unclosed(rest: str) -> tuple[str, str] | None:
    if rest.startswith("/*"):
        return "this comment is never closed", "close it with */"
    if rest.startswith('"'):
        return "this text does not end on its line", 'close it with ", and write \\n for a new line in it'
    return None


def _end(text: str) -> Spot:
    """Right behind the last letter that is not blank."""
    kept = text.rstrip()
    line = kept.count("\n") + 1
    return Spot(line, len(kept) - (kept.rfind("\n") + 1) + 1)

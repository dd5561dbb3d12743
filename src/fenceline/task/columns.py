"""Columns and their types as Spark writes them, from DDL or a mapping; read without Spark."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping

from fenceline.errors import ContractError

_TYPES = {
    "byte": "tinyint",
    "short": "smallint",
    "integer": "int",
    "long": "bigint",
    "real": "float",
    "dec": "decimal",
    "numeric": "decimal",
    "timestamp_ltz": "timestamp",
    "null": "void",
    **{
        name: name
        for name in (
            *("tinyint", "smallint", "int", "bigint", "float", "double", "decimal", "boolean", "string", "char"),
            *("varchar", "binary", "date", "time", "timestamp", "timestamp_ntz", "variant", "void", "interval"),
        )
    },
}
_TOKEN = re.compile(r"\s*(`(?:[^`]|``)+`|'(?:[^'\\]|\\.)*'|\w+|[<>(),:])")


def columns_of(schema: str | Mapping[str, str]) -> dict[str, str]:
    if isinstance(schema, str):
        ddl = _Ddl(schema)
        fields = ddl.fields()
        ddl.end()
    elif isinstance(schema, Mapping) and all(isinstance(v, str) for pair in schema.items() for v in pair):
        fields = [(name, _one_type(kind)) for name, kind in schema.items()]
    else:
        raise ContractError(f"the schema is {schema!r}", hint="give 'id BIGINT, name STRING' or {'id': 'bigint'}")
    columns = dict(fields)
    if not columns or len(columns) != len(fields):
        raise ContractError(f"the schema {schema!r} is empty or has a column twice", hint="name each column once")
    return columns


def _one_type(text: str) -> str:
    ddl = _Ddl(text)
    kind = ddl.type()
    ddl.end()
    return kind


def same_form(text: str) -> str:
    """A found type in the form that expected ones have; a type that is not known here stays as Spark says it."""
    try:
        return _one_type(text)
    except ContractError:
        return text


class _Ddl:
    """Reads Spark's DDL without Spark, so that a typing error shows where the guard is made."""

    def __init__(self, text: str) -> None:
        self._text = text
        self._tokens: list[str] = []
        at, end = 0, len(text.rstrip())
        while at < end:
            token = _TOKEN.match(text, at)
            if token is None:
                raise self._wrong(text[at:].strip()[:20])
            self._tokens.append(token.group(1))
            at = token.end()
        self._tokens.reverse()

    def fields(self) -> list[tuple[str, str]]:
        found = [self._field()]
        while self._take(","):
            found.append(self._field())
        return found

    def type(self) -> str:
        name = self._next().lower()
        if name == "array":
            return f"array<{self._inside(self.type)}>"
        if name == "map":
            return f"map<{self._inside(self._pair)}>"
        if name == "struct":
            return f"struct<{self._inside(lambda: ','.join(f'{name}:{kind}' for name, kind in self.fields()))}>"
        if name not in _TYPES:
            raise self._wrong(name)
        words = [_TYPES[name]]
        while name == "interval" and self._tokens and self._tokens[-1].isalpha():
            words.append(self._next().lower())
        return " ".join(words) + self._arguments(words[0])

    def end(self) -> None:
        if self._tokens:
            raise self._wrong(self._tokens[-1])

    def _field(self) -> tuple[str, str]:
        name = self._next()
        if name[0] == "`":
            name = name[1:-1].replace("``", "`")
        elif not name.isidentifier():
            raise self._wrong(name)
        self._take(":")
        kind = self.type()
        if self._take("not") and not self._take("null"):
            raise self._wrong("NOT")
        if self._take("comment"):
            self._next()
        return name, kind

    def _pair(self) -> str:
        key = self.type()
        self._need(",")
        return f"{key},{self.type()}"

    def _inside(self, read: Callable[[], str]) -> str:
        self._need("<")
        inner = read()
        self._need(">")
        return inner

    def _arguments(self, name: str) -> str:
        if not self._take("("):
            return "(10,0)" if name == "decimal" else ""
        numbers = [self._next()]
        while self._take(","):
            numbers.append(self._next())
        self._need(")")
        if not all(number.isdigit() for number in numbers):
            raise self._wrong(f"{name}({','.join(numbers)})")
        if name == "decimal" and len(numbers) == 1:
            numbers.append("0")
        return f"({','.join(numbers)})"

    def _next(self) -> str:
        if not self._tokens:
            raise self._wrong("its end")
        return self._tokens.pop()

    def _take(self, token: str) -> bool:
        if self._tokens and self._tokens[-1].lower() == token:
            self._tokens.pop()
            return True
        return False

    def _need(self, token: str) -> None:
        if not self._take(token):
            raise self._wrong(self._tokens[-1] if self._tokens else "its end")

    def _wrong(self, at: str) -> ContractError:
        return ContractError(f"the schema {self._text!r} cannot be read at {at}", hint="write 'id BIGINT, name STRING'")

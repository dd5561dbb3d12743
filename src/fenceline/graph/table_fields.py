"""Edits on the fields of a table version, so that renaming, dropping and adding columns rewrites no data.

Lance hands a schema out as one message per field (protocol buffers; top-level fields and what is nested in them, depth
first) and takes it back the same way. Only four numbers of that message matter here, and they are part of its format.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass

from fenceline.errors import ContractError

NAME, ID, PARENT, NULLABLE = 2, 3, 4, 6
_VARINT, _LENGTH = 0, 2
_TOP = (1 << 64) - 1  # the parent of a top-level field: -1


@dataclass(frozen=True, slots=True)
class FieldTree:
    """A top-level field and all that is nested in it, as messages."""

    name: str
    messages: tuple[bytes, ...]

    @property
    def id(self) -> int:
        return _number(self.messages[0], ID)

    def renamed(self, name: str) -> FieldTree:
        first = _with(self.messages[0], {NAME: name.encode()})
        return FieldTree(name, (first, *self.messages[1:]))

    def nullable(self, yes: bool) -> FieldTree:
        return FieldTree(self.name, (_with(self.messages[0], {NULLABLE: int(yes)}), *self.messages[1:]))

    def numbered(self, start: int) -> FieldTree:
        """The same with ids from `start` on: a new column may not take those of one that was dropped."""
        shift = start - _number(self.messages[0], ID)
        return FieldTree(self.name, tuple(_shifted(message, shift) for message in self.messages))


def trees(messages: Sequence[bytes]) -> list[FieldTree]:
    """The messages of a schema as top-level fields."""
    grouped: list[list[bytes]] = []
    for message in messages:
        if _number(message, PARENT) == _TOP:
            grouped.append([])
        grouped[-1].append(message)
    return [FieldTree(_name(group[0]), tuple(group)) for group in grouped]


def flat(fields: Iterable[FieldTree]) -> list[bytes]:
    return [message for field in fields for message in field.messages]


def named(fields: Iterable[FieldTree], name: str) -> FieldTree:
    found = {field.name: field for field in fields}
    if name not in found:
        raise ContractError(f"there is no column {name!r}", hint=f"there are {sorted(found)}")
    return found[name]


def replaced(fields: Sequence[FieldTree], name: str, new: FieldTree | None) -> list[FieldTree]:
    """With one field replaced, or dropped where `new` is None."""
    named(fields, name)
    changed = [new if field.name == name else field for field in fields]
    return [field for field in changed if field is not None]


def greatest_id(fields: Iterable[FieldTree]) -> int:
    return max((_number(message, ID) for message in flat(fields)), default=-1)


def _shifted(message: bytes, shift: int) -> bytes:
    parent = _number(message, PARENT)
    return _with(
        message,
        {ID: _number(message, ID) + shift, PARENT: parent if parent == _TOP else parent + shift},
    )


def _name(message: bytes) -> str:
    return next((v.decode() for number, v in _parts(message) if number == NAME and isinstance(v, bytes)), "")


def _number(message: bytes, wanted: int) -> int:
    """A number that is zero is left out of the message."""
    return next((v for number, v in _parts(message) if number == wanted and isinstance(v, int)), 0)


def _with(message: bytes, values: Mapping[int, int | bytes]) -> bytes:
    kept = [(number, value) for number, value in _parts(message) if number not in values]
    merged = sorted([*kept, *values.items()], key=lambda part: part[0])
    return b"".join(_encoded(number, value) for number, value in merged if value != 0)


def _parts(message: bytes) -> Iterator[tuple[int, int | bytes]]:
    at = 0
    while at < len(message):
        tag, at = _varint(message, at)
        number, wire = tag >> 3, tag & 7
        if wire == _VARINT:
            value, at = _varint(message, at)
            yield number, value
        elif wire == _LENGTH:
            length, at = _varint(message, at)
            yield number, message[at : at + length]
            at += length
        else:
            raise ContractError(f"a table's field has a part of unknown kind {wire}", hint="pip install 'pylance<15'")


def _varint(message: bytes, at: int) -> tuple[int, int]:
    value = shift = 0
    while True:
        byte = message[at]
        at += 1
        value |= (byte & 0x7F) << shift
        if byte < 0x80:
            return value, at
        shift += 7


def _encoded(number: int, value: int | bytes) -> bytes:
    if isinstance(value, bytes):
        return _as_varint(number << 3 | _LENGTH) + _as_varint(len(value)) + value
    return _as_varint(number << 3 | _VARINT) + _as_varint(value)


def _as_varint(value: int) -> bytes:
    out = bytearray()
    while value > 0x7F:
        out.append(value & 0x7F | 0x80)
        value >>= 7
    out.append(value)
    return bytes(out)

"""File formats a dataset can have, those it cannot, and what of a write's options its readers need."""

from __future__ import annotations

from collections.abc import Mapping

from fenceline.errors import ContractError

FILE_FORMATS = ("parquet", "orc", "json", "csv", "text", "avro", "xml")

_TABLE_FORMATS = ("delta", "iceberg", "hudi")

# What a reader needs to understand the files. An allow-list: other options may be secrets, and these are published.
_READING = {
    "csv": (
        "sep delimiter header quote escape charToEscapeQuoteEscaping encoding charset nullValue emptyValue nanValue "
        "positiveInf negativeInf dateFormat timestampFormat timestampNTZFormat lineSep multiLine comment locale"
    ),
    "json": "dateFormat timestampFormat timestampNTZFormat encoding charset lineSep multiLine timeZone",
    "text": "lineSep",
    "xml": "rowTag attributePrefix valueTag nullValue dateFormat timestampFormat timestampNTZFormat encoding charset",
}
_DEFAULTS = {"csv": {"header": "true"}}


def check_readable(name: str) -> str:
    """Refuse formats whose files mean nothing apart from a log that names them by absolute paths."""
    lowered = name.lower()
    if lowered in _TABLE_FORMATS:
        raise ContractError(
            f"a dataset cannot be {lowered}: its log names files by absolute paths, which break on other branches "
            "and in other prefixes",
            hint=f"use parquet; or a task with a path workspace (pathlib.Path), which can hold a {lowered} table",
        )
    return lowered


def check_writable(name: str) -> str:
    lowered = check_readable(name)
    if lowered not in FILE_FORMATS:
        raise ContractError(
            f"cannot write the format {name!r}",
            hint=f"use one of {', '.join(FILE_FORMATS)}; or write the files yourself with workspace.output_dir(path)",
        )
    return lowered


def as_text(options: Mapping[str, object] | None) -> dict[str, str]:
    """Options as Spark takes them: text, and booleans in lower case."""
    given = options or {}
    return {k: str(v).lower() if isinstance(v, bool) else str(v) for k, v in given.items() if v is not None}


def with_defaults(name: str, options: Mapping[str, str]) -> dict[str, str]:
    given = {k.lower() for k in options}
    return {**{k: v for k, v in _DEFAULTS.get(name, {}).items() if k not in given}, **options}


def for_readers(name: str, options: Mapping[str, str]) -> dict[str, str]:
    """The options that are kept with the dataset, under one spelling each."""
    spelled = {known.lower(): known for known in _READING.get(name, "").split()}
    return {spelled[k.lower()]: v for k, v in sorted(options.items()) if k.lower() in spelled}

"""Reads the schema of a source: Spark DDL text, or a mapping from name to type."""

from __future__ import annotations

import re
from collections.abc import Mapping
from functools import lru_cache
from typing import TYPE_CHECKING

from sqlglot import exp
from sqlglot.errors import SqlglotError

from tidegate.errors import DuplicateColumn, InvalidSchema
from tidegate.pipeline.names import first_repeated
from tidegate.pipeline.nodes import SourceField

if TYPE_CHECKING:
    from collections.abc import Iterator

    from tidegate.errors import SourceLine

_FIELD = re.compile(
    r"\s*(?:`([^`]+)`|(\w+))\s*[:\s]\s*(.+?)(?:\s+not\s+null)?\s*", re.IGNORECASE | re.DOTALL
)
_OPENING, _CLOSING = "<(", ">)"


def read_schema(
    source: str, schema: str | Mapping[str, str], at: SourceLine
) -> tuple[SourceField, ...]:
    """The columns of a source, in order; raises `InvalidSchema` or `DuplicateColumn`."""
    fields = _fields(source, schema, at)
    if not fields:
        raise InvalidSchema(at, source, "it has no columns")
    for field in fields:
        if not _is_type(field.type):
            reason = f"{field.type!r} of column {field.name!r} is not a Spark type"
            raise InvalidSchema(at, source, reason)
    repeated = first_repeated(field.name for field in fields)
    if repeated is not None:
        raise DuplicateColumn(at, f"schema of source {source!r}", repeated)
    return fields


def _fields(source: str, schema: object, at: SourceLine) -> tuple[SourceField, ...]:
    if isinstance(schema, str):
        return _of_ddl(source, schema, at)
    if isinstance(schema, Mapping) and all(
        isinstance(it, str) for it in (*schema, *schema.values())
    ):
        return _of_mapping(schema)
    raise InvalidSchema(at, source, f"{schema!r} is neither text nor a mapping from names to types")


def _of_mapping(schema: Mapping[str, str]) -> tuple[SourceField, ...]:
    return tuple(SourceField(name, kind) for name, kind in schema.items())


def _of_ddl(source: str, ddl: str, at: SourceLine) -> tuple[SourceField, ...]:
    if not ddl.strip():
        return ()
    return tuple(_field(source, part, at) for part in _split(ddl))


def _field(source: str, part: str, at: SourceLine) -> SourceField:
    found = _FIELD.fullmatch(part)
    if found is None:
        raise InvalidSchema(at, source, f"{part.strip()!r} is not a name followed by a type")
    quoted, plain, kind = found.groups()
    return SourceField(quoted or plain, kind)


def _split(ddl: str) -> Iterator[str]:
    """The parts between commas, except for those within `decimal(10,2)` and `map<a,b>`."""
    depth, start, quoted = 0, 0, False
    for position, letter in enumerate(ddl):
        if letter == "`":
            quoted = not quoted
        elif quoted:
            continue
        elif letter == "," and depth == 0:
            yield ddl[start:position]
            start = position + 1
        else:
            depth += (letter in _OPENING) - (letter in _CLOSING)
    yield ddl[start:]


@lru_cache(maxsize=1024)
def _is_type(text: str) -> bool:
    # Cached: wide tables repeat few types, and parsing dominates the time to declare them.
    try:
        return exp.DataType.build(text, dialect="spark") is not None
    except (SqlglotError, ValueError, AttributeError):
        return False

"""Declared types as Arrow types, to read and write rows without Spark."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Protocol

import pyarrow as pa

if TYPE_CHECKING:
    from collections.abc import Sequence


class DeclaredColumn(Protocol):
    """A column of a source: a `SourceField` or a `DeclaredField`."""

    @property
    def name(self) -> str: ...

    @property
    def type(self) -> str: ...


_PLAIN = {
    **dict.fromkeys(("bigint", "long"), pa.int64()),
    **dict.fromkeys(("int", "integer"), pa.int32()),
    **dict.fromkeys(("smallint", "short"), pa.int16()),
    **dict.fromkeys(("tinyint", "byte"), pa.int8()),
    **dict.fromkeys(("float", "real"), pa.float32()),
    **dict.fromkeys(("timestamp", "timestamp_ltz"), pa.timestamp("us", "UTC")),
    "double": pa.float64(),
    "string": pa.string(),
    "boolean": pa.bool_(),
    "date": pa.date32(),
    "timestamp_ntz": pa.timestamp("us"),
}
_DECIMAL = re.compile(r"(?:decimal|dec|numeric)\s*(?:\(\s*(\d+)\s*(?:,\s*(\d+)\s*)?\))?")
_MOST_DIGITS = 38


def arrow_type(declared: str) -> pa.DataType | None:
    """The Arrow type of a declared type in Spark's files; None if only Spark knows it.

    >>> arrow_type("bigint"), arrow_type("DECIMAL(12, 2)"), arrow_type("map<int,int>")
    (DataType(int64), Decimal128Type(decimal128(12, 2)), None)
    """
    text = declared.strip().lower()
    found = _DECIMAL.fullmatch(text)
    return _decimal(found[1], found[2]) if found else _PLAIN.get(text)


def arrow_schema(fields: Sequence[DeclaredColumn]) -> pa.Schema | None:
    """The columns of a source; None if one has a type that only Spark knows."""
    kinds = [arrow_type(field.type) for field in fields]
    if None in kinds:
        return None
    return pa.schema(list(zip((field.name for field in fields), kinds, strict=True)))


def _decimal(digits: str | None, fraction: str | None) -> pa.DataType | None:
    precision, scale = int(digits or 10), int(fraction or 0)
    fits = 1 <= precision <= _MOST_DIGITS and scale <= precision
    return pa.decimal128(precision, scale) if fits else None

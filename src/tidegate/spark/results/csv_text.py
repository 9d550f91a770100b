"""Small results as CSV without Spark, with the same bytes that Spark would write.

    null                     an empty field; in a result of one column, an empty line
    text                     as it is, in quotes if it is empty, has a comma, a quote, a line feed
                             or a carriage return, or is the first of its line and begins with #
    a quote within text      two quotes
    a timestamp              2024-03-01T06:00:00.000, with six digits where three would lose some

Types with a text that only Java produces, such as floating point, are not `is_writable`: Spark
writes them.
"""

from __future__ import annotations

import re
from datetime import date, datetime
from decimal import Decimal
from typing import TYPE_CHECKING, Any, TypeAlias

from pyspark.sql.types import (
    BooleanType,
    ByteType,
    DataType,
    DateType,
    DecimalType,
    IntegerType,
    LongType,
    ShortType,
    StringType,
    StructType,
    TimestampNTZType,
)

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Sequence

Value: TypeAlias = "str | int | bool | Decimal | date | datetime | None"

_SPECIAL = re.compile(r'[",\r\n]')
_COMMENT = "#"
"""A line that starts with it is quoted: many readers skip such lines."""
_NAME = re.compile(r"\w+", re.ASCII)


def is_writable(schema: StructType) -> bool:
    """Whether Python writes values of these columns as Spark does."""
    known = all(type(field.dataType) in _TEXTS for field in schema)
    return known and all(_NAME.fullmatch(name) for name in schema.names)


def csv_lines(schema: StructType, rows: Iterable[Sequence[Any]]) -> list[str]:
    """The header and the rows, ordered by their columns from left to right."""
    texts = [_TEXTS[type(field.dataType)] for field in schema]
    ordered = sorted(rows, key=_ordered)
    return [csv_header(schema.names), *(_line(_fields(row, texts)) for row in ordered)]


def csv_header(names: Iterable[str]) -> str:
    """The line with the names of the columns."""
    return _line(map(_quoted, names))


def _ordered(row: Sequence[Value]) -> tuple[tuple[bool, Value], ...]:
    """Nulls are the smallest values. Text is ordered by code points, as its UTF-8 bytes are."""
    return tuple((value is not None, value) for value in row)


def _fields(row: Sequence[Value], texts: Sequence[Callable[[Any], str]]) -> Iterator[str]:
    for value, text in zip(row, texts, strict=True):
        yield "" if value is None else text(value)


def _line(fields: Iterable[str]) -> str:
    line = ",".join(fields)
    if not line.startswith(_COMMENT):
        return line
    first, comma, rest = line.partition(",")
    return f'"{first}"{comma}{rest}'


def _quoted(value: str) -> str:
    if value and not _SPECIAL.search(value):
        return value
    return '"' + value.replace('"', '""') + '"'


def _boolean(value: bool) -> str:
    return "true" if value else "false"


def _timestamp(value: datetime) -> str:
    return value.isoformat("T", "microseconds" if value.microsecond % 1000 else "milliseconds")


_TEXTS: dict[type[DataType], Callable[[Any], str]] = {
    StringType: _quoted,
    BooleanType: _boolean,
    ByteType: str,
    ShortType: str,
    IntegerType: str,
    LongType: str,
    DecimalType: str,
    DateType: date.isoformat,
    TimestampNTZType: _timestamp,
}
"""How values of each type are written; not floating point, whose digits in Java differ."""

"""Small results as CSV without Spark, in the very bytes that Spark would write.

Only what is certain to be the same is written here: of other types, and of text that Spark trims
or quotes by rules of its own, `csv_lines` says that Spark has to do it.
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

_UNCERTAIN = re.compile(r"^[\x00-\x20#]|[\x00-\x1f\x7f-\x9f\u2028\u2029]|[\x00-\x20]$")
"""Text that Spark trims, that it could see as a comment, or of which parts may be lines to it."""
_NAME = re.compile(r"\w+", re.ASCII)


def is_writable(schema: StructType) -> bool:
    """Whether values of these columns have one certain text."""
    known = all(type(field.dataType) in _TEXTS for field in schema)
    # A line with a single null would be an empty line.
    return known and len(schema) > 1 and all(_NAME.fullmatch(name) for name in schema.names)


def csv_lines(schema: StructType, rows: Iterable[Sequence[Any]]) -> list[str] | None:
    """The header and the rows in the order of their columns; None where only Spark can tell."""
    texts = [_TEXTS[type(field.dataType)] for field in schema]
    ordered = sorted(rows, key=_ordered)
    strings = [at for at, it in enumerate(schema) if isinstance(it.dataType, StringType)]
    if any(_UNCERTAIN.search(row[at] or "") for row in ordered for at in strings):
        return None
    return [",".join(schema.names), *(",".join(_fields(row, texts)) for row in ordered)]


def _ordered(row: Sequence[Value]) -> tuple[tuple[bool, Value], ...]:
    """Nulls are the smallest values. Text is ordered as its UTF-8 bytes are, by code points."""
    return tuple((value is not None, value) for value in row)


def _fields(row: Sequence[Value], texts: Sequence[Callable[[Any], str]]) -> Iterator[str]:
    for value, text in zip(row, texts, strict=True):
        yield "" if value is None else text(value)


def _quoted(value: str) -> str:
    if value and "," not in value and '"' not in value:
        return value
    return '"' + value.replace('"', '""') + '"'


def _boolean(value: bool) -> str:
    return "true" if value else "false"


def _moment(value: datetime) -> str:
    return value.isoformat("T", "milliseconds")


_TEXTS: dict[type[DataType], Callable[[Any], str]] = {
    StringType: _quoted,
    BooleanType: _boolean,
    ByteType: str,
    ShortType: str,
    IntegerType: str,
    LongType: str,
    DecimalType: str,
    DateType: date.isoformat,
    TimestampNTZType: _moment,
}
"""How values of each type are written. Floating point is not here: Java has its own digits."""

"""Locates the value that Spark could not read, after its job has failed.

Spark reports the value, not its file or column, and adding those to all rows would be expensive. So
the files are read again, only after a failure and up to the first bad value.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING
from urllib.parse import unquote

from pyspark.sql import functions as fn
from pyspark.sql.types import StringType

from tidegate.errors import BadValue
from tidegate.spark.analyze.schemas import column
from tidegate.spark.ingest.parquet_files import csv_line, csv_records
from tidegate.spark.ingest.readers import (
    by_layout,
    castable,
    csv_rows,
    csv_text,
    is_float_id,
    parquet_rows,
    position_of,
)
from tidegate.spark.jobs.spark_errors import SPARK_ERRORS

if TYPE_CHECKING:
    from collections.abc import Sequence

    from pyspark.sql import Column, DataFrame
    from pyspark.sql.types import StructField, StructType

    from tidegate.spark.ingest.layouts import Layout
    from tidegate.spark.ingest.readers import Files
    from tidegate.spark.jobs.spark_errors import Cause
    from tidegate.spark.session.sessions import Session

_CONDITIONS = (
    "CAST_INVALID_INPUT",
    "CAST_OVERFLOW",
    "NUMERIC_VALUE_OUT_OF_RANGE",
    "USER_RAISED_EXCEPTION",
)
"""Error conditions for a value of the wrong type; the last is that of `readers`."""

_LONGEST = 80


@dataclass(frozen=True, slots=True)
class _TypedColumn:
    """A column that may have bad values: its value in the file, and the condition for a bad one."""

    field: StructField
    value: Column
    is_bad: Column


@dataclass(frozen=True, slots=True)
class _BadValue:
    """A bad value, and the path of its file as reported by Spark."""

    field: StructField
    value: str
    path: str


def is_bad_value(cause: Cause) -> bool:
    """Whether a value in a client's file may be the cause of a failed job."""
    return cause.condition.startswith(_CONDITIONS)


def find_bad_value(
    session: Session, source: str, schema: StructType, files: Files
) -> BadValue | None:
    """The first value that is not of its declared type; None also if Spark fails to find it."""
    try:
        for layout, same in by_layout(files).items():
            if found := _first(session, schema, layout, same):
                return _named(source, layout, same, found)
    except (*SPARK_ERRORS, OSError):
        # The original failure is the one to report.
        return None
    return None


def find_bad_line(file: str, layout: Layout) -> int | None:
    """The first line with another number of fields; None beyond the limits of `csv_records`."""
    for number, fields in csv_records(file, is_long=bool(layout.long_end)):
        if fields and number > 1 and len(fields) != len(layout.columns):
            return number
    return None


def _first(
    session: Session, schema: StructType, layout: Layout, files: list[str]
) -> _BadValue | None:
    if layout.format == "parquet":
        columns = [_float_id(field) for field in schema if is_float_id(layout, field)]
        rows = parquet_rows(session, schema, layout, files)
    else:
        typed = (field for field in schema if not isinstance(field.dataType, StringType))
        columns = [_text(layout, field) for field in typed]
        rows = csv_rows(session, layout, files)
    return _first_of(rows, columns) if columns else None


def _float_id(field: StructField) -> _TypedColumn:
    value = column(field.name)
    is_whole = (value == fn.rint(value)) & value.try_cast(field.dataType).isNotNull()
    return _TypedColumn(field, value, value.isNotNull() & ~is_whole)


def _text(layout: Layout, field: StructField) -> _TypedColumn:
    text = csv_text(layout, field)
    value = castable(field, text)
    return _TypedColumn(field, text, value.isNotNull() & value.try_cast(field.dataType).isNull())


def _first_of(rows: DataFrame, columns: Sequence[_TypedColumn]) -> _BadValue | None:
    bad_values = (
        fn.when(it.is_bad, fn.struct(fn.lit(at).alias("at"), it.value.cast("string").alias("it")))
        for at, it in enumerate(columns)
    )
    marked = rows.select(
        column("_metadata")["file_path"].alias("path"), fn.coalesce(*bad_values).alias("bad")
    )
    bad = marked.where(column("bad").isNotNull()).select("path", "bad.at", "bad.it")
    for path, at, value in bad.take(1):
        return _BadValue(columns[at].field, value, path)
    return None


def _named(source: str, layout: Layout, files: Sequence[str], found: _BadValue) -> BadValue:
    file = _as_delivered(found.path, files)
    name, kind = found.field.name, found.field.dataType.simpleString()
    is_csv = layout.format == "csv"
    place, is_long = position_of(layout, found.field), bool(layout.long_end)
    line = csv_line(file, place, found.value, is_long=is_long) if is_csv else None
    return BadValue(source, file, name, _shortened(found.value), kind, line)


def _as_delivered(path: str, files: Sequence[str]) -> str:
    """The path that the client has given; Spark reports a URI with `%20` for a space."""
    local = _bare(unquote(path))
    return next((file for file in files if _bare(file) == local), local)


def _bare(path: str) -> str:
    """A local path without `file:`, which has one slash or three."""
    return "/" + path.removeprefix("file:").lstrip("/") if path.startswith("file:") else path


def _shortened(value: str) -> str:
    return value if len(value) <= _LONGEST else value[: _LONGEST - 1] + "…"

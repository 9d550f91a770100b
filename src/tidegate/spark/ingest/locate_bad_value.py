"""Naming the value that a scan could not read, once its job has failed.

Spark tells the value, not its file or column, and carrying those along would cost every good
row. So the files are read again, only after a failure and up to the first bad value.
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
    place_of,
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
"""How Spark names a value that is not of its type; the last is our own check of float ids."""

_LONGEST = 80


@dataclass(frozen=True, slots=True)
class _Suspect:
    """A column that may hold bad values: its value as the file has it, and when that is bad."""

    field: StructField
    value: Column
    is_bad: Column


@dataclass(frozen=True, slots=True)
class _Found:
    """A bad value, and the path of its file in Spark's spelling."""

    field: StructField
    value: str
    path: str


def may_be_a_value(cause: Cause) -> bool:
    """Whether a job can have failed because of a value in a client's file."""
    return cause.condition.startswith(_CONDITIONS)


def find_bad_value(
    session: Session, source: str, schema: StructType, files: Files
) -> BadValue | None:
    """The first value that is not of its declared type; None also when Spark cannot tell."""
    try:
        for layout, same in by_layout(files).items():
            if found := _first(session, schema, layout, same):
                return _named(source, layout, same, found)
    except (*SPARK_ERRORS, OSError):
        # The failure that led here is the one to tell.
        return None
    return None


def find_bad_line(file: str, layout: Layout) -> int | None:
    """The number of the first line that has another number of fields; None if it is far behind."""
    for number, fields in csv_records(file, is_long=bool(layout.long_end)):
        if fields and number > 1 and len(fields) != len(layout.columns):
            return number
    return None


def _first(session: Session, schema: StructType, layout: Layout, files: list[str]) -> _Found | None:
    if layout.format == "parquet":
        suspects = [_float_id(field) for field in schema if is_float_id(layout, field)]
        rows = parquet_rows(session, schema, layout, files)
    else:
        typed = (field for field in schema if not isinstance(field.dataType, StringType))
        suspects = [_text(layout, field) for field in typed]
        rows = csv_rows(session, layout, files)
    return _first_of(rows, suspects) if suspects else None


def _float_id(field: StructField) -> _Suspect:
    value = column(field.name)
    is_whole = (value == fn.rint(value)) & value.try_cast(field.dataType).isNotNull()
    return _Suspect(field, value, value.isNotNull() & ~is_whole)


def _text(layout: Layout, field: StructField) -> _Suspect:
    text = csv_text(layout, field)
    value = castable(field, text)
    return _Suspect(field, text, value.isNotNull() & value.try_cast(field.dataType).isNull())


def _first_of(rows: DataFrame, suspects: Sequence[_Suspect]) -> _Found | None:
    culprits = (
        fn.when(it.is_bad, fn.struct(fn.lit(at).alias("at"), it.value.cast("string").alias("it")))
        for at, it in enumerate(suspects)
    )
    marked = rows.select(
        column("_metadata")["file_path"].alias("path"), fn.coalesce(*culprits).alias("bad")
    )
    bad = marked.where(column("bad").isNotNull()).select("path", "bad.at", "bad.it")
    for path, at, value in bad.take(1):
        return _Found(suspects[at].field, value, path)
    return None


def _named(source: str, layout: Layout, files: Sequence[str], found: _Found) -> BadValue:
    file = _as_delivered(found.path, files)
    name, kind = found.field.name, found.field.dataType.simpleString()
    is_csv = layout.format == "csv"
    place, is_long = place_of(layout, found.field), bool(layout.long_end)
    line = csv_line(file, place, found.value, is_long=is_long) if is_csv else None
    return BadValue(source, file, name, _shortened(found.value), kind, line)


def _as_delivered(path: str, files: Sequence[str]) -> str:
    """The file as its client named it; Spark tells a URI with `%20` for a space."""
    wanted = _bare(unquote(path))
    return next((file for file in files if _bare(file) == wanted), wanted)


def _bare(path: str) -> str:
    """A local path without `file:`, which has one slash or three."""
    return "/" + path.removeprefix("file:").lstrip("/") if path.startswith("file:") else path


def _shortened(value: str) -> str:
    return value if len(value) <= _LONGEST else value[: _LONGEST - 1] + "…"

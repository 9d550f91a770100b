"""Results as one CSV file per sink, with the same bytes whether Spark or Python writes it.

`csv_text` has the rules. Read with the same rules, a file gives exactly the rows of the result.
"""

from __future__ import annotations

import stat
from contextlib import suppress
from pathlib import Path
from shutil import copyfileobj, rmtree
from typing import TYPE_CHECKING, Any
from uuid import uuid4

import pyarrow as pa
from pyspark.sql import functions as fn
from pyspark.sql.types import TimestampNTZType, TimestampType

from tidegate.spark.analyze.schemas import column
from tidegate.spark.ingest.parquet_files import parquet_batches
from tidegate.spark.jobs.exchange import read, under
from tidegate.spark.results.csv_text import csv_header, csv_lines, is_writable
from tidegate.spark.session.sessions import reading_by_row

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from pyspark.sql import Column, DataFrame
    from pyspark.sql.types import StructField, StructType

    from tidegate.dataflow import Batch
    from tidegate.spark.session.sessions import Session

SMALL_ROWS, SMALL_BYTES = 20_000, 16 << 20
"""Up to so many rows and decoded bytes, Python is faster than a Spark job."""

FIXED_BYTES = 24
"""The size of a number or a timestamp as text."""
_AS_IT_IS = {
    "escape": '"',
    "ignoreLeadingWhiteSpace": "false",
    "ignoreTrailingWhiteSpace": "false",
}
"""Options with which Spark writes text unchanged; its defaults trim it."""
_UNREADABLE = (KeyError, ValueError, OverflowError, pa.ArrowException)
"""Errors of reading what only Spark can read."""
_TIMESTAMP = "yyyy-MM-dd'T'HH:mm:ss.SSSSSS"
_WHOLE_MILLISECONDS = r"(\.[0-9]{3})000(Z?)$"


def write_csv(
    session: Session, root: str, batches: Sequence[Batch], schema: StructType, path: Path
) -> None:
    """Write rows with a header, ordered by their columns from left to right.

    The file is created atomically.
    """
    path.parent.mkdir(parents=True, exist_ok=True)
    if not any(batch.files for batch in batches):
        write_lines([csv_header(schema.names)], path)
        return
    lines = small_lines(root, batches, schema)
    if lines is None:
        write_csv_by_spark(session, root, batches, schema, path)
    else:
        write_lines(lines, path)


def small_lines(root: str, batches: Sequence[Batch], schema: StructType) -> list[str] | None:
    """All lines of a small result; None if it is large, or has types that only Spark writes."""
    if sum(batch.rows for batch in batches) > SMALL_ROWS or not is_writable(schema):
        return None
    rows: list[tuple[Any, ...]] = []
    size = 0
    try:
        for part in _parts(root, batches, schema.names):
            size += part.nbytes
            if size > SMALL_BYTES:
                return None
            values = (part.column(name).to_pylist() for name in schema.names)
            rows.extend(zip(*values, strict=True))
    except _UNREADABLE:
        return None
    return csv_lines(schema, rows)


def csv_bytes(root: str, batches: Sequence[Batch], schema: StructType) -> Iterator[int]:
    """Growing estimates of the size of a result as CSV, while its rows are decoded.

    The sizes of its files are not an estimate: a file stores a repeated value once.
    """
    size = 0
    with suppress(*_UNREADABLE):
        for part in _parts(root, batches, schema.names):
            for column in part.columns:
                is_fixed = pa.types.is_primitive(column.type) or pa.types.is_decimal(column.type)
                size += FIXED_BYTES * len(column) if is_fixed else column.nbytes
            yield size


def _parts(root: str, batches: Sequence[Batch], columns: Sequence[str]) -> Iterator[pa.RecordBatch]:
    for batch in batches:
        for file in batch.files:
            yield from parquet_batches(under(root, file), columns)


def write_csv_by_spark(
    session: Session, root: str, batches: Sequence[Batch], schema: StructType, path: Path
) -> None:
    """The same by a Spark job, for any size and types."""
    folder = _beside(path)
    rows = read(reading_by_row(session), root, batches, schema).coalesce(1)
    ordered = rows.sortWithinPartitions(*(column(name) for name in schema.names))
    texts = ordered.select(*map(_text, schema))
    # Not as_uri: Spark does not decode the %20 of a space.
    target = f"file://{folder.absolute()}"
    if len(schema) > 1:
        texts.write.option("header", True).options(**_AS_IT_IS).csv(target)
    else:
        _save_lines(texts, target)
    (part,) = folder.glob("part-*")
    if len(schema) == 1:
        part = _with_header(csv_header(schema.names), part)
    part.chmod(_usual_mode(folder))
    part.replace(path)
    rmtree(folder)


def _text(field: StructField) -> Column:
    """A column as written; Spark would drop the microseconds of timestamps."""
    value = column(field.name)
    if not isinstance(field.dataType, TimestampType | TimestampNTZType):
        return value
    zone = "XXX" if isinstance(field.dataType, TimestampType) else ""
    text = fn.date_format(value, _TIMESTAMP + zone)
    return fn.regexp_replace(text, _WHOLE_MILLISECONDS, "$1$2").alias(field.name)


def _save_lines(texts: DataFrame, target: str) -> None:
    """Write as text: Spark's CSV writer has no line for a row that is a single null."""
    value = column(texts.columns[0])
    line = fn.when(value.isNull(), "").otherwise(fn.to_csv(fn.struct(value), _AS_IT_IS))
    texts.select(line.alias("value")).write.text(target)


def _with_header(header: str, part: Path) -> Path:
    whole = part.with_name("whole")
    with whole.open("wb") as file, part.open("rb") as lines:
        file.write(f"{header}\n".encode())
        copyfileobj(lines, file)
    return whole


def write_lines(lines: Sequence[str], path: Path) -> None:
    """Write lines to a file, which appears whole or not at all."""
    unfinished = _beside(path)
    unfinished.write_bytes("".join(f"{line}\n" for line in lines).encode())
    unfinished.replace(path)


def _usual_mode(folder: Path) -> int:
    """The mode of files that this process creates; those of Spark are private."""
    new = folder / "mode"
    new.touch()
    return stat.S_IMODE(new.stat().st_mode)


def _beside(path: Path) -> Path:
    return path.with_name(f".{path.name}.{uuid4().hex}")

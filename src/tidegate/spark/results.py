"""Results for people: one CSV file per sink, the same bytes whatever the way to it."""

from __future__ import annotations

import csv
from pathlib import Path
from shutil import rmtree
from typing import TYPE_CHECKING, Any
from uuid import uuid4

import pyarrow as pa

from tidegate.spark.csv_text import csv_lines, is_writable
from tidegate.spark.exchange import read, under
from tidegate.spark.files import parquet_values
from tidegate.spark.schemas import column

if TYPE_CHECKING:
    from collections.abc import Sequence

    from pyspark.sql.types import StructType

    from tidegate.spark.exchange import Batch
    from tidegate.spark.sessions import Session

SMALL_ROWS = 20_000
"""Up to this much, a job of Spark takes longer than Python."""


def write_csv(
    session: Session, root: str, batches: Sequence[Batch], schema: StructType, path: Path
) -> None:
    """Write rows with a header, ordered by their columns from left to right, in one go.

    The file appears whole or not at all. Nulls are empty fields, quotes are doubled.
    """
    path.parent.mkdir(parents=True, exist_ok=True)
    if not any(batch.files for batch in batches):
        _write_header(schema, path)
        return
    lines = small_lines(root, batches, schema)
    if lines is None:
        write_csv_by_spark(session, root, batches, schema, path)
    else:
        _write_lines(lines, path)


def small_lines(root: str, batches: Sequence[Batch], schema: StructType) -> list[str] | None:
    """All lines of a small result; None where it is not small or only Spark knows its text."""
    if sum(batch.rows for batch in batches) > SMALL_ROWS or not is_writable(schema):
        return None
    rows: list[tuple[Any, ...]] = []
    try:
        for batch in batches:
            for file in batch.files:
                rows.extend(parquet_values(under(root, file), schema.names))
    except (KeyError, ValueError, OverflowError, pa.ArrowException):
        return None
    return csv_lines(schema, rows)


def write_csv_by_spark(
    session: Session, root: str, batches: Sequence[Batch], schema: StructType, path: Path
) -> None:
    """The same by a job of Spark, whatever the size and the types."""
    folder = path.with_name(f".{path.name}.{uuid4().hex}")
    rows = read(session, root, batches, schema).coalesce(1)
    ordered = rows.sortWithinPartitions(*(column(name) for name in schema.names))
    # Not as_uri: Spark takes the %20 of a space for a name of its own.
    ordered.write.option("header", True).option("escape", '"').csv(f"file://{folder.absolute()}")
    (part,) = folder.glob("part-*")
    part.replace(path)
    rmtree(folder)


def _write_header(schema: StructType, path: Path) -> None:
    unfinished = _beside(path)
    with unfinished.open("w", newline="") as file:
        csv.writer(file, lineterminator="\n").writerow(schema.names)
    unfinished.replace(path)


def _write_lines(lines: Sequence[str], path: Path) -> None:
    unfinished = _beside(path)
    unfinished.write_bytes("".join(f"{line}\n" for line in lines).encode())
    unfinished.replace(path)


def _beside(path: Path) -> Path:
    return path.with_name(f".{path.name}.{uuid4().hex}")

"""Validates the size of lines and values of a file before Spark reads it.

Spark has no limits of its own: one line or value that does not fit into its memory ends the process
and all other jobs in it.
"""

from __future__ import annotations

import csv
from typing import TYPE_CHECKING

import numpy as np

from tidegate.errors import RowGroupTooLarge, ValueTooLarge
from tidegate.spark.checker.limits import last_line_end
from tidegate.spark.ingest.quoted_breaks import field_ends
from tidegate.spark.ingest.row_group_size import STEP_BYTES, STEP_ROWS

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence

    import pyarrow as pa
    from pyarrow import parquet

    from tidegate.spark.checker.limits import Meter

SPARK_ROWS = 4096
"""Rows that Spark's Parquet reader has in memory at a time."""
_FEW_ROWS = 128
"""Rows read at a time where the values of a row group may be large and repeated."""


def validate_csv(meter: Meter, columns: Sequence[str], pieces: Iterable[bytes]) -> None:
    """Read a whole CSV file. Raises `LineTooLong`, `ChunkDecodesTooLarge`, `ValueTooLarge`."""
    most, rest = meter.limits.value_bytes, b""
    for piece in meter.pieces(pieces):
        block = rest + piece
        end = last_line_end(block) + 1
        if len(block) > most:
            _refuse_large_values(meter, columns, block[:end])
        rest = block[end:]
    _refuse_large_values(meter, columns, rest)


def validate_long_records(meter: Meter, columns: Sequence[str], blocks: Iterable[bytes]) -> None:
    """Measure the fields of records that may span lines. Raises `ValueTooLarge`."""
    most = meter.limits.value_bytes
    for block in blocks:
        letters = np.frombuffer(block, np.uint8)
        ends, is_line_end = field_ends(letters)
        sizes = np.diff(ends, prepend=-1) - 1
        long = np.flatnonzero(sizes > most)
        if len(long):
            before = is_line_end[: long[0]]
            place = int(before[::-1].argmax()) if before.any() else int(long[0])
            column = columns[place] if place < len(columns) else f"number {place + 1}"
            raise ValueTooLarge(meter.source, meter.file, column, int(sizes[long[0]]), most)


def batches_to_validate(
    file: parquet.ParquetFile, names: Sequence[str]
) -> Iterator[pa.RecordBatch]:
    """The columns of these names, also several of one name, in small batches."""
    for group in range(file.num_row_groups):
        stored = max(0, file.metadata.row_group(group).total_byte_size)
        rows = STEP_ROWS if stored * STEP_ROWS <= STEP_BYTES else _FEW_ROWS
        yield from file.iter_batches(rows, [group], columns=[*names], use_threads=False)


def refuse_large_groups(meter: Meter, file: parquet.ParquetFile, names: Sequence[str]) -> None:
    """Raise `RowGroupTooLarge` for a group that is too large for Spark, which reads it whole."""
    most = meter.limits.spark_bytes
    if meter.sent <= most:
        return
    for number in range(file.num_row_groups):
        group = file.metadata.row_group(number)
        columns = (group.column(place) for place in range(group.num_columns))
        roots = ((it, it.path_in_schema.partition(".")[0]) for it in columns)
        if sum(it.total_compressed_size for it, root in roots if root in names) > most:
            raise RowGroupTooLarge(meter.source, meter.file, most)


def validate_parquet(meter: Meter, batches: Iterable[pa.RecordBatch]) -> None:
    """Decode the columns that Spark will read.

    Raises `ChunkDecodesTooLarge`, `ValueTooLarge`, `RowGroupTooLarge`.
    """
    most, decoded, rows = meter.limits.spark_bytes, 0, 0
    for batch in batches:
        meter.count(batch.nbytes)
        meter.measure(batch)
        decoded, rows = decoded + batch.nbytes, rows + batch.num_rows
        if decoded > most:
            raise RowGroupTooLarge(meter.source, meter.file, most)
        if rows >= SPARK_ROWS:
            decoded = rows = 0


def _refuse_large_values(meter: Meter, columns: Sequence[str], block: bytes) -> None:
    most = meter.limits.value_bytes
    lines = block.splitlines() if len(block) > most else ()
    for line in (it for it in lines if len(it) > most):
        csv.field_size_limit(len(line))
        for place, value in enumerate(next(csv.reader([line.decode("latin-1")]), [])):
            if len(value) > most:
                column = columns[place] if place < len(columns) else f"number {place + 1}"
                raise ValueTooLarge(meter.source, meter.file, column, len(value), most)

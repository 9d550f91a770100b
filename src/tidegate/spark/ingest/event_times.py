"""The latest event time of a chunk, from the files that it was copied to.

It is read from the footers, except for INT96 columns written by Spark, whose values are read.
Times are milliseconds since 1970. A date is its midnight, and a timestamp without a time zone is
taken for UTC, as sessions take it.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import pyarrow as pa
import pyarrow.compute as pc
from pyarrow import parquet

from tidegate.spark.ingest.parquet_files import locate

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from tidegate.pipeline.nodes import EventTime

_DAY = 86_400_000
_PER_MILLISECOND = {"ms": 1, "us": 1_000, "ns": 1_000_000}
_COMPARED = ("INT32", "INT64")
"""Physical types whose order in a file is that of time."""


def watermark(root: str, files: Sequence[str], declared: EventTime | None) -> int | None:
    """The watermark after a chunk; None without event time, or if it is null in all rows.

    It is just before the latest time less the delay, since later rows may be that late.
    """
    latest = None if declared is None else latest_event(root, files, declared.column)
    return None if declared is None or latest is None else latest - declared.delay - 1


def latest_event(root: str, files: Sequence[str], column: str) -> int | None:
    """The latest time in a column of Parquet files below `root`; None where it is null in all."""
    system, base = locate(root)
    times: list[int] = []
    for name in files:
        with parquet.ParquetFile(
            f"{base}/{name}", filesystem=system, coerce_int96_timestamp_unit="us"
        ) as file:
            kind = file.schema_arrow.field(column).type
            times += (_milliseconds(value, kind) for value in _latest(file, column))
    return max(times, default=None)


def _latest(file: parquet.ParquetFile, column: str) -> Iterator[int]:
    """Of each row group that has any, in the column's own unit."""
    schema = file.schema
    place = next(at for at in range(len(schema)) if schema.column(at).path == column)
    for group in range(file.num_row_groups):
        chunk = file.metadata.row_group(group).column(place)
        statistics = chunk.statistics
        if statistics is not None and statistics.has_min_max and chunk.physical_type in _COMPARED:
            yield int(statistics.max_raw)
        else:
            yield from _read(file, group, column)


def _read(file: parquet.ParquetFile, group: int, column: str) -> Iterator[int]:
    for batch in file.iter_batches(row_groups=[group], columns=[column], use_threads=False):
        value = pc.max(batch.column(column)).value
        if value is not None:
            yield int(value)


def _milliseconds(value: int, kind: pa.DataType) -> int:
    return value * _DAY if pa.types.is_date32(kind) else value // _PER_MILLISECOND[kind.unit]

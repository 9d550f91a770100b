"""Stored results as files, without a Spark session where that is possible.

Parquet and Arrow need no session. CSV needs one where the result is large or has types whose text
only Spark knows; see `csv_text`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, TypeAlias
from uuid import uuid4

from pyspark.errors import PySparkException
from pyspark.sql.pandas.types import from_arrow_schema

from tidegate.spark.ingest.parquet_files import parquet_schema
from tidegate.spark.ingest.parquet_writer import space_on
from tidegate.spark.jobs.exchange import under
from tidegate.spark.results.csv_result import small_lines, write_csv, write_lines
from tidegate.spark.results.result_streams import arrow_stream, parquet_stream
from tidegate.spark.session.sessions import borrowed

if TYPE_CHECKING:
    from pyspark.sql.types import StructType

    from tidegate.dataflow import Batch

    Stream: TypeAlias = Callable[[str, Sequence[Batch], StructType], Iterator[bytes]]

_STREAMS: Mapping[str, Stream] = {"parquet": parquet_stream, "arrow": arrow_stream}
EXPORT_FORMATS = ("csv", *_STREAMS)


def stored_schema(root: str, batches: Sequence[Batch]) -> StructType | None:
    """The columns of a result by the footer of a file.

    None without files, and for types that Arrow does not have.
    """
    file = next((file for batch in batches for file in batch.files), None)
    if file is None:
        return None
    try:
        return from_arrow_schema(parquet_schema(under(root, file)))
    except PySparkException:
        return None


def export_result(
    root: str, batches: Sequence[Batch], schema: StructType, kind: str, path: Path
) -> None:
    """Write a result in one of `EXPORT_FORMATS`; the file appears whole or not at all."""
    path.parent.mkdir(parents=True, exist_ok=True)
    with space_on(str(path.parent)):
        if kind in _STREAMS:
            _write(_STREAMS[kind](root, batches, schema), path)
        elif (lines := small_lines(root, batches, schema)) is not None:
            write_lines(lines, path)
        else:
            with borrowed(None) as session:
                write_csv(session, root, batches, schema, path)


def _write(pieces: Iterator[bytes], path: Path) -> None:
    unfinished = path.with_name(f".{path.name}.{uuid4().hex}")
    try:
        with unfinished.open("wb") as opened:
            opened.writelines(pieces)
        unfinished.replace(path)
    finally:
        unfinished.unlink(missing_ok=True)

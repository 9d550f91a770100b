"""Results as streams of bytes, Parquet or Arrow, for remote clients.

The files of a result are read one after the other, a few thousand rows at a time and fewer where
values are large, so that a result of any size takes little memory. Rows come in the order of the
files; only CSV is ordered.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING

import pyarrow as pa
from pyarrow import ipc, parquet
from pyspark.sql.pandas.types import to_arrow_schema

from tidegate.spark.ingest.parquet_files import parquet_batches
from tidegate.spark.jobs.exchange import under

if TYPE_CHECKING:
    from pyspark.sql.types import StructType

    from tidegate.dataflow import Batch

ROWS, BYTES = 1 << 16, 8 << 20
"""The least rows or bytes of a row group or record batch, except for the last of a file."""


def arrow_stream(root: str, batches: Sequence[Batch], schema: StructType) -> Iterator[bytes]:
    """A result as an Arrow IPC stream."""
    columns = columns_of(schema)
    written = _Written()
    with ipc.new_stream(pa.PythonFile(written, mode="w"), columns) as writer:
        for table in tables(root, batches, columns):
            writer.write_table(table)
            yield written.taken()
    yield written.taken()


def parquet_stream(root: str, batches: Sequence[Batch], schema: StructType) -> Iterator[bytes]:
    """A result as one Parquet file."""
    columns = columns_of(schema)
    written = _Written()
    with parquet.ParquetWriter(pa.PythonFile(written, mode="w"), columns) as writer:
        for table in tables(root, batches, columns):
            writer.write_table(table)
            yield written.taken()
    yield written.taken()


def columns_of(schema: StructType) -> pa.Schema:
    """The columns of a result, all nullable, as they are in the files."""
    return pa.schema(
        [field.with_nullable(True) for field in to_arrow_schema(schema, timezone="UTC")]
    )


def tables(root: str, batches: Sequence[Batch], columns: pa.Schema) -> Iterator[pa.Table]:
    for batch in batches:
        for file in batch.files:
            for table in _gathered(parquet_batches(under(root, file), columns.names)):
                yield table.select(columns.names).cast(columns)


def _gathered(parts: Iterator[pa.RecordBatch]) -> Iterator[pa.Table]:
    gathered: list[pa.RecordBatch] = []
    for part in parts:
        gathered.append(part)
        rows, size = sum(it.num_rows for it in gathered), sum(it.nbytes for it in gathered)
        if rows >= ROWS or size >= BYTES:
            yield pa.Table.from_batches(gathered).combine_chunks()
            gathered.clear()
    if gathered:
        yield pa.Table.from_batches(gathered).combine_chunks()


class _Written:
    """Buffers what a writer has written until it is taken."""

    closed = False

    def __init__(self) -> None:
        self._pieces: list[bytes] = []
        self._length = 0

    def write(self, piece: bytes) -> int:
        self._pieces.append(piece)
        self._length += len(piece)
        return len(piece)

    def tell(self) -> int:
        return self._length

    def flush(self) -> None:
        """Nothing to flush."""

    def close(self) -> None:
        """The last bytes can still be taken."""

    def taken(self) -> bytes:
        pieces, self._pieces = self._pieces, []
        return b"".join(pieces)

"""Files that stand for far more than they hold, or that no reader should trust."""

from __future__ import annotations

import bz2
import gzip
import io
from pathlib import Path

import numpy as np
import pyarrow as pa
from pyarrow import ipc, parquet

HEADER = b"item_id,item_name\n"


def aborting_parquet(file: Path) -> Path:
    """A footer whose first column is of a repetition that there is not.

    Arrow throws where it is asked about that column, and pyarrow does not catch it.
    """
    made = io.BytesIO()
    table = pa.table({"item_id": pa.array([1], pa.int64()), "item_name": ["tea"]})
    parquet.write_table(table, made, store_schema=False, write_statistics=False)
    optional, unknown = b"%\x02\x18\x07item_id", b"%\x03\x18\x07item_id"
    assert made.getvalue().count(optional) == 1
    file.write_bytes(made.getvalue().replace(optional, unknown))
    return file


def large_value(file: Path, size: int) -> Path:
    table = pa.table({"item_id": pa.array([1], pa.int64()), "item_name": ["x" * size]})
    parquet.write_table(
        table, file, compression="zstd", use_dictionary=False, write_statistics=False
    )
    return file


def repeated_value(file: Path, size: int, times: int) -> Path:
    """A dictionary of one value, and a run of its number."""
    places = pa.array(np.zeros(times, np.int32))
    names = pa.DictionaryArray.from_arrays(places, pa.array(["y" * size]))
    table = pa.table({"item_id": pa.array(np.ones(times, np.int64)), "item_name": names})
    parquet.write_table(table, file, compression="zstd", store_schema=False)
    return file


def nested_repeated_value(file: Path, size: int, times: int) -> Path:
    """As lists, which only Spark reads as rows."""
    places = pa.array(np.zeros(times, np.int32))
    names = pa.DictionaryArray.from_arrays(places, pa.array(["y" * size]))
    lists = pa.ListArray.from_arrays(pa.array(range(times + 1), pa.int32()), names)
    table = pa.table({"item_id": pa.array(np.ones(times, np.int64)), "item_name": lists})
    parquet.write_table(table, file, compression="zstd", store_schema=False)
    return file


def unused_value(file: Path, size: int) -> Path:
    """A dictionary with a value that no row has, beside ids of a type that only Spark converts."""
    names = pa.DictionaryArray.from_arrays(pa.array([0, 0], pa.int32()), ["tea", "x" * size])
    table = pa.table({"item_id": pa.array([1, 2], pa.int32()), "item_name": names})
    parquet.write_table(table, file, compression="zstd", store_schema=False)
    return file


def compressed_batch(file: Path, size: int) -> Path:
    """An Arrow file of one batch of zeros."""
    rows = size // 8
    names = pa.array([None], pa.string()).take(pa.array(np.zeros(rows, np.int8)))
    batch = pa.record_batch([pa.array(np.zeros(rows, np.int64)), names], ["item_id", "item_name"])
    options = ipc.IpcWriteOptions(compression="zstd")
    with ipc.new_file(str(file), batch.schema, options=options) as writer:
        writer.write_batch(batch)
    return file


def much_text(file: Path, streams: int) -> Path:
    """So many megabytes of rows, compressed by bzip2 a megabyte at a time."""
    rows = b"1,tea and more tea\n"
    body = bz2.compress(rows * ((1 << 20) // len(rows)))
    file.write_bytes(bz2.compress(HEADER) + body * streams)
    return file


def long_line(file: Path, size: int) -> Path:
    with gzip.open(file, "wb", compresslevel=1) as text:
        text.write(HEADER + b"1,tea\n2,")
        for _ in range(size >> 20):
            text.write(b"x" * (1 << 20))
        text.write(b"\n3,coffee\n")
    return file

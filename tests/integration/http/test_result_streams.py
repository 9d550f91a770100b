"""Results as Parquet and Arrow: all types, all rows, little memory."""

from __future__ import annotations

import io
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path

import pyarrow as pa
import pytest
from pyarrow import ipc, parquet

from tidegate.dataflow import Batch
from tidegate.spark import Schema, Session
from tidegate.spark.results.result_streams import arrow_stream, parquet_stream

TYPES = """
    SELECT CAST(id AS INT) AS i, id AS l, CAST(id AS DECIMAL(20, 3)) AS d, id / 3 AS f,
        concat('tea ', id) AS s, id % 2 = 0 AS b, DATE '2024-02-29' AS day,
        TIMESTAMP '2024-02-29 12:30:00.123456' AS at,
        TIMESTAMP_NTZ '2024-02-29 12:30:00.123456' AS local_at,
        array(id, NULL) AS many, map('a', id) AS named, struct(id AS x, 'y' AS y) AS pair,
        CAST(NULL AS STRING) AS nothing, CAST('xyz' AS BINARY) AS raw
    FROM range(0, {rows})
"""
Stream = Callable[[str, Sequence[Batch], Schema], Iterator[bytes]]


def stored(spark: Session, root: Path, rows: int) -> tuple[list[Batch], Schema]:
    """Two files below a root, as a stage writes them."""
    frame = spark.sql(TYPES.format(rows=rows))
    frame.repartition(2).write.parquet(f"file://{root}/batches")
    files = sorted(str(it.relative_to(root)) for it in (root / "batches").glob("part-*.parquet"))
    return [Batch((file,), rows // 2) for file in files], frame.schema


def read(stream: Stream, pieces: bytes) -> pa.Table:
    if stream is parquet_stream:
        return parquet.read_table(io.BytesIO(pieces))
    return ipc.open_stream(pieces).read_all()


@pytest.mark.parametrize("stream", [arrow_stream, parquet_stream])
def test_every_type_arrives_with_its_values(stream: Stream, spark: Session, tmp_path: Path) -> None:
    batches, schema = stored(spark, tmp_path, 10)
    table = read(stream, b"".join(stream(str(tmp_path), batches, schema)))
    assert table.num_rows == 10
    assert table.column_names == schema.names
    row = next(it for it in table.to_pylist() if it["l"] == 3)
    assert (row["i"], str(row["d"]), row["f"], row["s"]) == (3, "3.000", 1.0, "tea 3")
    assert row["at"].isoformat() == "2024-02-29T12:30:00.123456+00:00"
    assert row["local_at"].isoformat() == "2024-02-29T12:30:00.123456"
    assert (row["many"], row["named"], row["pair"]) == (
        [3, None], [("a", 3)], {"x": 3, "y": "y"},
    )  # fmt: skip
    assert (row["nothing"], row["raw"]) == (None, b"xyz")


@pytest.mark.parametrize("stream", [arrow_stream, parquet_stream])
def test_a_result_without_rows_has_the_same_columns_as_one_with_rows(
    stream: Stream, spark: Session, tmp_path: Path
) -> None:
    batches, schema = stored(spark, tmp_path, 4)
    full = read(stream, b"".join(stream(str(tmp_path), batches, schema)))
    empty = read(stream, b"".join(stream(str(tmp_path), [], schema)))
    assert (empty.num_rows, empty.schema) == (0, full.schema)


@pytest.mark.parametrize("stream", [arrow_stream, parquet_stream])
def test_a_large_result_never_is_in_memory_at_once(stream: Stream, tmp_path: Path) -> None:
    rows, size = 4_000_000, 32_000_000
    numbers = pa.table({"l": pa.array(range(rows), pa.int64())})
    parquet.write_table(numbers, tmp_path / "large.parquet", row_group_size=100_000)
    del numbers
    before, most, sent = pa.total_allocated_bytes(), 0, 0
    batches, schema = [Batch(("large.parquet",), rows)], Schema().add("l", "long")
    for piece in stream(str(tmp_path), batches, schema):
        sent += len(piece)
        most = max(most, len(piece) + pa.total_allocated_bytes() - before)
    assert most < size / 2
    assert sent > size / 4

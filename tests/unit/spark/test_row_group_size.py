"""Rows are read in steps that stay small in memory, whatever a file repeats."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from functools import partial
from pathlib import Path

import pyarrow as pa
import pytest
from pyarrow import feather, parquet
from pyspark.sql.types import ArrayType, DataType, LongType, StringType, StructField, StructType

import tidegate as tg
from tidegate.dataflow import Batch
from tidegate.settings import Settings
from tidegate.spark import Session, ingest
from tidegate.spark.checker.limits import ChunkLimits
from tidegate.spark.ingest.ingest import check_chunk
from tidegate.spark.ingest.parquet_writer import GROUP_BYTES
from tidegate.spark.results.csv_result import small_lines
from tidegate.spark.results.result_streams import arrow_stream, parquet_stream

LARGE = "x" * (256 << 10)
ROWS = 2500
MOST = 3 * GROUP_BYTES
"""What is gathered, what is read, and what is written of them: less than a third of the rows."""


@pytest.fixture
def memory() -> Iterator[pa.MemoryPool]:
    """All that Arrow uses from here on."""
    usual = pa.default_memory_pool()
    counting = pa.proxy_memory_pool(usual)
    pa.set_memory_pool(counting)
    yield counting
    pa.set_memory_pool(usual)


def no_spark() -> Session:
    raise AssertionError("Spark was used although Arrow reads the file")


def taken(file: Path, root: Path) -> Batch:
    pipeline = tg.Pipeline("shop")
    pipeline.source("sales", "id bigint, name string").select("id").sink("ids")
    any_ratio = ChunkLimits.from_settings(Settings(chunk_decoded_ratio=1 << 30))
    check = partial(check_chunk, limits=any_ratio)
    return ingest(no_spark, pipeline, "sales", str(file), str(root), "chunks/1", check)


def repeating(before: int) -> pa.Table:
    """Some short values, and then a large one again and again."""
    places = pa.array([0] * before + [1] * ROWS, pa.int8())
    names = pa.DictionaryArray.from_arrays(places, pa.array(["tea", LARGE]))
    return pa.table({"id": pa.array(range(len(places)), pa.int64()), "name": names})


@pytest.mark.parametrize("before", [0, 70_000])
def test_a_small_parquet_file_of_one_large_value_is_taken_in_little_memory(
    before: int, tmp_path: Path, memory: pa.MemoryPool
) -> None:
    file = tmp_path / "small.parquet"
    parquet.write_table(repeating(before), file, store_schema=False, compression="zstd")
    assert file.stat().st_size < ROWS * len(LARGE) / 500
    assert taken(file, tmp_path / "root").rows == before + ROWS
    assert memory.max_memory() < MOST < ROWS * len(LARGE) / 3


def test_a_small_arrow_file_of_one_large_value_is_taken_in_little_memory(
    tmp_path: Path, memory: pa.MemoryPool
) -> None:
    file = tmp_path / "small.arrow"
    feather.write_feather(repeating(0), str(file), compression="zstd")
    assert taken(file, tmp_path / "root").rows == ROWS
    assert memory.max_memory() < MOST


def test_narrow_rows_are_stored_in_few_row_groups_as_they_were(tmp_path: Path) -> None:
    rows = 120_000
    table = pa.table({"id": pa.array(range(rows), pa.int64()), "name": ["tea", "milk"] * 60_000})
    parquet.write_table(table, tmp_path / "narrow.parquet", row_group_size=50_000)
    (name,) = taken(tmp_path / "narrow.parquet", tmp_path / "root").files
    with parquet.ParquetFile(tmp_path / "root" / name) as stored:
        assert stored.num_row_groups <= 3
        assert stored.read().equals(table)


def result(kind: DataType) -> StructType:
    return StructType([StructField("id", LongType()), StructField("name", kind)])


def in_lists(table: pa.Table) -> pa.Table:
    """Each name as a list of one name."""
    places = pa.array(range(table.num_rows + 1), pa.int32())
    names = pa.ListArray.from_arrays(places, table.column("name").combine_chunks())
    return table.set_column(1, "name", names)


@pytest.mark.parametrize("stream", [arrow_stream, parquet_stream])
@pytest.mark.parametrize("is_nested", [False, True])
def test_a_small_result_of_one_large_value_is_sent_in_little_memory(
    stream: Callable[[str, Sequence[Batch], StructType], Iterator[bytes]],
    is_nested: bool,
    tmp_path: Path,
    memory: pa.MemoryPool,
) -> None:
    table = in_lists(repeating(0)) if is_nested else repeating(0)
    parquet.write_table(table, tmp_path / "1.parquet", store_schema=False, compression="zstd")
    schema = result(ArrayType(StringType()) if is_nested else StringType())
    batches = [Batch(("1.parquet",), ROWS)]
    assert max(map(len, stream(str(tmp_path), batches, schema))) < GROUP_BYTES
    assert memory.max_memory() < MOST


def test_a_small_result_of_one_large_value_is_not_written_in_memory(
    tmp_path: Path, memory: pa.MemoryPool
) -> None:
    parquet.write_table(repeating(0), tmp_path / "1.parquet", store_schema=False)
    batches = [Batch(("1.parquet",), ROWS)]
    assert small_lines(str(tmp_path), batches, result(StringType())) is None
    assert memory.max_memory() < MOST

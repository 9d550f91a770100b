"""Rows are read in steps that stay small in memory, whatever a file repeats."""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial
from pathlib import Path

import pyarrow as pa
import pytest
from pyarrow import feather, parquet

import tidegate as tg
from tidegate.dataflow import Batch
from tidegate.settings import Settings
from tidegate.spark import Session, ingest
from tidegate.spark.checker.limits import ChunkLimits
from tidegate.spark.ingest.ingest import check_chunk
from tidegate.spark.ingest.parquet_writer import GROUP_BYTES

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
    raise AssertionError("Spark was asked although nothing is in doubt")


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

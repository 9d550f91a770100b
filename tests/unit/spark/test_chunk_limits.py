"""Files that become too large are refused by name, before they fill memory or disk."""

from __future__ import annotations

import gzip
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st
from pyarrow import parquet

from tests.unit.spark import hostile_files as hostile
from tidegate.errors import (
    ChunkDecodesTooLarge,
    LineTooLong,
    RowGroupTooLarge,
    RunError,
    UnreadableChunk,
    ValueTooLarge,
)
from tidegate.settings import Settings
from tidegate.spark.checker.limits import FLOOR_BYTES, ChunkLimits, Meter
from tidegate.spark.checker.protocol import Check, Copied, DeclaredField, NeedsSpark
from tidegate.spark.ingest.ingest import check_chunk
from tidegate.spark.ingest.layouts import Layout

USUAL = Settings()
LOW = replace(
    USUAL, chunk_line_bytes=1 << 20, chunk_value_bytes=1 << 20, chunk_decoded_bytes=8 << 20
)
"""Limits that small files exceed."""
PLAIN = (DeclaredField("item_id", "bigint"), DeclaredField("item_name", "string"))
LISTS = (DeclaredField("item_id", "bigint"), DeclaredField("item_name", "array<string>"))

Fields = tuple[DeclaredField, ...]


def checked(file: Path, settings: Settings = LOW, fields: Fields = PLAIN) -> Copied | NeedsSpark:
    request = Check("items", fields, str(file), str(file.parent / "root"), "chunks/1")
    try:
        return check_chunk(request, ChunkLimits.from_settings(settings))
    except RunError:
        assert [it for it in (file.parent / "root").rglob("*") if it.is_file()] == []
        raise


def test_a_parquet_file_with_a_damaged_column_is_refused(tmp_path: Path) -> None:
    with pytest.raises(UnreadableChunk):
        checked(hostile.aborting_parquet(tmp_path / "1.parquet"))


def test_a_value_that_is_too_large_is_refused_with_its_column(tmp_path: Path) -> None:
    with pytest.raises(ValueTooLarge) as refused:
        checked(hostile.large_value(tmp_path / "1.parquet", 2 << 20))
    assert (refused.value.column, refused.value.bytes) == ("item_name", 2 << 20)


def test_a_large_value_of_a_csv_file_is_refused(tmp_path: Path) -> None:
    file = tmp_path / "1.csv"
    file.write_bytes(hostile.HEADER + b"1," + b"x" * (2 << 20) + b"\n")
    with pytest.raises(ValueTooLarge):
        checked(file, replace(LOW, chunk_line_bytes=4 << 20))


def test_a_large_value_that_spark_would_read_is_refused(tmp_path: Path) -> None:
    file = tmp_path / "1.csv"
    file.write_bytes(hostile.HEADER + b"not a number," + b"x" * (2 << 20) + b"\n")
    with pytest.raises(ValueTooLarge) as refused:
        checked(file, replace(LOW, chunk_line_bytes=4 << 20))
    assert refused.value.column == "item_name"


@pytest.mark.parametrize("ending", [b"\n", b""])
def test_a_large_value_of_many_lines_that_spark_would_read_is_refused(
    ending: bytes, tmp_path: Path
) -> None:
    file, lines = tmp_path / "1.csv", b"x" * 1023 + b"\n"
    file.write_bytes(hostile.HEADER + b'?,"a,""\nb"\n2,"' + lines * 2048 + b'"' + ending)
    with pytest.raises(ValueTooLarge) as refused:
        checked(file)
    assert (refused.value.column, refused.value.bytes) == ("item_name", (2 << 20) + 2)
    file.write_bytes(hostile.HEADER + b'?,"a,""\nb"\n2,"' + lines * 1000 + b'"' + ending)
    assert isinstance(checked(file), NeedsSpark)


def make_dictionary(file: Path) -> Path:
    return hostile.repeated_value(file.with_suffix(".parquet"), 512 << 10, 1000)


def make_batch(file: Path) -> Path:
    return hostile.compressed_batch(file.with_suffix(".arrow"), 16 << 20)


def make_text(file: Path) -> Path:
    return hostile.much_text(file.with_suffix(".csv.bz2"), 20)


@pytest.mark.parametrize("make", [make_dictionary, make_batch, make_text])
def test_a_small_file_that_decodes_to_much_is_refused(
    make: Callable[[Path], Path], tmp_path: Path
) -> None:
    file = make(tmp_path / "1")
    assert file.stat().st_size < 64 << 10
    with pytest.raises(ChunkDecodesTooLarge) as refused:
        checked(file)
    assert (refused.value.sent, refused.value.limit) == (file.stat().st_size, 8 << 20)


def test_a_file_for_spark_is_decoded_before_spark_sees_it(tmp_path: Path) -> None:
    file = hostile.nested_repeated_value(tmp_path / "1.parquet", 512 << 10, 1000)
    with pytest.raises(ChunkDecodesTooLarge):
        checked(file, fields=LISTS)
    small = hostile.nested_repeated_value(tmp_path / "2.parquet", 10, 1000)
    assert checked(small, fields=LISTS) == NeedsSpark(Layout("parquet", ("item_id", "item_name")))


@pytest.mark.parametrize("is_doubtful", [False, True])
def test_a_long_line_is_refused_with_its_number_and_never_given_to_spark(
    is_doubtful: bool, tmp_path: Path
) -> None:
    file = hostile.long_line(tmp_path / "1.csv.gz", 64 << 20)
    if is_doubtful:
        whole = gzip.decompress(file.read_bytes()).replace(b"1,tea", b"?,tea")
        file.write_bytes(gzip.compress(whole, 1))
    with pytest.raises(LineTooLong) as refused:
        checked(file, USUAL)
    assert (refused.value.line, refused.value.limit) == (3, 32 << 20)


def test_ordinary_files_that_compress_well_are_taken(tmp_path: Path) -> None:
    rows = 200_000
    names = pa.array(["tea"] * rows)
    table = pa.table({"item_id": pa.array([7] * rows, pa.int64()), "item_name": names})
    parquet.write_table(table, tmp_path / "1.parquet")
    assert (tmp_path / "1.parquet").stat().st_size * 1000 < table.nbytes
    assert checked(tmp_path / "1.parquet", USUAL) == checked(tmp_path / "1.parquet", USUAL)


def test_a_row_group_that_exceeds_the_memory_for_spark_is_refused(tmp_path: Path) -> None:
    file, rows = tmp_path / "1.parquet", 300_000
    table = pa.table({"item_id": pa.array(range(rows), pa.int32()), "item_name": ["tea"] * rows})
    fields = (DeclaredField("item_id", "double"), DeclaredField("item_name", "string"))
    small = replace(USUAL, chunk_spark_bytes=1 << 20)
    parquet.write_table(table, file, compression="none")
    with pytest.raises(RowGroupTooLarge):
        checked(file, small, fields)
    parquet.write_table(table, file, compression="none", row_group_size=10_000)
    assert isinstance(checked(file, small, fields), NeedsSpark)


@given(sent=st.integers(0, 1 << 44))
def test_what_a_file_may_decode_to_grows_with_it_and_is_never_less_than_it(sent: int) -> None:
    limits = ChunkLimits.from_settings(USUAL)
    assert limits.decoded(sent) >= max(FLOOR_BYTES, sent)
    assert limits.decoded(sent) <= limits.decoded(sent + 1)
    assert limits.decoded(1 << 20) == 500 << 20
    assert limits.decoded(1 << 30) == 8 << 30


@given(
    lines=st.lists(st.integers(0, 40), max_size=12),
    ends=st.sampled_from([b"\n", b"\r\n", b"\r"]),
    size=st.integers(1, 60),
    most=st.integers(1, 30),
)
def test_the_first_line_that_is_too_long_is_found_however_the_text_is_split(
    lines: list[int], ends: bytes, size: int, most: int
) -> None:
    text = b"".join(b"x" * length + ends for length in lines)
    pieces = [text[at : at + size] for at in range(0, len(text), size)]
    limits = ChunkLimits.from_settings(replace(USUAL, chunk_line_bytes=most))
    meter = Meter(limits, "items", "1.csv", len(text))
    first = next((at for at, length in enumerate(lines, 1) if length > most), None)
    try:
        assert b"".join(meter.pieces(pieces)) == text
        found = None
    except LineTooLong as refused:
        found = refused.line
    assert found == first

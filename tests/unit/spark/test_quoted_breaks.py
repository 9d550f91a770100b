"""Fields that go on in the next line are read as Python reads them, wherever a piece ends."""

from __future__ import annotations

import csv
import gzip
import io
from collections.abc import Sequence
from pathlib import Path
from time import monotonic

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st
from pyarrow import parquet

import tidegate as tg
from tidegate.errors import UnreadableChunk
from tidegate.spark import Session, ingest
from tidegate.spark.ingest.csv_reader import ArrowCsvReader, SparkRequired
from tidegate.spark.ingest.parquet_files import csv_line, csv_records
from tidegate.spark.ingest.quoted_breaks import BadQuotes, end_of_long_records, records

SCHEMA = pa.schema({"a": pa.string(), "b": pa.string()})
PIECE = st.sampled_from(["x", '"', '""', ",", "\n", "\r\n", " ", "é", "\n\n", "#", "\\", "'"])
TEXT = st.lists(PIECE, max_size=6).map("".join)
ROWS = st.lists(st.tuples(TEXT, st.text("xy", min_size=1)), min_size=1, max_size=6)
ENDS = st.sampled_from(["\n", "\r\n"])


def no_spark() -> Session:
    raise AssertionError("Spark was used although Arrow reads the file")


def written(rows: Sequence[Sequence[str]], end: str) -> bytes:
    file = io.StringIO(newline="")
    csv.writer(file, lineterminator=end).writerows([("a", "b"), *rows])
    return file.getvalue().encode()


def split(content: bytes, size: int) -> list[bytes]:
    return [content[at : at + size] for at in range(0, len(content), size)]


@given(rows=ROWS, end=ENDS, size=st.integers(1, 40))
def test_what_python_writes_is_read_as_it_was(
    rows: list[tuple[str, str]], end: str, size: int
) -> None:
    content = written(rows, end)
    found = pa.concat_tables(ArrowCsvReader(("a", "b"), SCHEMA).read(split(content, size)))
    assert [(a or "", b) for a, b in zip(*found.to_pydict().values(), strict=True)] == rows
    is_broken = any("\n" in a for a, _ in rows)
    assert end_of_long_records(split(content, size)) == (end if is_broken else "")


@given(content=st.lists(PIECE, max_size=20).map("".join), size=st.integers(1, 9))
def test_where_a_piece_ends_changes_nothing(content: str, size: int) -> None:
    data = ("a,b\n" + content).encode()
    assert end_of_long_records(split(data, size)) == end_of_long_records([data])
    assert b"".join(records(split(data, size))) == data


@pytest.mark.parametrize(
    "content",
    [
        'a,b\n"x\ny,1\n',
        'a,b\nx"\ny",1\n',
        'a,b\n"x\ny",1\r\nz,2\n',
        'a,b\nz,2\r\n"x\ny",1\n',
        '"a\n",b\n"x\ny",1\n',
        'a,b\n"x\ny",1\rz,2\n',
    ],
)
def test_in_a_file_with_ambiguous_quotes_a_line_is_a_record(content: str) -> None:
    assert not end_of_long_records([content.encode()])
    with pytest.raises(SparkRequired):
        list(ArrowCsvReader(("a", "b"), SCHEMA).read([content.encode()]))


def test_a_quote_that_is_never_closed_does_not_gather_the_rest_of_a_file() -> None:
    taken = 0

    def pieces() -> object:
        nonlocal taken
        yield b'a,b\n"'
        for _ in range(64):
            taken += 1
            yield b"x,1\n" * (1 << 18)

    with pytest.raises(BadQuotes):
        list(records(pieces()))  # type: ignore[arg-type]
    assert taken < 64
    assert not end_of_long_records(pieces())  # type: ignore[arg-type]


def test_a_field_of_many_line_breaks_is_looked_through_once() -> None:
    piece = b'\n""' * (1 << 20)
    began = monotonic()
    assert list(records([b'"', piece, piece, b'"\n'])) == [b'"' + piece + piece + b'"\n']
    assert monotonic() - began < 10, "a search from the end would take minutes"


def test_records_are_counted_by_their_first_lines(tmp_path: Path) -> None:
    file = tmp_path / "a.csv.gz"
    file.write_bytes(gzip.compress(b'a,b\r\n"x\r\ny\nz",1\r\n\r\n"p ""q""",7\r\nr,8\r\n'))
    numbers = [
        (number, fields) for number, fields in csv_records(str(file), is_long=True) if fields
    ]
    assert numbers == [
        (1, ["a", "b"]),
        (2, ["x\r\ny\nz", "1"]),
        (6, ['p "q"', "7"]),
        (7, ["r", "8"]),
    ]
    assert csv_line(str(file), 1, "8", is_long=True) == 7


# --- Parquet ---------------------------------------------------------------------------------


def selling() -> tg.Pipeline:
    pipeline = tg.Pipeline("shop")
    pipeline.source("sales", "id bigint, name string").select("id").sink("ids")
    return pipeline


@pytest.mark.parametrize("encoding", ["DELTA_BYTE_ARRAY", "DELTA_LENGTH_BYTE_ARRAY"])
@pytest.mark.parametrize("wide", [0, 20_000])
def test_parquet_with_delta_encoded_text_is_taken(encoding: str, wide: int, tmp_path: Path) -> None:
    names = [f"{'x' * wide}{number}" for number in range(3000)]
    table = pa.table({"id": pa.array(range(3000), pa.int64()), "name": names})
    file = tmp_path / "a.parquet"
    parquet.write_table(table, file, use_dictionary=["id"], column_encoding={"name": encoding})
    root = tmp_path / "root"
    batch = ingest(no_spark, selling(), "sales", str(file), str(root), "chunks/1")
    (name,) = batch.files
    assert parquet.read_table(root / name, partitioning=None).equals(table)


def test_a_small_file_that_repeats_beginnings_is_taken_in_little_memory(tmp_path: Path) -> None:
    names = ["x" * (256 << 10)] * 1000
    table = pa.table({"id": pa.array(range(1000), pa.int64()), "name": names})
    file = tmp_path / "a.parquet"
    encodings = {"name": "DELTA_BYTE_ARRAY"}
    parquet.write_table(table, file, use_dictionary=False, column_encoding=encodings)
    del names, table
    assert file.stat().st_size < 1 << 20
    usual = pa.default_memory_pool()
    counting = pa.proxy_memory_pool(usual)
    pa.set_memory_pool(counting)
    try:
        batch = ingest(no_spark, selling(), "sales", str(file), str(tmp_path / "r"), "chunks/1")
    finally:
        pa.set_memory_pool(usual)
    assert batch.rows == 1000
    assert counting.max_memory() < 3 * (64 << 20)


def test_names_of_columns_that_are_no_text_are_unreadable(tmp_path: Path) -> None:
    file = tmp_path / "a.parquet"
    table = pa.table({"id": [1], "name": ["tea"], "wrong": [1]})
    parquet.write_table(table, file, store_schema=False)
    file.write_bytes(file.read_bytes().replace(b"wrong", b"wr\xff\xfeg"))
    with pytest.raises(UnreadableChunk):
        ingest(no_spark, selling(), "sales", str(file), str(tmp_path / "root"), "chunks/1")

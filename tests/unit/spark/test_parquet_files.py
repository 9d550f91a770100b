"""Facts about files, read without Spark."""

import gzip
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet

from tidegate.spark.ingest.layouts import Layout, layout_of
from tidegate.spark.ingest.parquet_files import csv_header, size, stored_parquet


def test_parquet_files_are_found_below_a_folder_given_as_path_or_uri(tmp_path: Path) -> None:
    inside = tmp_path / "shard=1"
    inside.mkdir()
    for name in ("b", "a"):
        pa.parquet.write_table(pa.table({"n": [1, 2]}), inside / f"{name}.parquet")
    (inside / "_SUCCESS").touch()
    for root in (str(tmp_path), f"file://{tmp_path}/"):
        found = stored_parquet(root, "shard=1")
        assert [(it.path, it.rows) for it in found] == [
            ("shard=1/a.parquet", 2),
            ("shard=1/b.parquet", 2),
        ]
    assert stored_parquet(str(tmp_path), "nowhere") == []


def test_a_header_is_read_without_its_byte_order_mark_and_from_compressed_files(
    tmp_path: Path,
) -> None:
    plain, packed = tmp_path / "a.csv", tmp_path / "a.csv.gz"
    plain.write_text('\ufeffid,"full, name", x\n1,2,3\n', encoding="utf-8")
    packed.write_bytes(gzip.compress(b"id,x\n1,2\n"))
    empty = tmp_path / "b.csv"
    empty.touch()
    assert csv_header(str(plain)) == ("id", "full, name", "x")
    assert csv_header(str(packed)) == ("id", "x")
    assert csv_header(str(empty)) == ()
    assert (size(str(empty)), size(str(packed)) > 0) == (0, True)


def test_the_layout_of_a_parquet_file_has_the_columns_that_are_floats(tmp_path: Path) -> None:
    file = tmp_path / "a.parquet"
    pa.parquet.write_table(pa.table({"ID": [1.0], "n": [1]}), file)
    assert layout_of(str(file)) == Layout("parquet", ("ID", "n"), frozenset({"id"}))

"""When a scan fails, the value to blame is named with its file, column and line."""

import gzip
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet
import pytest

from tidegate.errors import BadValue
from tidegate.pipeline.nodes import SourceField
from tidegate.spark import Session
from tidegate.spark.analyze.schemas import empty_source
from tidegate.spark.ingest.locate_bad_value import find_bad_value
from tidegate.spark.ingest.parquet_files import csv_line

FIELDS = (
    SourceField("id", "bigint"),
    SourceField("name", "string"),
    SourceField("amount", "decimal(6,2)"),
)
GOOD = "name,id,amount\ntea,12.0, 1.5 \n,,\n"


def found(spark: Session, *files: Path) -> BadValue | None:
    schema = empty_source(spark, FIELDS).schema
    return find_bad_value(spark, "sales", schema, [str(file) for file in files])


def written(file: Path, text: str) -> Path:
    file.write_text(text, encoding="utf-8")
    return file


@pytest.mark.parametrize(
    ("line", "column", "value", "kind"),
    [
        ('"a, b",12.5,1', "id", "12.5", "bigint"),
        ("tea,1,123456.00", "amount", "123456.00", "decimal(6,2)"),
    ],
)
def test_a_value_in_one_of_many_csv_files_is_named_with_its_line(
    spark: Session, tmp_path: Path, line: str, column: str, value: str, kind: str
) -> None:
    good = written(tmp_path / "good.csv", GOOD)
    bad = written(tmp_path / "to day%20.csv", f"{GOOD}{line}\ntea,1,1\n")
    error = found(spark, good, bad)
    assert error is not None
    assert (error.source, error.file, error.line) == ("sales", str(bad), 4)
    assert (error.column, error.value, error.type) == (column, value, kind)


def test_a_fraction_in_an_id_of_parquet_is_named_without_a_line(
    spark: Session, tmp_path: Path
) -> None:
    file = tmp_path / "a.parquet"
    amounts = pa.nulls(3, pa.decimal128(6, 2))
    table = pa.table({"id": [12.0, None, 12.5], "name": ["tea"] * 3, "amount": amounts})
    pa.parquet.write_table(table, file)
    error = found(spark, file)
    assert error is not None
    assert (error.file, error.column, error.value, error.line) == (str(file), "id", "12.5", None)


def test_good_values_and_lines_that_cannot_be_split_blame_nothing(
    spark: Session, tmp_path: Path
) -> None:
    assert found(spark, written(tmp_path / "good.csv", GOOD)) is None
    assert found(spark, written(tmp_path / "short.csv", f"{GOOD}tea,1\n")) is None


def test_a_long_value_is_shortened(spark: Session, tmp_path: Path) -> None:
    error = found(spark, written(tmp_path / "a.csv", f"{GOOD}tea,{'x' * 500},1\n"))
    assert error is not None
    assert (len(error.value), error.line) == (80, 4)


def test_lines_are_counted_in_compressed_files_and_past_empty_ones(tmp_path: Path) -> None:
    file = tmp_path / "a.csv.gz"
    file.write_bytes(gzip.compress(b'\xef\xbb\xbfx,y\r\n\r\n"1, ""2",3\r\n4,x\r\n'))
    assert csv_line(str(file), 0, '1, "2') == 3
    assert csv_line(str(file), 1, "x") == 4
    assert csv_line(str(file), 1, "y") is None, "that is the header"


def test_a_line_with_a_huge_field_is_counted_and_not_searched(tmp_path: Path) -> None:
    file = written(tmp_path / "a.csv", f"x,y\n{'x' * 200_000},3\n4,x\n")
    assert csv_line(str(file), 1, "x") == 3
    assert csv_line(str(file), 1, "3") is None

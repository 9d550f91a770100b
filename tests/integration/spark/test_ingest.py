"""Chunks that only Spark can read are copied by it, and all copies have the declared types."""

from __future__ import annotations

from datetime import date, datetime
from decimal import Decimal
from pathlib import Path

import pyarrow as pa
import pytest
from pyarrow import parquet

import tidegate as tg
from tests.integration.spark.rows import content
from tidegate.dataflow import Batch
from tidegate.errors import BadLine, BadValue, UnreadableChunk, WrongColumnType
from tidegate.spark import Session, ingest
from tidegate.spark.analyze.schemas import empty_source
from tidegate.spark.jobs.exchange import read

BEGINNING = "chunks/run=7/to=1/sales/3-a"
SCHEMA = "id bigint, amount decimal(6,2), day date, at timestamp_ntz, moment timestamp, name string"
HEADER = "id,amount,day,at,moment,name\n"
OLD = "12.0,1.5,0099-12-31,0099-12-31 23:59:59.000001,1582-10-10 00:00:00,tea"
DOUBTFUL = "+7,1.499,2024-2-9,2024-2-9 6:00,2024-3-1 6:00:00,"


@pytest.fixture
def shop() -> tg.Pipeline:
    return selling(SCHEMA)


def selling(schema: str) -> tg.Pipeline:
    pipeline = tg.Pipeline("shop")
    pipeline.source("sales", schema).select("id").sink("ids")
    return pipeline


def csv(folder: Path, *lines: str, header: str = HEADER) -> Path:
    file = folder / "to day.csv"
    file.write_text(header + "".join(line + "\n" for line in lines), encoding="utf-8")
    return file


def taken(spark: Session, pipeline: tg.Pipeline, file: Path, root: Path) -> Batch:
    return ingest(lambda: spark, pipeline, "sales", str(file), str(root), BEGINNING)


def rows_of(
    spark: Session, pipeline: tg.Pipeline, batch: Batch, root: Path
) -> list[tuple[object, ...]]:
    schema = empty_source(spark, pipeline.sources["sales"].schema).schema
    return content(read(spark, str(root), [batch], schema))


def files_below(root: Path) -> list[str]:
    return sorted(str(path.relative_to(root)) for path in root.rglob("*") if path.is_file())


def test_a_copy_made_without_spark_is_read_by_spark_to_the_microsecond(
    spark: Session, shop: tg.Pipeline, tmp_path: Path
) -> None:
    batch = taken(spark, shop, csv(tmp_path, OLD, ",,,,,"), tmp_path / "root")
    assert batch.files == (f"{BEGINNING}.parquet",)
    day, at = date(99, 12, 31), datetime(99, 12, 31, 23, 59, 59, 1)  # noqa: DTZ001
    (row, empty) = rows_of(spark, shop, batch, tmp_path / "root")
    assert row[:4] == (12, Decimal("1.50"), day, at)
    assert row[5] == "tea"
    assert empty == (None,) * 6


@pytest.mark.parametrize("name", ["_1.csv", ".1.csv"])
def test_a_file_that_spark_does_not_see_is_refused_and_not_taken_for_an_empty_one(
    name: str, spark: Session, shop: tg.Pipeline, tmp_path: Path
) -> None:
    file = csv(tmp_path, DOUBTFUL).rename(tmp_path / name)
    with pytest.raises(UnreadableChunk, match="start with"):
        taken(spark, shop, file, tmp_path / "root")


def test_a_copy_made_by_spark_has_the_same_shape_and_nothing_beside_it(
    spark: Session, shop: tg.Pipeline, tmp_path: Path
) -> None:
    batch = taken(spark, shop, csv(tmp_path, DOUBTFUL), tmp_path / "root")
    assert batch.files == (f"{BEGINNING}-0.parquet",)
    assert files_below(tmp_path / "root") == list(batch.files)
    assert (batch.rows, batch.bytes) == (1, (tmp_path / "root" / batch.files[0]).stat().st_size)
    (row,) = rows_of(spark, shop, batch, tmp_path / "root")
    at = datetime(2024, 2, 9, 6)  # noqa: DTZ001
    assert row[:4] == (7, Decimal("1.50"), date(2024, 2, 9), at)


@pytest.mark.parametrize(
    ("line", "column", "value"),
    [
        ("12.5,1,,,,", "id", "12.5"),
        ("0x1F,1,,,,", "id", "0x1F"),
        ("1,12345.00,,,,", "amount", "12345.00"),
        ("1,1,2023-02-29,,,", "day", "2023-02-29"),
    ],
)
def test_a_value_that_is_not_of_its_type_is_refused_with_line_and_column(
    spark: Session, shop: tg.Pipeline, tmp_path: Path, line: str, column: str, value: str
) -> None:
    file = csv(tmp_path, OLD, line, OLD)
    with pytest.raises(BadValue) as refused:
        taken(spark, shop, file, tmp_path / "root")
    error = refused.value
    assert (error.file, error.line, error.column, error.value) == (str(file), 3, column, value)
    assert files_below(tmp_path / "root") == []


@pytest.mark.parametrize("line", ["1,2", f"{OLD},7"])
def test_a_line_with_too_few_or_too_many_fields_is_refused_with_its_number(
    spark: Session, shop: tg.Pipeline, tmp_path: Path, line: str
) -> None:
    with pytest.raises(BadLine) as refused:
        taken(spark, shop, csv(tmp_path, OLD, "", line), tmp_path / "root")
    assert (refused.value.line, refused.value.columns) == (4, 6)
    assert files_below(tmp_path / "root") == []


def test_parquet_of_another_type_is_refused_with_both_types_if_spark_does_not_widen_it(
    spark: Session, tmp_path: Path
) -> None:
    file = tmp_path / "a.parquet"
    parquet.write_table(pa.table({"id": pa.array([7], pa.int32())}), file)
    batch = taken(spark, selling("id double"), file, tmp_path / "root")
    assert rows_of(spark, selling("id double"), batch, tmp_path / "root") == [(7.0,)]
    with pytest.raises(WrongColumnType) as refused:
        taken(spark, selling("id boolean"), file, tmp_path / "other")
    assert (refused.value.found, refused.value.declared) == ("int32", "boolean")
    assert files_below(tmp_path / "other") == []


def test_types_that_only_spark_knows_are_copied_by_spark(spark: Session, tmp_path: Path) -> None:
    pipeline = selling("id array<int>")
    file = tmp_path / "a.parquet"
    parquet.write_table(pa.table({"id": pa.array([[1, 2]], pa.list_(pa.int32()))}), file)
    batch = taken(spark, pipeline, file, tmp_path / "root")
    assert rows_of(spark, pipeline, batch, tmp_path / "root") == [([1, 2],)]
    content = file.read_bytes()
    file.write_bytes(content[:4] + b"\xff" * 20 + content[24:])
    with pytest.raises(UnreadableChunk):
        taken(spark, pipeline, file, tmp_path / "other")

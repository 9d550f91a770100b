"""What clients deliver is read by column name; what cannot be read raises."""

from datetime import date, datetime
from decimal import Decimal
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet
import pytest

from tests.integration.spark.rows import content
from tidegate.errors import MissingColumns, UnknownFormat
from tidegate.pipeline.nodes import SourceField
from tidegate.spark import Session
from tidegate.spark.analyze.schemas import empty_source
from tidegate.spark.ingest.readers import read_chunks
from tidegate.spark.jobs.spark_errors import SPARK_ERRORS, cause_of

FIELDS = (
    SourceField("id", "bigint"), SourceField("name", "string"),
    SourceField("amount", "decimal(10,2)"), SourceField("ok", "boolean"),
    SourceField("day", "date"), SourceField("at", "timestamp_ntz"),
)  # fmt: skip
HEADER = "at,name,extra,id,amount,ok,day\n"


def read(spark: Session, *files: Path) -> list[tuple[object, ...]]:
    schema = empty_source(spark, FIELDS).schema
    return content(read_chunks(spark, "sales", schema, [str(file) for file in files]))


def csv(folder: Path, *lines: str, name: str = "a.csv", header: str = HEADER) -> Path:
    file = folder / name
    file.write_text(header + "".join(line + "\n" for line in lines), encoding="utf-8")
    return file


def test_csv_is_read_by_header_names_with_floats_as_ids_and_empty_fields_as_nulls(
    spark: Session, tmp_path: Path
) -> None:
    first = csv(
        tmp_path,
        '2024-03-01 06:00:00,"Tea, ""green""",x,12.0,7.5,True,2024-02-29',
        ",,,,,,",
        "2024-03-01 06:00:00, milk ,x, 7.00 ,.5,0,2024-02-29",
    )
    other = csv(tmp_path, "9,rye,-3", name="b.csv", header="\ufeffid,Name,amount,ok,day,at\n")
    other.write_text("\ufeffid,Name,amount,ok,day,at\n9,rye,-3,,,\n", encoding="utf-8")
    moment, day = datetime(2024, 3, 1, 6), date(2024, 2, 29)  # noqa: DTZ001 - shop time
    assert read(spark, first, other) == sorted(
        [
            (12, 'Tea, "green"', Decimal("7.50"), True, day, moment),
            (None,) * 6,
            (7, " milk ", Decimal("0.50"), False, day, moment),
            (9, "rye", Decimal("-3.00"), None, None, None),
        ],
        key=repr,
    )


@pytest.mark.parametrize(
    ("line", "condition"),
    [
        ("2024-03-01 06:00:00,tea,x,12.5,1,true,2024-01-01", "CAST_INVALID_INPUT"),
        ("2024-03-01 06:00:00,tea,x,twelve,1,true,2024-01-01", "CAST_INVALID_INPUT"),
        ("2024-13-01 06:00:00,tea,x,1,1,true,2024-01-01", "CAST_INVALID_INPUT"),
        ("2024-03-01 06:00:00,tea,x,1,123456789.00,true,2024-01-01", "NUMERIC_VALUE_OUT_OF_RANGE"),
        ("2024-03-01 06:00:00,tea,x,1", "MALFORMED_CSV_RECORD"),
    ],
)
def test_a_value_or_line_that_cannot_be_read_raises_and_never_becomes_null(
    spark: Session, tmp_path: Path, line: str, condition: str
) -> None:
    with pytest.raises(SPARK_ERRORS) as raised:
        read(spark, csv(tmp_path, line))
    assert cause_of(raised.value).condition.startswith(condition)


def test_a_missing_column_is_named_before_anything_runs(spark: Session, tmp_path: Path) -> None:
    file = csv(tmp_path, "1,2", header="id,amount\n")
    with pytest.raises(MissingColumns) as raised:
        read(spark, file)
    assert raised.value.missing == ("name", "ok", "day", "at")
    assert raised.value.found == ("id", "amount")
    parquet = tmp_path / "c.parquet"
    pa.parquet.write_table(pa.table({"id": [1]}), parquet)
    with pytest.raises(MissingColumns):
        read(spark, parquet)


def test_a_file_of_another_kind_is_refused(spark: Session, tmp_path: Path) -> None:
    with pytest.raises(UnknownFormat):
        read(spark, csv(tmp_path, name="a.xlsx"))


def parquet(folder: Path, ids: pa.Array) -> Path:
    nothing = {"amount": pa.decimal128(9, 1), "ok": pa.bool_(), "day": pa.date32()}
    file = folder / "d.parquet"
    columns = {name: pa.nulls(len(ids), kind) for name, kind in nothing.items()}
    moments = pa.nulls(len(ids), pa.timestamp("us"))
    names = pa.array(["tea"] * len(ids))
    pa.parquet.write_table(pa.table({"at": moments, "id": ids, "name": names, **columns}), file)
    return file


def test_parquet_may_store_ids_as_floats_unless_they_have_a_fraction(
    spark: Session, tmp_path: Path
) -> None:
    rest = ("tea", None, None, None, None)
    assert read(spark, parquet(tmp_path, pa.array([12.0, None]))) == [(12, *rest), (None, *rest)]
    with pytest.raises(SPARK_ERRORS, match=r"not a whole number: 12\.5"):
        read(spark, parquet(tmp_path, pa.array([12.5])))


def test_no_files_give_no_rows_with_all_columns(spark: Session) -> None:
    assert read(spark) == []

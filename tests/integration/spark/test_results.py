"""Results as CSV: small ones are written without Spark, in the bytes that Spark writes."""

from pathlib import Path

import pytest
from pyspark.sql import DataFrame

from tests.integration.spark.execution import save
from tidegate.dataflow import Batch
from tidegate.spark import Session, write_csv
from tidegate.spark.results.csv_result import small_lines, write_csv_by_spark

NASTY = """
    ('plain', 1L, 12.50BD, date'2024-02-29', timestamp_ntz'2024-01-01 06:00:00', true),
    ('a, b', -1L, -0.01BD, date'0001-01-01', timestamp_ntz'2024-01-01 06:00:00.123456', false),
    ('say "hi"', 9223372036854775807L, 0.00BD, date'9999-12-31', timestamp_ntz'1899-12-31', true),
    ('"', 0L, 9999999999.99BD, null, timestamp_ntz'0001-01-01 00:00:00.001', null),
    ('', 0L, null, date'1970-01-01', null, null),
    (null, null, null, null, null, null),
    ('it\\'s; a|b\\\\c', 2L, 1.00BD, date'2024-01-01', timestamp_ntz'9999-12-31 23:59:59', true),
    ('1#', 3L, 1.00BD, date'2024-01-01', timestamp_ntz'2024-01-01', true),
    ('ähm', 3L, 1.00BD, date'2024-01-01', timestamp_ntz'2024-01-01', true),
    ('\U0001f375 tea', 3L, 1.00BD, date'2024-01-01', timestamp_ntz'2024-01-01', true),
    ('Z', 3L, 1.00BD, date'2024-01-01', timestamp_ntz'2024-01-01', true),
    ('NULL', 3L, 1.00BD, date'2024-01-01', timestamp_ntz'2024-01-01', true),
    ('-1', 3L, 1.00BD, date'2024-01-01', timestamp_ntz'2024-01-01', true)
"""


def nasty(spark: Session) -> DataFrame:
    rows = spark.sql(f"select * from values {NASTY} as t(name, n, paid, day, at, ok)")
    return rows.selectExpr(
        "name", "n", "cast(paid as decimal(12,2)) paid", "day", "at", "ok",
        "cast(n % 100 as tinyint) t", "cast(n % 100 as smallint) s", "cast(n % 100 as int) i",
        "cast(paid as decimal(38,2)) wide", "cast(n % 10 as decimal(20,9)) * 0.0000001BD small",
    )  # fmt: skip


def both_ways(spark: Session, rows: DataFrame, folder: Path) -> tuple[bytes, bytes]:
    batch = save(rows, str(folder), "rows")
    ours, sparks = folder / "ours.csv", folder / "sparks.csv"
    write_csv(spark, str(folder), [batch], rows.schema, ours)
    write_csv_by_spark(spark, str(folder), [batch], rows.schema, sparks)
    return ours.read_bytes(), sparks.read_bytes()


def test_a_small_result_has_the_bytes_that_spark_writes(spark: Session, tmp_path: Path) -> None:
    rows = nasty(spark)
    ours, sparks = both_ways(spark, rows, tmp_path)
    assert ours.decode().splitlines() == sparks.decode().splitlines()
    assert ours == sparks
    assert small_lines(str(tmp_path), [save(rows, str(tmp_path), "again")], rows.schema) is not None


def test_a_result_is_readable_as_its_user_s_other_files_are(spark: Session, tmp_path: Path) -> None:
    both_ways(spark, nasty(spark), tmp_path)
    (tmp_path / "other").touch()
    names = ("other", "ours.csv", "sparks.csv")
    assert len({(tmp_path / name).stat().st_mode for name in names}) == 1


@pytest.mark.parametrize(
    "sql",
    [
        "select 1e10D x, 1 n",
        "select timestamp'2024-01-01' at, 1 n",
        "select 1 `first, second`, 2 n",
    ],
)
def test_what_spark_writes_by_rules_of_its_own_is_left_to_it(
    spark: Session, tmp_path: Path, sql: str
) -> None:
    rows = spark.sql(sql)
    batch = save(rows, str(tmp_path), "rows")
    assert small_lines(str(tmp_path), [batch], rows.schema) is None


def test_no_rows_give_a_header(spark: Session, tmp_path: Path) -> None:
    path = tmp_path / "out" / "q.csv"
    write_csv(spark, str(tmp_path), [Batch((), 0)], nasty(spark).schema, path)
    assert path.read_text() == "name,n,paid,day,at,ok,t,s,i,wide,small\n"
    assert [it.name for it in path.parent.iterdir()] == ["q.csv"]

"""Result files are exactly the rows: written by both writers, and read back by other readers."""

from __future__ import annotations

import csv
import os
from collections.abc import Sequence
from datetime import UTC, datetime
from pathlib import Path

import pyarrow as pa
import pytest
from hypothesis import HealthCheck, Phase, given, settings
from hypothesis import strategies as st
from pyarrow import csv as arrow_csv
from pyspark.sql import DataFrame

from tests.integration.spark.execution import save
from tests.integration.spark.rows import frame
from tidegate.dataflow import Batch
from tidegate.spark import Session, write_csv
from tidegate.spark.results.csv_result import small_lines, write_csv_by_spark

Text = str | None
Rows = list[tuple[Text, ...]]

# Hypothesis only gathers here: one job of Spark writes all rows.
gathering = settings(
    max_examples=int(os.environ.get("TIDEGATE_VALUES", "400")),
    database=None,
    suppress_health_check=list(HealthCheck),
    phases=(Phase.generate,),
)

AWKWARD = st.sampled_from(
    [" ", "\t", '"', '""', ",", "\n", "\r", "\r\n", "\\", "#", "\x00", "\ufeff", "\u2028", "\x85",
     "\u00a0", "'", ";", "NULL", "é", "😀", "\U0010ffff", "\ud7ff", "\x7f", "\\n", "x"]
)  # fmt: skip
TEXT = st.lists(AWKWARD, max_size=5).map("".join) | st.text(
    st.characters(codec="utf-8"), max_size=8
)
FIELD = st.none() | TEXT


def gathered(columns: int) -> Rows:
    found: dict[tuple[Text, ...], None] = {(None,) * columns: None, ("",) * columns: None}

    @gathering
    @given(st.lists(st.tuples(*[FIELD] * columns), max_size=3))
    def move_files(rows: Rows) -> None:
        found.update(dict.fromkeys(rows))

    move_files()
    return list(found)


def texts(columns: int) -> pa.Schema:
    return pa.schema([(f"c{at}", pa.string()) for at in range(columns)])


def written(session: Session, rows: DataFrame, folder: Path) -> tuple[Path, Path]:
    """The file of the Python writer, and that of Spark."""
    batch = save(rows, str(folder), "rows")
    assert small_lines(str(folder), [batch], rows.schema) is not None
    ours, sparks = folder / "ours.csv", folder / "sparks.csv"
    write_csv(session, str(folder), [batch], rows.schema, ours)
    write_csv_by_spark(session, str(folder), [batch], rows.schema, sparks)
    return ours, sparks


def ordered(rows: Rows) -> Rows:
    return sorted(rows, key=lambda row: [(value is not None, value or "") for value in row])


def by_arrow(file: Path, schema: pa.Schema) -> Rows:
    """Told apart: an empty field is null, and a quoted one is empty text."""
    table = arrow_csv.read_csv(
        file,
        arrow_csv.ReadOptions(block_size=64 << 20, use_threads=False),
        arrow_csv.ParseOptions(newlines_in_values=True, ignore_empty_lines=False),
        arrow_csv.ConvertOptions(
            column_types=schema,
            null_values=[""],
            strings_can_be_null=True,
            quoted_strings_can_be_null=False,
        ),
    )
    return list(zip(*(column.to_pylist() for column in table.columns), strict=True))


def by_python(file: Path) -> list[list[str]]:
    with file.open(encoding="utf-8", newline="") as lines:
        return list(csv.reader(lines))[1:]


@pytest.mark.parametrize("columns", [1, 3])
def test_any_text_is_written_alike_by_both_writers_and_read_back_as_it_was(
    columns: int, spark: Session, tmp_path: Path
) -> None:
    wanted = ordered(gathered(columns))
    ours, sparks = written(spark, frame(spark, texts(columns), wanted), tmp_path)
    assert ours.read_bytes().split(b"\n") == sparks.read_bytes().split(b"\n")
    assert by_python(sparks) == [_fields(row) for row in wanted]
    assert by_arrow(sparks, texts(columns)) == wanted


def _fields(row: Sequence[Text]) -> list[str]:
    """As Python reads them: nulls are empty, and an empty line has no fields."""
    return [] if row == (None,) else [value or "" for value in row]


def test_spaces_about_a_text_stay_whichever_writer_it_was(spark: Session, tmp_path: Path) -> None:
    rows = frame(spark, texts(2), [(" a ", " "), ("\tb\n", "")])
    for file in written(spark, rows, tmp_path):
        assert file.read_bytes() == b'c0,c1\n"\tb\n",""\n a , \n'


def test_a_single_null_is_a_line_of_its_own(spark: Session, tmp_path: Path) -> None:
    rows = spark.sql("select * from values (1), (null), (null) as t(n)")
    for file in written(spark, rows, tmp_path):
        assert file.read_bytes() == b"n\n\n\n1\n"


def test_moments_are_written_to_the_microsecond(spark: Session, tmp_path: Path) -> None:
    schema = pa.schema({"at": pa.timestamp("us", "UTC"), "moment": pa.timestamp("us", "UTC")})
    wanted = [
        datetime(1, 1, 1, 0, 0, 0, 1, UTC),
        datetime(1969, 12, 31, 23, 59, 59, 999_999, UTC),
        datetime(2024, 3, 1, 6, tzinfo=UTC),
        datetime(2024, 3, 1, 6, 0, 0, 120_000, UTC),
        datetime(9999, 12, 31, 23, 59, 59, 123_456, UTC),
    ]
    zoned = frame(spark, schema, [(it, it) for it in wanted])
    rows = zoned.selectExpr("cast(at as timestamp_ntz) at", "moment")
    file = tmp_path / "sparks.csv"
    batch = save(rows, str(tmp_path), "rows")
    write_csv_by_spark(spark, str(tmp_path), [batch], rows.schema, file)
    found = by_python(file)
    assert [datetime.fromisoformat(at) for at, _ in found] == [
        it.replace(tzinfo=None) for it in wanted
    ]
    assert [datetime.fromisoformat(moment) for _, moment in found] == wanted
    assert found[2] == ["2024-03-01T06:00:00.000", "2024-03-01T06:00:00.000Z"]
    ours, sparks = written(spark, rows.select("at"), tmp_path)
    assert ours.read_bytes() == sparks.read_bytes()


def test_numbers_are_read_back_to_the_last_bit(spark: Session, tmp_path: Path) -> None:
    values = [-0.0, 0.1, 1e300, 5e-324, 1 / 3, float("inf"), float("-inf"), 123456789.123456789]
    rows = frame(spark, pa.schema({"n": pa.int64(), "x": pa.float64()}), list(enumerate(values)))
    file = tmp_path / "sparks.csv"
    batch = save(rows, str(tmp_path), "rows")
    write_csv(spark, str(tmp_path), [batch], rows.schema, file)
    assert [repr(float(x)) for _, x in by_python(file)] == [repr(x) for x in values]


def test_names_of_columns_follow_the_rules_of_text(spark: Session, tmp_path: Path) -> None:
    rows = spark.sql('select 1 `# a`, 2 `b"c`, 3 ` d,e `, 4 `#f`')
    by_spark, header = tmp_path / "sparks.csv", tmp_path / "header.csv"
    batch = save(rows, str(tmp_path), "rows")
    write_csv(spark, str(tmp_path), [batch], rows.schema, by_spark)
    write_csv(spark, str(tmp_path), [Batch((), 0)], rows.schema, header)
    assert by_spark.read_bytes() == header.read_bytes() + b"1,2,3,4\n"
    assert header.read_bytes() == b'"# a","b""c"," d,e ",#f\n'

"""Whatever is read without Spark, Spark reads in the same way; what Spark refuses is not taken.

Values and lines are tried one by one without Spark. All that were taken are read by one Spark job,
which must neither fail nor see anything else.
"""

from __future__ import annotations

import os
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from urllib.parse import unquote

import pyarrow as pa
import pytest
from hypothesis import HealthCheck, Phase, given, settings
from hypothesis import strategies as st
from pyspark.sql import functions as fn

from tidegate.pipeline.nodes import SourceField
from tidegate.spark import Session
from tidegate.spark.analyze.schemas import empty_source
from tidegate.spark.ingest.arrow_types import arrow_schema
from tidegate.spark.ingest.csv_reader import ArrowCsvReader, SparkRequired
from tidegate.spark.ingest.layouts import layout_of
from tidegate.spark.ingest.locate_bad_value import find_bad_value
from tidegate.spark.ingest.readers import read_chunks

Text = st.SearchStrategy[str]
HEADER = b"value,more\n"

# Hypothesis only gathers here. What is wrong shows in the Spark job over all that was gathered.
gathering = settings(
    max_examples=int(os.environ.get("TIDEGATE_VALUES", "400")),
    database=None,
    suppress_health_check=list(HealthCheck),
    phases=(Phase.generate,),
)


def gathered(strategy: Text) -> list[str]:
    """Many texts of a strategy."""
    texts: dict[str, None] = {}

    @gathering
    @given(strategy)
    def move_files(text: str) -> None:
        texts[text] = None

    move_files()
    return list(texts)


# --- Nasty values ----------------------------------------------------------------------------


def around(core: Text) -> Text:
    """Whitespace and quotes about a value."""
    space = st.sampled_from(["", "", "", "", " ", "  ", "\t", "\u00a0"])
    quoted = st.tuples(space, core, space).map(lambda it: f'"{"".join(it)}"')
    return st.one_of(st.tuples(space, core, space).map("".join), quoted)


def pattern(regex: str) -> Text:
    return st.from_regex(regex, fullmatch=True)


def cased(words: Sequence[str]) -> Text:
    spelled = st.sampled_from(words)
    return st.one_of(*(spelled.map(how) for how in (str.lower, str.upper, str.title, str.swapcase)))


ODD = st.sampled_from(
    ["", '""', " ", "-", "+", ".", "-.0", ".0", "e", "NULL", "null", "None", "NaN", "-nan", "inf",
     "Infinity", "-Infinity", "0x1F", "0X1f", "0x1.0", "1_000", "\u0967", "\uff11", "\u22121",
     "1e2", "1E+2", "1.0e1", "1d", "1f", "1L", "0x1p3", '"', 'a"b', '"a""b"', '""""', '"a"b', "'1'",
     "\\", '"\\"', "é", "\ufeff1", "a,b", '"a,b"', "1\r", "\x00", "\x0b1", "\u2028", "😀", "#1"]
)  # fmt: skip
ANY = st.text(st.characters(codec="utf-8", exclude_characters="\n"), max_size=6)
DIGITS = r"[0-9]{0,22}"
WHOLE = pattern(r"[+-]?0{0,3}[0-9]{0,5}(\.0{0,3})?") | pattern(rf"[+-]?{DIGITS}(\.0)?")
EDGES = st.tuples(
    st.sampled_from((7, 15, 31, 53, 63)), st.integers(-1, 1), st.sampled_from(("{}", "-{}", "{}.0"))
).map(lambda it: it[2].format(2 ** it[0] + it[1]))
NUMBER = pattern(r"[+-]?[0-9]{0,12}(\.[0-9]{0,4})?([eE][+-]?[0-9]{1,2})?")
LONG = pattern(r"-?[0-9]{1,45}(\.[0-9]{1,45})?")
REAL = pattern(r"[+-]?[0-9]{1,20}\.[0-9]{0,25}([eE][+-]?[0-9]{1,3})?[dDfF]?")
DAY = st.one_of(
    st.dates().map(str),
    pattern(r"[+-]?[0-9]{1,5}-[0-9]{1,2}(-[0-9]{1,3})?"),
    pattern(r"(0000|0001|1582|1900|2024|2023|9999)-(02|2|10|12|13|00)-(00|01|1|05|14|29|31|32)"),
    pattern(r"[0-9]{8}"),
)
TIME = pattern(
    r"([01]?[0-9]|2[0-5])(:([0-5]?[0-9]|60)(:([0-5]?[0-9]|60)(\.[0-9]{0,10})?)?)?|[0-9]{4,6}"
)
ZONE = st.sampled_from(
    ["", "", "", "Z", "z", " Z", "+01:00", "-0330", "+1", "+01", "+25:00", "UTC", " UTC", "+00:00",
     " Europe/Madrid", "+01:60", "-19:00", "+18:00", "+18:01"]
)  # fmt: skip
MOMENT = st.tuples(DAY, st.sampled_from([" ", "T", "t", "  "]), TIME, ZONE).map("".join)

VALUES: dict[str, Text] = {
    **dict.fromkeys(("bigint", "tinyint"), WHOLE | EDGES),
    **dict.fromkeys(("decimal(10,2)", "decimal(5,5)", "decimal(38,0)", "decimal(38,18)"),
                    NUMBER | LONG),
    **dict.fromkeys(("double", "float"), NUMBER | REAL | LONG),
    "boolean": cased(["true", "false", "t", "f", "yes", "no", "y", "n", "1", "0", "on", "off"]),
    "date": DAY | MOMENT,
    **dict.fromkeys(("timestamp_ntz", "timestamp"), MOMENT | DAY),
    "string": ANY,
}  # fmt: skip


# --- Both ways -------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Reading:
    """What was taken without Spark."""

    schema: pa.Schema
    columns: tuple[str, ...]

    @classmethod
    def of_fields(cls, fields: Sequence[SourceField]) -> Reading:
        schema = arrow_schema(fields)
        assert schema is not None
        return cls(schema, tuple(field.name for field in fields))

    def of(self, content: bytes) -> pa.Table | None:
        """The rows; None if Spark has to decide."""
        try:
            tables = list(ArrowCsvReader(self.columns, self.schema).read([content]))
        except SparkRequired:
            return None
        return pa.concat_tables([self.schema.empty_table(), *tables])


def by_spark(spark: Session, fields: Sequence[SourceField], files: Iterable[Path]) -> pa.Table:
    """What Spark reads, with the names of the files. Names the value that it refuses."""
    schema, paths = empty_source(spark, fields).schema, [str(file) for file in files]
    try:
        rows = read_chunks(spark, "sales", schema, paths)
        return rows.withColumn("file", fn.input_file_name()).toArrow()
    except Exception as error:
        bad = find_bad_value(spark, "sales", schema, paths)
        raise AssertionError(f"taken without Spark, refused by Spark: {bad or error}") from error


def bits(table: pa.Table) -> list[list[object]]:
    """Values that are equal only if they are the same: also zeros with a sign, and year 0."""
    return [_bits(column.combine_chunks()) for column in table.columns]


def _bits(values: pa.Array) -> list[object]:
    width = {pa.float32(): pa.int32(), pa.float64(): pa.int64(), pa.date32(): pa.int32()}
    kind = pa.int64() if pa.types.is_timestamp(values.type) else width.get(values.type)
    return list((values.view(kind) if kind else values).to_pylist())


# --- Values, one to a line -------------------------------------------------------------------


@pytest.mark.parametrize("declared", VALUES)
def test_a_value_that_is_read_without_spark_is_the_same_to_spark(
    spark: Session, declared: str, tmp_path: Path
) -> None:
    fields = (SourceField("value", declared), SourceField("more", "string"))
    reading = Reading.of_fields(fields)
    values = gathered(around(VALUES[declared]) | VALUES[declared] | ODD | ANY | around(ANY))
    lines = [f"{value},x\n".encode() for value in values]
    taken = {line: rows for line in lines if (rows := reading.of(HEADER + line)) is not None}
    assert len(taken) > len(lines) / 50, "or nothing was tried"
    file = tmp_path / "a.csv"
    file.write_bytes(HEADER + b"".join(taken))
    found = by_spark(spark, fields, [file]).drop_columns("file")
    wanted = pa.concat_tables(taken.values())
    assert found.schema.types == wanted.schema.types
    _assert_same(list(taken), bits(found), bits(wanted))


def _assert_same(
    lines: Sequence[bytes], found: list[list[object]], wanted: list[list[object]]
) -> None:
    if found != wanted:
        rows = zip(lines, zip(*found, strict=True), zip(*wanted, strict=True), strict=False)
        differing = [row for row in rows if row[1] != row[2]]
        raise AssertionError(f"line, by Spark, without Spark: {differing[:5]}")


# --- Lines, a few to a file ------------------------------------------------------------------

FIELDS = (SourceField("a", "string"), SourceField("b", "bigint"), SourceField("c", "string"))
HEADERS = st.sampled_from(["a,b,c", '"a","b","c"', "\ufeffa,b,c", "a, b ,c", '\ufeff"a",b,c'])
CELL = st.sampled_from(
    ["", "", "x", "1", "12.0", '""', '"x"', '"x, y"', '"x""y"', '"', '""x', 'x"', '"x" ', ' "x"',
     " ", "\t", '"1"', '"""', '""""', '"\n"', "\\", "'", '"a\nb"', "\r", '"\r\n"', "é", "\ufeff"]
)  # fmt: skip
LINE = st.one_of(
    st.tuples(CELL, st.sampled_from(["", "1", "12.0", '"7"', " 7"]), CELL).map(",".join),
    st.tuples(CELL, st.sampled_from(["", "1", "12.0", '"7"', " 7"]), CELL).map(",".join),
    st.lists(CELL, max_size=5).map(",".join),
    st.sampled_from(["", " ", "\t", ",,", '"",,', "x,1,\x00", "#,1,x"]),
)
FILE = st.tuples(
    HEADERS, st.lists(LINE, max_size=3), st.sampled_from(["\n", "\r\n"]), st.booleans()
).map(lambda it: it[2].join([it[0], *it[1]]) + it[2] * it[3])


def test_a_file_that_is_read_without_spark_has_the_same_rows_to_spark(
    spark: Session, tmp_path: Path
) -> None:
    _files_agree(spark, tmp_path, FIELDS, FILE)


def test_a_file_of_one_column_has_the_same_rows_to_spark(spark: Session, tmp_path: Path) -> None:
    lines = st.lists(CELL | st.sampled_from(["  ", "1", " x ", '" "']), max_size=4)
    ends = st.sampled_from(["\n", "\r\n"])
    files = st.tuples(ends, lines, ends).map(lambda it: it[0].join(["a", *it[1]]) + it[2])
    _files_agree(spark, tmp_path, FIELDS[:1], files)


def _files_agree(
    spark: Session, folder: Path, fields: Sequence[SourceField], contents: Text
) -> None:
    texts = gathered(contents)
    taken = _taken(Reading.of_fields(fields), folder, texts)
    assert len(taken) > len(texts) / 20, "or nothing was tried"
    found = by_spark(spark, fields, taken)
    names = [Path(unquote(name)).name for name in found["file"].to_pylist()]
    for file, rows in taken.items():
        same = found.filter(pa.array([name == file.name for name in names]))
        assert (file.read_bytes(), bits(same.drop_columns("file"))) == (
            file.read_bytes(),
            bits(rows),
        )


def _taken(reading: Reading, folder: Path, texts: Sequence[str]) -> dict[Path, pa.Table]:
    taken = {}
    for number, text in enumerate(texts):
        file = folder / f"{number}.csv"
        file.write_bytes(text.encode())
        if layout_of(str(file)).columns == reading.columns:
            rows = reading.of(text.encode())
            if rows is not None:
                taken[file] = rows
    return taken

"""Quoted line breaks: Spark reads them as Python does, and the right lines are named."""

from __future__ import annotations

import csv
import io
from collections import defaultdict
from pathlib import Path
from urllib.parse import unquote

import pytest
from hypothesis import strategies as st
from pyspark.sql import functions as fn

import tidegate as tg
from tests.integration.spark.test_ingest_agrees import gathered
from tidegate.errors import BadLine, BadValue
from tidegate.pipeline.nodes import SourceField
from tidegate.spark import Session, ingest
from tidegate.spark.analyze.schemas import empty_source
from tidegate.spark.ingest.readers import read_chunks

FIELDS = (SourceField("a", "string"), SourceField("b", "string"))
PIECE = st.sampled_from(
    ["x", '"', '""', ",", "\n", "\r\n", "\r", " ", "é", "\n\n", "#", "\\", "'", "\t", "\ufeff"]
)
TEXT = st.lists(PIECE, min_size=1, max_size=6).map("".join)
ROWS = st.lists(st.tuples(TEXT, st.text("xy", min_size=1)), min_size=1, max_size=4)


def written(rows: list[tuple[str, str]], end: str) -> str:
    file = io.StringIO(newline="")
    writer = csv.writer(file, lineterminator=end, quoting=csv.QUOTE_ALL)  # else not for a lone \\r
    writer.writerows([("a", "b"), ("two\nlines", "z"), *rows])
    return file.getvalue()


FILES = st.builds(written, ROWS, st.sampled_from(["\n", "\r\n"]))


def test_spark_reads_what_python_writes(spark: Session, tmp_path: Path) -> None:
    wanted = {}
    for number, text in enumerate(gathered(FILES)[:150]):
        file = tmp_path / f"{number}.csv"
        file.write_bytes(text.encode())
        wanted[file.name] = list(csv.reader(io.StringIO(text, newline="")))[1:]
    schema = empty_source(spark, FIELDS).schema
    rows = read_chunks(spark, "sales", schema, [str(tmp_path / name) for name in wanted])
    found = defaultdict(list)
    for a, b, path in rows.withColumn("file", fn.input_file_name()).collect():
        found[Path(unquote(path)).name].append([a, b])
    for name, its in wanted.items():
        assert (name, found[name]) == (name, its)


@pytest.mark.parametrize(
    ("last", "error"), [("7.5,x", BadValue), ("7", BadLine), ('7,"x\ny",8', BadLine)]
)
def test_lines_are_counted_past_quoted_breaks(
    last: str, error: type[BadValue | BadLine], spark: Session, tmp_path: Path
) -> None:
    pipeline = tg.Pipeline("shop")
    pipeline.source("sales", "id bigint, name string").select("id").sink("ids")
    file = tmp_path / "a.csv"
    file.write_text(f'id,name\n1,"a\n\nb"\n2,"c ""d""\ne"\n{last}\n')
    with pytest.raises(error) as refused:
        ingest(lambda: spark, pipeline, "sales", str(file), str(tmp_path / "root"), "chunks/1")
    assert isinstance(refused.value, BadValue | BadLine)
    assert refused.value.line == 7

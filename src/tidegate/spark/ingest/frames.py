"""Chunks that are already rows: Spark DataFrames, Arrow tables and readers, pandas frames.

A Spark DataFrame is written by Spark, where its rows are. The others are written by this process
with the checks that a file gets.
"""

from __future__ import annotations

import hashlib
from typing import TYPE_CHECKING
from uuid import uuid4

import pyarrow as pa
from pyarrow import ipc
from pyspark.sql import DataFrame, SparkSession

from tidegate.errors import MissingColumns, UnsupportedData, WrongColumnType
from tidegate.spark.analyze.schemas import column, empty_source
from tidegate.spark.ingest.arrow_types import arrow_schema
from tidegate.spark.ingest.ingest import ingest_table
from tidegate.spark.ingest.streams import copy_rows
from tidegate.spark.session.sessions import open_session

if TYPE_CHECKING:
    from collections.abc import Sequence

    from tidegate.dataflow import Batch
    from tidegate.pipeline import Pipeline
    from tidegate.pipeline.nodes import SourceField

FRAME = "the DataFrame"
_WIDTHS = ("tinyint", "smallint", "int", "bigint")
"""Integer types, each of which holds all values of those before it."""


def as_frame(source: str, data: object) -> DataFrame | pa.Table:
    """A DataFrame of Spark, or anything else as an Arrow table; raises `UnsupportedData`."""
    if isinstance(data, DataFrame | pa.Table):
        return data
    if isinstance(data, pa.RecordBatchReader):
        return data.read_all()
    if isinstance(data, pa.RecordBatch):
        return pa.Table.from_batches([data])
    if _is_pandas(data):
        return pa.Table.from_pandas(data, preserve_index=False)
    raise UnsupportedData(source, f"{type(data).__module__}.{type(data).__qualname__}")


def collect_frame(frame: DataFrame | pa.Table) -> pa.Table:
    """The rows in this process, to be sent elsewhere."""
    return frame.toArrow() if isinstance(frame, DataFrame) else frame


def rows_from_arrow(session: SparkSession | None, table: pa.Table) -> DataFrame:
    """The rows of a table as a DataFrame, by default of the session of this process."""
    return (session or open_session()).createDataFrame(table)


def frame_digest(frame: DataFrame | pa.Table, number: int | None) -> str:
    """The SHA-256 of an Arrow table's rows.

    The rows of a DataFrame are known to Spark alone: two frames under one chunk number count as
    the same chunk, and one without a number is always a new chunk.
    """
    if isinstance(frame, DataFrame):
        text = str(uuid4()) if number is None else f"DataFrame {number}"
        return hashlib.sha256(text.encode()).hexdigest()
    hashed = _Hashed()
    with ipc.new_stream(pa.PythonFile(hashed, mode="w"), frame.schema) as writer:
        writer.write_table(frame.combine_chunks())
    return hashed.sha256.hexdigest()


def copy_frame(
    pipeline: Pipeline, source: str, frame: DataFrame | pa.Table, root: str, beginning: str
) -> Batch:
    """Copy the declared columns to files below `root` whose names start with `beginning`.

    Raises `MissingColumns`, `WrongColumnType`, `BadValue`.
    """
    fields = pipeline.sources[source].schema
    if isinstance(frame, DataFrame):
        return copy_rows(fields, _declared(source, fields, frame), root, beginning)
    return ingest_table(pipeline, source, _in_utc(fields, frame), root, beginning)


def _declared(source: str, fields: Sequence[SourceField], rows: DataFrame) -> DataFrame:
    """The declared columns; a declared type must hold every value of the type found."""
    if rows.isStreaming:
        raise UnsupportedData(source, "a streaming DataFrame; use follow() for a stream")
    found = {it.name.casefold(): it.dataType.simpleString() for it in rows.schema}
    missing = tuple(it.name for it in fields if it.name.casefold() not in found)
    if missing:
        raise MissingColumns(source, FRAME, missing, tuple(rows.columns))
    declared = empty_source(rows.sparkSession, fields).schema
    for field in declared:
        kind = found[field.name.casefold()]
        if not _holds(field.dataType.simpleString(), kind):
            raise WrongColumnType(source, FRAME, field.name, kind, field.dataType.simpleString())
    return rows.select(*(column(it.name).cast(it.dataType).alias(it.name) for it in declared))


def _holds(declared: str, found: str) -> bool:
    """Whether each value of one type is a value of the other.

    >>> _holds("bigint", "int"), _holds("int", "bigint"), _holds("decimal(12,2)", "decimal(10,2)")
    (True, False, True)
    """
    if declared == found or (declared, found) == ("double", "float") or found == "void":
        return True
    if declared in _WIDTHS and found in _WIDTHS:
        return _WIDTHS.index(found) <= _WIDTHS.index(declared)
    if declared.startswith("decimal(") and found.startswith("decimal("):
        (digits, scale), (fewer, less) = _decimal(declared), _decimal(found)
        return scale >= less and digits - scale >= fewer - less
    return False


def _decimal(kind: str) -> tuple[int, int]:
    digits, scale = kind.removeprefix("decimal(").removesuffix(")").split(",")
    return int(digits), int(scale)


def _in_utc(fields: Sequence[SourceField], table: pa.Table) -> pa.Table:
    """Timestamps without a zone, as pandas has them, are UTC where the source declares a zone."""
    schema = arrow_schema(fields)
    zoned = {it.name.casefold() for it in schema or () if getattr(it.type, "tz", None)}
    for place, field in enumerate(table.schema):
        naive = pa.types.is_timestamp(field.type) and field.type.tz is None
        if naive and field.name.casefold() in zoned:
            kind = pa.timestamp(field.type.unit, "UTC")
            table = table.set_column(place, field.name, table.column(place).cast(kind))
    return table


def _is_pandas(data: object) -> bool:
    # Without importing pandas: a frame in memory shows that it is loaded.
    return any(it.__module__.startswith("pandas.") and it.__name__ == "DataFrame"
               for it in type(data).__mro__)  # fmt: skip


class _Hashed:
    """A file that keeps nothing but the digest of what is written to it."""

    closed = False

    def __init__(self) -> None:
        self.sha256 = hashlib.sha256()

    def write(self, piece: bytes) -> int:
        self.sha256.update(piece)
        return len(piece)

    def flush(self) -> None:
        """Each piece is digested when it is written."""

    def close(self) -> None:
        """Nothing is open."""

"""Comparing DataFrames, and making them from plain values."""

from collections.abc import Sequence
from typing import Any

import pyarrow as pa
from pyspark.sql import DataFrame

from tidegate.spark import Session
from tidegate.spark.analyze.schemas import listed


def frame(session: Session, schema: pa.Schema, rows: Sequence[tuple[Any, ...]]) -> DataFrame:
    """A DataFrame of rows, which go to Spark as one Arrow table."""
    columns = list(zip(*rows, strict=True)) or [()] * len(schema)
    arrays = [pa.array(values, field.type) for values, field in zip(columns, schema, strict=True)]
    return session.createDataFrame(pa.table(arrays, schema=schema))


def content(rows: DataFrame) -> list[tuple[Any, ...]]:
    """All rows in an order that does not depend on how they were computed."""
    return sorted((tuple(row) for row in rows.collect()), key=repr)


def assert_same(found: DataFrame, wanted: DataFrame) -> None:
    """Equal columns, types and rows, to the last digit."""
    assert listed(found.schema) == listed(wanted.schema)
    assert content(found) == content(wanted)

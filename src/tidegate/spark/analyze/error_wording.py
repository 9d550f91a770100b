"""The name of an operator in an error, and the part of it that Spark rejects."""

from __future__ import annotations

from typing import TYPE_CHECKING, assert_never

from pyspark.sql import functions as fn

from tidegate.pipeline.nodes import (
    STAR,
    Aggregate,
    Distinct,
    Filter,
    Join,
    Select,
    Sink,
    Source,
    Top,
    Transform,
    Union,
)
from tidegate.spark.jobs.spark_errors import SPARK_ERRORS

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from pyspark.sql import DataFrame

    from tidegate.pipeline.nodes import Operator


def kind_of(operator: Operator) -> str:
    """The name of the operator's method."""
    return type(operator).__name__.lower()


def rejected_part(operator: Operator, inputs: Sequence[DataFrame]) -> str:
    """The first part of the operator that Spark rejects by itself, or all parts."""
    parts = list(_parts(operator))
    for part in parts if len(inputs) == 1 else ():
        if not _is_accepted(part, inputs[0]):
            return part
    return ", ".join(parts)


def _parts(operator: Operator) -> Iterator[str]:  # noqa: C901  one case per operator
    """The SQL of an operator in parts; names where it has no SQL."""
    match operator:
        case Source():
            yield from (f"{field.name} {field.type}" for field in operator.schema)
        case Filter():
            yield operator.condition
        case Select():
            yield from (it.sql for it in operator.columns if it.name != STAR)
        case Aggregate():
            yield from (*operator.by, *(it.sql for it in operator.columns))
        case Top():
            yield from (*operator.per, *(order.sql for order in operator.by))
        case Join():
            yield from operator.on
        case Transform(function=function):
            yield getattr(function, "__qualname__", repr(function))
        case Distinct():
            yield STAR
        case Union() | Sink():
            return
        case _:
            assert_never(operator)


def _is_accepted(sql: str, rows: DataFrame) -> bool:
    try:
        rows.select(fn.expr(sql)).schema  # noqa: B018  over Connect, reading the schema analyzes it
    except SPARK_ERRORS:
        return False
    return True

"""Logical operators as DataFrame functions: each computed at once by plain Spark."""

from __future__ import annotations

from typing import TYPE_CHECKING, assert_never

from tidegate.pipeline.nodes import (
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
from tidegate.spark.jobs import operators
from tidegate.spark.jobs.aggregates import aggregate

if TYPE_CHECKING:
    from collections.abc import Sequence

    from pyspark.sql import DataFrame

    from tidegate.pipeline.nodes import Operator


def apply_logical(  # noqa: C901, PLR0911  one case per operator
    operator: Operator, inputs: Sequence[DataFrame]
) -> DataFrame:
    """The output of a logical operator other than a source."""
    rows, *others = inputs
    match operator:
        case Filter(condition=condition):
            return operators.where(rows, condition)
        case Select(columns=columns):
            return operators.project(rows, columns)
        case Transform(function=function):
            return operators.apply(rows, function)
        case Aggregate(by=by, columns=aggregates):
            return aggregate(rows, by, aggregates)
        case Distinct():
            return operators.distinct(rows)
        case Top(n=n, by=order, per=per):
            return operators.top(rows, n, order, per)
        case Join(on=on, how=how):
            (right,) = others
            return operators.join(rows, right, on, how)
        case Union():
            return operators.union(inputs)
        case Sink():
            return rows
        case Source():
            raise AssertionError("a source reads no rows")
        case _:
            assert_never(operator)

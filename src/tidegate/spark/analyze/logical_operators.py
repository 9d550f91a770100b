"""Declared operators as DataFrame functions: plain Spark doing each in one go."""

from __future__ import annotations

from typing import TYPE_CHECKING

from tidegate.pipeline.nodes import Aggregate, Filter, Join, Select, Sink, Top, Transform, Union
from tidegate.spark.jobs import operators
from tidegate.spark.jobs.aggregates import aggregate

if TYPE_CHECKING:
    from collections.abc import Sequence

    from pyspark.sql import DataFrame

    from tidegate.pipeline.nodes import Node


def apply_operator(  # noqa: C901, PLR0911 - one line per operator
    operator: Node, inputs: Sequence[DataFrame]
) -> DataFrame:
    """What a declared operator, not a source, makes of its inputs."""
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
        case Top(n=n, by=order, per=per):
            return operators.top(rows, n, order, per)
        case Join(on=on, how=how):
            (right,) = others
            return operators.join(rows, right, on, how)
        case Union():
            return operators.union(inputs)
        case Sink():
            return rows
        case _:
            raise AssertionError(f"{type(operator).__name__} reads no rows")

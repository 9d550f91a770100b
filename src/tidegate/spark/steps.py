"""Physical steps as DataFrame functions: what a stage does to the rows of its inputs."""

from __future__ import annotations

from typing import TYPE_CHECKING

from tidegate.plan.physical import (
    Apply,
    Join,
    MergeAggregate,
    PartialAggregate,
    PartialTop,
    Project,
    Scan,
    Top,
    Union,
    Where,
    Write,
)
from tidegate.spark import operators
from tidegate.spark.aggregates import merge_aggregate, partial_aggregate

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from pyspark.sql import DataFrame

    from tidegate.plan.physical import Step
    from tidegate.spark.aggregates import CallTypes


def apply_steps(steps: Iterable[Step], inputs: Sequence[DataFrame], types: CallTypes) -> DataFrame:
    """The rows after all steps; `types` are those of the aggregate that the steps work on.

    The first step reads all inputs, each further one what the step before it made.
    """
    for step in steps:
        inputs = [apply_step(step, inputs, types)]
    (rows,) = inputs
    return rows


def apply_step(  # noqa: C901, PLR0911 - one line per step
    step: Step, inputs: Sequence[DataFrame], types: CallTypes
) -> DataFrame:
    """The rows after one step."""
    rows, *others = inputs
    match step:
        case Scan() | Write():
            return rows
        case Where(sql=sql):
            return operators.where(rows, sql)
        case Project(columns=columns):
            return operators.project(rows, columns)
        case Apply(function=function):
            return operators.apply(rows, function)
        case PartialAggregate(by=by, columns=aggregates):
            return partial_aggregate(rows, by, aggregates, types)
        case MergeAggregate(by=by, columns=aggregates):
            return merge_aggregate(rows, by, aggregates, types)
        case PartialTop(n=n, by=order, per=per) | Top(n=n, by=order, per=per):
            return operators.top(rows, n, order, per)
        case Join(on=on, how=how):
            (right,) = others
            return operators.join(rows, right, on, how)
        case Union(columns=names):
            return operators.union(inputs, names)
        case _:
            raise AssertionError(f"no physical plan that runs has the step {step!r}")

"""Physical steps as DataFrame functions: what a stage does to the rows of its inputs."""

from __future__ import annotations

from typing import TYPE_CHECKING

from tidegate.plan.physical import (
    Apply,
    CompactAggregate,
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
    inputs_by_step,
)
from tidegate.spark.jobs import operators
from tidegate.spark.jobs.aggregates import compact_aggregate, merge_aggregate, partial_aggregate

if TYPE_CHECKING:
    from collections.abc import Sequence

    from pyspark.sql import DataFrame

    from tidegate.plan.physical import Step
    from tidegate.spark.jobs.aggregates import CallTypes


def apply_steps(
    steps: Sequence[Step],
    inputs: Sequence[DataFrame],
    types: Sequence[CallTypes],
    tags: Sequence[str] = (),
) -> DataFrame:
    """The rows after all steps; `types` are, for each step, those of the aggregate it works on."""
    rows: tuple[DataFrame, ...] = ()
    for step, more, known in zip(steps, inputs_by_step(steps, inputs), types, strict=True):
        rows = (apply_step(step, (*rows, *more), known, tags),)
    (made,) = rows
    return made


def apply_step(  # noqa: C901, PLR0911 - one line per step
    step: Step, inputs: Sequence[DataFrame], types: CallTypes, tags: Sequence[str] = ()
) -> DataFrame:
    """The rows after one step; those of different `tags` never meet."""
    rows, *others = inputs
    match step:
        case Scan() | Write():
            return rows
        case Where(sql=sql):
            return operators.where(rows, sql)
        case Project(columns=columns):
            return operators.project(rows, columns, tags)
        case Apply(function=function):
            return operators.apply(rows, function)
        case PartialAggregate(by=by, columns=aggregates):
            return partial_aggregate(rows, (*tags, *by), aggregates, types)
        case MergeAggregate(by=by, columns=aggregates):
            return merge_aggregate(rows, (*tags, *by), aggregates, types)
        case CompactAggregate(by=by, columns=aggregates):
            return compact_aggregate(rows, (*tags, *by), aggregates)
        case PartialTop(n=n, by=order, per=per) | Top(n=n, by=order, per=per):
            return operators.top(rows, n, order, per, tags)
        case Join(on=on, how=how):
            (right,) = others
            return operators.join(rows, right, on, how, tags)
        case Union(columns=names):
            return operators.union(inputs, names, tags)
        case _:
            raise AssertionError(f"no physical plan that runs has the step {step!r}")

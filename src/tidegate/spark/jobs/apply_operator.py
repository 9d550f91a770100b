"""Physical operators as DataFrame functions: what a stage does to the rows of its inputs."""

from __future__ import annotations

from typing import TYPE_CHECKING, assert_never

from tidegate.plan.physical import (
    Apply,
    CompactAggregate,
    FinalDistinct,
    FinalTop,
    MergeAggregate,
    PartialAggregate,
    PartialDistinct,
    PartialTop,
    PhysicalJoin,
    PhysicalUnion,
    Project,
    Scan,
    Where,
    WholeAggregate,
    WriteSink,
    inputs_by_operator,
)
from tidegate.spark.jobs.aggregates import (
    aggregate,
    compact_aggregate,
    merge_aggregate,
    partial_aggregate,
)
from tidegate.spark.jobs.operators import apply, distinct, join, project, top, union, where

if TYPE_CHECKING:
    from collections.abc import Sequence

    from pyspark.sql import DataFrame

    from tidegate.plan.physical import PhysicalOperator
    from tidegate.spark.jobs.aggregates import CallTypes


def apply_operators(
    operators: Sequence[PhysicalOperator],
    inputs: Sequence[DataFrame],
    types: Sequence[CallTypes],
    tags: Sequence[str] = (),
) -> DataFrame:
    """The rows after all operators; `types` has, for each of them, the types of its aggregate."""
    rows: tuple[DataFrame, ...] = ()
    by_operator = inputs_by_operator(operators, inputs)
    for operator, more, known in zip(operators, by_operator, types, strict=True):
        rows = (apply_operator(operator, (*rows, *more), known, tags),)
    (result,) = rows
    return result


def apply_operator(  # noqa: C901, PLR0911, PLR0912  one case per operator
    operator: PhysicalOperator,
    inputs: Sequence[DataFrame],
    types: CallTypes,
    tags: Sequence[str] = (),
) -> DataFrame:
    """The rows after one operator; rows with different `tags` are never combined."""
    rows, *others = inputs
    match operator:
        case Scan() | WriteSink():
            return rows
        case Where(sql=sql):
            return where(rows, sql)
        case Project(columns=columns):
            return project(rows, columns, tags)
        case Apply(function=function):
            return apply(rows, function)
        case WholeAggregate(by=by, columns=aggregates):
            return aggregate(rows, (*tags, *by), aggregates)
        case PartialAggregate(by=by, columns=aggregates):
            return partial_aggregate(rows, (*tags, *by), aggregates, types)
        case MergeAggregate(by=by, columns=aggregates):
            return merge_aggregate(rows, (*tags, *by), aggregates, types)
        case CompactAggregate(by=by, columns=aggregates):
            return compact_aggregate(rows, (*tags, *by), aggregates)
        case PartialDistinct() | FinalDistinct():
            return distinct(rows)
        case PartialTop(n=n, by=order, per=per) | FinalTop(n=n, by=order, per=per):
            return top(rows, n, order, per, tags)
        case PhysicalJoin(on=on, how=how):
            (right,) = others
            return join(rows, right, on, how, tags)
        case PhysicalUnion(columns=names):
            return union(inputs, names, tags)
        case _:
            assert_never(operator)

"""Aggregates on DataFrames: whole, or as partial results that are merged and finished.

Merged and finished, a column has the type and the digits of Spark's own aggregate. The types of a
call and of its argument, which only Spark knows, are determined once, in the analysis, and passed
to the operator that finishes.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, TypeAlias

from pyspark.sql import functions as fn
from pyspark.sql.types import (
    DataType,
    DecimalType,
    DoubleType,
    FloatType,
    LongType,
    StringType,
)

from tidegate.pipeline.recipes import SUMS
from tidegate.spark.analyze.schemas import column
from tidegate.spark.jobs.averages import decimal_average

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from pyspark.sql import Column as SparkColumn
    from pyspark.sql import DataFrame

    from tidegate.pipeline.nodes import AggregateCall, AggregateColumn, AggregateState

FLOATING = (FloatType, DoubleType, StringType)
"""Types that are added as doubles, where the last digits depend on the order of rows."""


@dataclass(frozen=True, slots=True)
class CallType:
    """The type of one call in Spark, and for sums the type of what is added."""

    result: DataType
    argument: DataType | None = None

    @property
    def is_floating(self) -> bool:
        """Whether floating-point numbers are added."""
        return isinstance(self.argument, FLOATING)


CallTypes: TypeAlias = Mapping[str, CallType]
"""The calls of one aggregate by name."""


def call_types(rows: DataFrame, columns: Sequence[AggregateColumn]) -> dict[str, CallType]:
    """The types of every call over these rows, by Spark's analyzer."""
    calls = [call for it in columns for call in it.calls]
    if not calls:
        return {}
    results = rows.agg(*(fn.expr(call.sql).alias(call.name) for call in calls)).schema
    sums = [call for call in calls if call.function in SUMS]
    arguments = rows.select(*(fn.expr(call.argument).alias(call.name) for call in sums)).schema
    added = {field.name: field.dataType for field in arguments}
    return {it.name: CallType(it.dataType, added.get(it.name)) for it in results}


# --- the three ways to aggregate -------------------------------------------------------------


def aggregate(rows: DataFrame, by: Sequence[str], columns: Sequence[AggregateColumn]) -> DataFrame:
    """The whole aggregate, computed by Spark as the user wrote it."""
    return _grouped(rows, by, [fn.expr(it.sql).alias(it.name) for it in columns])


def partial_aggregate(
    rows: DataFrame, by: Sequence[str], columns: Sequence[AggregateColumn], types: CallTypes
) -> DataFrame:
    """One row per group, with every state of every column."""
    states = [
        fn.expr(_partial(call, state, types[call.name])).alias(state.name)
        for it in columns
        for call in it.calls
        for state in call.states
    ]
    return _grouped(rows, by, states)


def compact_aggregate(
    partials: DataFrame, by: Sequence[str], columns: Sequence[AggregateColumn]
) -> DataFrame:
    """One partial result of many, with the same columns and types."""
    states = [fn.expr(state.merge).alias(state.name) for it in columns for state in it.states]
    merged = _grouped(partials, by, states)
    return merged.select(*(column(it.name).cast(it.dataType).alias(it.name)
                           for it in partials.schema))  # fmt: skip


def merge_aggregate(
    partials: DataFrame, by: Sequence[str], columns: Sequence[AggregateColumn], types: CallTypes
) -> DataFrame:
    """The finished columns, from partial results of all batches."""
    states = [fn.expr(state.merge).alias(state.name) for it in columns for state in it.states]
    merged = _grouped(partials, by, states)
    keys = [column(name) for name in by]
    calls = [_finished(call, types[call.name]) for it in columns for call in it.calls]
    finished = merged.select(*keys, *calls)
    return finished.select(*keys, *(fn.expr(it.finish).alias(it.name) for it in columns))


def _grouped(rows: DataFrame, by: Sequence[str], values: Sequence[SparkColumn]) -> DataFrame:
    """With `by`, one row per group; without, one row, also over empty input."""
    keys = [column(name).alias(name) for name in by]
    if not values:
        return rows.select(*keys).distinct()
    return rows.groupBy(*keys).agg(*values) if keys else rows.agg(*values)


# --- where Spark's own aggregate needs more than the recipe ----------------------------------


def _partial(call: AggregateCall, state: AggregateState, kind: CallType) -> str:
    """The SQL of a state. Sums of an average may not overflow where the average would not."""
    if call.function == "avg" and isinstance(kind.argument, LongType):
        wide = f"sum(cast({call.argument} as decimal(20,0)))"
        return state.partial.replace(f"sum({call.argument})", wide, 1)
    return state.partial


def _finished(call: AggregateCall, kind: CallType) -> SparkColumn:
    return _value(call, kind).cast(kind.result).alias(call.name)


def _value(call: AggregateCall, kind: CallType) -> SparkColumn:
    match call.function:
        case "avg":
            return _average(call, kind)
        case "approx_count_distinct":
            return _estimate(call)
        case _:
            return fn.expr(call.finish)


def _estimate(call: AggregateCall) -> SparkColumn:
    """The estimate of a merged sketch. The estimate of a sketch that was never merged depends on
    the order of its rows; a union with itself makes every sketch a merged one.
    """
    (sketch,) = (column(state.name) for state in call.states)
    return fn.coalesce(fn.hll_sketch_estimate(fn.hll_union(sketch, sketch)), fn.lit(0))


def _average(call: AggregateCall, kind: CallType) -> SparkColumn:
    total, count = (column(state.name) for state in call.states)
    if isinstance(kind.argument, DecimalType):
        return decimal_average(total, count, kind.argument)
    if isinstance(kind.result, DoubleType):
        return fn.when(count > 0, total.cast("double") / count.cast("double"))
    return fn.expr(call.finish)


def inexact_calls(
    columns: Sequence[AggregateColumn], types: CallTypes
) -> Iterator[AggregateColumn]:
    """The columns whose digits depend on the order of rows."""
    for it in columns:
        if any(types[call.name].is_floating for call in it.calls):
            yield it

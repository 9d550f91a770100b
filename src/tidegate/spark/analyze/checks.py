"""What Spark accepts and Tidegate must not: inexact sums, keys that do not compare by hash."""

from __future__ import annotations

from typing import TYPE_CHECKING

from tidegate.errors import InexactAggregate, JoinKeysDiffer, RefusedBySpark
from tidegate.spark.analyze.schemas import listed
from tidegate.spark.jobs.aggregates import (
    call_types,
    inexact_calls,
    merge_aggregate,
    partial_aggregate,
)

if TYPE_CHECKING:
    from pyspark.sql import DataFrame
    from pyspark.sql.types import DataType, StructType

    from tidegate.pipeline.nodes import Aggregate, Join


def check_aggregate(aggregate: Aggregate, rows: DataFrame, whole: StructType) -> frozenset[str]:
    """Raise unless it is as exact as declared and its parts add up to the type of the whole.

    The result are the names of those of its calls that add floating point.
    """
    types = call_types(rows, aggregate.columns)
    for column in inexact_calls(aggregate.columns, types) if aggregate.exact else ():
        reason = "it adds floating-point numbers, and their order shows in the last digits"
        instead = "Cast what is added: sum(cast(x as decimal(18,2)))."
        raise InexactAggregate(aggregate.at, column.name, column.sql, reason, instead)
    partial = partial_aggregate(rows, aggregate.by, aggregate.columns, types)
    merged = merge_aggregate(partial, aggregate.by, aggregate.columns, types)
    for wanted, found in zip(listed(whole), listed(merged.schema), strict=True):
        if wanted != found:
            reason = f"merged from partial results {found[0]!r} is {found[1]}, not {wanted[1]}"
            sql = next((it.sql for it in aggregate.columns if it.name == wanted[0]), wanted[0])
            instead = "Cast the whole expression to the type you want."
            raise RefusedBySpark(aggregate.at, "aggregate", sql, "TYPES_DIFFER", reason, instead)
    return frozenset(name for name, kind in types.items() if kind.is_floating)


def check_join(join: Join, left: DataFrame, right: DataFrame) -> None:
    """Raise unless every key has one type: rows meet by the hash of their keys."""
    for name in join.on:
        types = _type_of(left, name), _type_of(right, name)
        if types[0] != types[1]:
            ours, others = (kind.simpleString() for kind in types)
            raise JoinKeysDiffer(join.at, name, ours, others)


def _type_of(rows: DataFrame, name: str) -> DataType:
    folded = {field.name.casefold(): field.dataType for field in rows.schema}
    return folded[name.casefold()]

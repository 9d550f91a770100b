"""Rejects what Spark accepts and Tidegate cannot run: inexact sums, keys that meet by no hash."""

from __future__ import annotations

from typing import TYPE_CHECKING

from tidegate.errors import CollatedKey, InexactAggregate, JoinKeysDiffer, RefusedBySpark
from tidegate.spark.analyze.error_wording import kind_of
from tidegate.spark.analyze.schemas import listed
from tidegate.spark.jobs.aggregates import (
    call_types,
    inexact_calls,
    merge_aggregate,
    partial_aggregate,
)

if TYPE_CHECKING:
    from collections.abc import Sequence

    from pyspark.sql import DataFrame
    from pyspark.sql.types import DataType, StructType

    from tidegate.pipeline.nodes import Aggregate, Join, Operator


def check_aggregate(aggregate: Aggregate, rows: DataFrame, whole: StructType) -> frozenset[str]:
    """The names of the calls that add floating point.

    Raises unless the aggregate is as exact as declared, and has the same types when it is merged
    from partial results.
    """
    types = call_types(rows, aggregate.columns)
    for column in inexact_calls(aggregate.columns, types) if aggregate.exact else ():
        reason = "it adds floating-point numbers, and the last digits depend on their order"
        instead = "Cast what is added: sum(cast(x as decimal(18,2)))."
        raise InexactAggregate(aggregate.at, column.name, column.sql, reason, instead)
    partial = partial_aggregate(rows, aggregate.by, aggregate.columns, types)
    merged = merge_aggregate(partial, aggregate.by, aggregate.columns, types)
    for expected, found in zip(listed(whole), listed(merged.schema), strict=True):
        if expected != found:
            reason = f"merged from partial results {found[0]!r} is {found[1]}, not {expected[1]}"
            sql = next((it.sql for it in aggregate.columns if it.name == expected[0]), expected[0])
            instead = "Cast the whole expression to the type you want."
            raise RefusedBySpark(aggregate.at, "aggregate", sql, "TYPES_DIFFER", reason, instead)
    return frozenset(name for name, kind in types.items() if kind.is_floating)


def check_join(join: Join, left: DataFrame, right: DataFrame) -> None:
    """Raise unless every key has the same type on both sides: rows are matched by key hash."""
    for name in join.on:
        types = _type_of(left, name), _type_of(right, name)
        if types[0] != types[1]:
            ours, others = (kind.simpleString() for kind in types)
            raise JoinKeysDiffer(join.at, name, ours, others)


def check_keys(operator: Operator, keys: Sequence[str], rows: DataFrame) -> None:
    """Raise if values of a key may be equal with different bytes, by which rows are exchanged."""
    for name in keys:
        kind = _type_of(rows, name)
        # Also within arrays and structs; the text of UTF8_BINARY, the default, has no collation.
        if " collate " in kind.simpleString():
            raise CollatedKey(operator.at, kind_of(operator), name, kind.simpleString())


def _type_of(rows: DataFrame, name: str) -> DataType:
    folded = {field.name.casefold(): field.dataType for field in rows.schema}
    return folded[name.casefold()]

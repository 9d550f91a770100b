"""How an operator is named in an error, and which part of it is to blame."""

from __future__ import annotations

from typing import TYPE_CHECKING

from pyspark.sql import functions as fn

from tidegate.pipeline.nodes import STAR, Aggregate, Filter, Join, Select, Source, Top, Transform
from tidegate.spark.jobs.spark_errors import SPARK_ERRORS

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from pyspark.sql import DataFrame

    from tidegate.pipeline.nodes import Node


def kind_of(operator: Node) -> str:
    """The operator's name as users write it."""
    return type(operator).__name__.lower()


def guilty_part(operator: Node, inputs: Sequence[DataFrame]) -> str:
    """The first part of the operator that Spark refuses by itself, or all parts."""
    parts = list(_parts(operator))
    for part in parts if len(inputs) == 1 else ():
        if not _is_accepted(part, inputs[0]):
            return part
    return ", ".join(parts)


def _parts(operator: Node) -> Iterator[str]:
    """The SQL of an operator, piece by piece; names where it has no SQL."""
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


def _is_accepted(sql: str, rows: DataFrame) -> bool:
    try:
        rows.select(fn.expr(sql)).schema  # noqa: B018 - asking is what analyses it over Connect
    except SPARK_ERRORS:
        return False
    return True
